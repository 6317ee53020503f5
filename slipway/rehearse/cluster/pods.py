"""Reads pod templates as far as a rehearsal can run them, and refuses the others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slipway.evaluated.scheduling import Toleration, tolerations
from slipway.infra.platform import Resources, largest
from slipway.infra.review.stack import Properties, items, mapping, mappings, strings
from slipway.infra.schema.quantities import amounts, cpu_millicores, mebibytes

POD_KEYS = frozenset(
    {
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "enableServiceLinks",
        "imagePullSecrets",
        "initContainers",
        "nodeSelector",
        "restartPolicy",
        "runtimeClassName",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    }
)
"""Keys of a pod spec that a rehearsal acts on, or that change nothing for a process on this machine."""

CONTAINER_KEYS = frozenset(
    {
        "args",
        "command",
        "env",
        "image",
        "imagePullPolicy",
        "name",
        "ports",
        "resources",
        "securityContext",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "volumeMounts",
        "workingDir",
    }
)

HOST_NAME = "kubernetes.io/hostname"
"""The label that differs from node to node."""

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
"""The key of the rules about other pods without which a pod is not placed."""

PROBES = frozenset({"lifecycle", "livenessProbe", "readinessProbe", "startupProbe"})
"""Keys of containers that run until they are told to end. What is done before their end is of use to a load
balancer alone, which a rehearsal has none of."""

GRACE_PERIOD = 30
"""Kubernetes' default for terminationGracePeriodSeconds."""


class UnsupportedError(Exception):
    """A pod asks for something that a rehearsal cannot do as Kubernetes would."""


@dataclass(frozen=True)
class Mount:
    """The mount of a volume in a container."""

    volume: str
    path: str
    sub_path: str
    read_only: bool


@dataclass(frozen=True)
class Container:
    """One container. ``memory_limit`` in MiB and ``cpu_limit`` in millicores, None where there is none."""

    name: str
    image: str
    command: Sequence[str]
    args: Sequence[str]
    env: Sequence[Properties]
    working_dir: str
    mounts: Sequence[Mount]
    requests: Resources
    memory_limit: int | None
    cpu_limit: int | None
    read_only_root: bool = False
    """Whether it may write to its volumes alone, and not to its image."""


