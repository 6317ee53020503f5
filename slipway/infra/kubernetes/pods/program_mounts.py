"""Where in its pod a program finds data that is there and what the `mounts` of its step name, and how it starts in
its `directory`.
"""

from collections.abc import Iterator, Sequence

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.pods import caches
from slipway.infra.kubernetes.run import STARTER, Run
from slipway.infra.pipelines.mounts import SCRATCH, source_of
from slipway.infra.pipelines.pods import OUTPUT, STORE, ProgramMount
from slipway.infra.placed import CODE, FOLDERS, Step
from slipway.infra.platform import Data


def data_place(data: Data) -> str:
    """Where a pod has ``data``."""
    return f"{FOLDERS}/{data.name}"


def data_volumes(step: Step) -> Iterator[k8s.core.v1.VolumeArgs]:
    """The volumes of the buckets whose data the step reads, and those that keep what it reads.

    Raises ValueError where its cluster mounts none, which the checks of the settings refuse.
    """
    _, kept = caches.shares(step)
    for data in step.data.values():
        if data.in_store:
            continue
        if step.platform.input_volume is None:
            raise ValueError(f"cluster {step.platform.name} mounts no bucket for {data.url}")
        yield step.platform.input_volume(data, kept)
    yield from caches.volumes(step)


def of_data(step: Step, store: pulumi.Input[str]) -> Iterator[k8s.core.v1.VolumeMountArgs]:
    """The mounts of the data that the step reads, read-only, and of copies; ``store`` is the store's volume."""
    for data in step.data.values():
        yield k8s.core.v1.VolumeMountArgs(
            name=store if data.in_store else data.volume,
            mount_path=data_place(data),
            sub_path=data.folder if data.in_store else None,
            read_only=True,
        )
    yield from caches.mounts(step)


def of_program(run: Run, store: pulumi.Input[str], scratch: str) -> Iterator[k8s.core.v1.VolumeMountArgs]:
    """The further mounts of the volumes called ``store`` and ``scratch``, and of those of data, that the step's
    program has.

    A folder of a volume is a `subPath`. Cloud Storage FUSE serves it from GKE 1.29 on, where its sidecar starts
    before what mounts it (github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/issues/47, read in November 2026).
    """
    volumes = {data.name: data.volume for data in run.step.data.values() if not data.in_store}
    for mount in _mounts(run.step):
        yield k8s.core.v1.VolumeMountArgs(
            name=scratch if mount.source.name == SCRATCH else volumes.get(mount.source.name, store),
            mount_path=mount.path,
            sub_path=_folder(run, mount) or None,
            read_only=None if mount.writable else True,
        )


def folder_flags(run: Run, root: str) -> list[str]:
    """What makes the folders of the store, which is mounted at ``root``, before the kubelet looks for them.

    Empty where nothing has to be there.
    """
    step = run.step
    in_store = [data.folder for data in step.data.values() if data.in_store]
    flags = [word for folder in in_store for word in ("--require", f"{root}/{folder}")]
    for mount in _mounts(step):
        if mount.source.name != SCRATCH and not _in_bucket(step, mount) and (folder := _folder(run, mount)):
            flags += ["--make" if mount.writable else "--require", f"{root}/{folder}"]
    return flags


def starting(step: Step) -> Sequence[str]:
    """The words before the command of a step with a `directory`; none where it starts in its code.

    The file is named as it is seen from the code: a result belongs to the same command line wherever that is.
    """
    directory = step.command.directory if step.command else ""
    if not directory:
        return []
    source = source_of(directory)
    if source and source.name == SCRATCH:
        directory = "/".join(["$TMPDIR", SCRATCH, *([source.below] if source.below else [])])
    return ["python3", "-I", "-S", "/".join([*[".."] * len(CODE.split("/")), STARTER]), directory]


def _mounts(step: Step) -> Sequence[ProgramMount]:
    return step.command.mounts if step.command else ()


def _in_bucket(step: Step, mount: ProgramMount) -> bool:
    """Whether ``mount`` shows data of a bucket other than the store's."""
    data = step.data.get(mount.source.name)
    return data is not None and not data.in_store


def _folder(run: Run, mount: ProgramMount) -> str:
    """The folder of its volume that ``mount`` shows; empty where that is all of it."""
    source = mount.source
    of_data = {data.name: data.folder if data.in_store else "" for data in run.step.data.values()}
    roots = {STORE: "", SCRATCH: SCRATCH, OUTPUT: run.path, **of_data}
    root = roots[source.name] if source.name in roots else run.inputs[source.name].path
    return "/".join(part for part in (root, source.below) if part)
