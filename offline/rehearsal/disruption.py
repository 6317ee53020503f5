"""The eviction of one pod in the middle of its work, as a Spot node's end brings it."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from offline.rehearsal.job_controller import JobSpec
from offline.rehearsal.processes import Stop

EPOCH = re.compile(rb"^Epoch (?P<done>\d+)/(?P<all>\d+)\b")

EVICT_AFTER = 3
"""A pod that is to be disrupted is evicted after one in this many of its epochs."""

EVICT_WORKER_AFTER = 1.0
"""Seconds between the first line of a worker that is to be disrupted and its eviction."""

EVICT_NODE_AFTER = 40.0
"""Seconds between the moment when all of several nodes have written a line and the eviction of one, where none has
told of an epoch by then."""

FIRST, SECOND = 0, 1


@dataclass
class Disruption:
    """Evicts the first pod of ``job`` that has the index ``target``, once. Usable from several threads.

    A training's is evicted after some of its epochs, that of a worker soon after it began. Of several nodes one is
    evicted after some epochs of the whole training, which one of the pods prints. ``evicted`` is told what was.
    """

    job: JobSpec
    target: int
    evicted: Callable[[str], None]
    _stop: Stop | None = None
    _over: bool = False
    _began: set[int] = field(default_factory=set[int])
    _timer: threading.Timer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, job: JobSpec, index: int | None, evicted: Callable[[str], None]) -> "Disruption":
        """That of the pod with this index, or of the one that says most: a node that others have to miss."""
        default = SECOND if job.together else FIRST
        return cls(job, default if index is None else index, evicted)

    def starts(self, index: int, number: int, stop: Stop) -> None:
        """The pod with this number, from 1, of those with an index starts; ``stop`` is what ends it."""
        if (index, number) == (self.target, 1):
            with self._lock:
                self._stop = None if self._over else stop

    def ended(self, index: int) -> None:
        """A pod with this index ended."""
        if index == self.target:
            with self._lock:
                self._forget()

    def wrote(self, index: int) -> None:
        """A pod with this index wrote a line."""
        if not self.job.indexed:
            return
        with self._lock:
            new = index not in self._began
            self._began.add(index)
            waits = len(self._began) < self.job.workers if self.job.together else index != self.target
            if self._stop is not None and new and not waits:
                after = EVICT_NODE_AFTER if self.job.together else EVICT_WORKER_AFTER
                self._timer = threading.Timer(
                    after, self._evict, [f"{self.job.who(self.target) or 'pod'} evicted"]
                )
                self._timer.daemon = True
                self._timer.start()

    def trained(self, done: int, every: int) -> None:
        """That many of a training's epochs are done."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
        if done * EVICT_AFTER >= every:
            self._evict(f"{self.job.who(self.target) or 'pod'} evicted after epoch {done}")

    def _evict(self, what: str) -> None:
        """As an eviction through the Kubernetes API does; of a pod that has ended it says nothing."""
        with self._lock:
            stop = self._stop
            self._over = self._over or stop is not None
            self._forget()
        if stop is not None and not stop.requested:
            stop.request("evicted", self.job.pod.grace_period)
            self.evicted(f"{what} (DisruptionTarget)")

    def _forget(self) -> None:
        self._stop = None
        if self._timer is not None:
            self._timer.cancel()
