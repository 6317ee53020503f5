"""A run: a step together with everything that decides its result, and the digest and names that follow from it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.shipping.archive import Archive
from slipway.infra.kubernetes.shipping.bundle import Files, collect, normalised
from slipway.infra.kubernetes.shipping.code_folder import code_files
from slipway.infra.kubernetes.shipping.sizes import LIMIT, require_room
from slipway.infra.pipelines import pods
from slipway.infra.pipelines.step_keys import InPod
from slipway.infra.placed import CODE, Command, Step
from slipway.infra.placed_model import PlacedStep
from slipway.infra.places import PACKAGE
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit, short_digest

FORMAT = 1
"""Part of every digest. Raise it when pods start to treat the same step differently, and every step runs again."""

RESERVED = frozenset({"store", "output", "pipeline"})
"""Names in a step's arguments that are neither inputs nor folders."""

RUNNER = "slipway.runtime.steps.command"
"""The module that starts a command."""

JOB_NAME_VARIABLE = "JOB_NAME"
"""The environment variable with the name of a pod's own Job. The kubelet puts it into arguments: the Jobs of a
pipeline that runs by the clock get their names when they are created, and the host names of pods begin with it."""

HELD = "-run"
"""What the names of Jobs end with that are created suspended."""

RUNNER_FORMAT = 1
"""Part of the digest of every command and of all that modules of the package make, instead of the package's files:
an update of Slipway trains nothing anew. Raise it when one of them makes something else of the same words."""

MEASURE = "slipway.runtime.usage.measure"
"""The module that starts the program of a step, whatever it is, and measures what it uses."""

HOLD = "slipway.runtime.schedule.places.hold"
"""The module that runs a step's program at a place of another cluster than that of what moves the step."""

STARTER = "slipway/runtime/steps/starting.py"
"""The file that starts a program in another folder than that of its code."""

NO_CODE = f"{CODE}/no-files"
"""The empty file that ships with a step that has no files."""

TESTER = "slipway.runtime.gates.gpus"
"""The module that tests the GPUs of a pod, and then starts the program."""

FOLDERS = "slipway.runtime.steps.folders"
"""The module by which an init container makes and requires the folders of the store that a step has mounted."""

UNPACKER = "slipway.runtime.steps.unpack"
"""The module that an init container runs where a step's code is more than one ConfigMap holds."""


USAGE_PORT = 9410
"""Where pods of a step answer Prometheus while they run."""


@dataclass(frozen=True)
class Usage:
    """How the use of CPU, memory and GPUs of a step is measured beside its program.

    ``port`` is where its pods answer while they run; 0: nowhere. A GPU that is busy for fewer than ``idle_below``
    percent of a sample is idle; more than ``idle_share`` percent of the time is worth a word. With ``only_gpus``
    the steps on GPU pools that have the store are measured, and no others. With ``limited`` their pods are told
    of the stack's limits.
    """

    port: int
    idle_below: int = 5
    idle_share: int = 30
    only_gpus: bool = False
    limited: bool = False

    def covers(self, step: Step) -> bool:
        """Whether ``step`` is measured: one of a pipeline's own."""
        if not step.is_own:
            return False
        return not self.only_gpus or bool(step.pool.accelerator and step.uses_store)


UNASKED = Usage(port=0, only_gpus=True)
"""How steps are measured where the stack file has nothing about it: what a GPU's time was paid for is to be known
of every step."""


@dataclass(frozen=True)
class Hold:
    """Whose orders the pods of a Job obey: those in the folder ``orders`` below the store's root name the ``job``
    while its program may run."""

    orders: str
    job: str


