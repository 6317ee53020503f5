"""Rehearsals of stack files and of programs, and what they leave: records, logs, processes."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml
from rich.console import Console

from slipway.infra.program import declare
from slipway.rehearse.engine import Engine
from slipway.rehearse.output.outcome import Options, Outcome
from slipway.rehearse.session import Session, configure
from slipway.rehearse.state import JobRecord, Phase, ServiceRecord
from tests.support.checkout import ROOT
from tests.support.tree import write_tree

SMALL: Mapping[str, str] = {"pool": "cpu", "cpu": "100m", "memory": "512Mi", "ephemeral_storage": "100Mi"}
"""What the stack file says of a step that needs next to nothing."""


def stack_file(
    file: Path,
    stack: str = "local",
    change: Callable[[dict[str, Any]], object] = lambda _: None,
    **settings: object,
) -> Path:
    """Writes the file of a stack that ships with these settings, its ``config`` then changed in place."""
    content = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8"))
    content["config"].update({f"slipway:{key}": value for key, value in settings.items()})
    change(content["config"])
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def several_nodes(count: int) -> Callable[[dict[str, Any]], None]:
    """Gives the stack `local` so many nodes, and a store that all of them mount."""

    def change(config: dict[str, Any]) -> None:
        config["slipway:clusters"]["local"]["pools"]["cpu"]["nodes"] = count
        config["slipway:store"] |= {"access_mode": "ReadWriteMany", "storage_class": "files"}

    return change


def pipeline_folder(folder: Path, files: Mapping[str, str], **declared: object) -> str:
    """Writes a pipeline's programs and its ``pipeline.yaml``; returns the folder, as a stack file names it."""
    content = {"description": "A toy.", **declared}
    write_tree(folder, {**files, "pipeline.yaml": yaml.safe_dump(content, sort_keys=False)})
    return str(folder)


def recording_console() -> Console:
    return Console(record=True, file=sys.stderr, width=200, highlight=False)


def rehearse_file(
    folder: Path,
    file: Path | None,
    program: Callable[[], object] = declare,
    *,
    stack: str = "local",
    root: Path = ROOT,
    fresh: bool = False,
    disrupt: str | None = None,
    quiet: int = 0,
    console: Console | None = None,
    keep: Callable[[Engine], None] | None = None,
) -> tuple[Outcome, str]:
    """Rehearses a stack into ``folder``; returns the outcome and what was printed.

    ``file`` is used in place of the stack's own, ``keep`` is called when the Jobs are done.
    """
    console = console or recording_console()
    options = Options(stack, root, folder, fresh=fresh, disrupt=disrupt, quiet=quiet)
    outcome = Session(program, configure(stack, root, file), options, console, keep).run()
    return outcome, console.export_text()


class Running:
    """A Python program in a group of its own, as a shell starts it, and what it has printed."""

    def __init__(self, *words: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self._lines.extend(iter(self.process.stdout.readline, ""))

    @property
    def text(self) -> str:
        return "".join(self._lines)

    def until(self, condition: Callable[[], object], seconds: float = 90) -> None:
        """Waits for something that has to happen while it runs."""
        wait_until(condition, seconds, running=lambda: self.process.poll() is None, says=lambda: self.text)

    def end(self, code: int = 0, seconds: float = 200) -> str:
        """All that it has printed once it has ended with this code."""
        assert self.process.wait(timeout=seconds) == code, self.text
        self._reader.join(timeout=seconds)
        return self.text

    def children(self, *words: str) -> list[psutil.Process]:
        """The processes below it whose command line has all of these words."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in below if all(word in " ".join(process.cmdline()) for word in words)]

    def kill(self) -> None:
        """Leaves it no time to end anything."""
        self.process.kill()
        self.process.wait()


def phases(outcome: Outcome) -> dict[str, Phase]:
    return {record.name: record.phase for record in outcome.records}


def record(outcome: Outcome, name: str = "") -> JobRecord:
    """The record of the Job of this name, or of the only one."""
    (only,) = [job for job in outcome.records if name in ("", job.name)]
    return only


def server_record(outcome: Outcome, name: str = "") -> ServiceRecord:
    """The record of the service or app of this name, or of the only one."""
    (only,) = [server for server in outcome.services if name in ("", server.name)]
    return only


def log(folder: Path, name: str) -> str:
    return (folder / "logs" / f"{name}.log").read_text(encoding="utf-8")


def resumed_after(folder: Path, name: str = "toy-train") -> int:
    """The epoch after which the toys' training began the last time."""
    return int(log(folder, name).rsplit("starting after ", 1)[1].split()[0])


def texts_below(folder: Path) -> list[str]:
    """The texts of all files below a folder."""
    return [path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()]


def processes_of(folder: Path) -> list[psutil.Process]:
    """Those of this machine with a word of their command line that begins with the path of ``folder``."""
    running = psutil.process_iter(["cmdline"])
    return [
        process
        for process in running
        if any(word.startswith(str(folder)) for word in process.info["cmdline"] or [])
    ]


def all_end(processes: Sequence[psutil.Process]) -> bool:
    """Whether all of them have ended within some seconds."""
    _, alive = psutil.wait_procs(processes, timeout=20)
    return not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def wait_until(
    condition: Callable[[], object],
    seconds: float = 60,
    *,
    running: Callable[[], bool] = lambda: True,
    says: Callable[[], str] = str,
) -> None:
    """Waits until something is so. Fails after ``seconds``, or when what it waits for is not ``running``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert running(), f"it ended: {says()}"
        assert time.monotonic() < deadline, f"not within {seconds} s: {says()}"
        time.sleep(0.02)
