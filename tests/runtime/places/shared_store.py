"""A store that several clusters share: slow to show files, at times out of reach, with answers that get lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from slipway.runtime.schedule.places.orders import ANSWERS, ASKS, ORDERS, Feed, Feeds

CUT_SECONDS = 1200.0
"""The longest time for which a cluster is cut off."""


@dataclass
class File:
    """``at`` says since when it is there, ``gone`` since when not, by the cluster that looks."""

    content: bytes
    at: dict[str, float]
    gone: dict[str, float] = field(default_factory=dict)


@dataclass
class Store:
    """``slow`` is the longest time in seconds after which a cluster sees what another one did. ``cuts`` is how
    likely it is in a second that a cluster is cut off, ``refuses`` that a request fails, done or not.
    """

    chance: random.Random
    clusters: Iterable[str]
    now: Callable[[], float]
    slow: float = 0.0
    cuts: float = 0.0
    refuses: float = 0.0
    folders: dict[str, dict[str, File]] = field(default_factory=dict)
    cut_until: dict[str, float] = field(default_factory=dict)

    def pass_second(self) -> None:
        for cluster in self.clusters:
            if self.chance.random() < self.cuts:
                self.cut_until[cluster] = self.now() + self.chance.random() * CUT_SECONDS

    def is_cut(self, cluster: str) -> bool:
        return self.now() < self.cut_until.get(cluster, 0.0)

    def reach(self, cluster: str) -> None:
        if self.is_cut(cluster):
            raise OSError("the store cannot be reached")
        if self.chance.random() < self.refuses:
            raise OSError("input/output error")

    def delays(self) -> dict[str, float]:
        return {cluster: self.now() + self.chance.random() * self.slow for cluster in self.clusters}

    def feeds(self, cluster: str, of: str, turn: Callable[[], None] = lambda: None) -> Feeds:
        """The folders of the cluster ``of`` as ``cluster`` sees them; ``turn`` is called before each request."""
        return Feeds(*(SharedFeed(Path(of) / kind, self, cluster, turn) for kind in (ORDERS, ANSWERS, ASKS)))


class SharedFeed(Feed):
    def __init__(self, folder: Path, store: Store, cluster: str, turn: Callable[[], None]) -> None:
        super().__init__(folder)
        self._store, self._cluster, self._turn = store, cluster, turn

    def _names(self) -> Iterable[str]:
        self._turn()
        now = self._store.now()
        self._store.reach(self._cluster)
        return [
            name
            for name, file in self._files.items()
            if file.at[self._cluster] <= now < file.gone.get(self._cluster, now + 1)
        ]

    def _load(self, name: str) -> bytes:
        self._store.reach(self._cluster)
        file = self._files.get(name)
        if file is None or file.gone:
            raise FileNotFoundError(name)
        return file.content

    def _write(self, name: str, content: bytes) -> None:
        self._turn()
        self._store.reach(self._cluster)
        assert name not in self._files, "a file never changes"
        self._files[name] = File(content, {**self._store.delays(), self._cluster: self._store.now()})
        # It was written, and nobody says so.
        self._store.reach(self._cluster)

    def _remove(self, name: str) -> None:
        self._store.reach(self._cluster)
        if name in self._files and not self._files[name].gone:
            self._files[name].gone = self._store.delays()
        for other in [other for other, file in self._files.items() if self._is_over(file)]:
            del self._files[other]

    def _is_over(self, file: File) -> bool:
        """Whether nobody sees the file any more."""
        return bool(file.gone) and max(file.gone.values()) <= self._store.now()

    @property
    def _files(self) -> dict[str, File]:
        return self._store.folders.setdefault(str(self.folder), {})