@dataclass(frozen=True)
class Run:
    """A step with the files that it ships and the runs whose results it reads.

    ``digest`` is the SHA-256 over all that ``decides`` the result, the digests of its inputs included: when one of
    them changes, so do those of all the steps after it. ``code`` are the files of its program. CPU, memory and
    time limits decide nothing, nor do the number of workers and how they share the items. The number of nodes
    does: programs divide their data by it.
    With ``usage`` what it uses is measured, which decides nothing either. Where ``bundle``, the files in the
    step's own ConfigMap, has no room for the code, that is the ``archive``. With ``hold`` its program runs only as
    long as that lets it.
    """

    step: Step
    bundle: Files
    inputs: Mapping[str, "Run"]
    digest: str
    decides: Mapping[str, object]
    code: Files
    usage: Usage | None = None
    archive: Archive | None = None
    hold: Hold | None = None

    @property
    def name(self) -> str:
        """The name that stays the same from run to run: ``<pipeline>-<step>``."""
        return self.step.job

    @property
    def job_name(self) -> str:
        """The Kubernetes name of the Job."""
        name = f"{self.name}-{short_digest(self.digest)}"
        return fit(name, KUBERNETES_NAME_LIMIT - len(self.last_index))

    @property
    def held_job_name(self) -> str:
        """The Kubernetes name of the Job where it is created suspended."""
        name = f"{self.name}-{short_digest(self.digest)}"
        return f"{fit(name, KUBERNETES_NAME_LIMIT - len(self.last_index) - len(HELD))}{HELD}"

    @property
    def last_index(self) -> str:
        """What the longest host name of its pods has behind the Job's name; empty where pods have none.

        The API server refuses a Job of which a pod's host name would be no DNS label (kubernetes/pkg/apis/batch/
        validation, Kubernetes 1.34).
        """
        return f"-{self.step.pods - 1}" if self.step.is_indexed else ""

    @property
    def path(self) -> str:
        """The step's directory below the store's root."""
        return f"{self.step.pipeline}/{self.step.name}/{short_digest(self.digest)}"

    @property
    def surroundings(self) -> str:
        """A short digest of what decides a result beside the command line, the code and the inputs: a worker takes
        the results of an earlier run's items only where this is the same.
        """
        decisive = {**_surroundings(self.step), "runner": RUNNER_FORMAT}
        if data := _data_of_all_items(self.step):
            decisive["data"] = data
        return short_digest(_digest(decisive))


@dataclass
class Known:
    """What was found so far below one repository's root: runs by the identity of their step, and bundles.

    With ``usage`` the pipelines' own steps are measured.
    """

    usage: Usage | None = None
    runs: dict[int, Run] = field(default_factory=dict[int, Run])
    bundles: dict[object, Files] = field(default_factory=dict[object, Files])


def runner(step: Step) -> str:
    """The module that starts the command of ``step``."""
    return next((part.module for part in step.parts if part.module), RUNNER)


def command_bundle(command: Command, words: Sequence[str], root: Path, module: str = RUNNER) -> Files:
    """The files that a step with this command ships: its runner ``module``, and the command's own below `CODE`.

    Raises ShippingError.
    """
    code = code_files(command, words)
    require_room(code.sizes)
    # A program of the image may need none: the folder in which it starts has to be there all the same.
    below = {f"{CODE}/{path}": content for path, content in code.contents.items()} or {NO_CODE: b""}
    executable = frozenset(f"{CODE}/{path}" for path in code.executable)
    modules = [module, *([FOLDERS] if command.mounts else [])]
    extra = [STARTER] if command.directory else []
    return Files({**collect(modules, root, extra).contents, **below}, executable)


def plan(step: Step, root: Path, known: Known | None = None) -> Run:
    """Finds what ``step`` ships, below the repository's ``root``, and what its result depends on.

    ``known`` grows by it: a step that several others read, and files that several ship, are looked at once.
    Raises ShippingError where a file is missing or too big.
    """
    known = known or Known()
    if id(step) in known.runs:
        return known.runs[id(step)]
    names = [*step.inputs, *step.data]
    taken = {name for name in names if name in RESERVED or names.count(name) > 1}
    if taken:
        raise ValueError(
            f"{step.pipeline} {step.name}: {', '.join(sorted(taken))} would mean two things in arguments"
        )
    inputs = {name: plan(before, root, known) for name, before in step.inputs.items()}
    bundle = _bundle(step, root, known)
    code = _files_of_module(step, bundle) if step.command is None else bundle.within(CODE)
    decisive = {
        **_surroundings(step),
        **_program(step, code),
        "arguments": list(step.arguments),
        "inputs": {name: before.digest for name, before in inputs.items()},
    }
    if step.data:
        decisive["data"] = {name: [data.url, data.digest] for name, data in step.data.items()}
    shipped = bundle
    if any(data.in_store for data in step.data.values()):
        shipped = _with_files_of(FOLDERS, shipped, root)
    shipped = _with_files_of(TESTER, shipped, root) if step.test else shipped
    usage = known.usage if known.usage and known.usage.covers(step) else None
    shipped = _with_files_of(MEASURE, shipped, root) if usage else shipped
    shipped = _with_files_of(HOLD, shipped, root) if step.platforms[1:] else shipped
    shipped, archive = _in_config_map(shipped, root)
    known.runs[id(step)] = Run(step, shipped, inputs, _digest(decisive), decisive, code, usage, archive)
    return known.runs[id(step)]


