"""A pipeline with a step on two nodes, as a stack declares it, with its launcher and its queue."""

import hashlib
import json
import random
import shutil
import threading
from pathlib import Path

import psutil
import pytest
import yaml
from rich.console import Console

from infra.program import declare
from offline.rehearsal.cluster import job_controller
from offline.rehearsal.output.outcome import Options, Outcome
from offline.rehearsal.records import JobRecord, Phase
from offline.rehearsal.session import Session, configure
from tests.offline.rehearsal.toy import ROOT

PROGRAM = ROOT / "benchmarks" / "node_kill_plain.py"
STEPS, SECONDS = 40, 0.1
IMAGE = "registry.example.com/python@sha256:" + "0" * 64


def stack(folder: Path, run: list[str]) -> Path:
    """A stack of two nodes with a queue and a pipeline of which one step runs on both."""
    made = folder / "sums"
    made.mkdir(parents=True)
    shutil.copy(PROGRAM, made / "sums.py")
    steps = {
        "sum": {"run": run, "image": IMAGE, "nodes": 2, "results": {"value": "value.json#/value"}},
        "show": {"run": ["python", "-c", "print(open('{sum}/value.json').read())"], "image": IMAGE},
    }
    declared = {"description": "Sums.", "steps": steps}
    (made / "pipeline.yaml").write_text(yaml.safe_dump(declared, sort_keys=False), encoding="utf-8")
    content = yaml.safe_load((ROOT / "stacks" / "Pulumi.local.yaml").read_text(encoding="utf-8"))
    config = content["config"]
    config["slipway:clusters"]["local"]["pools"]["cpu"]["nodes"] = 2
    config["slipway:store"] |= {"access_mode": "ReadWriteMany", "storage_class": "files"}
    small = {"pool": "cpu", "cpu": "100m", "memory": "512Mi", "ephemeral_storage": "100Mi"}
    config["slipway:kueue"] = {"install": False}
    config["slipway:pipelines"] = {"sums": {"uses": str(made), "steps": {"sum": small, "show": small}}}
    file = folder / "stack.yaml"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def rehearse(folder: Path, file: Path, disrupt: str | None = None) -> tuple[Outcome, str]:
    console = Console(record=True, width=200, highlight=False)
    options = Options("local", ROOT, folder / "out", file, disrupt=disrupt)
    outcome = Session(declare, configure("local", ROOT, file), options, console).run()
    return outcome, console.export_text()


def value(nodes: int) -> str:
    """What the program has computed after all steps, whatever happened to it."""
    found = ""
    for done in range(STEPS):
        total = sum((rank + 1) * (done + 7) ** 2 % 1009 for rank in range(nodes))
        found = hashlib.sha256(f"{found} {total}".encode()).hexdigest()
    return found


def computed(folder: Path) -> str:
    (file,) = (folder / "out" / "store").glob("sums/sum/*/value.json")
    return str(json.loads(file.read_text())["value"])


def record(outcome: Outcome, name: str) -> JobRecord:
    return next(each for each in outcome.records if each.name == name)


def processes(folder: Path) -> list[psutil.Process]:
    """Launchers and programs of the step."""
    found: list[psutil.Process] = []
    for each in psutil.process_iter(["cmdline"]):
        words: list[str] = each.info["cmdline"] or []
        if any(word.startswith(str(folder / "out")) for word in words):
            found.append(each)
    return found


RUN = ["python", "sums.py", "{output}", str(STEPS), str(SECONDS)]


@pytest.mark.slow
def test_two_nodes_lose_one_and_end_with_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_controller, "EVICT_NODE_AFTER", 2.0)
    outcome, printed = rehearse(tmp_path, stack(tmp_path, RUN), disrupt="sum:0")
    train = record(outcome, "sums-sum")
    assert {each.phase for each in outcome.records} == {Phase.SUCCEEDED}, printed
    assert (train.nodes, train.attempts, train.generations) == (2, 3, 2), printed
    assert "pod 0 evicted (DisruptionTarget)" in printed
    assert "succeeded, 2 pods on 2 nodes, 3 pods in all, began 2 times" in printed
    assert computed(tmp_path) == value(2)
    outcome, printed = rehearse(tmp_path, tmp_path / "stack.yaml")
    assert {each.phase for each in outcome.records} == {Phase.UNCHANGED}, printed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_killed_the_result_is_the_same_and_nothing_is_left(tmp_path: Path, seed: int) -> None:
    chance, over = random.Random(seed), threading.Event()

    def kill() -> None:
        killed = 0
        while killed < 3 and not over.wait(chance.uniform(0.5, 2.0)):
            if there := processes(tmp_path):
                chance.choice(there).kill()
                killed += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        outcome, printed = rehearse(tmp_path, stack(tmp_path, RUN))
    finally:
        over.set()
        killer.join()
    assert {each.phase for each in outcome.records} == {Phase.SUCCEEDED}, printed
    assert record(outcome, "sums-sum").generations > 1, printed
    assert computed(tmp_path) == value(2)
    assert processes(tmp_path) == []


@pytest.mark.slow
def test_an_error_of_one_program_is_the_jobs_and_no_neighbours(tmp_path: Path) -> None:
    script = (
        "import os, sys, time; rank = os.environ['RANK']; time.sleep(1 if rank == '1' else 600); "
        "sys.exit('no such digit')"
    )
    outcome, printed = rehearse(tmp_path, stack(tmp_path, ["python", "-c", script, "{output}"]))
    train = record(outcome, "sums-sum")
    assert (train.phase, train.exit_code, train.index) == (Phase.FAILED, 1, 1), printed
    shown = [line for line in printed.splitlines() if "│" in line]
    assert any("no such digit" in line for line in shown), printed
    assert all("│ [1]" in line for line in shown)
    assert processes(tmp_path) == []
