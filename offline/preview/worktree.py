"""Checks out a revision of the repository beside the user's checkout."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

PREFIX = "slipway-preview-"
"""The prefix of the temporary folders, each of which holds a checkout."""

LOCK = "lock"
WORKTREE = "tree"

OVERRIDES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
"""Environment variables by which git tells its hooks which checkout they run in. Here another one is used."""


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
def checked_out(root: Path, base: str) -> Generator[Checkout]:
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
            with (folder / LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                _git(root, "worktree", "add", "--quiet", "--detach", str(tree), commit)
                path = tree / _git(root, "rev-parse", "--show-prefix")
                if not (path / "Pulumi.yaml").is_file():
                    raise TreeError(f"{base} has no such project: there is no Pulumi.yaml at {commit[:10]}")
                yield Checkout(path, base, base_commit, commit)
        finally:
            with _undisturbed():
                _remove(root, folder)


def _merge_base(root: Path, base: str) -> tuple[str, str]:
    """The commits of the merge base and of ``base``."""
    if shutil.which("git") is None:
        raise TreeError("git is needed to compare with another revision, and is not installed")
    if _asked(root, "rev-parse", "--git-dir") is None:
        raise TreeError(f"{root} is not in a git repository, so there is no {base} to compare with")
    shallow = _asked(root, "rev-parse", "--is-shallow-repository") == "true"
    base_commit = _asked(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    if base_commit is None:
        raise TreeError(f"there is no revision {base!r} in this clone. {_fetching(root, base, shallow)}")
    commit = _asked(root, "merge-base", base_commit, "HEAD")
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
    if branch and remote in (_asked(root, "remote") or "").split():
        depth = "--depth=100 " if shallow else ""
        return f"Fetch it: git fetch {depth}{remote} {branch}:refs/remotes/{base}"
    if shallow:
        return "The clone is shallow: git fetch --deepen=100, or git fetch --unshallow"
    return "Correct the name, or fetch it: git fetch origin main"


def _remove_leftovers(root: Path) -> None:
    """Removes the worktrees of killed runs, whose locks are free."""
    listing = _asked(root, "worktree", "list", "--porcelain") or ""
    paths = [Path(line.removeprefix("worktree ")) for line in listing.splitlines() if line.startswith("worktree ")]
    for folder in (path.parent for path in paths if path.parent.name.startswith(PREFIX)):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            if folder.exists():
                lock = stack.enter_context((folder / LOCK).open("a"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(root, folder)


def _remove(root: Path, folder: Path) -> None:
    # `--force` twice also removes a locked worktree; git locks it while it creates it.
    _asked(root, "worktree", "remove", "--force", "--force", str(folder / WORKTREE))
    shutil.rmtree(folder, ignore_errors=True)


def _git(root: Path, *arguments: str) -> str:
    """The output of git; raises TreeError with its message."""
    done = _run(root, arguments)
    if done.returncode:
        raise TreeError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _asked(root: Path, *arguments: str) -> str | None:
    """The output of git, or None if it fails."""
    done = _run(root, arguments)
    return None if done.returncode else done.stdout.strip()


def _run(root: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    # In its own session, so that Ctrl-C does not interrupt a removal; without the user's hooks.
    command = ["git", "-C", str(root), "-c", f"core.hooksPath={os.devnull}", *arguments]
    environment = {key: value for key, value in os.environ.items() if key not in OVERRIDES}
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, start_new_session=True
    )


@contextlib.contextmanager
def terminating() -> Generator[None]:
    """Makes SIGTERM and SIGHUP end the process like Ctrl-C, so that resources are released."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handling(end, signal.SIGTERM, signal.SIGHUP):
        yield


@contextlib.contextmanager
def _undisturbed() -> Generator[None]:
    with _handling(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield


@contextlib.contextmanager
def _handling(
    handler: Callable[[int, FrameType | None], None] | signal.Handlers, *numbers: signal.Signals
) -> Generator[None]:
    """Installs ``handler`` for these signals in the main thread, the only one that may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, each in before.items():
            signal.signal(number, each)
