"""Whether the store still has the result of a finished run, and how the Job runs again where it has not.

A Job that is complete stays complete, whatever happens to the files that it wrote. So each Job is numbered: its
pod leaves an empty file of that number among the store's records once it has ended well. Where the store has a
record of a run and not its result, the next number is due. That changes the Job's template, and so replaces the
Job.
"""

from collections.abc import Sequence

import pulumi

from infra.kubernetes.run import Run

RECORDS = ".runs"
"""The store's folder of records: ``.runs/<run>/<number>``."""

MANIFEST = "manifest.json"
"""The file that a step publishes last: it names all others of its directory with their sizes and SHA-256
(`workloads.runtime.store`)."""


def record(run: Run) -> pulumi.Input[str]:
    """Path of the record that the run's Job is to leave, below the store's root.

    Where the store can only be seen from inside the cluster, the number is always 1.
    """
    files = run.step.platform.store.files
    folder = f"{RECORDS}/{run.path}"
    if files is None:
        return f"{folder}/1"

    def due(found: Sequence[Sequence[str]]) -> str:
        records, results = found
        last = max((_number(each) for each in records), default=0)
        if not last:
            return f"{folder}/1"
        files = dict.fromkeys([MANIFEST, *(each.path for each in run.step.results)])
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
    return any(each == path or each.startswith(f"{path}/") for each in files)


def _number(path: str) -> int:
    name = path.rpartition("/")[2]
    return int(name) if name.isascii() and name.isdigit() else 0
