"""The pod of a run: what a container needs to run a step, within the *restricted* Pod Security Standard."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.features import added
from slipway.infra.kubernetes.labels import MEASURED, step_labels
from slipway.infra.kubernetes.pods import caches
from slipway.infra.kubernetes.pods.node_group import fast_network, one_a_node
from slipway.infra.kubernetes.pods.program_mounts import (
    data_place,
    data_volumes,
    folder_flags,
    of_data,
    of_program,
    starting,
)
from slipway.infra.kubernetes.run import FOLDERS as MAKER
from slipway.infra.kubernetes.run import (
    HOLD,
    JOB_NAME_VARIABLE,
    MEASURE,
    STARTER,
    TESTER,
    UNPACKER,
    PodImage,
    Run,
    in_pod,
    inside,
    pulled_with,
    record,
    runner,
)
from slipway.infra.kubernetes.shipping.archive import CODE_PATH, UNPACKED, Archive, part_volume
from slipway.infra.kubernetes.shipping.bundle import config_map_name, volume
from slipway.infra.pipelines.checkpoints import CHECKPOINT
from slipway.infra.pipelines.pods import NODE_NAME, POD_FIELDS
from slipway.infra.placed import (
    CODE,
    PASSWORD,
    SHARED_MEMORY,
    SHARED_MEMORY_PLACE,
    Service,
    Step,
)
from slipway.infra.platform import GPU_RESOURCE, Platform, Pool, Resources
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit
from slipway.infra.schema.quantities import cpu_quantity, seconds, size_quantity

GRACE_PERIOD = 25
"""Seconds between SIGTERM and SIGKILL. A Spot VM is gone 30 s after its notice, of which GKE's kubelet leaves pods
about 15 (cloud.google.com/kubernetes-engine/docs/concepts/spot-vms, seen November 2026)."""

CHECKPOINT_FLAG = "--checkpoints"

BUNDLE = "/bundle"
STORE = "/store"


def arguments(run: Run) -> list[str]:
    """The arguments of the step's container, with the paths that they have in the pod."""
    step, values = run.step, places(run)
    if step.command is None:
        return [resolve(argument, values) for argument in step.arguments]
    words = [resolve(argument, values | filled_in(step)) for argument in (*starting(step), *step.arguments)]
    pod = in_pod(run, values)
    of_parts = [word for part in step.parts for word in part.flags(pod)]
    by_kubelet = [word for part in step.parts for word in part.flags_by_kubelet(pod)]
    return [*map(escaped, [*_flags(run), *of_parts]), *by_kubelet, "--", *words]


def grace_period(step: Step) -> int:
    """Seconds between SIGTERM and SIGKILL: with checkpoints as many as the pool gives, for the last one."""
    return step.pool.notice if step.checkpoints else GRACE_PERIOD


def checkpoint_flags(step: Step) -> list[str]:
    """What the runner of a command has to know of its checkpoints; empty where it has none."""
    checkpoints = step.checkpoints
    if checkpoints is None:
        return []
    settings = {
        "every": checkpoints.every,
        "bandwidth": checkpoints.bandwidth << 20,
        "signal": f"SIG{checkpoints.signal}",
        "grace": grace_period(step),
        "parts": checkpoints.all_pods,
    }
    return [CHECKPOINT_FLAG, json.dumps({name: value for name, value in settings.items() if value})]


def checkpoint_interval(words: Sequence[str]) -> int | None:
    """The seconds that ``words`` of a container have with `checkpoint_flags` at least between two checkpoints that
    are copied: 0 where each one is; None where none is.
    """
    try:
        return int(json.loads(words[words.index(CHECKPOINT_FLAG) + 1]).get("every", 0))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def places(run: Run) -> dict[str, str]:
    """The directories in the pod that the references in the step's arguments stand for."""
    return {
        "store": STORE,
        "output": f"{STORE}/{run.path}",
        **{name: f"{STORE}/{before.path}" for name, before in run.inputs.items()},
        **{name: data_place(data) for name, data in run.step.data.items()},
    }


def filled_in(step: Step) -> dict[str, str]:
    """The references that stay as they are, since it is the runner that knows what they stand for."""
    best = {name: f"{{best:{name}}}" for name in step.choices}
    of_checkpoints = [CHECKPOINT] if step.checkpoints else []
    of_parts = [name for part in step.parts for name in part.references]
    return best | {name: f"{{{name}}}" for name in (*of_checkpoints, *of_parts)}


