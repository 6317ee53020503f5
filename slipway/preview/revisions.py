"""Evaluates the stacks of two revisions in separate processes, each by its own `slipway.engine.evaluation`."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from slipway.engine.evaluation.encoding import FORMAT
from slipway.engine.evaluation.worker import KEY, OUT_OF_MEMORY
from slipway.engine.stack_config import ConfigError, stack_names
from slipway.files import BusyError, FolderError, Lock, is_marked
from slipway.infra.places import GIT_OVERRIDES, LIBRARY, PROJECT, PROJECT_FILE, VARIABLE
from slipway.rehearse.machine.processes import handling

PREFIX = "slipway-preview-"
"""The prefix of the temporary folders, each of which holds a checkout."""

WORKTREE = "tree"


class TreeError(Exception):
    """A revision cannot be checked out. The message says why and how to fix it."""


@dataclass(frozen=True)
class Checkout:
    """The project at another revision.

    ``path`` is its folder. ``base`` is the requested revision and ``base_commit`` its commit; ``commit`` is the
    merge base with HEAD, which is checked out.
    """

    path: Path
    base: str
    base_commit: str
    commit: str

    @property
    def title(self) -> str:
        """``origin/main``, with the checked-out commit, and a note if that is a merge base."""
        if self.commit == self.base_commit:
            return f"{self.base} ({self.commit[:10]})"
        return f"{self.base} (merge base {self.commit[:10]})"


@contextlib.contextmanager
def check_out(root: Path, base: str) -> Generator[Checkout]:
    """The project at ``root`` as it was at the merge base of ``base`` and HEAD, in a temporary git worktree.

    The merge base, as a pull request shows its changes: what has landed on ``base`` meanwhile is no change of
    this branch. The worktree is removed in the end, also after Ctrl-C and SIGTERM, and so are those that killed
    runs left behind. The checkout at hand, its index, its branches and its hooks are not touched. Submodules stay
    empty. Raises TreeError.
    """
    commit, base_commit = _merge_base(root, base)
    with terminating():
        _remove_leftovers(root)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        tree = folder / WORKTREE
        try:
            with contextlib.closing(Lock(folder)):
                _git(root, "worktree", "add", "--quiet", "--detach", str(tree), commit)
                path = tree / _git(root, "rev-parse", "--show-prefix")
                if not (path / PROJECT_FILE).is_file():
                    raise TreeError(f"{base} has no such project: there is no Pulumi.yaml at {commit[:10]}")
                yield Checkout(path, base, base_commit, commit)
        finally:
            with handling(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                _remove(root, folder)


def _merge_base(root: Path, base: str) -> tuple[str, str]:
    """The commits of the merge base and of ``base``."""
    if shutil.which("git") is None:
        raise TreeError("git is needed to compare with another revision, and is not installed")
    if _git_output(root, "rev-parse", "--git-dir") is None:
        raise TreeError(f"{root} is not in a git repository, so there is no {base} to compare with")
    shallow = _git_output(root, "rev-parse", "--is-shallow-repository") == "true"
    base_commit = _git_output(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    if base_commit is None:
        raise TreeError(f"there is no revision {base!r} in this clone. {_fetching(root, base, shallow)}")
    commit = _git_output(root, "merge-base", base_commit, "HEAD")
    if commit is None:
        if shallow:
            raise TreeError(
                f"this clone is too shallow to tell where HEAD and {base} parted: git fetch --deepen=100, "
                "or git fetch --unshallow"
            )
        raise TreeError(f"HEAD and {base} have no commit in common")
    return commit.partition("\n")[0], base_commit


def _fetching(root: Path, base: str, shallow: bool) -> str:
    """The command that fetches ``base``, as far as its name tells."""
    remote, _, branch = base.partition("/")
    if branch and remote in (_git_output(root, "remote") or "").split():
        depth = "--depth=100 " if shallow else ""
        return f"Fetch it: git fetch {depth}{remote} {branch}:refs/remotes/{base}"
    if shallow:
        return "The clone is shallow: git fetch --deepen=100, or git fetch --unshallow"
    return "Correct the name, or fetch it: git fetch origin main"


def _remove_leftovers(root: Path) -> None:
    """Removes the worktrees of killed runs: in the temporary folder, with the mark, and with a lock that is free.

    Users have worktrees and folders of any name.
    """
    listing = _git_output(root, "worktree", "list", "--porcelain") or ""
    place = Path(tempfile.gettempdir()).resolve()
    for line in listing.splitlines():
        folder = Path(line.removeprefix("worktree ")).parent
        if line != f"worktree {place / folder.name / WORKTREE}" or not folder.name.startswith(PREFIX):
            continue
        if not os.path.lexists(folder):
            _git_output(root, "worktree", "remove", "--force", "--force", str(folder / WORKTREE))
        elif is_marked(folder) and not folder.is_symlink():
            with contextlib.suppress(BusyError, FolderError), contextlib.closing(Lock(folder)):
                _remove(root, folder)


def _remove(root: Path, folder: Path) -> None:
    # `--force` twice also removes a locked worktree; git locks it while it creates it.
    _git_output(root, "worktree", "remove", "--force", "--force", str(folder / WORKTREE))
    shutil.rmtree(folder, ignore_errors=True)


def _git(root: Path, *arguments: str) -> str:
    """The output of git; raises TreeError with its message."""
    done = _run(root, arguments)
    if done.returncode:
        raise TreeError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _git_output(root: Path, *arguments: str) -> str | None:
    """The output of git, or None if it fails."""
    done = _run(root, arguments)
    return None if done.returncode else done.stdout.strip()


def _run(root: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    # In its own session, so that Ctrl-C does not interrupt a removal; without the user's hooks.
    command = ["git", "-C", str(root), "-c", f"core.hooksPath={os.devnull}", *arguments]
    environment = {key: value for key, value in os.environ.items() if key not in GIT_OVERRIDES}
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, start_new_session=True
    )


@contextlib.contextmanager
def terminating() -> Generator[None]:
    """Makes SIGTERM and SIGHUP end the process like Ctrl-C, so that resources are released."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with handling(end, signal.SIGTERM, signal.SIGHUP):
        yield


