"""Where in its pod a program finds what the `mounts` of its step name, and how it starts in its `directory`."""

from collections.abc import Iterator, Sequence

import pulumi
import pulumi_kubernetes as k8s

from infra.kubernetes.run import STARTER, Run
from infra.pipelines.mounts import SCRATCH, source_of
from infra.pipelines.pods import OUTPUT, STORE, ProgramMount
from infra.placed import CODE, Step


def of_program(run: Run, store: pulumi.Input[str], scratch: str) -> Iterator[k8s.core.v1.VolumeMountArgs]:
    """The further mounts of the volumes called ``store`` and ``scratch`` that the step's program has.

    A folder of a volume is a `subPath`. Cloud Storage FUSE serves it from GKE 1.29 on, where its sidecar starts
    before what mounts it (github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/issues/47, read in November 2026).
    """
    for mount in _mounts(run.step):
        yield k8s.core.v1.VolumeMountArgs(
            name=scratch if mount.source.name == SCRATCH else store,
            mount_path=mount.path,
            sub_path=_folder(run, mount) or None,
            read_only=None if mount.writable else True,
        )


def folder_flags(run: Run, root: str) -> list[str]:
    """What makes the folders of the store, which is mounted at ``root``, before the kubelet looks for them.

    Empty where nothing has to be there.
    """
    flags: list[str] = []
    for mount in _mounts(run.step):
        if mount.source.name != SCRATCH and (folder := _folder(run, mount)):
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


def _folder(run: Run, mount: ProgramMount) -> str:
    """The folder of its volume that ``mount`` shows; empty where that is all of it."""
    source = mount.source
    roots = {STORE: "", SCRATCH: SCRATCH, OUTPUT: run.path}
    root = roots[source.name] if source.name in roots else run.inputs[source.name].path
    return "/".join(part for part in (root, source.below) if part)
