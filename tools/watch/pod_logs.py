"""The logs of pods, read on from where they were read before."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from infra.api_server import ApiServer, UnreadableError
from tools.watch.objects import time_of
from tools.watch.progress import Reading
from tools.watch.states import PodState

FIRST = 5000
"""Lines that a first look takes from the end of a log."""


@dataclass(frozen=True)
class Line:
    """A line of a log; ``stamp`` is its time as the kubelet wrote it, to the nanosecond, empty without one."""

    stamp: str
    text: str

    @property
    def at(self) -> datetime | None:
        """When it was written."""
        # Python reads microseconds.
        whole, dot, rest = self.stamp.partition(".")
        return time_of(f"{whole}.{rest.rstrip('Z')[:6]}+00:00" if dot else self.stamp)


def log_path(namespace: str, pod: str) -> str:
    """Where the API has the log of a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{pod}/log"


def lines(
    server: ApiServer, namespace: str, pod: str, container: str, after: str = "", **query: str
) -> Iterator[Line] | None:
    """The lines of a container's log that came after the stamp ``after``; None where there is no log (any more).

    Raises UnreadableError.
    """
    asked = {"container": container, "timestamps": "true", **query}
    if after:
        # The API takes whole seconds.
        asked["sinceTime"] = f"{after.partition('.')[0].rstrip('Z')}Z"
    found = server.lines(log_path(namespace, pod), **asked)
    return None if found is None else (each for each in map(_line, found) if not after or each.stamp > after)


def _line(written: str) -> Line:
    stamp, _, rest = written.partition(" ")
    if len(stamp) >= 20 and stamp[4:5] == "-" and "T" in stamp and stamp.endswith("Z"):
        return Line(stamp, rest)
    return Line("", written)


@dataclass
class PodLog:
    """What was read of one pod's log so far. ``cut`` says that its beginning was not read."""

    reading: Reading = field(default_factory=Reading)
    after: str = ""
    cut: bool = False
    whole: bool = False
    """Whether all of the log of a pod that has ended was read."""
    last: datetime | None = None

    def read_on(self, server: ApiServer, namespace: str, pod: PodState) -> str:
        """Takes up what came since; returns why it could not be read, empty where it was."""
        if self.whole:
            return ""
        first = not self.after
        try:
            found = lines(
                server,
                namespace,
                pod.name,
                pod.container,
                self.after,
                **({"tailLines": str(FIRST)} if first else {}),
            )
            count = 0
            for line in found or ():
                if not count and not line.stamp:
                    # Who serves logs without times serves them whole each time.
                    self.reading = Reading()
                count += 1
                self.reading.feed(line.text)
                self.after = max(self.after, line.stamp)
                self.last = line.at or self.last
        except UnreadableError as error:
            return str(error)
        self.cut = self.cut or (first and count >= FIRST)
        self.whole = pod.over
        return ""