@dataclass(frozen=True)
class PodSpec:
    """A pod of one container, before which its init containers run, one after the other.

    ``automounts_token`` None leaves it to the service account whether the pod gets its token. ``spreads`` says
    that it had better not run on a node with others of its Job; it cannot run on one with a pod that a label
    selector of ``apart`` picks. ``hostname`` is empty where it is the pod's name; with it, ``subdomain`` is the
    Service below whose name other pods find it.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    service_account: str
    automounts_token: bool | None
    selector: Mapping[str, str]
    tolerations: Sequence[Toleration]
    init_containers: Sequence[Container]
    container: Container
    volumes: Mapping[str, Properties]
    grace_period: int
    spreads: bool = False
    apart: Sequence[Properties] = ()
    hostname: str = ""
    subdomain: str = ""

    @property
    def requests(self) -> Resources:
        """What the scheduler counts: the most that is asked for at one time. What a cloud injects is not in it."""
        return largest(self.container.requests, *(container.requests for container in self.init_containers))

    @property
    def texts(self) -> Iterator[str]:
        """The texts in it that may name an address."""
        for container in (*self.init_containers, self.container):
            yield from (*container.command, *container.args)
            for entry in container.env:
                yield str(entry.get("value") or "")


def pod_spec(template: Properties, *, restarts: bool = False) -> PodSpec:
    """The pod that ``template`` (``spec.template`` of a Job) describes. Raises UnsupportedError.

    With ``restarts`` it is that of a StatefulSet or a Deployment, whose container is started again whenever it
    ends.
    """
    metadata, spec = mapping(template.get("metadata")), mapping(template.get("spec"))
    _refuse_unknown("pod", spec, POD_KEYS)
    policy = "Always" if restarts else "Never"
    if (declared_policy := spec.get("restartPolicy", "Always")) != policy:
        raise UnsupportedError(f"restartPolicy {declared_policy!r}: a rehearsal knows {policy} alone here")
    known = CONTAINER_KEYS | PROBES if restarts else CONTAINER_KEYS
    containers = [_container(container, known) for container in mappings(spec.get("containers"))]
    if len(containers) != 1:
        raise UnsupportedError(f"a pod with {len(containers)} containers: a rehearsal runs one")
    return PodSpec(
        labels=strings(metadata.get("labels")),
        annotations=strings(metadata.get("annotations")),
        service_account=str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"),
        selector=strings(spec.get("nodeSelector")),
        automounts_token=spec.get("automountServiceAccountToken"),
        tolerations=tolerations(spec.get("tolerations")),
        init_containers=[_container(init_container) for init_container in mappings(spec.get("initContainers"))],
        container=containers[0],
        volumes={str(volume["name"]): volume for volume in mappings(spec.get("volumes"))},
        grace_period=int(spec.get("terminationGracePeriodSeconds", GRACE_PERIOD)),
        spreads=_spreads(spec),
        apart=_apart(spec),
        subdomain=str(spec.get("subdomain") or ""),
    )


def _apart(spec: Properties) -> list[Properties]:
    """The label selectors of the pods that cannot share a node with the pod. Raises UnsupportedError for more."""
    affinity = mapping(spec.get("affinity"))
    _refuse_unknown("affinity", affinity, frozenset({"podAntiAffinity"}))
    anti = mapping(affinity.get("podAntiAffinity"))
    _refuse_unknown("podAntiAffinity", anti, frozenset({REQUIRED}))
    terms = mappings(anti.get(REQUIRED))
    for term in terms:
        _refuse_unknown("podAntiAffinity", term, frozenset({"labelSelector", "topologyKey"}))
        if term.get("topologyKey") != HOST_NAME:
            raise UnsupportedError(
                f"podAntiAffinity over {term.get('topologyKey')}: a rehearsal knows {HOST_NAME} alone"
            )
    # A term without a selector picks no pod.
    return [mapping(term.get("labelSelector")) for term in terms if term.get("labelSelector") is not None]


def _spreads(spec: Properties) -> bool:
    """Whether the pod is to be spread over nodes as far as there is room. Raises UnsupportedError for more."""
    constraints = mappings(spec.get("topologySpreadConstraints"))
    for constraint in constraints:
        if (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable")) != (HOST_NAME, "ScheduleAnyway"):
            raise UnsupportedError(
                f"topologySpreadConstraints over {constraint.get('topologyKey')} with whenUnsatisfiable "
                f"{constraint.get('whenUnsatisfiable')}: a rehearsal knows {HOST_NAME} with ScheduleAnyway alone"
            )
    return bool(constraints)


def _container(spec: Properties, known: frozenset[str] = CONTAINER_KEYS) -> Container:
    _refuse_unknown(f"container {spec.get('name')!r}", spec, known)
    if not spec.get("command"):
        raise UnsupportedError(
            f"container {spec.get('name')!r} has no command: a rehearsal does not have its image"
        )
    resources = mapping(spec.get("resources"))
    limits = strings(resources.get("limits"))
    return Container(
        name=str(spec["name"]),
        image=str(spec.get("image") or ""),
        command=[str(word) for word in items(spec.get("command"))],
        args=[str(word) for word in items(spec.get("args"))],
        env=mappings(spec.get("env")),
        working_dir=str(spec.get("workingDir") or ""),
        mounts=[
            Mount(
                volume=str(volume_mount["name"]),
                path=str(volume_mount["mountPath"]),
                sub_path=str(volume_mount.get("subPath") or ""),
                read_only=bool(volume_mount.get("readOnly")),
            )
            for volume_mount in mappings(spec.get("volumeMounts"))
        ],
        # A limit without a request is the request, too.
        requests=amounts({**limits, **strings(resources.get("requests"))}),
        memory_limit=mebibytes(limits["memory"]) if "memory" in limits else None,
        cpu_limit=cpu_millicores(limits["cpu"]) if "cpu" in limits else None,
        read_only_root=bool(mapping(spec.get("securityContext")).get("readOnlyRootFilesystem")),
    )


def _refuse_unknown(what: str, spec: Properties, known: frozenset[str]) -> None:
    if unknown := sorted(spec.keys() - known):
        raise UnsupportedError(f"{what}: a rehearsal does not act on {', '.join(unknown)}")
