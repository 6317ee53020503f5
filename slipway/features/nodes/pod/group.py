"""What a group of pods does together: when all programs start, stop, start again, and how the step ends.

The rules alone, without sockets, processes or clocks: `rendezvous.Coordinator` tells a `Group` what happened and
when, and sends what the group says. Standard library only.
"""

from __future__ import annotations

import contextlib
import ipaddress
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SHOWN = 5
"""How many ranks a line names."""

_PORTS = range(20000, 32000)
"""Below the ports that Linux gives to outgoing connections (32768 and above by default)."""


@dataclass(frozen=True)
class Address:
    """A host, by its name or IP address, and a port."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Address:
        """The address of `HOST:PORT`; an IPv6 address is in brackets. Raises ValueError."""
        host, _, port = text.rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{text!r} is not HOST:PORT")
        return Address(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_name(host: str) -> bool:
    """Whether it is a name, and no IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def leads_there(address: str) -> bool:
    """Whether this is the address of another machine, and not that of a proxy beside the pod."""
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def absence(nodes: Sequence[Address], meet: Address, missing: Sequence[int], waited: float, wait: float) -> str:
    """Which pods are missing, by rank and address, and for how long of how many seconds they are waited for."""
    named = [f"rank {rank} at {nodes[rank] if rank else meet}" for rank in missing[:SHOWN]]
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return f"{len(missing)} of {len(nodes)} pods: {', '.join(named)}{more}, {waited:.0f} s of {wait:.0f} s"


def free_port(port: int) -> int:
    """`port`, or another one where connections of an earlier program still hold it.

    A program that does not reuse addresses would fail there for a minute.
    """
    ports = random.SystemRandom()
    for candidate in [port, *(ports.choice(_PORTS) for _ in range(20))]:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", candidate))
            return candidate
    return port


BEAT = 1.0
"""Seconds between two signs of life, in both directions."""
SILENCE = 10.0
"""Seconds without a sign of life after which a pod is lost."""
SETTLE = 3.0
"""Seconds after a failure in which the loss of another pod explains it, or a better explanation arrives."""
MOST_KILLS = 5
"""How often in a row a pod, or its program, may be killed while nothing new is written."""
MOST_KILLS_OF_ALL = 12
"""The same for all pods together: where memory is short, it is so for each of them."""

NODES_MISSING = 14
"""Exit code: a pod did not come within the time that the others wait."""
NEIGHBOUR_FAILED = 15
"""Exit code: the program of another pod failed. A Job of several nodes ignores it: the other's code counts."""
KILLED_AGAIN = 16
"""Exit code: the program of a pod, or the pod, was killed again and again."""

GATHERING, RUNNING, STOPPING, FINISHING, PUBLISHING, OVER = range(6)

_FIRST_WORD = 2.0
_OFTEN = (10.0, 30.0, 60.0)

Message = Mapping[str, Any]


@dataclass
class _Seat:
    """What is known of the pod of one rank."""

    missing_since: float
    is_here: bool = False
    is_ready: bool = False
    """Nothing runs there, and a program may start."""
    leaving: bool = False
    runs: bool = False
    ended: bool = False
    """Its program of this generation ended well."""
    confirmed: bool = False
    """It knows how the step ended."""
    seen: float = 0.0
    port: int = 0
    address: str = ""
    """Its IP address, as far as it knows it."""
    rank_0: str = ""
    """That of rank 0, as it sees it."""


@dataclass(frozen=True)
class _Failure:
    rank: int
    at: float
    code: int
    words: str
    consequent: bool


@dataclass
class Memory:
    """What a new coordinator has to know of the time before it, so every pod keeps it.

    `kills` are those in a row of each rank, `progress` a digest of the output when the generation began. `running`
    says that it was not over, `leaving` that the pod of rank 0 had been told to stop.
    """

    generation: int = 0
    kills: list[int] = field(default_factory=list)
    progress: str = ""
    running: bool = False
    leaving: bool = False

    @staticmethod
    def parse(raw: Mapping[str, Any], count: int) -> Memory:
        """The memory that a pod sent. Raises ValueError, KeyError or TypeError where it is none."""
        kills = [int(kill) for kill in raw["kills"]]
        if len(kills) not in (0, count):
            raise ValueError("its memory is that of another number of pods")
        return Memory(
            int(raw["generation"]), kills, str(raw["progress"]), bool(raw["running"]), bool(raw["leaving"])
        )