def resolve(text: str, values: Mapping[str, str]) -> str:
    """``text`` with directories in place of its references, as Kubernetes has to be given it."""
    return escaped(text.format_map(values))


def escaped(text: str) -> str:
    """``text`` so that Kubernetes leaves it as it is: it replaces ``$(NAME)`` by variables, and ``$$`` by ``$``
    (kubernetes/third_party/forked/golang/expansion, Kubernetes 1.34).
    """
    return re.sub(r"\$(?=[$(])", "$$", text)


def _flags(run: Run) -> list[str]:
    """What the runner of a command has to know."""
    step = run.step
    flags = ["--output", f"{STORE}/{run.path}", *_step_flag(step)]
    flags += ["--code", CODE_PATH if run.archive else f"{BUNDLE}/{CODE}"]
    for name, before in run.inputs.items():
        place = f"{STORE}/{before.path}"
        flags += [f"--{name}", place] if name in step.packages else ["--input", f"{name}={place}"]
    for name, choice in step.choices.items():
        flags += ["--best", f"{name}={choice.of}:{choice.path}#{choice.select}:{','.join(choice.among)}"]
    for result in step.results:
        flags += ["--result", f"{result.name}={result.path}{f'#{result.select}' if result.select else ''}"]
    return [*flags, *caches.flags(run), *checkpoint_flags(step), *_secrets(step)]


def _step_flag(step: Step) -> list[str]:
    return ["--step", f"{step.pipeline}.{step.name}"]


def _secrets(step: Step) -> list[str]:
    """The variables whose values nobody is to read in the log."""
    variables = [*sorted(step.secrets), *(service.password_variable for service in step.connects.values())]
    return [word for variable in variables for word in ("--secret", variable)]


TEMPORARY = "/tmp"  # A volume of the pod's own, not a shared folder.
INSTALLED = "/packages"

RECORD_VARIABLE = "SLIPWAY_RECORD"
"""The environment variable that names the file which a pod leaves once it has ended well."""

USAGE = ".usage"
"""The store's folder of what steps used: `.usage/<run>/<index>.json`. A step's own directory is whole once it is
published, and checked: nothing may be written there beside the program."""

PARTS_VARIABLE = "SLIPWAY_PARTS"
"""The environment variable that names the file in which all containers of a measured pod note what their time goes
for (`slipway.runtime.parts`)."""

USAGE_PORT = "usage"
"""The name of the port at which the pods of a step answer Prometheus."""


def bundle_map(run: Run) -> str:
    """Logical name of the ConfigMap with the run's bundle."""
    return f"{run.name}-bundle"


def password_secret_name(service: Service) -> str:
    """The name of the Kubernetes Secret with the password of ``service``, under the key `PASSWORD`.

    It is none that `secret_name` gives a pipeline.
    """
    return f"{service.object_name}-{PASSWORD}"


def secret_name(pipeline: str) -> str:
    """The name of the Kubernetes Secret with what the steps of ``pipeline`` are given.

    It stays the same when a value changes: the next pod gets the new one, and no Job runs again for it.
    """
    return fit(f"{pipeline}-secrets", KUBERNETES_NAME_LIMIT)


