"""Runs a container as a process group of this machine, with its limits and signals."""

import contextlib
import fcntl
import functools
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

import psutil

from slipway.rehearse.machine.boxes import Box
from slipway.rehearse.machine.listening import Loopback

POLL = 0.1
"""Seconds between two looks at a process that runs."""

STOP_POLL = 0.05
"""Seconds between two looks at whether what waits is to end."""

MEMORY_POLL = 0.3
"""Seconds between two measurements of memory. What is allocated and freed in between is not seen."""

OOM_KILLED = 137
STEP_OF_NICENESS = 1.25
"""By how much Linux weighs one step of niceness (sched(7), kernel/sched/core.c)."""

LOWEST_PRIORITY = 10


class CancelledError(Exception):
    """What a pod waits for was given up: room on a node, an environment, a quota."""


@dataclass
class Stop:
    """A request to end a pod: why, and how long its processes have between SIGTERM and SIGKILL."""

    kind: str = ""
    grace: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def request(self, kind: str, grace: float) -> None:
        """Asks for the end. The first ``kind`` counts; a shorter grace takes effect at once."""
        with self._lock:
            self.grace = min(self.grace, grace) if self.kind else grace
            self.kind = self.kind or kind

    @property
    def requested(self) -> bool:
        """Whether the end was requested."""
        return bool(self.kind)

    def wait(self, seconds: float) -> None:
        """Returns after so many seconds, or soon after the end was requested."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.requested:
            time.sleep(STOP_POLL)


@dataclass(frozen=True)
class Launch:
    """What to start. ``memory`` is the limit in MiB; ``cpu_request`` and ``cpu_limit`` are in millicores.

    ``writable`` are the folders below which it may write; None: wherever its user may. With ``unheld`` it listens
    on loopback alone; ``unheld`` is called where this machine cannot enforce that. ``box`` is its own view of the
    file system.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    memory: int | None = None
    cpu_request: int = 0
    cpu_limit: int | None = None
    writable: Sequence[Path] | None = None
    unheld: Callable[[], None] | None = None
    box: Box | None = None

    def arguments(self, reaper: int, binds: int | None) -> list[str]:
        """The command line of `launch.py`, which gets the descriptors ``reaper`` and ``binds``."""
        specification = {
            "reaper": reaper,
            "parent": os.getpid(),
            "nice": niceness(self.cpu_request),
            "cpus": cpus(self.cpu_limit),
            "writable": None if self.writable is None else [str(path) for path in self.writable],
            "binds": binds,
            "box": self.box and self.box.specification(),
        }
        return [json.dumps(specification), *self.command]


@dataclass(frozen=True)
class Exit:
    """How a process ended: exit code as a shell would see it, and the most memory its group had, in MiB."""

    code: int
    oom_killed: bool
    peak_memory: int


class Reaper:
    """A helper process that outlives this one for a moment, to kill what it leaves behind.

    It holds ``lock`` as long as it lives, so the next rehearsal cannot begin beside processes of this one.
    """

    def __init__(self, lock: int | None = None) -> None:
        reader, self._writer = os.pipe()
        script = Path(__file__).with_name("reaper.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script)],
            stdin=reader,
            stdout=subprocess.DEVNULL,
            pass_fds=[] if lock is None else [lock],
            start_new_session=True,
        )
        os.close(reader)

    @property
    def descriptor(self) -> int:
        """The file descriptor to which launchers write their process id."""
        return self._writer

    def over(self, group: int) -> None:
        """Tells the helper that the process group ended."""
        os.write(self._writer, f"-{group}\n".encode())

    def close(self) -> None:
        """Kills what is still there and waits for the helper to end."""
        os.close(self._writer)
        self._process.wait()


