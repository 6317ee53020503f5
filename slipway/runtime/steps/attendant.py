"""A program with checkpoints, from its start to its end: what it is told, and how long it has when it has to end.

Standard library only.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.runtime.checkpoints.copies import FOLDER, Copies
from slipway.runtime.checkpoints.session import Checkpoints
from slipway.runtime.steps import notice
from slipway.runtime.steps.notice import POD, Notice
from slipway.runtime.steps.program import Program, send
from slipway.runtime.store import Manifest

_LOOK = 0.1
"""Seconds between two looks at whether the program has ended or has to."""
_RESERVE = 5.0
"""Seconds that are kept of the pod's last ones for the copy of the last checkpoint; more where the last one took
longer, and at most half of them."""
_LAST = 1.0
"""Seconds of the pod's last ones in which nothing is copied any more."""


@dataclass(frozen=True)
class Settings:
    """What a step says of its checkpoints, as the runner is given it in JSON.

    `every` is in seconds, `bandwidth` in bytes a second; 0: any. `signal` is the name of the signal by which the
    program wants to be told, `grace` how many seconds a pod has after SIGTERM. With `parts` all pods of a step on
    several nodes write checkpoints, else the first one.
    """

    every: float = 0.0
    bandwidth: float = 0.0
    signal: str = "SIGTERM"
    grace: float = 25.0
    parts: bool = False

    @staticmethod
    def parse(text: str) -> Settings:
        """Raises ArgumentTypeError."""
        try:
            settings = Settings(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
        if settings.signal not in signal.Signals.__members__:
            raise argparse.ArgumentTypeError(f"{text!r}: there is no signal {settings.signal}")
        return settings


class Attendant:
    """Stands by a program that has checkpoints. `folder` is the directory in the store of its step or item.

    `part` of `count` pods is this one.
    """

    def __init__(self, settings: Settings, folder: Path, work: Manifest, *, part: int = 0, count: int = 1) -> None:
        self._settings = settings
        self._until = self._program_until = 0.0
        self._reason = POD
        self._killed = False
        copies = Copies(folder / FOLDER, work, part=part, count=count if settings.parts else 1)
        self.checkpoints = Checkpoints(
            Path(tempfile.mkdtemp(prefix="slipway-checkpoint-")),
            copies,
            every=settings.every,
            bandwidth=settings.bandwidth,
            parts=settings.parts and count > 1,
            follows=part > 0,
        )
        self._copies_here = settings.parts or part == 0
        self._notice = Path()

    def prepare(self, program: Program) -> Program:
        """Restore the newest checkpoint, and begin to copy; the program as it is to start.

        Raises StepError where the store or the disk cannot be used.
        """
        self.checkpoints.restore()
        return self.start(program)

    def restore(self, chosen: str) -> None:
        """Restore the checkpoint that all pods begin with, by the name of its folder in the store; none where it
        is empty. Raises StepError, and NotWholeError where it is damaged.
        """
        self.checkpoints.restore(chosen, alone=False)

    def start(self, program: Program, attempt: str = "") -> Program:
        """Begin to copy; the program as it is to start."""
        checkpoints = self.checkpoints
        environment = {name: checkpoints.fill(value) for name, value in program.environment.items()}
        self._notice = notice.path_in(environment)
        if self._copies_here:
            checkpoints.start(attempt)
        return dataclasses.replace(
            program,
            words=[checkpoints.fill(word) for word in program.words],
            environment={**environment, **checkpoints.environment},
        )

    def attend(self, process: subprocess.Popen[bytes], received: Sequence[int]) -> int:
        """Wait for the end of the program, and tell it of signals as they are `received`; its exit code."""
        handled = 0
        while True:
            try:
                return process.wait(_LOOK)
            except subprocess.TimeoutExpired:
                pass
            for number in received[handled:]:
                handled += 1
                if number == signal.SIGTERM and not self._until:
                    seconds, wanted = self.begin_end()
                    print(f"told to end: {self._reason}, {seconds:.0f} s are left", flush=True)
                    send(process, wanted, signal.SIGTERM)
                elif number == signal.SIGTERM:
                    send(process, number)
            if self._until and not self._killed and time.time() > self._program_until:
                self._killed = True
                send(process, signal.SIGKILL)

    def begin_end(self) -> tuple[float, int]:
        """Give the program notice, and copy its newest checkpoint at once: the seconds that it has, and the signal
        that it is to get.
        """
        given = notice.read(self._notice)
        now = time.time()
        self._until = given.until if given else now + self._settings.grace
        self._reason = given.reason if given else POD
        left = max(0.0, self._until - now)
        reserve = min(max(_RESERVE, 1.2 * self.checkpoints.lasted), left / 2)
        self._program_until = self._until - reserve
        Notice(self._program_until, self._reason).write(self._notice)
        self.checkpoints.hurry()
        return left - reserve, signal.Signals[self._settings.signal]

    def finish(self, *, well: bool, told: Callable[[], bool]) -> None:
        """What is done with the newest checkpoint once the program has ended: nothing where it ended `well`, else
        it is copied. `told` says whether the pod has been told to end by now.
        """
        if well:
            self.checkpoints.stop()
            return

        def seconds() -> float | None:
            if not self._until and told():
                self.begin_end()
            return max(0.0, self._until - _LAST - time.time()) if self._until else None

        self.checkpoints.finish(seconds)

    def close(self) -> None:
        """Delete what is on the disk of the node."""
        self.checkpoints.stop()
        self.checkpoints.close()


def discard(folder: Path) -> None:
    """Delete the checkpoints of a step or item that has a result."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