if TYPE_CHECKING:
    from slipway.engine.evaluation.decoding import EvaluatedStack

EVALUATION = """import importlib.util, runpy
room = "offline" if importlib.util.find_spec("slipway.offline") else "engine"
runpy.run_module(f"slipway.{room}.evaluation", run_name="__main__", alter_sys=True)"""
"""What evaluates a tree, also one with the package from before 30 November 2026: it had the module elsewhere."""

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

    head: "Mapping[str, EvaluatedStack]"
    base: "Mapping[str, EvaluatedStack]"


@dataclass(frozen=True)
class _Tree:
    """A checked-out revision, and the interpreter that evaluates it where that is not the one at hand."""

    path: Path
    python: Path | None = None


@dataclass(frozen=True)
class _Worker:
    stacks: Sequence[str]
    process: subprocess.Popen[bytes]
    answer: IO[bytes]
    complaints: IO[bytes]


def evaluate_trees(
    head: Path,
    base: Path | None,
    stacks: Sequence[str] = (),
    limits: Limits = DEFAULT,
    base_python: Path | None = None,
) -> Evaluations:
    """Evaluates ``stacks`` (default: all) at ``head`` and, if it is given, at ``base``.

    ``base_python`` is the interpreter that evaluates the base, where that is not the one at hand. Starts as many
    processes as there are cores, at least one for each tree, and ends them in any case. A stack that exceeds
    ``limits`` or ends its process fails; another process continues with the stacks after it. Raises FormatError.
    """
    trees = [_Tree(head)] if base is None else [_Tree(head), _Tree(base, base_python)]
    key = secrets.token_hex()
    dealt = [
        _deal(names, max(1, _cores() // len(trees)))
        for names in _stacks_by_tree([tree.path for tree in trees], stacks)
    ]
    with terminating(), contextlib.ExitStack() as stack:
        started = [
            [stack.enter_context(_start_worker(tree, head, share, key, limits)) for share in shares]
            for tree, shares in zip(trees, dealt, strict=True)
        ]
        # This import takes less time than the workers, so it costs nothing here.
        from slipway.engine.evaluation.decoding import decode  # noqa: PLC0415

        def documents(tree: _Tree, evaluating: _Worker) -> dict[str, Any]:
            documents_by_stack = _documents(evaluating, limits)
            if left := [name for name in evaluating.stacks if name not in documents_by_stack]:
                worker = stack.enter_context(_start_worker(tree, head, left, key, limits))
                documents_by_stack |= documents(tree, worker)
            return documents_by_stack

        evaluations = [
            {
                name: decode(name, document)
                for worker in workers
                for name, document in documents(tree, worker).items()
            }
            for tree, workers in zip(trees, started, strict=True)
        ]
    ordered = [{name: evaluation[name] for name in sorted(evaluation)} for evaluation in evaluations]
    return Evaluations(ordered[0], ordered[1] if base is not None else {})


def stacks_of(tree: Path) -> list[str]:
    """The names of the stacks that have a file in ``tree``."""
    try:
        return stack_names(tree)
    except ConfigError:
        # The evaluation of a stack tells what is wrong with Pulumi.yaml.
        return []


def _stacks_by_tree(trees: Sequence[Path], stacks: Sequence[str]) -> list[list[str]]:
    """The requested stacks of each tree. The first tree also gets the stacks that no tree has: its evaluation
    reports them."""
    stacks_by_tree = [stacks_of(tree) for tree in trees]
    if not stacks:
        return stacks_by_tree
    names = list(dict.fromkeys(stacks))
    named = [[name for name in names if name in have] for have in stacks_by_tree]
    named[0] += [name for name in names if not any(name in have for have in stacks_by_tree)]
    return named


def _deal(names: Sequence[str], workers: int) -> list[Sequence[str]]:
    """Deals ``names`` to workers in turns, because neighbours take about the same time."""
    return [share for share in (names[first::workers] for first in range(workers)) if share]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _start_worker(
    tree: _Tree, checkout: Path, stacks: Sequence[str], key: str, limits: Limits
) -> Generator[_Worker]:
    command = [str(tree.python or sys.executable), "-c", EVALUATION]
    command += ["--cpu", str(limits.cpu), "--time", str(limits.time), "--memory", str(limits.memory)]
    for name in stacks:
        command += ["--stack", name]
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            command,
            cwd=tree.path,
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=complaints,
            env={**_variables(tree), KEY: key, VARIABLE: str(checkout), "PYTHONHASHSEED": "0"},
            # Ctrl-C goes to this process only, which ends the workers below.
            start_new_session=True,
        )
        try:
            yield _Worker(stacks, process, answer, complaints)
        finally:
            process.kill()
            process.wait()


def _variables(tree: _Tree) -> dict[str, str]:
    """Those of a worker: under another interpreter without the package at hand, whose path would come first."""
    variables = dict(os.environ)
    if tree.python is not None:
        folders = variables.pop("PYTHONPATH", "").split(os.pathsep)
        others = [folder for folder in folders if folder and Path(folder).resolve() != LIBRARY]
        variables |= {"PYTHONPATH": os.pathsep.join(others)} if others else {}
    return variables


def _documents(worker: _Worker, limits: Limits) -> dict[str, Any]:
    """The documents that a worker printed, and the failure of the stack at which it ended. Later stacks are
    missing."""
    code = worker.process.wait()
    worker.answer.seek(0)
    # A line that is cut off is of the stack at which the worker ended.
    lines: list[dict[str, Any]] = [json.loads(line) for line in worker.answer if line.endswith(b"\n")]
    if other := {line["format"] for line in lines} - {FORMAT}:
        way_out = (
            "merge the base into this branch, or rebase onto it"
            if LIBRARY == PROJECT
            else "update by way of the versions between them, each in a commit, or see by `pulumi preview` what "
            "this one changes"
        )
        raise FormatError(
            f"the base prints what its stacks declare in format {max(other)}, and this revision reads format "
            f"{FORMAT}: {way_out}"
        )
    by_stack = {line["stack"]: line["document"] for line in lines if "stack" in line}
    if by_stack.keys() >= set(worker.stacks):
        return by_stack
    begun = [line["begun"] for line in lines if "begun" in line and line["begun"] not in by_stack]
    failure = {"kind": "WorkerError", "message": _ending(code, worker, limits)}
    return by_stack | {name: {"failure": failure} for name in begun or worker.stacks if name not in by_stack}


def _ending(code: int, worker: _Worker, limits: Limits) -> str:
    """How a worker ended, with its last words unless it exceeded a limit."""
    exceeded = {
        -signal.SIGPROF: f"{limits.cpu} s of CPU time",
        -signal.SIGALRM: f"{limits.time} s",
        OUT_OF_MEMORY: f"{limits.memory / 2**30:.2g} GiB of memory",
    }
    if code in exceeded:
        return f"its evaluation was ended, for it takes more than {exceeded[code]}"
    worker.complaints.seek(0)
    last_lines = worker.complaints.read().decode("utf-8", "replace").strip().splitlines()[-LAST_LINES:]
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return "\n".join([f"its evaluation ended {how}", *last_lines])
