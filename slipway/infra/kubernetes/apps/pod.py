"""The pod of an app: one container within the *restricted* Pod Security Standard, which stays until told to go."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.apps.waiting import WAITER, Waits, waiter
from slipway.infra.kubernetes.ingress.exposure import PROXIES
from slipway.infra.kubernetes.ingress.login_proxy import DRAINING, lifecycle
from slipway.infra.kubernetes.labels import INPUTS_ANNOTATION, app_labels
from slipway.infra.kubernetes.pods.pod import (
    BUNDLE,
    INSTALLED,
    STORE,
    TEMPORARY,
    container_security,
    each_once,
    empty,
    escaped,
    from_field,
    from_secret,
    limits,
    mount,
    of_pool,
    pod_security,
    python_environment,
    requests,
    search_path,
    spread,
)
from slipway.infra.kubernetes.run import NO_CODE, TESTER, PodImage, Run, inside, pulled_with
from slipway.infra.kubernetes.shipping.bundle import Files, collect, config_map_name, normalised, volume
from slipway.infra.kubernetes.shipping.code_folder import code_files
from slipway.infra.kubernetes.shipping.sizes import require_fit
from slipway.infra.pipelines.apps import AppDeclaration, runs_file, token_variable
from slipway.infra.pipelines.pods import NODE_NAME
from slipway.infra.placed import (
    CODE,
    DATA,
    GPU_TEST,
    SHARED_MEMORY,
    SHARED_MEMORY_PLACE,
    App,
    Command,
    shared_memory,
)
from slipway.infra.places import located

LOCK = "requirements.txt"
"""Where the lock file of an app stands in its bundle."""

INSTALLER = "slipway.runtime.steps.packages"
"""The module that an init container runs to install what an app's image lacks."""

SUPPLIED = "slipway.runtime.supplied"
"""The module that starts an app whose image lacks libraries."""

READER = "slipway.runtime.apps.inputs"
"""The module that starts an app which reads the best of several results, or those of the newest run."""

IN_IMAGE = "install them as a package into an image and name that as `image`"
"""What to do with code that is more than one ConfigMap holds."""


@dataclass(frozen=True)
class PlannedApp:
    """An app with the files that it ships, and the runs whose results it reads.

    ``bundle`` is None where it ships nothing: its image has all that it runs. Its pods wait for what ``waits``
    says before they start; None: `up` has waited for all of it.
    """

    app: App
    bundle: Files | None
    inputs: Mapping[str, Run]
    waits: Waits | None = None

    @property
    def name(self) -> str:
        """Logical name of what is declared for it: ``<pipeline>-<app>``."""
        return f"{self.app.pipeline}-{self.app.name}"


def plan(app: App, root: Path, runs: Mapping[str, Run], waits: Waits | None = None) -> PlannedApp:
    """Finds what ``app`` ships, below the repository's ``root``; ``runs`` are by their Jobs' lasting names.

    Raises ShippingError where a file is missing or too big.
    """
    inputs = {name: runs[step.job] for name, step in app.inputs.items()}
    starters = [*([SUPPLIED] if app.supplements else []), *([READER] if is_told(app) else [])]
    starters += [*([WAITER] if waits else []), *([TESTER] if app.test else [])]
    bundle = app_bundle(app.declared, app.command, root, starters)
    return PlannedApp(app, bundle, inputs, waits)


def is_told(app: App) -> bool:
    """Whether it is known only when ``app`` starts which results it reads."""
    return bool(app.follows or app.choices)


def app_bundle(
    declared: AppDeclaration, command: Command | None, root: Path, starters: Sequence[str] = ()
) -> Files | None:
    """The files that an app ships beside what it reads: its module, its ``command``'s code, its lock file,
    and the modules ``starters`` that start it.

    Raises ShippingError.
    """
    installer = [INSTALLER] if declared.requirements else []
    contents: dict[str, bytes] = {}
    if declared.module or installer or starters:
        modules = [*([declared.module] if declared.module else []), *installer, *starters]
        contents.update(collect(modules, root, list(declared.files)).contents)
    if command:
        code = code_files(command, declared.arguments)
        # The folder in which it starts has to be there, also where the image has all that it runs.
        contents.update({f"{CODE}/{path}": content for path, content in code.contents.items()} or {NO_CODE: b""})
    if declared.requirements:
        contents[LOCK] = normalised(located(declared.requirements, root))
    if not contents:
        return None
    files = Files(contents)
    require_fit(files.sizes, IN_IMAGE)
    return files


