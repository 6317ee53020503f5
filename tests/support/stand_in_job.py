"""What the Job controller does with the pods of a step on several nodes, here: each pod is a process.

A pod that ends with a code that such a Job ignores gets a successor, with the same index; any other failure ends
the Job, and all its pods are told to end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from slipway.features.nodes.pod.group import NEIGHBOUR_FAILED
from slipway.rehearse.machine.processes import free_ports
from tests.support.checkout import ROOT
from tests.support.processes import processes_with_mark

IGNORED = {-signal.SIGKILL, -signal.SIGTERM, 137, 143, NEIGHBOUR_FAILED}
BACK_AFTER = 0.3
"""Seconds until a pod has a successor."""

_MARK = "STAND_IN_POD"
_GRACE = 25.0


class StandInJob:
    """One Job. `flags` are the launcher's but for the addresses; `words` are the program's."""

    def __init__(
        self,
        folder: Path,
        count: int,
        flags: Sequence[object],
        words: Sequence[object],
        *,
        environment: Mapping[str, str] | None = None,
        uid: str = "one Job",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.uid = uid
        self.count = count
        self.meet, *self.ports = free_ports(count + 1)
        nodes = [word for port in self.ports for word in ("--node", f"127.0.0.1:{port}")]
        self.command = [
            sys.executable, "-m", "slipway.features.nodes.pod.launcher", "--meet", f"127.0.0.1:{self.meet}",
            *nodes, *map(str, flags), "--", *map(str, words),
        ]  # fmt: skip
        self._environment = {**os.environ, "JOB_UID": uid, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        self.pods: dict[int, subprocess.Popen[bytes]] = {}
        self.codes: dict[int, list[int]] = {index: [] for index in range(count)}
        self.failed: int | None = None
        """The exit code that ended the Job."""
        self._again: dict[int, float] = {}
        self._done: set[int] = set()
        self._told_at = 0.0

    @property
    def is_over(self) -> bool:
        """Whether all pods have ended and none comes again."""
        if self.failed is not None:
            return all(pod.poll() is not None for pod in self.pods.values())
        return len(self._done) == self.count

    def start(self, index: int) -> None:
        """Start the pod of this index."""
        environment = {
            **self._environment,
            "JOB_COMPLETION_INDEX": str(index),
            _MARK: f"{self.folder}:{index}:",
        }
        with self.log(index).open("ab") as log:
            self.pods[index] = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def start_all(self) -> None:
        """Start every pod."""
        for index in range(self.count):
            self.start(index)

    def look_after(self) -> None:
        """What the controller does once: call it again and again."""
        now = time.monotonic()
        for index, pod in self.pods.items():
            code = pod.poll()
            if code is None or index in self._done or index in self._again or self.failed is not None:
                continue
            self.codes[index].append(code)
            if code == 0:
                self._done.add(index)
            elif code in IGNORED:
                self._again[index] = now + BACK_AFTER
            else:
                self.failed, self._told_at = code, now
                self._again.clear()
                for other in self.pods.values():
                    if other.poll() is None:
                        other.terminate()
        if self.failed is not None and now > self._told_at + _GRACE:
            self.kill()
        for index in [ended for ended, at in self._again.items() if now >= at]:
            del self._again[index]
            self.start(index)

    def run(self, limit: float = 120.0) -> None:
        """Look after the pods until the Job is over. Raises TimeoutError, with the ends of the logs."""
        end = time.monotonic() + limit
        while not self.is_over:
            self.look_after()
            if time.monotonic() > end:
                raise TimeoutError(f"not over after {limit:g} s\n{self.logs()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End every process of it."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for pod in self.pods.values():
            pod.wait()

    def left_behind(self, patience: float = 2.0) -> list[int]:
        """Processes that are still there some time after all pods ended."""
        end = time.monotonic() + patience
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.02)
        return left

    def processes(self, index: int | None = None) -> list[int]:
        """The processes of a pod, or of all: with their programs, and whatever these started."""
        return processes_with_mark(_MARK, f"{self.folder}:{'' if index is None else f'{index}:'}")

    def programs(self, index: int) -> list[int]:
        """The processes of a pod's program."""
        programs: list[int] = []
        for process in self.processes(index):
            with contextlib.suppress(OSError):
                if b"SLIPWAY_GENERATION=" in Path(f"/proc/{process}/environ").read_bytes():
                    programs.append(process)
        return programs

    def log(self, index: int) -> Path:
        """What all pods of this index wrote."""
        return self.folder / f"pod-{index}.log"

    def text(self, index: int) -> str:
        """The content of that log."""
        path = self.log(index)
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"--- pod {index}, {self.codes[index]}\n" + "\n".join(self.text(index).splitlines()[-30:])
            for index in range(self.count)
        )