def template(
    run: Run,
    service_account: str,
    more: Sequence[k8s.core.v1.EnvVarArgs] = (),
    image: PodImage | None = None,
) -> k8s.core.v1.PodTemplateSpecArgs:
    """The pod template of the Job that runs ``run``, with ``more`` environment variables, in ``image`` where that
    takes the place of its step's.

    Nothing in it differs between two evaluations of the program while the run's result is there: a changed
    template replaces the Job.
    """
    step = run.step
    annotations = {
        # Moving a training to another node to save a node costs more than it saves.
        **({} if step.pool.movable else {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
        **(step.store.pod_annotations if step.uses_store else {}),
    }
    return k8s.core.v1.PodTemplateSpecArgs(
        metadata=k8s.meta.v1.ObjectMetaArgs(
            labels={
                **step_labels(step.pipeline, step.name),
                **({MEASURED: "true"} if run.usage and run.usage.port else {}),
            },
            annotations=annotations,
        ),
        spec=k8s.core.v1.PodSpecArgs(
            restart_policy="Never",
            service_account_name=service_account,
            # Only what asks the Kubernetes API has one. Cloud Storage FUSE gets its identity from
            # the node's metadata server, not from this token (github.com/GoogleCloudPlatform/gcs-fuse-csi-driver,
            # pull request 460).
            automount_service_account_token=step.has_token,
            enable_service_links=False,
            termination_grace_period_seconds=grace_period(step),
            security_context=pod_security(step.platform),
            **of_pool(step.pool),
            topology_spread_constraints=spread(step_labels(step.pipeline, step.name)) if step.shares else None,
            affinity=one_a_node(step) if step.is_group else None,
            subdomain=step.group_name if step.is_group else None,
            image_pull_secrets=pulled_with(image),
            init_containers=inside(image, _before(run)) or None,
            containers=inside(image, [_container(run, more)]),
            volumes=_volumes(run),
        ),
    )


def pod_security(platform: Platform) -> k8s.core.v1.PodSecurityContextArgs:
    """Who a pod runs as, and to whom its volumes belong."""
    # Where the cluster assigns it, naming one would have the pod refused: OpenShift gives every namespace a range.
    user = platform.pod_user
    return k8s.core.v1.PodSecurityContextArgs(
        run_as_non_root=True,
        run_as_user=user,
        run_as_group=user,
        fs_group=user,
        # A store with many files would otherwise have every owner rewritten at each start.
        fs_group_change_policy="OnRootMismatch",
        seccomp_profile=k8s.core.v1.SeccompProfileArgs(type="RuntimeDefault"),
    )


def container_security() -> k8s.core.v1.SecurityContextArgs:
    """What a container may do: nothing that the *restricted* standard forbids, nor write to its image's files."""
    return k8s.core.v1.SecurityContextArgs(
        allow_privilege_escalation=False,
        read_only_root_filesystem=True,
        run_as_non_root=True,
        capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"]),
    )


def spread(labels: Mapping[str, str]) -> list[k8s.core.v1.TopologySpreadConstraintArgs]:
    """Several pods with these labels on as many nodes as there are, so that few of them go with a node."""
    return [
        k8s.core.v1.TopologySpreadConstraintArgs(
            max_skew=1,
            topology_key="kubernetes.io/hostname",
            # Pods that do not fit so are better together than pending: a pool may be one node.
            when_unsatisfiable="ScheduleAnyway",
            label_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
        )
    ]


def of_pool(pool: Pool) -> dict[str, Any]:
    """What the pool decides of a pod, as keywords: its nodes, one toleration for each of their taints and none for
    any other, and what starts its containers there."""
    tolerations = [
        k8s.core.v1.TolerationArgs(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        for taint in pool.taints
    ]
    return {
        "node_selector": dict(pool.selector),
        "tolerations": tolerations or None,
        "runtime_class_name": pool.runtime_class,
    }


def _container(run: Run, more: Sequence[k8s.core.v1.EnvVarArgs]) -> k8s.core.v1.ContainerArgs:
    step = run.step
    values = places(run) | filled_in(step)
    declared = {name: resolve(value, values) for name, value in step.environment.items()}
    addresses = {connect.address_variable: connect.address for connect in step.connects.values()}
    devices, network = fast_network(step)
    environment: dict[str, pulumi.Input[str]] = {**python_environment(), **network, **declared, **addresses}
    if step.publishes:
        environment[RECORD_VARIABLE] = pulumi.Output.concat(STORE, "/", record(run))
    mounts = [mount("bundle", BUNDLE, read_only=True), mount("tmp", TEMPORARY)]
    if run.archive:
        mounts.append(mount("code", UNPACKED, read_only=True))
    if step.uses_store:
        mounts.append(k8s.core.v1.VolumeMountArgs(name=step.platform.store.volume.name, mount_path=STORE))
    mounts.extend(added("declared", "mounts", run))
    mounts.extend(of_data(step, step.platform.store.volume.name))
    mounts.extend(of_program(run, step.platform.store.volume.name, "tmp"))
    if step.shared_memory:
        mounts.append(mount(SHARED_MEMORY, SHARED_MEMORY_PLACE))
    module = runner(step) if step.command else step.module or ""
    return _python(
        step.name,
        module,
        arguments(run),
        run,
        step.requests,
        devices=devices,
        environment=environment,
        more=[
            *(from_secret(secret_name(step.pipeline), name, variable) for variable, name in step.secrets.items()),
            *(password(connect) for connect in step.connects.values()),
            *([from_field("JOB_UID")] if step.is_indexed else []),
            *([from_field(JOB_NAME_VARIABLE)] if step.is_group else []),
            *([from_field("POD_IP")] if run.usage and run.usage.port else []),
            *([from_field(NODE_NAME)] if step.test else []),
            *more,
        ],
        mounts=mounts,
        before=[
            *_holding(run),
            *_measuring(run),
            *_testing(run),
        ],
        port=run.usage.port if run.usage else 0,
    )


def usage_folder(run: Run) -> str:
    """The folder below the store's root in which the pods of ``run`` keep what they use."""
    return f"{USAGE}/{run.path}"


def _measuring(run: Run) -> list[str]:
    """The command that measures the step's program, which follows it; empty where the step is not measured."""
    usage, step = run.usage, run.step
    if usage is None:
        return []
    words = ["python3", "-m", MEASURE, "--step", f"{step.pipeline}.{step.name}", "--pool", step.pool.name]
    words += ["--gpus", str(step.requests.gpus)]
    if step.uses_store:
        words += ["--file", f"{STORE}/{usage_folder(run)}/{{index}}.json"]
    if usage.port:
        words += ["--port", str(usage.port)]
    words += added("declared", "arguments", run)
    if step.idle:
        words += ["--idle-for", str(seconds(step.idle.after)), "--idle-then", step.idle.then]
    below = step.idle.below if step.idle else usage.idle_below
    return [*words, "--idle-below", str(below), "--idle-share", str(usage.idle_share), "--"]


def _holding(run: Run) -> list[str]:
    """The command that runs the step's program, which follows it, while it may; empty where nothing holds it."""
    if run.hold is None:
        return []
    return ["python3", "-m", HOLD, "--orders", f"{STORE}/{run.hold.orders}", "--job", run.hold.job, "--"]


def _testing(run: Run) -> list[str]:
    """The command that tests the pod's GPUs before the step's program, which follows it; empty where it has none.

    It is no init container: Autopilot takes none with GPUs (github.com/ray-project/kuberay/issues/1349, seen
    November 2026).
    """
    test = run.step.test
    if test is None:
        return []
    values = places(run)
    return [test.interpreter, "-m", TESTER, *(resolve(argument, values) for argument in test.arguments), "--"]


def _before(run: Run) -> list[k8s.core.v1.ContainerArgs]:
    """What has to end well before the step's container starts."""
    return [*([_unpacker(run, run.archive)] if run.archive else []), *_folders(run)]


def _folders(run: Run) -> list[k8s.core.v1.ContainerArgs]:
    """What makes the folders of the store that the program has at paths of its own.

    The kubelet would make them as root's, and a missing folder of inputs, too.
    """
    step, flags = run.step, folder_flags(run, STORE)
    if not flags:
        return []
    return [
        _python(
            "folders",
            MAKER,
            flags,
            run,
            replace(step.requests, gpus=0),
            environment=python_environment(),
            mounts=[
                mount("bundle", BUNDLE, read_only=True),
                mount("tmp", TEMPORARY),
                k8s.core.v1.VolumeMountArgs(name=step.platform.store.volume.name, mount_path=STORE),
            ],
        )
    ]


def _unpacker(run: Run, archive: Archive) -> k8s.core.v1.ContainerArgs:
    directory = run.step.command and run.step.command.directory
    parts = [mount(part_volume(index), path, read_only=True) for index, path in enumerate(archive.volumes)]
    return _python(
        "code",
        UNPACKER,
        [*archive.arguments, *(["--beside", STARTER] if directory else [])],
        run,
        replace(run.step.requests, gpus=0),
        environment=python_environment(),
        mounts=[
            mount("bundle", BUNDLE, read_only=True),
            mount("tmp", TEMPORARY),
            mount("code", UNPACKED),
            *parts,
        ],
    )


def _python(
    name: str,
    module: str,
    args: Sequence[str],
    run: Run,
    resources: Resources,
    *,
    environment: Mapping[str, pulumi.Input[str]],
    devices: Mapping[str, str] = MappingProxyType({}),
    more: Sequence[k8s.core.v1.EnvVarArgs] = (),
    mounts: Sequence[k8s.core.v1.VolumeMountArgs],
    before: Sequence[str] = (),
    port: int = 0,
) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name=name,
        image=run.step.image,
        image_pull_policy="IfNotPresent",
        command=[
            *before,
            "python3" if run.step.command else run.step.interpreter,
            "-m",
            module,
        ],
        args=list(args),
        working_dir=BUNDLE,
        env=each_once(
            from_field("POD_NAME"),
            *([k8s.core.v1.EnvVarArgs(name=PARTS_VARIABLE, value=f"{TEMPORARY}/parts")] if run.usage else []),
            *(k8s.core.v1.EnvVarArgs(name=key, value=value) for key, value in environment.items()),
            *more,
        ),
        resources=k8s.core.v1.ResourceRequirementsArgs(
            requests={**requests(resources), **devices}, limits={**limits(resources), **devices}
        ),
        ports=[k8s.core.v1.ContainerPortArgs(name=USAGE_PORT, container_port=port, protocol="TCP")]
        if port
        else None,
        security_context=container_security(),
        # `pulumi up` shows the message of a failed pod: with this, the log's last lines.
        termination_message_policy="FallbackToLogsOnError",
        volume_mounts=list(mounts),
    )


def password(service: Service) -> k8s.core.v1.EnvVarArgs:
    """The environment variable in which a container finds the password of ``service``."""
    return from_secret(password_secret_name(service), PASSWORD, service.password_variable)


def from_secret(secret: str, key: str, variable: str) -> k8s.core.v1.EnvVarArgs:
    """The environment ``variable`` with what a Kubernetes Secret has under ``key``."""
    selector = k8s.core.v1.SecretKeySelectorArgs(name=secret, key=key)
    return k8s.core.v1.EnvVarArgs(name=variable, value_from=k8s.core.v1.EnvVarSourceArgs(secret_key_ref=selector))


def search_path(declared: Mapping[str, str]) -> str:
    """``PYTHONPATH`` where a lock file's packages are installed: these, then what ``declared`` variables add."""
    return ":".join(filter(None, (INSTALLED, declared.get("PYTHONPATH"))))


def each_once(*variables: k8s.core.v1.EnvVarArgs) -> list[k8s.core.v1.EnvVarArgs]:
    """``variables`` with each name once: the last one wins, such as a `HOME` from `secrets` over Slipway's."""
    return list({str(variable.name): variable for variable in variables}.values())


def from_field(variable: str) -> k8s.core.v1.EnvVarArgs:
    """The environment ``variable`` with its field of the pod, one of `POD_FIELDS`."""
    field = k8s.core.v1.ObjectFieldSelectorArgs(api_version="v1", field_path=POD_FIELDS[variable])
    return k8s.core.v1.EnvVarArgs(name=variable, value_from=k8s.core.v1.EnvVarSourceArgs(field_ref=field))


def home() -> dict[str, str]:
    """Environment that says where a program may write, and who it is."""
    return {
        "HOME": TEMPORARY,
        "TMPDIR": TEMPORARY,
        # The user has no entry in the image's passwd, where Python would look for its name.
        "USER": "slipway",
    }


def python_environment() -> dict[str, str]:
    """Environment of a Python program: where it may write, and that it writes its log at once."""
    return {
        **home(),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }


def mount(name: str, path: str, *, read_only: bool = False) -> k8s.core.v1.VolumeMountArgs:
    """Where the volume called ``name`` stands in a container."""
    return k8s.core.v1.VolumeMountArgs(name=name, mount_path=path, read_only=read_only or None)


def _volumes(run: Run) -> list[k8s.core.v1.VolumeArgs]:
    step = run.step
    scratch = step.requests.ephemeral_storage - step.cache
    volumes = [
        volume("bundle", config_map_name(bundle_map(run), run.bundle), run.bundle),
        empty("tmp", scratch),
    ]
    if run.archive:
        volumes += [empty("code", scratch), *run.archive.volumes.values()]
    if step.uses_store:
        volumes.append(step.platform.store.volume)
    volumes.extend(added("declared", "volumes", run))
    volumes.extend(data_volumes(step))
    if step.shared_memory:
        volumes.append(empty(SHARED_MEMORY, step.shared_memory, medium="Memory"))
    return volumes


def empty(name: str, size: int, medium: str | None = None) -> k8s.core.v1.VolumeArgs:
    """A volume that the pod begins with empty; ``size`` is in MiB."""
    return k8s.core.v1.VolumeArgs(
        name=name, empty_dir=k8s.core.v1.EmptyDirVolumeSourceArgs(size_limit=size_quantity(size), medium=medium)
    )


def requests(resources: Resources) -> dict[str, str]:
    """What a container asks for."""
    requests = {
        "cpu": cpu_quantity(resources.cpu),
        "memory": size_quantity(resources.memory),
        "ephemeral-storage": size_quantity(resources.ephemeral_storage),
    }
    if resources.gpus:
        requests[GPU_RESOURCE] = str(resources.gpus)
    return requests


def limits(resources: Resources) -> dict[str, str]:
    """Limits of a container: its requests without CPU, of which it gets more while no other pod wants it."""
    return {name: amount for name, amount in requests(resources).items() if name != "cpu"}