DATA_PATH = "/data"
"""Where the volume of an app is mounted."""

TOKEN = "token"
"""The key of the Kubernetes Secret with an app's token, and the reference to it in a command line."""

TOKEN_ANNOTATION = "slipway/token"
"""The annotation of an app's pods with the bcrypt hash of its token: a new token starts new pods."""

HOSTS_VARIABLE = "SLIPWAY_HOSTS"
"""Where an app with an `ingress` finds the host name by which people reach it."""

PROXIES_VARIABLE = "SLIPWAY_PROXIES"
"""Where an app with an `ingress` finds how many entries of `X-Forwarded-For`, from the end, it can rely on: the
first of these is the visitor's address."""

RESULTS = f"{TEMPORARY}/results"
"""Where an app finds the results that it reads, if it is known only when it starts which these are."""

SPREAD = 60
"""Seconds for each pod but one, in which the pods of an app start anew with a newer run."""

PROBE_PERIOD = 2
STARTING = 900
"""Seconds between two probes, and seconds that an app may take to load before it is started anew."""


def bundle_map(planned: PlannedApp) -> str:
    """Logical name of the ConfigMap with what the app ships."""
    return f"{planned.name}-bundle"


def token_secret_name(app: App) -> str:
    """The name of the Kubernetes Secret with the token of ``app``, under the key `TOKEN`."""
    return f"{app.object_name}-{TOKEN}"


def app_secret_name(app: App) -> str:
    """The name of the Kubernetes Secret with what ``app`` is given of the stack's secrets. It has no other's."""
    return f"{app.object_name}-given"


def template(
    planned: PlannedApp,
    token_hash: pulumi.Input[str] | None,
    image: PodImage | None = None,
    *,
    python: str = "",
) -> k8s.core.v1.PodTemplateSpecArgs:
    """The template of the app's pods. It changes with all that decides what they answer, so that
    new ones start: the files that it ships, the results that it reads, and the hash of its token. ``python`` is an
    image with one.
    """
    app = planned.app
    annotations: dict[str, pulumi.Input[str]] = dict(app.platform.store.pod_annotations if app.uses_store else {})
    # Pods of an app that follows the newest run start anew by themselves.
    if planned.inputs and not app.follows:
        annotations[INPUTS_ANNOTATION] = json.dumps({name: step.path for name, step in planned.inputs.items()})
    if token_hash is not None:
        annotations[TOKEN_ANNOTATION] = token_hash
    return k8s.core.v1.PodTemplateSpecArgs(
        metadata=k8s.meta.v1.ObjectMetaArgs(labels=app_labels(app.pipeline, app.name), annotations=annotations),
        spec=k8s.core.v1.PodSpecArgs(
            service_account_name=app.service_account,
            # No app talks to the Kubernetes API.
            automount_service_account_token=False,
            enable_service_links=False,
            termination_grace_period_seconds=app.declared.grace + DRAINING,
            security_context=pod_security(app.platform),
            **of_pool(app.pool),
            topology_spread_constraints=spread(app_labels(app.pipeline, app.name)) if app.most > 1 else None,
            image_pull_secrets=pulled_with(image),
            init_containers=_init_containers(planned, image, python) or None,
            containers=inside(image, [_container(planned)]),
            volumes=_volumes(planned),
        ),
    )


def words(planned: PlannedApp) -> list[str]:
    """The command line of the container, with the paths that it has in the pod."""
    declared = planned.app.declared
    arguments = [word(argument, planned) for argument in declared.arguments]
    if declared.module:
        arguments = ["python3", "-m", declared.module, *arguments]
    told = is_told(planned.app)
    if told:
        arguments = ["python3", "-m", READER, *map(escaped, _results(planned)), "--", *arguments]
    for name in planned.app.supplements:
        published = f"{STORE}/{planned.inputs[name].path}"
        starts = ["--code", BUNDLE if declared.module or told else _code(planned)]
        arguments = ["python3", "-m", SUPPLIED, f"--{name}", published, *starts, "--", *arguments]
    return [*_testing(planned), *arguments]


