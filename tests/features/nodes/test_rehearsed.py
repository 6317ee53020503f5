"""A pipeline with a step on two nodes, as a stack declares it, with its launcher and its queue."""

import contextlib
import hashlib
import json
import random
import threading
from pathlib import Path

import psutil
import pytest

from slipway.rehearse.cluster import job_controller
from slipway.rehearse.state import Phase
from tests.support.checkout import ROOT
from tests.support.rehearsing import (
    SMALL,
    phases,
    pipeline_folder,
    processes_of,
    record,
    rehearse_file,
    several_nodes,
    stack_file,
)

PROGRAM = ROOT / "tests" / "support" / "node_sums.py"
STEPS, SECONDS = 40, 0.1
IMAGE = "registry.example.com/python@sha256:" + "0" * 64


def stack(folder: Path, run: list[str]) -> Path:
    """A stack of two nodes with a queue and a pipeline of which one step runs on both."""
    steps = {
        "sum": {"run": run, "image": IMAGE, "nodes": 2, "results": {"value": "value.json#/value"}},
        "show": {"run": ["python", "-c", "print(open('{sum}/value.json').read())"], "image": IMAGE},
    }
    made = pipeline_folder(folder / "sums", {"sums.py": PROGRAM.read_text(encoding="utf-8")}, steps=steps)
    pipelines = {"sums": {"uses": made, "steps": {"sum": SMALL, "show": SMALL}}}
    return stack_file(
        folder / "stack.yaml", change=several_nodes(2), kueue={"install": False}, pipelines=pipelines
    )


def value(nodes: int) -> str:
    """What the program has computed after all steps, whatever happened to it."""
    digest = ""
    for done in range(STEPS):
        total = sum((rank + 1) * (done + 7) ** 2 % 1009 for rank in range(nodes))
        digest = hashlib.sha256(f"{digest} {total}".encode()).hexdigest()
    return digest


def result_value(folder: Path) -> str:
    (file,) = (folder / "out" / "store").glob("sums/sum/*/value.json")
    return str(json.loads(file.read_text())["value"])


RUN = ["python", "sums.py", "{output}", str(STEPS), str(SECONDS)]


@pytest.mark.slow
def test_two_nodes_lose_one_and_end_with_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_controller, "EVICT_NODE_AFTER", 2.0)
    outcome, printed = rehearse_file(tmp_path / "out", stack(tmp_path, RUN), disrupt="sum:0")
    train = record(outcome, "sums-sum")
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}, printed
    assert (train.nodes, train.attempts, train.generations) == (2, 3, 2), printed
    assert "pod 0 evicted (DisruptionTarget)" in printed
    assert "succeeded, 2 pods on 2 nodes, 3 pods in all, began 2 times" in printed
    assert result_value(tmp_path) == value(2)
    outcome, printed = rehearse_file(tmp_path / "out", tmp_path / "stack.yaml")
    assert set(phases(outcome).values()) == {Phase.UNCHANGED}, printed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_killed_the_result_is_the_same_and_nothing_is_left(tmp_path: Path, seed: int) -> None:
    chance, over = random.Random(seed), threading.Event()

    def kill() -> None:
        killed = 0
        while killed < 3 and not over.wait(chance.uniform(0.5, 2.0)):
            # Before the first step nothing is lost.
            if any((tmp_path / "out" / "store").rglob("checkpoint.json")):
                with contextlib.suppress(IndexError, psutil.NoSuchProcess):
                    chance.choice(processes_of(tmp_path / "out")).kill()
                    killed += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        outcome, printed = rehearse_file(tmp_path / "out", stack(tmp_path, RUN))
    finally:
        over.set()
        killer.join()
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}, printed
    assert record(outcome, "sums-sum").generations > 1, printed
    assert result_value(tmp_path) == value(2)
    assert processes_of(tmp_path / "out") == []
