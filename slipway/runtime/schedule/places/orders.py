"""Files in the store by which the mover of a step has Jobs of other clusters run.

No cluster reaches the API server of another one; all that they share is the store. Below the folder of a step's
mover, each other cluster has three folders:

- `orders`: what the mover wants (`Order`), a new file every `RENEW` seconds and at each change;
- `answers`: what the agent of the cluster made of it (`Answer` in `slipway.runtime.schedule.places.clusters`);
- `asks`: each pod of the step asks whether its program may run (`slipway.runtime.schedule.places.hold`).

A file is named `<writer>.<number>.json`, and never changes: a mount that keeps what it has read does not hide a
new name for long. The writer of orders is an epoch, which each pod of the mover raises; the others are pods.

**Lease.** An order names the newest ask of each pod that it has heard (`heard`). The pod's program may run for
`TTL` seconds from when the pod *wrote* that ask, on its own clock. So it needs neither a common clock nor a store
that shows files soon: where it is slow, programs end too early rather than too late. `TTL + FENCE` seconds after
the mover wrote the last order that wants a Job, no program of it runs, whatever became of its cluster.

**Epochs.** A mover on a lost node may go on writing. It reads asks before it makes sure that the Jobs of its own
cluster are still its own, and writes its order after that: what it heard, it heard before the next mover took
over. Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from slipway.runtime.store import write_atomically

RENEW = 20.0
"""Seconds between two orders, and between two asks of a pod."""

TTL = 300.0
"""Seconds for which a program may run from an ask that was heard, and after which a cluster counts as silent."""

FENCE = 120.0
"""Seconds past `TTL` after which a program has ended for certain: it has 25 to end, and clocks run apart by less
than a percent."""

KEEP = 20
"""Files of a writer that stay: some minutes of them, as long as mounts may show names that are gone."""

ORDERS, ANSWERS, ASKS = "orders", "answers", "asks"
"""The folders of a cluster."""

_NAME = re.compile(r"(?P<writer>.+)\.(?P<number>\d{8})\.json")


@dataclass(frozen=True)
class Entry:
    """The newest file of a writer: its number, and its content, an object."""

    number: int
    content: Mapping[str, Any]


@dataclass
class Feed:
    """A folder with numbered files of several writers."""

    folder: Path
    _newest: dict[str, Entry] = field(default_factory=dict[str, Entry])
    _numbers: dict[str, int] = field(default_factory=dict[str, int])

    def append(self, writer: str, content: Mapping[str, Any]) -> int:
        """Leave a file with the next number, which is returned. Only one process may be this writer.

        Raises OSError.
        """
        # A number that may have been seen is not given again, also where it could not be written whole.
        number = self._numbers[writer] = self.last(writer) + 1
        self._write(f"{writer}.{number:08d}.json", json.dumps(content, sort_keys=True).encode())
        if number > KEEP:
            with contextlib.suppress(OSError):
                self._remove(f"{writer}.{number - KEEP:08d}.json")
        return number

    def last(self, writer: str) -> int:
        """The number of the last file that this process left as that writer, 0 before the first."""
        return self._numbers.get(writer, 0)

    def read(self) -> Mapping[str, Entry]:
        """The newest file of each writer. What was read once stays, also where it is not there any more.

        Raises OSError where the folder cannot be read.
        """
        numbers: dict[str, int] = {}
        for name in self._names():
            if match := _NAME.fullmatch(name):
                writer, number = match["writer"], int(match["number"])
                numbers[writer] = max(number, numbers.get(writer, 0))
        for writer, number in numbers.items():
            if writer not in self._newest or number > self._newest[writer].number:
                # One that is gone again, or cannot be read whole yet, is looked for next time.
                with contextlib.suppress(OSError, ValueError):
                    content: Any = json.loads(self._load(f"{writer}.{number:08d}.json"))
                    if isinstance(content, dict):
                        self._newest[writer] = Entry(number, cast("dict[str, Any]", content))
        return self._newest

    def remove(self, writers: Collection[str]) -> None:
        """Remove what these writers left, as far as that is possible."""
        with contextlib.suppress(OSError):
            for name in self._names():
                if (match := _NAME.fullmatch(name)) and match["writer"] in writers:
                    with contextlib.suppress(OSError):
                        self._remove(name)

    def _names(self) -> Iterable[str]:
        try:
            return [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []

    def _load(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def _write(self, name: str, content: bytes) -> None:
        write_atomically(self.folder / name, content)

    def _remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)


@dataclass(frozen=True)
class Feeds:
    """The folders of one cluster."""

    orders: Feed
    answers: Feed
    asks: Feed

    @classmethod
    def below(cls, folder: Path) -> Feeds:
        """Those of the cluster that has this folder."""
        return cls(Feed(folder / ORDERS), Feed(folder / ANSWERS), Feed(folder / ASKS))


@dataclass(frozen=True)
class Order:
    """Which Jobs may run (`wanted`), and the number of the newest ask of each of their pods that was heard.

    With a `code` the mover has ended with that exit code, as `why` says.
    """

    epoch: int
    number: int
    wanted: Sequence[str]
    heard: Mapping[str, int]
    code: int | None = None
    why: str = ""

    @property
    def position(self) -> tuple[int, int]:
        """What is larger for a later order."""
        return self.epoch, self.number

    def write(self, feed: Feed) -> int:
        """Leave it as the next order of its epoch, whatever its number says, and return that. Raises OSError."""
        content = asdict(self)
        del content["epoch"], content["number"]
        return feed.append(str(self.epoch), content)

    @classmethod
    def newest(cls, feed: Feed) -> Order | None:
        """The newest order of the highest epoch; None where there is none. Raises OSError."""
        epochs = {int(writer): entry for writer, entry in feed.read().items() if writer.isdigit()}
        if not epochs:
            return None
        epoch = max(epochs)
        return cls(epoch, epochs[epoch].number, **epochs[epoch].content)