def _testing(planned: PlannedApp) -> list[str]:
    """The command that tests the pod's GPUs before the app, which follows it; empty where nothing does.

    What passed is known to the pod alone: apps may not write what others rely on.
    """
    app, test = planned.app, planned.app.test
    if test is None:
        return []
    published = {name: f"{STORE}/{planned.inputs[name].path}" for name in app.supplements}
    flags = [escaped(argument.format_map(published)) for argument in test.arguments]
    in_bundle = app.declared.module or app.supplements or is_told(app)
    flags += ["--passed", f"{TEMPORARY}/{GPU_TEST}", "--code", BUNDLE if in_bundle else _code(planned)]
    return [test.interpreter, "-m", TESTER, *flags, "--"]


def _results(planned: PlannedApp) -> list[str]:
    """What tells `READER` which results the program reads."""
    app = planned.app
    read = {name: step for name, step in app.inputs.items() if name not in app.supplements}
    flags = ["--into", RESULTS, "--code", BUNDLE if app.declared.module else _code(planned)]
    for name, step in read.items():
        flags += ["--input", f"{name}={step.name if app.follows else f'{STORE}/{planned.inputs[name].path}'}"]
    for name, choice in app.choices.items():
        flags += ["--best", f"{name}={choice.of}:{choice.path}#{choice.select}:{','.join(choice.among)}"]
    if app.follows:
        flags += ["--follow", f"{STORE}/{runs_file(app.pipeline)}", "--run", app.follows]
        flags += ["--grace", str(app.declared.grace), "--spread", str(SPREAD * (app.most - 1))]
    return flags


def _code(planned: PlannedApp) -> str:
    """Where a program starts that is no module: in its code, or where nothing is in its way."""
    return f"{BUNDLE}/{CODE}" if planned.app.command else TEMPORARY


def word(text: str, planned: PlannedApp) -> str:
    """``text`` with what its references stand for in the pod, where the kubelet fills in the token."""
    app = planned.app
    inputs = {name: f"{STORE}/{step.path}" for name, step in planned.inputs.items()}
    if is_told(app):
        inputs |= {name: f"{RESULTS}/{name}" for name in (*app.inputs, *app.choices)}
    return filled_in(text, app.pipeline, app.declared, inputs)


def filled_in(text: str, pipeline: str, declared: AppDeclaration, inputs: Mapping[str, str]) -> str:
    """``text`` as it stands in the pod of an app; ``inputs`` are the directories there of what it reads."""
    mark = "\0"
    values = {
        "store": STORE,
        "pipeline": f"{STORE}/{pipeline}",
        "port": str(declared.port),
        DATA: DATA_PATH,
        TOKEN: mark,
        **inputs,
    }
    *before, last = text.format_map(values).split(mark)
    variable = f"$({token_variable(declared.name)})"
    # A `$` in front of the variable is one in front of its parenthesis.
    return "".join(escaped(f"{part}(")[:-1] + variable for part in before) + escaped(last)


