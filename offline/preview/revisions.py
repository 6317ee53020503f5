"""Evaluates the stacks of two revisions in separate processes, each by its own `offline.evaluation`."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from infra.schema.checkout import VARIABLE
from offline.evaluation.encoding import FORMAT
from offline.evaluation.worker import KEY, OUT_OF_MEMORY
from offline.preview.worktree import terminating

if TYPE_CHECKING:
    from offline.preview.evaluated_stack import Evaluated

BEFORE_FORMATS = Path(__file__).resolve().parents[1] / "evaluation" / "revisions_before_formats.py"
"""The program that evaluates a tree from before there was `offline.evaluation`."""

LAST_LINES = 5
"""How many of the last lines of a worker that died are shown."""


class FormatError(Exception):
    """A revision prints its evaluation in a format that this one cannot read."""


@dataclass(frozen=True)
class Limits:
    """The limits of the evaluation of one stack: seconds of CPU time, seconds, and bytes of address space.

    The largest stack here takes 2 s, 4 s and 370 MB on two cores.
    """

    cpu: int = 60
    time: int = 300
    memory: int = 2 << 30


DEFAULT = Limits()


@dataclass(frozen=True)
class Evaluations:
    """The evaluated stacks of both revisions, by name."""

    head: "Mapping[str, Evaluated]"
    base: "Mapping[str, Evaluated]"


@dataclass(frozen=True)
class _Worker:
    stacks: Sequence[str]
    process: subprocess.Popen[bytes]
    answer: IO[bytes]
    complaints: IO[bytes]


def evaluate_trees(
    head: Path, base: Path | None, stacks: Sequence[str] = (), limits: Limits = DEFAULT
) -> Evaluations:
    """Evaluates ``stacks`` (default: all) at ``head`` and, if it is given, at ``base``.

    Starts as many processes as there are cores, at least one for each tree, and ends them in any case. A stack
    that exceeds ``limits`` or ends its process fails; another process continues with the stacks after it. Raises
    FormatError.
    """
    trees = [head] if base is None else [head, base]
    key = secrets.token_hex()
    dealt = [_dealt(names, max(1, _cores() // len(trees))) for names in _named(trees, stacks)]
    with terminating(), contextlib.ExitStack() as stack:
        started = [
            [stack.enter_context(_started(tree, head, share, key, limits)) for share in shares]
            for tree, shares in zip(trees, dealt, strict=True)
        ]
        # This import takes less time than the workers, so it costs nothing here.
        from offline.preview.evaluated_stack import evaluated  # noqa: PLC0415

        def documents(tree: Path, each: _Worker) -> dict[str, Any]:
            found = _documents(each, limits)
            if left := [name for name in each.stacks if name not in found]:
                found |= documents(tree, stack.enter_context(_started(tree, head, left, key, limits)))
            return found

        found = [
            {
                name: evaluated(name, document)
                for each in workers
                for name, document in documents(tree, each).items()
            }
            for tree, workers in zip(trees, started, strict=True)
        ]
    ordered = [{name: each[name] for name in sorted(each)} for each in found]
    return Evaluations(ordered[0], ordered[1] if base is not None else {})


def stacks_of(tree: Path) -> list[str]:
    """The names of the stacks that have a file in ``tree``."""
    return sorted(
        path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in (tree / "stacks").glob("Pulumi.*.yaml")
    )


def _named(trees: Sequence[Path], stacks: Sequence[str]) -> list[list[str]]:
    """The requested stacks of each tree. Those that no tree has are given to the first, whose evaluation reports
    them."""
    there = [stacks_of(tree) for tree in trees]
    if not stacks:
        return there
    asked = list(dict.fromkeys(stacks))
    named = [[name for name in asked if name in have] for have in there]
    named[0] += [name for name in asked if not any(name in have for have in there)]
    return named


def _dealt(names: Sequence[str], workers: int) -> list[Sequence[str]]:
    """Deals ``names`` to workers in turns, because neighbours take about the same time."""
    return [share for share in (names[first::workers] for first in range(workers)) if share]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _started(tree: Path, checkout: Path, stacks: Sequence[str], key: str, limits: Limits) -> Generator[_Worker]:
    before_formats = (tree / "stacks" / "program.py").is_file()
    program = ["-P", str(BEFORE_FORMATS)] if before_formats else ["-m", "offline.evaluation"]
    command = [sys.executable, *program]
    command += ["--cpu", str(limits.cpu), "--time", str(limits.time), "--memory", str(limits.memory)]
    for name in stacks:
        command += ["--stack", name]
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            command,
            cwd=tree,
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=complaints,
            env={**os.environ, KEY: key, VARIABLE: str(checkout), "PYTHONHASHSEED": "0"},
            # Ctrl-C goes to this process only, which ends the workers below.
            start_new_session=True,
        )
        try:
            yield _Worker(stacks, process, answer, complaints)
        finally:
            process.kill()
            process.wait()


def _documents(each: _Worker, limits: Limits) -> dict[str, Any]:
    """The documents that a worker printed, and the failure of the stack at which it ended. Later stacks are
    missing."""
    code = each.process.wait()
    each.answer.seek(0)
    # A line that is cut off is of the stack at which the worker ended.
    lines: list[dict[str, Any]] = [json.loads(line) for line in each.answer if line.endswith(b"\n")]
    if other := {line["format"] for line in lines} - {FORMAT}:
        raise FormatError(
            f"the base prints what its stacks declare in format {max(other)}, and this revision reads format "
            f"{FORMAT}: merge the base into this branch, or rebase onto it"
        )
    found = {line["stack"]: line["document"] for line in lines if "stack" in line}
    if found.keys() >= set(each.stacks):
        return found
    begun = [line["begun"] for line in lines if "begun" in line and line["begun"] not in found]
    failure = {"kind": "WorkerError", "message": _ending(code, each, limits)}
    return found | {name: {"failure": failure} for name in begun or each.stacks if name not in found}


def _ending(code: int, each: _Worker, limits: Limits) -> str:
    """How a worker ended, with its last words unless it exceeded a limit."""
    exceeded = {
        -signal.SIGPROF: f"{limits.cpu} s of CPU time",
        -signal.SIGALRM: f"{limits.time} s",
        OUT_OF_MEMORY: f"{limits.memory / 2**30:.2g} GiB of memory",
    }
    if code in exceeded:
        return f"its evaluation was ended, for it takes more than {exceeded[code]}"
    each.complaints.seek(0)
    said = each.complaints.read().decode("utf-8", "replace").strip().splitlines()[-LAST_LINES:]
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return "\n".join([f"its evaluation ended {how}", *said])
