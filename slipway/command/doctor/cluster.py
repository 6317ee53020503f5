"""A cluster that is there: its version, what the user may do in it, and whose objects are in it."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial

from slipway.command.watch.observed import labels_of
from slipway.infra.api_server import ApiServer, UnreachableError, UnreadableError
from slipway.infra.features import parts
from slipway.infra.kubernetes.labels import INSTANCE, PART_OF
from slipway.infra.pulumi_cli import CliError, jobs_of
from slipway.infra.review.facts import Observation, Probe, fine, unknown, wrong
from slipway.infra.review.stack import Resource, Stack, at, mapping, mappings, text
from slipway.infra.settings.model import Settings

OLDEST, NEWEST = 29, 36
"""Minor versions of Kubernetes: the oldest that has all that is declared (Jobs' ``podReplacementPolicy`` is on
since 1.29, kubernetes.io/docs/concepts/workloads/controllers/job), and the newest that is looked for; 1.34 is
the newest that this was run against."""

VERBS = ("get", "create", "patch", "delete")
"""What Pulumi's provider does to an object over its life: it applies on the server's side, which is a patch."""

WATCHED = ("v1", "Pod")
"""What the provider reads of a Job's pods while it waits, to say why one fails."""

CHARTS = "helm.sh/"
"""How the API version of Helm charts begins, whose objects the charts decide."""

AT_ONCE = 8

Kind = tuple[str, str]


@dataclass(frozen=True)
class Cluster:
    """A cluster of ``stack`` by its name, and how to ask it."""

    stack: Stack
    name: str
    server: ApiServer

    @property
    def subject(self) -> str:
        """What it is called in an observation."""
        return f"cluster `{self.name}`"

    @cached_property
    def declared(self) -> Sequence[tuple[Kind, Resource]]:
        """The Kubernetes objects that the stack declares in it, with their kinds."""
        return [
            (kind_of(resource), resource)
            for resource in self.stack.resources.values()
            if resource.custom
            and resource.package == "kubernetes"
            and self.stack.cluster_of(resource) == self.name
        ]


def probes(stack: Stack, servers: Mapping[str, ApiServer], settings: Settings | None) -> list[Probe]:
    """The checks of the clusters that can be asked. ``settings`` is None where they are wrong."""
    return [
        Probe(f"cluster {name}", partial(_check, Cluster(stack, name, server), settings))
        for name, server in servers.items()
    ]


def _check(cluster: Cluster, settings: Settings | None) -> Iterator[Observation]:
    try:
        yield _version(cluster)
    except UnreachableError as error:
        context = f" --context {cluster.server.context}" if cluster.server.context else ""
        yield wrong(
            cluster.subject,
            f"cannot be reached: {error}",
            f"kubectl --kubeconfig {cluster.server.kubeconfig}{context} cluster-info",
        )
        yield unknown(cluster.subject, "was not asked for permissions, objects that are there, and its add-ons")
        return
    except UnreadableError as error:
        yield unknown(cluster.subject, f"did not say its version: {error}")
    of_features = [observe(cluster, settings) for observe in parts("live", "observations")]
    for check in (_permissions(cluster), _foreign_objects(cluster), _jobs_in_state(cluster), *of_features):
        try:
            yield from check
        except UnreadableError as error:
            yield unknown(cluster.subject, f"could not be asked: {error}")
    if any(kind == "NetworkPolicy" for (_, kind), _ in cluster.declared):
        yield unknown(
            "NetworkPolicies",
            f"of {cluster.subject} may have no effect: whether its network plugin enforces them, no API says",
        )


def _version(cluster: Cluster) -> Observation:
    version = cluster.server.version()
    try:
        minor = int("".join(filter(str.isdigit, version.split(".")[1])))
    except (IndexError, ValueError):
        return unknown(cluster.subject, f"has the version {version!r}, which is none of Kubernetes")
    if minor < OLDEST:
        return wrong(
            cluster.subject, f"has Kubernetes {version}; 1.{OLDEST} is the oldest that will do", "kubectl version"
        )
    if minor > NEWEST:
        return unknown(
            cluster.subject, f"has Kubernetes {version}, which nobody has tried; the newest known is 1.{NEWEST}"
        )
    return fine(cluster.subject, f"answers, with Kubernetes {version}")


def kind_of(resource: Resource) -> Kind:
    """API version and kind of a Kubernetes object: ``("batch/v1", "Job")``; that of a patch is what it patches."""
    _, path, kind = resource.type.split(":")
    version = path.partition("/")[2] if path.startswith("core/") else path
    return version, kind.removesuffix("Patch")