def _container(planned: PlannedApp) -> k8s.core.v1.ContainerArgs:
    app = planned.app
    declared = app.declared
    ingress = declared.placed_by.ingress
    command, *args = words(planned)
    told = {name: word(value, planned) for name, value in declared.environment.items()}
    environment: dict[str, str] = {
        **python_environment(),
        **({"PYTHONPATH": INSTALLED} if declared.requirements else {}),
        **told,
        **{name: address for connect in app.connects.values() for name, address in connect.addresses.items()},
        **({HOSTS_VARIABLE: ingress.host, PROXIES_VARIABLE: str(PROXIES)} if ingress else {}),
    }
    if declared.requirements:
        environment["PYTHONPATH"] = search_path(told)
    return k8s.core.v1.ContainerArgs(
        name=app.name,
        image=app.image,
        image_pull_policy="IfNotPresent",
        command=[command],
        args=args or None,
        working_dir=_working_directory(planned),
        env=each_once(
            # Before the variables whose values name it: the kubelet fills in only variables that stand above.
            *([from_secret(token_secret_name(app), TOKEN, app.token_variable)] if declared.token else []),
            *(k8s.core.v1.EnvVarArgs(name=key, value=value) for key, value in environment.items()),
            *(from_secret(app_secret_name(app), name, variable) for variable, name in declared.secrets.items()),
            *([from_field(NODE_NAME)] if app.test else []),
        ),
        ports=[
            k8s.core.v1.ContainerPortArgs(name=name, container_port=port, protocol="TCP")
            for name, port in app.all_ports.items()
        ],
        # No liveness probe: an app that is only slow would be killed with the requests that it works on. One that
        # has ended is started again without a probe.
        startup_probe=_probe(app, STARTING // PROBE_PERIOD),
        readiness_probe=_probe(app, 3),
        lifecycle=lifecycle(),
        resources=k8s.core.v1.ResourceRequirementsArgs(
            requests=requests(app.requests), limits=limits(app.requests)
        ),
        security_context=container_security(),
        # `pulumi up` shows the message of a pod that does not become ready: with this, the log's last lines.
        termination_message_policy="FallbackToLogsOnError",
        volume_mounts=_mounts(planned),
    )


def _working_directory(planned: PlannedApp) -> str | None:
    if planned.app.declared.module or planned.app.supplements or is_told(planned.app) or planned.app.test:
        return BUNDLE
    return f"{BUNDLE}/{CODE}" if planned.app.command else None


def _init_containers(planned: PlannedApp, image: PodImage | None, python: str) -> list[k8s.core.v1.ContainerArgs]:
    app = planned.app
    containers = inside(image, [_installer(planned)]) if app.declared.requirements else []
    if planned.waits:
        store = app.platform.store.volume.name if app.uses_store else None
        assert store is None or isinstance(store, str)
        # Its own image is on the node already, where it is sure to have a Python.
        has_python = app.declared.module or app.declared.requirements or is_told(app)
        waits = waiter(planned.waits, app.image if has_python else python, store)
        containers += inside(image, [waits]) if has_python else [waits]
    return containers


def _installer(planned: PlannedApp) -> k8s.core.v1.ContainerArgs:
    app = planned.app
    return k8s.core.v1.ContainerArgs(
        name="packages",
        image=app.image,
        image_pull_policy="IfNotPresent",
        command=["python3", "-m", INSTALLER],
        args=["--requirements", LOCK, "--target", INSTALLED],
        working_dir=BUNDLE,
        env=[k8s.core.v1.EnvVarArgs(name=key, value=value) for key, value in python_environment().items()],
        resources=k8s.core.v1.ResourceRequirementsArgs(
            requests=requests(replace(app.requests, gpus=0)), limits=limits(replace(app.requests, gpus=0))
        ),
        security_context=container_security(),
        termination_message_policy="FallbackToLogsOnError",
        volume_mounts=[
            mount("bundle", BUNDLE, read_only=True),
            mount("tmp", TEMPORARY),
            mount("packages", INSTALLED),
        ],
    )


def _probe(app: App, failures: int) -> k8s.core.v1.ProbeArgs:
    path = app.declared.probe.path
    return k8s.core.v1.ProbeArgs(
        http_get=k8s.core.v1.HTTPGetActionArgs(path=path, port=app.declared.port) if path else None,
        tcp_socket=None if path else k8s.core.v1.TCPSocketActionArgs(port=app.declared.port),
        period_seconds=PROBE_PERIOD,
        timeout_seconds=PROBE_PERIOD,
        failure_threshold=failures,
    )


def _mounts(planned: PlannedApp) -> list[k8s.core.v1.VolumeMountArgs]:
    app = planned.app
    mounts = [mount("tmp", TEMPORARY)]
    if planned.bundle:
        mounts.append(mount("bundle", BUNDLE, read_only=True))
    if app.declared.requirements:
        mounts.append(mount("packages", INSTALLED, read_only=True))
    if app.uses_store:
        mounts.append(
            k8s.core.v1.VolumeMountArgs(
                name=app.platform.store.volume.name, mount_path=STORE, read_only=not app.declared.writes or None
            )
        )
    if app.declared.keeps_data:
        mounts.append(mount(DATA, DATA_PATH))
    if shared_memory(app.resources):
        mounts.append(mount(SHARED_MEMORY, SHARED_MEMORY_PLACE))
    return mounts


def _volumes(planned: PlannedApp) -> list[k8s.core.v1.VolumeArgs]:
    app = planned.app
    scratch = app.requests.ephemeral_storage
    volumes = [empty("tmp", scratch)]
    if planned.bundle:
        volumes.append(volume("bundle", config_map_name(bundle_map(planned), planned.bundle), planned.bundle))
    if app.declared.requirements:
        volumes.append(empty("packages", scratch))
    if app.uses_store:
        volumes.append(app.platform.store.volume)
    if app.declared.keeps_data:
        claim = k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=app.object_name)
        volumes.append(k8s.core.v1.VolumeArgs(name=DATA, persistent_volume_claim=claim))
    if size := shared_memory(app.resources):
        volumes.append(empty(SHARED_MEMORY, size, medium="Memory"))
    return volumes