def _in_config_map(shipped: Files, root: Path) -> tuple[Files, Archive | None]:
    """What of ``shipped`` the step's own ConfigMap holds; its code is an archive where it is too much for it."""
    code = shipped.below(CODE)
    if sum(shipped.sizes.values()) <= LIMIT or not code.contents:
        return shipped, None
    return _with_files_of(UNPACKER, shipped.outside(CODE), root), Archive(code)


def _digest(decisive: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _surroundings(step: Step) -> dict[str, object]:
    """Everything that decides the result, other than the program, its command line and its inputs."""
    decisive: dict[str, object] = {
        "format": FORMAT,
        "environment": dict(step.environment),
        "image": step.image,
        # An earlier version knew folders that ship with a step: without it, every step would run again.
        "folders": {},
        "accelerator": step.pool.accelerator,
        "gpus": step.resources.gpus,
        # Of a gate that is gone. Without it every step would run again.
        "fingerprint": "",
    }
    if step.places:
        del decisive["accelerator"], decisive["gpus"]
        decisive["hardware"] = step.places.hardware
    for part in step.parts:
        decisive |= part.surrounds
    command = step.command
    if command and (command.directory or command.mounts):
        mounts = sorted((mount.path, mount.source.text, mount.writable) for mount in command.mounts)
        decisive["places"] = {"directory": command.directory, "mounts": mounts}
    return decisive


def _data_of_all_items(step: Step) -> dict[str, object]:
    """The data that each item reads. Of what holds the items each has the digest of its own file."""
    mounts = step.command.mounts if step.command else ()
    texts = [*step.arguments, *step.environment.values(), *(mount.source.text for mount in mounts)]
    read = {name for text in texts for name in pods.names(text)}
    return {name: [data.url, data.digest] for name, data in step.data.items() if name in read}


def _bundle(step: Step, root: Path, known: Known) -> Files:
    shipped: object
    if step.command is not None:
        module, command = runner(step), step.command
        more = (bool(command.directory), bool(command.mounts))
        shipped = (module, command.code, tuple(command.files), command.left_out, tuple(step.arguments), more)
        bundle = known.bundles.get(shipped) or command_bundle(command, step.arguments, root, module)
    else:
        assert step.module is not None
        shipped = (step.module, tuple(step.files), tuple(step.attached.items()))
        bundle = known.bundles.get(shipped) or collect([step.module], root, step.files)
        if step.attached:
            attached = {path: normalised(place) for path, place in step.attached.items()}
            bundle = Files({**bundle.contents, **attached})
    known.bundles[shipped] = bundle
    return bundle


def _files_of_module(step: Step, bundle: Files) -> Files:
    """The files of ``bundle`` that are not the package's code, and those that the module reads, such as a lock."""
    other = {path for path in bundle.contents if not path.startswith(f"{PACKAGE}/")}
    return Files({path: bundle.contents[path] for path in {*other, *step.files, *step.attached}})


def _with_files_of(module: str, bundle: Files, root: Path) -> Files:
    """``bundle`` with the files of ``module``, which runs before the step's program and decides nothing."""
    return Files({**collect([module], root).contents, **bundle.contents}, bundle.executable)


def _program(step: Step, code: Files) -> dict[str, object]:
    """Everything that decides the result of the program that ``step`` starts, other than its arguments."""
    if step.command is None:
        return {"module": str(step.module).rpartition(".")[2], "runner": RUNNER_FORMAT, "code": code.digest}
    choices = {
        name: [list(choice.among), choice.path, choice.select, choice.of] for name, choice in step.choices.items()
    }
    decisive: dict[str, object] = {"runner": RUNNER_FORMAT, "code": code.digest, "choices": choices}
    for part in step.parts:
        decisive |= part.decides
    return decisive


_DIGESTS = frozenset({"code", "inputs"})
"""Of what decides, the digests of what the placed model has by itself."""


def placed(run: Run) -> PlacedStep:
    """What there is to know of ``run``."""
    step, pod = run.step, in_pod(run, {})
    return PlacedStep(
        job=run.name,
        pipeline=step.pipeline,
        name=step.name,
        pool=step.pool.name,
        directory=run.path if step.publishes else "",
        inputs={name: before.path for name, before in run.inputs.items()},
        of_items=[name for part in step.parts for name in part.reads],
        surroundings=run.surroundings if step.shares else "",
        files=run.code.digests,
        ships={path: digest for path, digest in run.bundle.digests.items() if path not in run.code.contents},
        decides={name: value for name, value in run.decides.items() if name not in _DIGESTS},
        tells={name: value for part in step.parts for name, value in part.tells(pod).items()},
        variant=_variant(step),
    )


def in_pod(run: Run, directories: Mapping[str, str]) -> InPod:
    """What parts of the step are told of its pods, which have ``directories``."""
    step = run.step
    services = {name: (service.address, service.password_variable) for name, service in step.connects.items()}
    hosts = [f"$({JOB_NAME_VARIABLE})-{index}.{step.group_name}" for index in range(step.pods)]
    return InPod(directories, services, hosts, step.resources.gpus, run.surroundings)


def _variant(step: Step) -> dict[str, object]:
    if step.variant is None:
        return {}
    best = {"best": {"by": step.best.by, "of": step.best.of}} if step.best else {}
    return {"of": step.variant.of, "values": dict(step.variant.values), **best}


@dataclass(frozen=True)
class PodImage:
    """An image that only its build tells: its ``reference`` by digest, the resource ``built`` to wait for, and the
    Secret with which it is pulled, empty where nodes need none.
    """

    reference: pulumi.Output[str]
    built: pulumi.Resource
    pull_secret: str = ""


def pulled_with(image: PodImage | None) -> list[k8s.core.v1.LocalObjectReferenceArgs] | None:
    """The Secrets with which a pod pulls ``image``; None where there is no such image, or nodes need none."""
    if image is None or not image.pull_secret:
        return None
    return [k8s.core.v1.LocalObjectReferenceArgs(name=image.pull_secret)]


def inside(image: PodImage | None, containers: list[k8s.core.v1.ContainerArgs]) -> list[k8s.core.v1.ContainerArgs]:
    """``containers`` in ``image``, where there is one."""
    for container in containers if image else ():
        container.image = image.reference if image else None
    return containers


# Whether the store still has the result of a finished run, and how the Job runs again where it has not.
#
# A Job that is complete stays complete, whatever happens to the files that it wrote. So each Job is numbered: its
# pod leaves an empty file of that number among the store's records once it has ended well. Where the store has a
# record of a run and not its result, the next number is due. That changes the Job's template, and so replaces the
# Job.


RECORDS = ".runs"
"""The store's folder of records: ``.runs/<run>/<number>``."""

MANIFEST = "manifest.json"
"""The file that a step publishes last: it names all others of its directory with their sizes and SHA-256
(`slipway.runtime.store`)."""


def record(run: Run) -> pulumi.Input[str]:
    """Path of the record that the run's Job is to leave, below the store's root.

    Where the store can only be seen from inside the cluster, the number is always 1.
    """
    files = run.step.platform.store.files
    folder = f"{RECORDS}/{run.path}"
    if files is None:
        return f"{folder}/1"

    def due(listings: Sequence[Sequence[str]]) -> str:
        records, results = listings
        last = max((_number(record) for record in records), default=0)
        if not last:
            return f"{folder}/1"
        files = dict.fromkeys([MANIFEST, *(result.path for result in run.step.results)])
        gone = [name for name in files if not _there(f"{run.path}/{name}", results)]
        if gone:
            pulumi.log.warn(
                f"{run.name} has finished, but the store no longer has {', '.join(gone)} in {run.path}: "
                "the Job runs again"
            )
        return f"{folder}/{last + 1 if gone else last}"

    return pulumi.Output.all(files(folder), files(run.path)).apply(due)


def _there(path: str, files: Sequence[str]) -> bool:
    """Whether ``path`` is one of ``files``, or a folder of one."""
    return any(file == path or file.startswith(f"{path}/") for file in files)


def _number(path: str) -> int:
    name = path.rpartition("/")[2]
    return int(name) if name.isascii() and name.isdigit() else 0
