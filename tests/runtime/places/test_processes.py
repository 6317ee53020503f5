"""What holds a program, and what carries out orders, as the processes that pods are."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipway.runtime.schedule.places.clusters import Answer
from slipway.runtime.schedule.places.hold import HELD_BACK, Lease
from slipway.runtime.schedule.places.orders import TTL, Feeds, Order
from tests.runtime.places.world import MAPS, World
from tests.support.json_server import serving
from tests.support.steps import start

PROGRAM = """
import pathlib, signal, sys, time
def stop(*_):
    pathlib.Path("stopped").touch()
    sys.exit(7)
signal.signal(signal.SIGTERM, stop)
pathlib.Path("started").touch()
while not pathlib.Path("done").exists():
    time.sleep(0.02)
sys.exit(int(pathlib.Path("done").read_text()))
"""
JOB, POD = "train-flex", "train-flex-x"


def wait_for(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (value := what()):
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.02)
    return value


class Held:
    """A program below `hold`, and the mover that orders it to run."""

    def __init__(self, folder: Path, ttl: float) -> None:
        self.folder, self.feeds = folder, Feeds.below(folder / "orders")
        self.process = start(
            "slipway.runtime.schedule.places.hold",
            "--orders", folder / "orders", "--job", JOB, "--renew", 0.1, "--ttl", ttl,
            "--", sys.executable, "-c", f"import os; os.chdir({str(folder)!r})\n{PROGRAM}",
            POD_NAME=POD,
        )  # fmt: skip

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def asks(self) -> int:
        entry = self.feeds.asks.read().get(POD)
        return entry.number if entry else 0

    def order(self, wanted: list[str], epoch: int = 1) -> None:
        Order(epoch, 0, wanted, {POD: wait_for(self.asks)}).write(self.feeds.orders)

    def end(self) -> int:
        self.process.communicate(timeout=60)
        return self.process.returncode


def test_a_program_starts_with_an_order_and_ends_with_its_own_code(tmp_path: Path) -> None:
    held = Held(tmp_path, 300)
    held.order(["train-bought"])
    # It has seen that one, and goes on asking.
    before = held.asks()
    wait_for(lambda: held.asks() > before + 3)
    assert not held.has("started")
    held.order([JOB])
    wait_for(lambda: held.has("started"))
    (tmp_path / "done").write_text("3")
    assert held.end() == 3


def test_a_program_ends_that_is_not_wanted_any_more(tmp_path: Path) -> None:
    held = Held(tmp_path, 300)
    held.order([JOB], epoch=2)
    wait_for(lambda: held.has("started"))
    # A mover on a lost node is not heard, nor what it wants.
    held.order([], epoch=1)
    before = held.asks()
    wait_for(lambda: held.asks() > before + 3)
    assert held.process.poll() is None
    held.order([], epoch=2)
    assert held.end() == HELD_BACK
    assert held.has("stopped")


def test_a_program_ends_without_orders_also_where_the_store_hangs(tmp_path: Path) -> None:
    held = Held(tmp_path, 3)
    held.order([JOB])
    wait_for(lambda: held.has("started"))
    # Opening it waits for somebody who writes.
    os.mkfifo(tmp_path / "orders" / "orders" / "1.00000009.json")
    assert held.end() == HELD_BACK
    assert held.has("stopped")


def test_signals_come_to_the_program_or_end_the_wait_for_it(tmp_path: Path) -> None:
    waiting = Held(tmp_path, 300)
    wait_for(waiting.asks)
    waiting.process.send_signal(signal.SIGTERM)
    assert waiting.end() == 143
    (tmp_path / "second").mkdir()
    held = Held(tmp_path / "second", 300)
    held.order([JOB])
    wait_for(lambda: held.has("started"))
    held.process.send_signal(signal.SIGTERM)
    assert held.end() == 7


def test_a_program_may_run_from_its_ask_on_however_late_the_order_comes(tmp_path: Path) -> None:
    now, feeds = [1000.0], Feeds.below(tmp_path)
    lease = Lease(feeds, JOB, POD, lambda: now[0])
    lease.look()
    Order(1, 0, [JOB], {POD: 1}).write(feeds.orders)
    now[0] += TTL - 20
    lease.look()
    assert lease.is_valid
    now[0] += 20
    assert not lease.is_valid
    # One that was not heard does not count, nor another pod's.
    Order(1, 0, [JOB], {f"{POD}-2": 2}).write(feeds.orders)
    lease.look()
    assert not lease.is_valid


@pytest.mark.slow
def test_an_agent_carries_out_orders_and_the_next_pod_goes_on(tmp_path: Path) -> None:
    world = World(random.Random(1), {}, clusters={"spot": "", "flex": "eu", "bought": ""})
    feeds = Feeds.below(tmp_path / "eu")
    (tmp_path / "token").write_text("a-token")
    plan = json.dumps(world.plan)

    def answer(method: str, path: str, content: Any) -> tuple[int, object]:
        if path == f"{MAPS}/mnist-train-mover":
            return 200, {"data": {"plan.json": plan}}
        shown = world.answer(method, path, content, "eu")
        world.pass_time(20.0)
        return 200, shown

    def agent(number: int) -> subprocess.Popen[str]:
        world.agents[f"agent-eu-{number}"] = "uid"
        return start(
            "slipway.runtime.schedule.places.agent",
            "--api", f"http://{server.address}", "--service-account", tmp_path,
            "--namespace", "ml", "--plan", "mnist-train-mover", "--orders", tmp_path, "--cluster", "eu",
            POD_NAME=f"agent-eu-{number}",
        )  # fmt: skip

    def order(order: Order, until: Callable[[], bool]) -> None:
        """Order it again and again, as the mover does."""

        def is_done() -> bool:
            order.write(feeds.orders)
            time.sleep(1)
            return until()

        wait_for(is_done)

    with serving(answer) as server:
        first = agent(1)
        order(Order(1, 0, [JOB, "train-spot"], {}), until=lambda: not world.live[JOB]["suspend"])
        first.kill()
        first.communicate()
        second = agent(2)
        wait_for(lambda: world.jobs[JOB].content["metadata"]["annotations"]["slipway/holder"] == "agent-eu-2")
        # What the first one let run goes on.
        assert not world.live[JOB]["suspend"]
        order(Order(2, 0, [], {}, 19, "$2.00 are spent"), until=lambda: second.poll() is not None)
        words, _ = second.communicate()
    assert second.returncode == 19
    assert "$2.00 are spent" in words
    assert world.live[JOB]["suspend"]
    assert world.is_quiet
    answers = [Answer.read(entry.content) for entry in feeds.answers.read().values()]
    assert [answer.epoch for answer in answers] == [2]
    assert all(job.seen.is_quiet for job in answers[0].jobs.values())
