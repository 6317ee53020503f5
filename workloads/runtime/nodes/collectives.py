"""Processes on several nodes that train together by TensorFlow's collectives: how they meet, agree and part.

`TF_CONFIG` names them, as MultiWorkerMirroredStrategy reads it: chief and workers alone, the first of which is the
one that writes. What is said here of TensorFlow was seen with 2.21 in November 2026.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slipway.workloads.runtime.devices import Accelerator, describe, virtual_request
from slipway.workloads.runtime.exits import USAGE, StepError

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf
    from numpy.typing import NDArray

VARIABLE = "TF_CONFIG"
OTHERS_MISSING = 14
"""Exit code: the other processes did not come. The launcher has the same for pods."""
OTHER_ENDED = 15
"""Exit code: another process of the training ended, so that this one cannot go on. The launcher has the same."""
PATIENCE = 600.0
"""Seconds that a process waits for the others to come. Importing TensorFlow takes some of them longer."""
PARTING = 60.0
"""Seconds that a process waits for the others to be done with the last collective, which all have begun."""

_ROLES = ("chief", "worker")
_HELLO = b"slipway collectives %d of %d\n"
_GO = b"go\n"
_OF_OTHERS = ("ollective", "oordination", "/job:", "heartbeat", "tasks have crashed")
"""Words of TensorFlow's where the trouble is in another process."""
_PAUSE = 3.0
"""Seconds in which the process that failed by itself is seen to end first."""


@dataclass(frozen=True)
class Group:
    """The processes of one training by rank, each with its `HOST:PORT`, and the rank of this one."""

    addresses: tuple[str, ...]
    rank: int

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.addresses)

    @property
    def writes(self) -> bool:
        """Whether it is this process that writes checkpoints and results."""
        return self.rank == 0


def group() -> Group | None:
    """The group that TF_CONFIG names; None where it is not set, or names one process alone.

    Raises:
        StepError: USAGE, it is malformed, or has roles that a collective training has no part for.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    try:
        config = json.loads(text)
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        others = [role for role in (*cluster, *([task["type"]] if cluster else [])) if role not in _ROLES]
        if others:
            raise StepError(
                USAGE,
                f"{VARIABLE} has the role {others[0]!r}: this training adds up gradients among equals and knows "
                "`chief` and `worker` alone",
            )
        places = [(role, index) for role in _ROLES for index in range(len(cluster.get(role, ())))]
        if len(places) < 2:
            return None
        addresses = tuple(str(cluster[role][index]) for role, index in places)
        return Group(addresses, places.index((task["type"], int(task["index"]))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StepError(USAGE, f"{VARIABLE} is not what TensorFlow reads: {error!r} in {text[:200]}") from error


def join(among: Group, most: int | None = None) -> tuple[tf.distribute.Strategy, list[Accelerator]]:
    """Wait for all others, and return the strategy that trains with them and the accelerators that it uses here.

    All processes have the same number of them, `most` at most. NCCL adds up between GPUs, a ring of TCP between
    CPUs. Where accelerators are virtual, one CPU replica does the work of all: the strategy takes no more than one
    CPU of a process. Call it before any other operation of TensorFlow.

    Raises:
        StepError: OTHERS_MISSING after PATIENCE.
    """
    import tensorflow as tf

    request = virtual_request()
    gpus = [] if request else tf.config.list_physical_devices("GPU")[:most]
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(implementation=kinds.NCCL if gpus else kinds.RING)
    # TensorFlow waits for the others without ever looking at Python, its signals included, for up to an hour.
    meet(among, PATIENCE)
    on_sigterm = signal.getsignal(signal.SIGTERM)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    # Its service for preemptions has taken SIGTERM and does nothing with it.
    signal.signal(signal.SIGTERM, on_sigterm)
    if request:
        model, present = request
        count = present if most is None else min(present, most)
        print(f"A CPU does the work of {count} x {model} of this node; nothing here runs on a GPU", flush=True)
        return strategy, [Accelerator(f"virtual:{index}", model, virtual=True) for index in range(count)]
    devices: list[Accelerator] = []
    # Among TensorFlow's logical devices are those of the other processes.
    for gpu, name in zip(gpus, strategy.extended.worker_devices if gpus else (), strict=True):
        details = dict(tf.config.experimental.get_device_details(gpu))
        devices.append(Accelerator(name, str(details.get("device_name", "unknown GPU")), details=details))
    return strategy, devices


def describe_all(among: Group, devices: list[Accelerator]) -> str:
    """The accelerators of all processes in a few words, as in `2 nodes with 4 x Tesla T4`."""
    return f"{among.count} nodes with {describe(devices)}"


def of_first(strategy: tf.distribute.Strategy, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The `values` of the first process, in all; theirs have the same shape. It returns when all have called it.

    What one process reads in a shared store, another may not see yet. So one reads, and tells.
    """
    import numpy as np
    import tensorflow as tf

    def exchange(mine: tf.Tensor) -> Any:
        context = tf.distribute.get_replica_context()
        assert context is not None
        first = tf.equal(context.replica_id_in_sync_group, 0)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.where(first, mine, tf.zeros_like(mine)))

    summed = tf.function(lambda mine: strategy.run(exchange, args=(mine,)))(tf.constant(values, tf.float64))
    return np.asarray(strategy.experimental_local_results(summed)[0])


