"""Workers of a step with items, run as their pods run them: as processes, on files that say what happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.runtime.store import publish, staging
from tests.support.servers.valkey import PASSWORD, ValkeyServer
from tests.support.steps import start

PROGRAM = """
import json, os, pathlib, sys, time
item, output, previous = map(pathlib.Path, [*sys.argv[1:], "/nowhere"][:3])
seen = pathlib.Path(os.environ["SEEN"])
with open(seen / "runs", "a") as runs:
    runs.write(item.stem + "\\n")
(seen / (item.stem + ".pid")).write_text(str(os.getpid()))
steps = output / "steps"
done = int(steps.read_text()) if steps.exists() else 0
word, _, rest = item.read_text().partition(" ")
for step in range(done, 2):
    (output / "steps.new").write_text(str(step + 1))
    (output / "steps.new").replace(steps)
    while word == "wait" and step == done and not (seen / (item.stem + ".go")).exists():
        time.sleep(0.01)
if word == "fail" and not (seen / "repaired").exists():
    sys.exit(rest)
before = previous / "model"
model = (before.read_text() if before.exists() else "") + item.stem[-1]
(output / "model").write_text(model)
(output / "summary.json").write_text(json.dumps({"model": model, "resumed": done, "curve": [1, 2]}))
"""


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Step:
    """A step `churn.days` on the files of a finished step `data`, and its workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "store" / "days" / "one"
        self.seen = folder / "seen"
        self.code = folder / "code"
        self.queue: ValkeyServer | None = None
        self.processes: list[subprocess.Popen[str]] = []
        self.seen.mkdir()
        self.code.mkdir()
        (self.code / "program.py").write_text(PROGRAM)

    def data(self, days: Mapping[str, str], name: str = "data") -> Path:
        """Publish files, each with what becomes of it as its content."""
        with staging() as staged:
            (staged / "days").mkdir()
            for day, content in days.items():
                (staged / "days" / f"{day}.csv").write_text(content)
            publish(staged, self.folder / name, step="data", inputs={}, settings={}, summary={})
        return self.folder / name

    def start(self, *flags: object, words: tuple[str, ...] = (), **variables: str) -> subprocess.Popen[str]:
        """Start a worker. `flags` replace those before them."""
        data = self.folder / "data"
        queue: tuple[object, ...] = ()
        if self.queue is not None:
            queue = ("--queue", self.queue.address, "--queue-password", "QUEUE_PASSWORD")
        program = words or (sys.executable, "-S", "program.py", "{item}", "{output}")
        process = start(
            "slipway.features.items.pod.worker",
            "--output", self.output, "--step", "churn.days", "--code", self.code, "--input", f"data={data}",
            "--items", f"{data}/days/*.csv", "--lease", "2", *queue, *flags,
            "--", *program,
            **{"JOB_UID": "round-1", "SEEN": str(self.seen), "QUEUE_PASSWORD": PASSWORD, **variables},
        )  # fmt: skip
        self.processes.append(process)
        return process

    def run(self, *flags: object, code: int = 0, words: tuple[str, ...] = (), **variables: str) -> str:
        """Run a worker to its end."""
        return ended(self.start(*flags, words=words, **variables), code)

    def pid(self, day: str) -> int:
        """The process of the program that works on a day, once it does."""
        path = self.seen / f"{day}.pid"
        wait_until(lambda: path.exists() and path.read_text())
        return int(path.read_text())

    def again(self, day: str) -> None:
        """Forget that a program has worked on a day."""
        (self.seen / f"{day}.pid").unlink()

    def go(self, *days: str) -> None:
        """Let the programs go on that wait."""
        for day in days:
            (self.seen / f"{day}.go").touch()

    @property
    def runs(self) -> list[str]:
        """The days of all programs that were started."""
        path = self.seen / "runs"
        return path.read_text().split() if path.exists() else []

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["item"]: row for row in json.loads((self.output / "items.json").read_text())}

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
            process.wait()
        for path in self.seen.glob("*.pid"):
            if path.read_text():
                wait_until(lambda path=path: not alive(int(path.read_text())))


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    """What a worker wrote; the test fails where it ends with another exit code."""
    output, _ = process.communicate(timeout=120)
    assert process.returncode == code, f"exit code {process.returncode} instead of {code}:\n{output}"
    assert "Traceback" not in output, output
    return output


@pytest.fixture
def step(tmp_path: Path) -> Iterator[Step]:
    """A step without a queue. No process of it is left behind."""
    made = Step(tmp_path)
    yield made
    made.end()


@pytest.fixture
def queued(step: Step, valkey_server: ValkeyServer) -> Step:
    """A step with a queue."""
    step.queue = valkey_server
    return step
