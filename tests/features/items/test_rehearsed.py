"""A step with items, workers and a real queue, rehearsed as its users do, through whatever ends a process."""

import contextlib
import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from slipway.rehearse.cluster import services
from slipway.rehearse.cluster.server_specs import Probe
from tests.support.rehearsing import SMALL, Running, all_end, pipeline_folder, stack_file
from tests.support.servers.valkey import PASSWORD, ValkeyServer, valkey_program, valkey_server

__all__ = ["valkey_server"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PREPARE = """
import pathlib, sys
days = pathlib.Path(sys.argv[2], "days")
days.mkdir()
for day in range(1, int(sys.argv[1]) + 1):
    (days / f"2018-04-{day:02}.csv").write_text(f"{day}\\n")
"""
DAY = """
import json, pathlib, sys, time
day, seconds, broken = int(pathlib.Path(sys.argv[1]).read_text()), float(sys.argv[2]), int(sys.argv[3])
print("works on", day, flush=True)
time.sleep(seconds)
if day == broken:
    sys.exit(print("no transaction in this file") or 1)
pathlib.Path(sys.argv[4], "summary.json").write_text(json.dumps({"squared": day * day}))
"""
DECLARED = {
    "parameters": {
        "count": {"type": "integer", "default": 6},
        "seconds": {"type": "number", "default": 0.5},
        "broken": {"type": "integer", "default": 0},
    },
    "services": {"queue": {"kind": "valkey"}},
    "steps": {
        "prepare": {"run": ["python", "prepare.py", "{count}", "{output}"]},
        "days": {
            "run": ["python", "day.py", "{item}", "{seconds}", "{broken}", "{output}"],
            "items": {
                "files": "{prepare}/days/*.csv",
                "mode": "parallel",
                "queue": "queue",
                "lease": "5s",
                "attempts": 2,
                "columns": {"squared": {"format": "integer"}},
            },
            "workers": 3,
        },
    },
}


@dataclass
class Pipeline:
    """A pipeline and a stack that runs it, in a folder, with a `valkey-server` on PATH or without."""

    folder: Path
    path: str

    def __post_init__(self) -> None:
        pipeline_folder(self.folder / "toy", {"prepare.py": PREPARE, "day.py": DAY}, **DECLARED)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def start(self, *options: str, **parameters: Any) -> Running:
        section = {"uses": str(self.folder / "toy"), "steps": {"prepare": SMALL, "days": SMALL}, **parameters}
        pipelines = {"toy": {**section, "services": {"queue": SMALL}}}
        file = stack_file(self.folder / "stack.yaml", pipelines=pipelines)
        arguments = ("--stack", "local", "--config-file", str(file), "--output", str(self.out), *options)
        return Running("-m", "slipway", "rehearse", *arguments, PATH=self.path)

    def rehearse(self, *options: str, code: int = 0, **parameters: Any) -> str:
        return self.start(*options, **parameters).end(code)

    def log(self, name: str = "toy-days") -> str:
        file = self.out / "logs" / f"{name}.log"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def worked_on(self) -> list[int]:
        """The days on which the program was started in the last rehearsal, in order."""
        return sorted(map(int, re.findall(r"works on (\d+)", self.log())))

    def processes(self, *words: str) -> list[psutil.Process]:
        """Those that its rehearsals started whose command line has all of these words."""
        processes: list[psutil.Process] = []
        for process in psutil.process_iter(["cmdline", "cwd"]):
            line = " ".join(process.info["cmdline"] or [])
            # The server replaces its command line; it works in the folder of its data.
            here = str(self.out) in line or (process.info["cwd"] or "").startswith(str(self.out))
            ours = "slipway rehearse" in line or "slipway.rehearse" in line
            if here and not ours and all(word in line for word in words):
                processes.append(process)
        return processes


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """With the server on PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "valkey-server").symlink_to(valkey_program())
    return Pipeline(tmp_path, f"{programs}{os.pathsep}{os.environ['PATH']}")


SIX = [1, 2, 3, 4, 5, 6]


def test_items_go_through_the_queue_and_a_new_day_is_the_only_one_worked_on(pipeline: Pipeline) -> None:
    printed = pipeline.rehearse()
    assert "Items, 6 of 6 done" in printed
    assert re.search(r"2018-04-06 +done +1 +[\d.]+ +36", printed)
    assert re.search(r"toy-queue +cpu +[\d.]+ s +\d+ MiB +ended", printed)
    assert "stands in" not in printed, "a server on PATH wins"
    assert pipeline.worked_on() == SIX
    assert {f"[{index}]" for index in range(3)} == set(re.findall(r"^\[\d\]", pipeline.log(), re.MULTILINE))
    assert pipeline.processes() == []

    again = pipeline.rehearse()
    assert re.search(r"toy-queue +cpu +not started", again)
    assert "0 Jobs run" in again

    more = pipeline.rehearse(count=7)
    assert "Items, 7 of 7 done" in more
    assert pipeline.worked_on() == [7]


def test_workers_without_a_queue_each_have_a_share_of_the_items(pipeline: Pipeline) -> None:
    printed = pipeline.rehearse(steps={"prepare": SMALL, "days": {**SMALL, "assignment": "static"}})
    assert "Items, 6 of 6 done" in printed
    assert pipeline.worked_on() == SIX
    assert [len(re.findall(rf"^\[{index}\] works on", pipeline.log(), re.MULTILINE)) for index in range(3)] == [
        2,
        2,
        2,
    ]
    assert pipeline.log("toy-queue") == ""


def test_a_failed_item_is_shown_with_its_reason_and_the_others_are_done(pipeline: Pipeline) -> None:
    printed = pipeline.rehearse(code=1, broken=3)
    assert "exit code 10" in printed
    assert "Items, 5 of 6 done, 1 failed" in printed
    (row,) = re.findall(r"^2018-04-03 .*", printed, re.MULTILINE)
    assert "failed" in row
    assert "exit code 1" in row
    report = (pipeline.out / "report.html").read_text(encoding="utf-8")
    assert "Items, 5 of 6 done, 1 failed" in report
    assert re.search(r'<tr class="wrong">\s*<td>\s*2018-04-03', report)

    assert "Items, 6 of 6 done" in pipeline.rehearse()
    # The broken parameter is part of the work, so that all are made again.
    assert pipeline.worked_on() == SIX


def test_a_rehearsal_that_is_killed_leaves_no_process_and_the_next_goes_on(pipeline: Pipeline) -> None:
    rehearsal = pipeline.start(seconds=2.0)
    rehearsal.until(lambda: len(list(pipeline.out.glob("store/toy/days/*/*/result.json"))) >= 2)
    running = pipeline.processes()
    assert len(running) >= 4, "three workers and the server"
    rehearsal.kill()
    assert all_end(running)
    assert pipeline.processes() == []
    done = {int(path.parent.name[-2:]) for path in pipeline.out.glob("store/toy/days/*/*/result.json")}

    printed = pipeline.rehearse("--disrupt", "days", seconds=2.0)
    assert "Items, 6 of 6 done" in printed
    assert not done & set(pipeline.worked_on())
    assert "worker 0 evicted (DisruptionTarget)" in printed, "its item went to another"
    assert re.search(r"toy-days .*succeeded, 3 workers, [45] pods", printed)


def command_lines() -> list[str]:
    """Those of all processes of this machine."""
    lines: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return lines


@pytest.mark.parametrize("on_path", [True, False])
def test_the_queues_password_is_in_no_command_line(tmp_path: Path, on_path: bool) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if on_path:
        # The server itself shows a title of its own after it has begun.
        script = f'#!/bin/sh\nprintf "%s\\n" "$@" > "$TMPDIR/words"\nexec {valkey_program()} "$@"\n'
        (programs / "valkey-server").write_text(script)
        (programs / "valkey-server").chmod(0o755)
    pipeline = Pipeline(tmp_path, f"{programs}{os.pathsep}{os.environ['PATH']}")
    rehearsal = pipeline.start(count=3, seconds=1.0)
    lines: list[str] = []
    words = set[str]()
    passwords = set[str]()

    def seen() -> bool:
        lines.extend(command_lines())
        # Pods begin and end meanwhile, and their folders go.
        folders = [Path(folder) for folder, _, names in os.walk(pipeline.out) if "words" in names]
        words.update((folder / "words").read_text() for folder in folders)
        for worker in pipeline.processes("slipway.features.items.pod.worker"):
            with contextlib.suppress(psutil.Error):
                passwords.add(worker.environ().get("QUEUE_PASSWORD", ""))
        return bool(pipeline.worked_on()) and bool(passwords - {""}) and bool(words) == on_path

    rehearsal.until(seen)
    assert "Items, 3 of 3 done" in rehearsal.end()
    (password,) = passwords - {""}
    assert not [line for line in (*lines, *words) if password in line]


def test_a_queue_that_cannot_read_its_file_says_so_and_is_given_up(pipeline: Pipeline) -> None:
    pipeline.rehearse(count=2, seconds=0.1)
    (file,) = pipeline.out.rglob("appendonly.aof.*.incr.aof")
    file.write_bytes(b"no command\r\n" + file.read_bytes())
    began = time.monotonic()
    printed = pipeline.rehearse(code=1, count=3, seconds=0.1)
    assert "Bad file format reading the append only file" in printed
    assert "ready on" not in printed
    assert time.monotonic() - began < 60


def test_a_queue_that_loads_its_data_is_not_ready(valkey_server: ValkeyServer) -> None:
    connection = valkey_server.connection()
    connection.pipeline([("SET", f"key-{number}", "x" * 100) for number in range(100)])
    connection.close()
    valkey_server.kill()
    probe = Probe(valkey_server.port, ping="QUEUE_PASSWORD")

    def answers(password: str = PASSWORD, probe: Probe = probe) -> bool:
        return services.probe_succeeds(probe, {valkey_server.port: valkey_server.port}, lambda _: password)

    slow = ("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
    starting = threading.Thread(target=valkey_server.start, args=slow)
    starting.start()
    seen: list[tuple[bool, bool]] = []
    while starting.is_alive():
        seen.append((answers(probe=Probe(valkey_server.port)), answers()))
        time.sleep(0.05)
    assert (True, False) in seen, "it accepts connections, and does not answer"
    assert answers()
    assert not answers("another")


def test_a_server_that_this_machine_lacks_comes_from_a_lock_file(tmp_path: Path) -> None:
    if any((Path(part) / "valkey-server").exists() for part in os.environ["PATH"].split(os.pathsep)):
        pytest.skip("this machine has a server of its own")
    printed = Pipeline(tmp_path, os.environ["PATH"]).rehearse(count=2, seconds=0.1)
    assert "toy.queue runs what stands in for `valkey-server` with valkey-requirements.txt" in printed
    assert "Items, 2 of 2 done" in printed