class Group:
    """The pods of one step. `nodes` are their addresses by rank, `meet` is where they meet.

    `decides` says of each rank whether the step is over only when its program has ended: parameter servers and
    evaluators do not end by themselves. A pod that is missing is waited for `wait` seconds.

    All times are in seconds of one monotonic clock. `outbox` fills with messages, each for one rank.
    """

    def __init__(
        self, nodes: Sequence[Address], meet: Address, decides: Sequence[bool], wait: float, now: float
    ) -> None:
        self.outbox: list[tuple[int, Message]] = []
        self.phase = GATHERING
        self.generation = 0
        self.verdict: Message | None = None
        self._nodes = nodes
        self._meet = meet
        self._decides = decides if any(decides) else [True] * len(nodes)
        self._wait = wait
        self._seats = [_Seat(now) for _ in nodes]
        self._kills = [0] * len(nodes)
        self._killed_now: set[int] = set()
        self._progress: str | None = None
        self._newest = ""
        self._checkpoints: dict[str, str] = {}
        self._failures: list[_Failure] = []
        self._reasons: list[str] = []
        self._gathering_since = now
        self._next_word = now + _FIRST_WORD
        self._over_since = now

    def join(self, rank: int, memory: Memory, now: float) -> None:
        """The pod of `rank` is here. Its program does not run."""
        seat = self._seats[rank]
        seat.is_here, seat.is_ready, seat.leaving, seat.runs, seat.seen = True, False, False, False, now
        self._adopt(memory)
        if self.verdict is not None:
            self._send(rank, self.verdict)

    def leave(self, rank: int, reason: str, now: float) -> None:
        """The connection to the pod of `rank` is gone; `reason` says how."""
        seat = self._seats[rank]
        if not seat.is_here:
            return
        ran, announced = seat.runs, seat.leaving
        seat.is_here = seat.is_ready = seat.leaving = seat.runs = False
        seat.missing_since = now
        if self.phase in (RUNNING, STOPPING) and ran and not seat.ended:
            if not announced:
                self._killed_now.add(rank)
            self._restart(f"pod {rank} was lost", "it was told to stop" if announced else reason)
        self._go_on(now)

    def hear(self, rank: int, message: Message, now: float) -> None:
        """The pod of `rank` sent a message. Raises ValueError, KeyError or TypeError where it is none."""
        seat = self._seats[rank]
        seat.seen = now
        kind = message["type"]
        if kind == "ready":
            if seat.runs and message["generation"] != self.generation:
                # It was sent before the pod was told to start.
                return
            seat.is_ready, seat.runs, seat.port = True, False, int(message["port"])
            seat.address, seat.rank_0 = str(message.get("own", "")), str(message.get("rank_0", ""))
            if rank == 0:
                self._newest = str(message.get("progress", ""))
                self._checkpoints = {name: str(message.get(name, "")) for name in ("checkpoint", "attempt")}
                if self.phase == PUBLISHING:
                    # It did not hear it where its connection was made anew.
                    self._send(0, {"type": "publish"})
        elif kind == "ended" and message["generation"] == self.generation and self.phase == RUNNING:
            self._note_end(rank, message, now)
        elif kind == "leaving":
            seat.leaving = True
            if rank == 0:
                self._tell({"type": "leaving"})
        elif kind == "broken":
            code, words = int(message["code"]), str(message["words"])
            text = f"pod {rank} ({self._nodes[rank].host}) failed with exit code {code}: {words}"
            self._fail(rank, code, words, text, now)
        elif kind == "published":
            self._end({"type": "done", "generation": self.generation}, now)
        elif kind == "bye":
            seat.confirmed = True
        self._go_on(now)

    def tick(self, now: float) -> None:
        """Let time pass. Call it several times a second."""
        if self.phase == RUNNING and self._failures:
            self._settle(now)
        if self.phase == GATHERING:
            self._look_for_missing(now)
        self._go_on(now)

    def silent(self, now: float) -> list[int]:
        """The ranks of which nothing was heard for too long."""
        return [rank for rank, seat in enumerate(self._seats) if seat.is_here and now - seat.seen > SILENCE]

    def is_over(self, now: float, patience: float) -> bool:
        """Whether rank 0 may leave: all pods know how the step ended, or that took longer than `patience`."""
        if self.verdict is None:
            return False
        if all(seat.confirmed or not seat.is_here for seat in self._seats):
            return True
        return now - self._over_since > patience

    def _adopt(self, memory: Memory) -> None:
        """Go on from a generation that another coordinator began."""
        if self.phase != GATHERING or memory.generation <= self.generation:
            return
        self.generation = memory.generation
        self._kills = list(memory.kills) or self._kills
        self._progress = memory.progress
        self._killed_now.clear()
        self._reasons.clear()
        self._reasons.append("pod 0 was lost")
        if memory.running and not memory.leaving:
            self._killed_now.add(0)

    def _note_end(self, rank: int, message: Message, now: float) -> None:
        seat = self._seats[rank]
        seat.runs = False
        how = message["how"]
        if how == "well":
            seat.ended = True
        elif how == "killed":
            self._killed_now.add(rank)
            self._restart(f"the program of pod {rank} was killed by {message['words']}", "")
        else:
            words = str(message["words"])
            self._failures.append(_Failure(rank, now, int(message["code"]), words, bool(message["consequent"])))

    def _settle(self, now: float) -> None:
        first = self._failures[0].at
        others = [seat for seat in self._seats if seat.is_here]
        if now < first + SETTLE or any(seat.seen <= first or seat.leaving for seat in others):
            return
        cause = next((failure for failure in self._failures if not failure.consequent), self._failures[0])
        host, words = self._nodes[cause.rank].host, f": {cause.words}" if cause.words else ""
        text = f"the program of pod {cause.rank} ({host}) failed with exit code {cause.code}{words}"
        self._say(f"Generation {self.generation} ended: {text}")
        self._fail(cause.rank, cause.code, cause.words, text, now)

    def _restart(self, reason: str, detail: str) -> None:
        self._reasons.append(reason)
        self._say(f"Generation {self.generation} ended: {reason}{f' ({detail})' if detail else ''}")
        if self.phase == RUNNING:
            self.phase = STOPPING
            self._failures.clear()
            self._tell({"type": "stop"})
            for seat in self._seats:
                seat.is_ready = False

    def _go_on(self, now: float) -> None:
        if self.phase == RUNNING:
            ended = [s.ended for s, decides in zip(self._seats, self._decides) if decides]  # noqa: B905
            if all(ended) and not self._failures:
                self.phase = FINISHING
                for rank, seat in enumerate(self._seats):
                    if seat.is_here and seat.runs:
                        self._send(rank, {"type": "finish"})
        if self.phase == FINISHING and not any(seat.is_here and seat.runs for seat in self._seats):
            self.phase = PUBLISHING
            self._say(f"Generation {self.generation}: all programs ended well")
            self._send(0, {"type": "publish"})
        if self.phase == STOPPING and all(seat.is_ready for seat in self._seats if seat.is_here):
            self.phase = GATHERING
            self._gathering_since, self._next_word = now, now + _FIRST_WORD
            for seat in self._seats:
                # Whoever was lost before is waited for from now on, as long as anybody.
                if not seat.is_here:
                    seat.missing_since = max(seat.missing_since, self._gathering_since)
        if self.phase == GATHERING and all(s.is_here and s.is_ready and not s.leaving for s in self._seats):
            self._begin(now)

    def _begin(self, now: float) -> None:
        if self._progress is not None and self._newest != self._progress:
            self._kills = [0] * len(self._kills)
        self._progress = self._newest
        for rank in self._killed_now:
            self._kills[rank] += 1
        self._killed_now.clear()
        worst = max(range(len(self._kills)), key=lambda rank: self._kills[rank])
        times, in_all = self._kills[worst], sum(self._kills)
        if times > MOST_KILLS or in_all > MOST_KILLS_OF_ALL:
            together = f" (all pods together {in_all} times)" if in_all > times else ""
            words = (
                f"was killed {times} times in a row{together}, and nothing new was written in between: most "
                "likely its memory does not suffice; ask for more of it, or let the program use less"
            )
            self._fail(worst, KILLED_AGAIN, words, f"pod {worst} ({self._nodes[worst].host}) {words}", now)
            return
        self.generation += 1
        self.phase = RUNNING
        for seat in self._seats:
            seat.runs, seat.ended, seat.is_ready = True, False, False
        if self._reasons:
            why = " and ".join(dict.fromkeys(self._reasons))
            text = f"Generation {self.generation}: {why}, all programs start again"
        elif self.generation == 1:
            text = f"Generation 1: all {len(self._seats)} pods are here, all programs start"
        else:
            text = f"Generation {self.generation}: all {len(self._seats)} pods are here, all programs start again"
        self._reasons.clear()
        self._failures.clear()
        self._tell(
            {
                "type": "start",
                "generation": self.generation,
                "nodes": self._addresses(),
                "text": text,
                "kills": self._kills,
                "progress": self._progress,
                **self._checkpoints,
            }
        )

    def _addresses(self) -> list[tuple[str, int]]:
        """Where the programs of this generation find one another: IP addresses, wherever they are known.

        A name server may have the address of a pod's predecessor for half a minute and longer: CoreDNS is set to
        `ttl 30` and `cache 30` (kubernetes.io/docs/tasks/administer-cluster/dns-custom-nameservers), on IBM Cloud
        to 120 s (cloud.ibm.com/docs/containers?topic=containers-cluster_dns; both seen November 2026).
        """
        first = next((seat.rank_0 for seat in self._seats[1:] if seat.rank_0), "")
        known = [first, *(seat.address for seat in self._seats[1:])]
        return [
            (address if is_name(node.host) and leads_there(address) else node.host, seat.port)
            for node, address, seat in zip(self._nodes, known, self._seats)  # noqa: B905
        ]

    def _fail(self, rank: int, code: int, words: str, text: str, now: float) -> None:
        self._end({"type": "failed", "rank": rank, "code": code, "words": words, "text": text}, now)

    def _look_for_missing(self, now: float) -> None:
        missing = [rank for rank, seat in enumerate(self._seats) if not seat.is_here or seat.leaving]
        waited = max((now - self._seats[rank].missing_since for rank in missing), default=0.0)
        if missing and waited >= self._wait:
            self._end({"type": "missing", "text": self._absence(missing, self._wait)}, now)
        elif now >= self._next_word:
            since = now - self._gathering_since
            self._next_word = now + next((moment for moment in _OFTEN if moment > since), _OFTEN[-1])
            unready = [rank for rank, seat in enumerate(self._seats) if not seat.is_ready]
            if missing:
                self._say(f"waiting for {self._absence(missing, waited)}")
            elif unready:
                ranks = ", ".join(str(rank) for rank in unready[:SHOWN])
                more = f" and {len(unready) - SHOWN} more" if len(unready) > SHOWN else ""
                self._say(f"waiting for pods that check their inputs: rank {ranks}{more}, {since:.0f} s")

    def _absence(self, missing: Sequence[int], waited: float) -> str:
        return absence(self._nodes, self._meet, missing, waited, self._wait)

    def _end(self, verdict: Message, now: float) -> None:
        if self.verdict is None:
            self.verdict, self.phase, self._over_since = verdict, OVER, now
            self._tell(verdict)

    def _say(self, text: str) -> None:
        self._tell({"type": "say", "text": text})

    def _tell(self, message: Message) -> None:
        for rank, seat in enumerate(self._seats):
            if seat.is_here:
                self._send(rank, message)

    def _send(self, rank: int, message: Message) -> None:
        self.outbox.append((rank, message))
