"""Run the program of a step at a place of another cluster while the mover of the step lets it.

The API server of its cluster cannot say so: it may be cut off from the mover, with its pods running on. This
process asks in the store, starts the program once an order has heard it, and ends it where none has for too long,
or one does not want its Job any more (`slipway.runtime.schedule.places.orders` has the rules). The pod that
takes its place asks anew.

It gets signals for the program, and ends with its exit code. Run as `python3 -m
slipway.runtime.schedule.places.hold --orders DIR --job NAME -- PROGRAM`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway.runtime.exits import OK, exit_code, parse_before_program
from slipway.runtime.schedule.places.orders import RENEW, TTL, Feeds, Order
from slipway.runtime.steps import notice
from slipway.runtime.steps.program import Forwarding

HELD_BACK = 20
"""Exit code: the program may run here no more. Another pod takes the place of this one."""

GRACE = 25.0
"""Seconds from SIGTERM to SIGKILL, as a pod has them (`slipway.infra.kubernetes.pods.pod.GRACE_PERIOD`)."""

POLL, POLL_WAITING = 5.0, 1.0
"""Seconds between two looks at the store, while the program runs, and before."""

LOOK = 0.5
"""Seconds between two looks at the time."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def clock() -> float:
    """Seconds that never go back, those in which the machine was suspended included where it can say so."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


@dataclass
class Lease:
    """Whether the program of a pod may run. `look` reads and writes the store, and may take its time for it;
    `is_valid` does not.
    """

    feeds: Feeds
    job: str
    pod: str
    now: Callable[[], float] = clock
    renew: float = RENEW
    ttl: float = TTL
    _asked: dict[int, float] = field(default_factory=dict[int, float])
    _order: tuple[int, int] = (0, 0)
    _until: float = -1.0

    @property
    def is_valid(self) -> bool:
        """Whether the program may run now."""
        return self.now() < self._until

    def look(self) -> None:
        """Ask where that is due, and read the newest order. Raises OSError."""
        self._read()
        last = self.feeds.asks.last(self.pod)
        if not last or self.now() - self._asked[last] >= self.renew:
            # What is heard counts from before it could be.
            self._asked[last + 1] = self.now()
            self.feeds.asks.append(self.pod, {"job": self.job})

    def leave(self) -> None:
        """Ask no more."""
        self.feeds.asks.remove([self.pod])

    def _read(self) -> None:
        order = Order.newest(self.feeds.orders)
        if order is None or order.position <= self._order:
            return
        self._order = order.position
        if self.job not in order.wanted:
            self._until = -1.0
        elif order.heard.get(self.pod, 0) in self._asked:
            heard = order.heard[self.pod]
            self._until = max(self._until, self._asked[heard] + self.ttl)
            self._asked = {number: time for number, time in self._asked.items() if number >= heard}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program while it may; returns its exit code, 128 + n where signal n ended it, or HELD_BACK."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    pod = os.environ.get("POD_NAME") or socket.gethostname()
    lease = Lease(Feeds.below(options.orders), options.job, pod, renew=options.renew, ttl=options.ttl)
    with Forwarding(*SIGNALS) as signals:
        # A store that does not answer must not keep anybody from ending the program.
        threading.Thread(target=_follow, args=(lease,), name="lease", daemon=True).start()
        print(f"Waiting for an order to run {options.job}", flush=True)
        while not lease.is_valid:
            if signals.received:
                return 128 + signals.received[0]
            time.sleep(LOOK)
        code = _run(options.words, lease, signals)
    with contextlib.suppress(OSError):
        lease.leave()
    return code


def _follow(lease: Lease) -> None:
    trouble = ""
    while True:
        try:
            lease.look()
            trouble = ""
        except Exception as error:
            if trouble != (trouble := str(error)):
                print(f"warning: the orders cannot be read: {error}", file=sys.stderr, flush=True)
        time.sleep(min(POLL if lease.is_valid else POLL_WAITING, lease.renew / 2))


def _run(words: Sequence[str], lease: Lease, signals: Forwarding) -> int:
    environment = dict(os.environ)
    path = notice.path_in(environment)
    try:
        # A group of its own, to be ended as one.
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(
            f"error: {words[0]} cannot be started: {error.strerror} (exit code 127)", file=sys.stderr, flush=True
        )
        return 127
    signals.to(process)
    while lease.is_valid:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return exit_code(process.wait(LOOK))
    print("The program may not run here any more", flush=True)
    notice.end(process, path, GRACE, "the step runs at another place")
    try:
        code = exit_code(process.wait(GRACE))
    except subprocess.TimeoutExpired:
        code = 128 + signal.SIGKILL
    # What is left of it ends with this process, which is process 1 of its container.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if code == OK:
        return OK
    print(f"error: no order lets the program run here (exit code {HELD_BACK})", file=sys.stderr, flush=True)
    return HELD_BACK


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m slipway.runtime.schedule.places.hold",
        usage="%(prog)s --orders DIR --job NAME -- PROGRAM [ARGUMENT...]",
        description=__doc__,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--orders", required=True, type=Path, metavar="DIR", help="the folder with the orders for this cluster")
    add("--job", required=True, metavar="NAME", help="the Job that this pod is of")
    add("--renew", type=float, default=RENEW, metavar="SECONDS", help="between two asks (default: %(default)g)")
    add(
        "--ttl", type=float, default=TTL, metavar="SECONDS", help="from an ask that was heard to the program's end"
    )
    return parse_before_program(parser, arguments)


if __name__ == "__main__":
    CODE = main()
    notice.remove()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(CODE)