def _permissions(cluster: Cluster) -> Iterator[Observation]:
    """Asks whether the user may do to each kind what `pulumi up` and `destroy` will."""
    subject = f"permissions in {cluster.subject}"
    questions: dict[tuple[str, Kind, str], None] = {}
    for kind, resource in cluster.declared:
        if kind[0].startswith(CHARTS):
            continue
        namespace = text(mapping(resource.properties.get("metadata")).get("namespace"))
        verbs = ("get",) if resource.read else ("get", "patch") if resource.type.endswith("Patch") else VERBS
        questions |= dict.fromkeys((verb, kind, namespace) for verb in verbs)
        if namespace:
            questions |= dict.fromkeys((verb, WATCHED, namespace) for verb in ("list", "watch"))
    # The kinds of each API version are read once, by whoever comes first.
    for version in {version for _, (version, _), _ in questions}:
        cluster.server.may("get", version, "")

    def may(question: tuple[str, Kind, str]) -> bool | None:
        verb, (version, kind), namespace = question
        return cluster.server.may(verb, version, kind, namespace)

    refused: dict[tuple[str, str], list[str]] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for (verb, (_, kind), namespace), allowed in zip(questions, pool.map(may, questions), strict=True):
            if allowed is False:
                refused.setdefault((kind, namespace), []).append(verb)
    kinds: dict[tuple[str, str], list[str]] = {}
    for (kind, namespace), verbs in refused.items():
        kinds.setdefault((namespace, ", ".join(verbs)), []).append(kind)
    for (namespace, verbs), names in kinds.items():
        yield wrong(
            subject,
            f"do not let you {verbs} {', '.join(names)}{f' in namespace `{namespace}`' if namespace else ''}",
            # An administrator of the cluster runs it.
            f"kubectl create rolebinding slipway-admin -n {namespace} --clusterrole=admin --user=<you>"
            if namespace
            else "kubectl create clusterrolebinding slipway-admin --clusterrole=cluster-admin --user=<you>",
        )
    if not refused:
        yield fine(subject, f"allow all {len(questions)} things asked about")
    if any(kind[0].startswith(CHARTS) for kind, _ in cluster.declared):
        yield unknown(subject, "for the objects of Helm charts were not asked: the charts decide them")


def _foreign_objects(cluster: Cluster) -> Iterator[Observation]:
    """Objects outside namespaces that are there already and somebody else's: `pulumi up` refuses to take them."""
    wanted: dict[tuple[Kind, str], str] = {}
    for kind, resource in cluster.declared:
        metadata = mapping(resource.properties.get("metadata"))
        name, patch = text(metadata.get("name")), resource.type.endswith("Patch")
        chart = kind[0].startswith(CHARTS)
        if name and not (chart or resource.read or patch or metadata.get("namespace")):
            wanted[kind, name] = _owner(labels_of(resource.properties))
    for ((version, kind), name), owner in wanted.items():
        item = cluster.server.find(version, kind, name)
        labels = labels_of(item or {})
        if item is None or (is_ours(labels) and _names_same_stack(_owner(labels), owner)):
            continue
        fix = f"kubectl get {kind.lower()} {name} --show-labels"
        if kind == "Namespace" and is_ours(labels):
            # In one namespace two stacks would take each other's Jobs, Secrets and quota for their own.
            fix = f"pulumi config set slipway:namespace {name}-{cluster.stack.name} -s {cluster.stack.name}"
        elif kind == "Namespace":
            key = f"slipway:clusters.{cluster.name}.creates_namespace"
            fix = f"pulumi config set --path {key} false -s {cluster.stack.name}"
        whose = _owner(labels) or text(labels.get("app.kubernetes.io/managed-by")) or "nobody in its labels"
        yield wrong(cluster.subject, f'has a {kind} "{name}" already; it belongs to {whose}', fix)


def _owner(labels: Mapping[str, object]) -> str:
    """The stack that the labels name."""
    return text(labels.get(INSTANCE))


def is_ours(labels: Mapping[str, object]) -> bool:
    """Whether a stack of this project made the object."""
    return PART_OF.items() <= labels.items()


def _jobs_in_state(cluster: Cluster) -> Iterator[Observation]:
    """Jobs that the stack's state has and the cluster has not, and the other way round."""
    # Without the CLI, or without a login, the backend's own checks say so.
    with contextlib.suppress(CliError):
        known = jobs_of(cluster.stack.name)
        for (place, namespace, name), unfinished in sorted(known.items()):
            if place != cluster.name or not unfinished:
                continue
            if cluster.server.find("batch/v1", "Job", name, namespace) is None:
                yield wrong(
                    cluster.subject,
                    f'has no Job "{name}" in namespace "{namespace}" any more, which failed or was interrupted: '
                    f"`pulumi preview` and `pulumi up` end with `not found`",
                    f"pulumi up --refresh -s {cluster.stack.name}",
                )
        yield from _jobs_of_nobody(cluster, known)


def _jobs_of_nobody(cluster: Cluster, known: Collection[tuple[str, str, str]]) -> Iterator[Observation]:
    """Jobs that a killed `pulumi up` of the stack left: the state lacks them."""
    declared = [resource.properties for (_, kind), resource in cluster.declared if kind == "Job"]
    owner = next((_owner(labels_of(job)) for job in declared), "")
    names = {(text(at(job, "metadata", "namespace")), text(at(job, "metadata", "name"))) for job in declared}
    for namespace in sorted({namespace for namespace, _ in names}):
        listed = cluster.server.get(f"/apis/batch/v1/namespaces/{namespace}/jobs") or {}
        for job in mappings(listed.get("items")):
            name = text(at(job, "metadata", "name"))
            if (cluster.name, namespace, name) in known or not _names_same_stack(_owner(labels_of(job)), owner):
                continue
            taken = (namespace, name) in names
            yield wrong(
                cluster.subject,
                f'has the Job "{name}" in namespace "{namespace}", which a killed `pulumi up` left and the state '
                f"lacks: {'the next one takes it over' if taken else 'it runs to its time limit, and is billed'}",
                f"pulumi up -s {cluster.stack.name}" if taken else f"kubectl delete job {name} -n {namespace}",
            )


def _names_same_stack(one: str, other: str) -> bool:
    """Whether two labels name one stack; the organization before it is known to the backend alone."""
    return bool(one) and one.rpartition(".")[2] == other.rpartition(".")[2]