def run(launch: Launch, reaper: Reaper, stop: Stop, write: Callable[[bytes], None]) -> Exit:
    """Runs a container's process to its end; ``write`` gets each line of its output.

    The process gets SIGTERM when ``stop`` is requested, its whole group SIGKILL after the grace. As in a
    container, whatever the process leaves behind ends with it.
    """
    launcher = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py"))]
    loopback = Loopback(launch.unheld) if launch.unheld else None
    binds = loopback.descriptor if loopback else None
    process = subprocess.Popen(
        [*launcher, *launch.arguments(reaper.descriptor, binds)],
        cwd=launch.folder,
        env=dict(launch.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=[reaper.descriptor, *([] if binds is None else [binds])],
    )
    if loopback:
        loopback.begin()
    assert process.stdout is not None
    output = _Output(process.stdout, write)
    reader = threading.Thread(target=output.copy, daemon=True)
    reader.start()
    watch = _Watch(process, launch.memory, stop)
    while (code := _wait(process)) is None:
        watch.look()
    _kill_group(process.pid)
    reader.join(timeout=5)
    output.close()
    reaper.over(process.pid)
    if loopback:
        loopback.end()
    if watch.oom_killed:
        code = OOM_KILLED
    return Exit(code if code >= 0 else 128 - code, watch.oom_killed, watch.peak)


def niceness(request: int) -> int:
    """The niceness that gives a process its share when all want more, as CPU requests do in a cluster.

    Relative to a process that asks for all of this machine's cores.
    """
    share = max(request, 1) / (1000 * (os.cpu_count() or 1))
    return min(max(round(-math.log(share) / math.log(STEP_OF_NICENESS)), 0), LOWEST_PRIORITY)


def cpus(limit: int | None) -> list[int]:
    """The cores that a process with this CPU limit may use; none where it may use all.

    A quota in parts of a core takes a cgroup; here a limit is rounded up to whole cores.
    """
    if limit is None or not hasattr(os, "sched_getaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0))
    wanted = max(math.ceil(limit / 1000), 1)
    return allowed[:wanted] if wanted < len(allowed) else []


@dataclass
class _Watch:
    """Holds a process to its memory limit, and ends it when asked."""

    process: subprocess.Popen[bytes]
    limit: int | None
    stop: Stop
    peak: int = 0
    oom_killed: bool = False
    _measured: float = 0.0
    _asked: float | None = None

    def look(self) -> None:
        now = time.monotonic()
        if now - self._measured >= MEMORY_POLL:
            self._measured = now
            used = memory(self.process.pid)
            self.peak = max(self.peak, used)
            if self.limit is not None and used > self.limit:
                self.oom_killed = True
                _kill_group(self.process.pid)
        if self.stop.requested:
            if self._asked is None:
                self._asked = now
                with contextlib.suppress(ProcessLookupError):
                    self.process.send_signal(signal.SIGTERM)
            elif now - self._asked >= self.stop.grace:
                _kill_group(self.process.pid)


def memory(pid: int) -> int:
    """Resident memory of a process and its descendants, in MiB."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for part in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += part.memory_info().rss
    return total // 2**20


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(timeout=POLL)
    except subprocess.TimeoutExpired:
        return None


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


class _Output:
    """The lines of a ``stream``, for ``write`` until it is closed: a process in a session of its own may go on."""

    def __init__(self, stream: IO[bytes], write: Callable[[bytes], None]) -> None:
        self._stream, self._write = stream, write
        self._closed, self._lock = False, threading.Lock()

    def copy(self) -> None:
        """Returns at the end of the stream."""
        for line in self._stream:
            with self._lock:
                if not self._closed:
                    self._write(line)

    def close(self) -> None:
        """Lets nothing more through."""
        with self._lock:
            self._closed = True


def end_left(folder: Path) -> int:
    """Kills the pods of a rehearsal that was killed, whose homes are below ``folder``; returns how many processes.

    What they started themselves goes on where the reaper was killed, too.
    """
    left = 0
    for process in psutil.process_iter() if folder.is_dir() and any(folder.iterdir()) else ():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOME", "").startswith(f"{folder}/"):
                process.kill()
                left += 1
    return left


LOOPBACK = "127.0.0.1"

LOWEST = 20_000
"""Below are ports at which services of a machine often listen."""

UNPRIVILEGED = 1024
"""Below it only an administrator's programs may listen."""

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Where Linux keeps the range from which connections get the port of their own end."""

_given: set[int] = set()
_lock = threading.Lock()


def free_ports(count: int) -> list[int]:
    """Ports at which nothing listens, and that no process of this user gave to anybody else.

    They are given until this process ends. On Linux no connection takes one of them for its own end: a program
    that is started again finds its port free.
    """
    with _lock:
        ports: list[int] = []
        candidates = _candidates()
        for port in random.sample(candidates, len(candidates)):
            if len(ports) == count:
                break
            if _take(port):
                ports.append(port)
        while len(ports) < count:
            ports.append(_any_free())
        return ports


def as_declared(wanted: Sequence[int]) -> list[int]:
    """The ports ``wanted`` themselves, as far as nothing listens at them and anybody may; others for the rest."""
    ports: list[int] = []
    for port in wanted:
        with _lock:
            taken = port >= UNPRIVILEGED and _take(port)
        ports.append(port if taken else free_ports(1)[0])
    return ports


def _candidates() -> Sequence[int]:
    try:
        first = int(OUTGOING.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return ()
    return range(LOWEST, first) if first > LOWEST else ()


def _take(port: int) -> bool:
    if port in _given or not _is_free(port) or not _claim(port):
        return False
    _given.add(port)
    return True


def _claim(port: int) -> bool:
    """Whether this process holds the lock of the port now; it does until it ends.

    A server listens some time after its port was found: another rehearsal must not find it in between.
    """
    try:
        # One byte of the file stands for each port.
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):
        return False
    return True


@functools.cache
def _locks() -> int:
    # Never closed: that would end every lock that this process holds in the file.
    file = Path(tempfile.gettempdir()) / f"slipway-ports-{os.getuid()}"
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _is_free(port: int) -> bool:
    # At all addresses, since a program may listen at more of them than the one that it is told; and at the one,
    # since macOS lets a second program have all of them beside it.
    for address in ("", LOOPBACK):
        with socket.socket() as listener:
            # As servers do: connections that ended a minute ago or less take the port from nobody.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port))
            except OSError:
                return False
    return True


def _any_free() -> int:
    while True:
        with socket.socket() as listener:
            listener.bind((LOOPBACK, 0))
            port = int(listener.getsockname()[1])
        if _take(port):
            return port


@contextlib.contextmanager
def handling(
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
        for number, earlier in before.items():
            signal.signal(number, earlier)
