"""Copies files between this machine and a store that pods have mounted, through one of them."""

import contextlib
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.infra import pulumi_cli
from slipway.tools.history.live import places_of
from slipway.tools.show import reader_pod
from slipway.tools.transfer import in_pod
from slipway.tools.transfer.files import File, TransferError

SECONDS = 6 * 3600
"""After which the cluster itself ends a pod that copies."""

PROGRAM = Path(in_pod.__file__)

RESUMED = "run the same command again: what is there already is not copied again"


@dataclass(frozen=True)
class Transfer:
    """The ``names`` of ``files`` that are copied between ``place`` on this machine and ``path`` in the store."""

    place: Path
    path: str
    files: Mapping[str, File]
    names: Sequence[str]


@dataclass(frozen=True)
class MountedStore:
    """The store at ``mount`` where commands run after the words ``execute``, such as those of `kubectl exec`."""

    execute: Sequence[str]
    mount: str

    def files(self, path: str) -> dict[str, File]:
        """The files below ``path`` of the store by their path from there. Raises TransferError."""
        done = subprocess.run(self._command("list", path), check=False, capture_output=True, text=True)
        if done.returncode:
            raise TransferError(f"the store could not be listed: {done.stderr.strip()}")
        listing: Mapping[str, tuple[int, int]] = json.loads(done.stdout)
        return {name: File(size, time) for name, (size, time) in listing.items()}

    def put(self, transfer: Transfer, advance: Callable[[int], None]) -> None:
        """Copies files of this machine to the store. Raises TransferError."""
        with self._start("take", transfer.path) as process:
            assert process.stdin is not None
            # A pod that is gone says why in its last words.
            with contextlib.suppress(BrokenPipeError):
                with tarfile.open(fileobj=process.stdin, mode="w|") as archive:
                    for name in transfer.names:
                        archive.add(in_pod.path_of(transfer.place, name).resolve(), name or ".", recursive=False)
                        advance(transfer.files[name].size)
                process.stdin.close()
            _end(process)

    def get(self, transfer: Transfer, advance: Callable[[int], None]) -> None:
        """Copies files of the store to this machine. Raises TransferError."""
        with self._start("give", transfer.path) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            failure = ""
            try:
                process.stdin.write(json.dumps(list(transfer.names)).encode())
                process.stdin.close()
                for size in in_pod.take(transfer.place, process.stdout):
                    advance(size)
            except (tarfile.TarError, OSError, EOFError, ValueError) as error:
                failure = str(error)
            process.stdout.close()
            _end(process, failure)

    def _command(self, command: str, path: str) -> list[str]:
        program = PROGRAM.read_text(encoding="utf-8")
        return [*self.execute, "python3", "-c", program, command, self.mount, path]

    def _start(self, command: str, path: str) -> subprocess.Popen[bytes]:
        piped = subprocess.PIPE
        return subprocess.Popen(self._command(command, path), stdin=piped, stdout=piped, stderr=piped)


def _end(process: subprocess.Popen[bytes], failure: str = "") -> None:
    assert process.stderr is not None
    words = process.stderr.read().decode("utf-8", "replace").strip()
    if process.wait() or failure:
        reason = words.splitlines()[-1] if words else failure or f"exit code {process.returncode}"
        raise TransferError(f"the copy ended early: {reason}; {RESUMED}")


@contextlib.contextmanager
def mounted(stack: str) -> Generator[MountedStore]:
    """The store of ``stack`` by a pod that goes again. Raises HistoryError, ShowError, CliError."""
    with tempfile.TemporaryDirectory(prefix="slipway-transfer-") as temporary:
        reader, _ = places_of(stack, pulumi_cli.resources_of(stack), Path(temporary))
        with reader_pod(reader, SECONDS) as (pod, mount):
            yield MountedStore([*reader.kubectl, "exec", "-i", pod, "--"], mount)