def part(strategy: tf.distribute.Strategy, among: Group) -> None:
    """Return when all processes have come here, and none waits for anything of another.

    A process that ends closes its connections, from which another one may still read the end of a collective. That
    one then fails although all is done. So they part as they meet, at a port that the first one opens for it.

    Raises:
        StepError: OTHER_ENDED, the first process ended before, or did not answer within PARTING seconds.
    """
    import numpy as np

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_server(0, among.count)) if among.writes else None
        opened = server.getsockname()[1] if server else 0
        # It returns when the first process has published, which may take minutes.
        port = int(of_first(strategy, np.array([opened], np.float64))[0])
        deadline = time.monotonic() + PARTING
        try:
            if server:
                _gather(among, server, deadline)
            else:
                _call(among, port, deadline)
        except StepError as error:
            if not among.writes:
                raise StepError(OTHER_ENDED, f"process 0 ended before the others: {error}") from error
            # What it had to write is written. Whoever did not come says so itself.


@contextlib.contextmanager
def others(among: Group) -> Iterator[None]:
    """What is trained together: turns the failure of a collective into one line.

    Raises:
        StepError: OTHER_ENDED. The process cannot go on: TensorFlow aborts all that follows, too.
    """
    import tensorflow as tf

    ended = (
        tf.errors.UnavailableError,
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.DeadlineExceededError,
        tf.errors.FailedPreconditionError,
        tf.errors.InternalError,
    )
    try:
        yield
    except ended as error:
        why = [line for line in str(error).splitlines() if any(word in line for word in _OF_OTHERS)]
        if not why:
            raise
        time.sleep(_PAUSE)
        raise StepError(
            OTHER_ENDED,
            f"another of the {among.count} processes ended, or cannot be reached; its own log says why. Start all "
            f"of them again ({type(error).__name__}: {why[0][:200]})",
        ) from error


def meet(among: Group, seconds: float) -> None:
    """Return when all processes have come here, or raise StepError. They meet at the port of the first."""
    deadline = time.monotonic() + seconds
    port = int(among.addresses[0].rpartition(":")[2])
    if among.writes:
        with _server(port, among.count) as server:
            _gather(among, server, deadline)
    else:
        _call(among, port, deadline)


def _server(port: int, count: int) -> socket.socket:
    both = {"family": socket.AF_INET6, "dualstack_ipv6": True} if socket.has_dualstack_ipv6() else {}
    return socket.create_server(("", port), backlog=count, **both)


def _call(among: Group, port: int, deadline: float) -> None:
    """Tell the first process, at ``port``, that this one is here, and return when it says that all are."""
    begun = time.monotonic()
    host = among.addresses[0].rpartition(":")[0]
    hello = _HELLO % (among.rank, among.count)
    while True:
        left = deadline - time.monotonic()
        try:
            with socket.create_connection((host.strip("[]"), port), timeout=max(left, 0.1)) as connection:
                connection.sendall(hello)
                if connection.recv(len(_GO)) == _GO:
                    return
                raise ConnectionResetError("it closed the connection")
        except OSError as error:
            if left <= 0:
                waited = deadline - begun
                raise StepError(
                    OTHERS_MISSING, f"process 0 did not answer at {host}:{port} in {waited:.0f} s: {error}"
                ) from error
        time.sleep(0.2)


def _gather(among: Group, server: socket.socket, deadline: float) -> None:
    """Wait until all others have called, and tell them so."""
    begun = time.monotonic()
    wanted = {_HELLO % (rank, among.count): rank for rank in range(1, among.count)}
    here: dict[bytes, socket.socket] = {}
    with contextlib.ExitStack() as stack:
        while len(here) < len(wanted):
            left = deadline - time.monotonic()
            if left <= 0:
                absent = [
                    f"{rank} ({among.addresses[rank]})" for hello, rank in wanted.items() if hello not in here
                ]
                waited = deadline - begun
                raise StepError(OTHERS_MISSING, f"waited {waited:.0f} s for process {', '.join(absent)}")
            server.settimeout(left)
            with contextlib.suppress(OSError):
                connection = stack.enter_context(server.accept()[0])
                connection.settimeout(min(left, 5))
                hello = connection.makefile("rb").readline(len(_HELLO) + 20)
                if hello in wanted:
                    here[hello] = connection
            if len(here) == len(wanted):
                here = {hello: connection for hello, connection in here.items() if _is_open(connection)}
        for connection in here.values():
            with contextlib.suppress(OSError):
                connection.sendall(_GO)


def _is_open(connection: socket.socket) -> bool:
    """Whether the process at the other end, which says nothing now, is still there."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.settimeout(5)
