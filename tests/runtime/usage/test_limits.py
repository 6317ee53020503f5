"""What is counted of a stack's budget, and the end of real programs at a limit."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.runtime.exits import BUDGET_SPENT, GPU_IDLE
from slipway.runtime.usage.limits import (
    CLOSED,
    IDLE,
    ITSELF,
    MONTH,
    RUN,
    TOLD,
    Guard,
    Limits,
    Price,
    Reached,
    Stay,
    cost,
    month_of,
    stay_of,
)
from tests.support.checkout import ROOT

HOUR = 3600.0
BEGAN = "2026-11-26T15:00:00+00:00"
AT = 1795705200.0
TEN = Price(dollars=10.0, kept=600.0)


def stay(node: str, begins: float, length: float, dollars: float) -> Stay:
    return Stay(node, begins, begins + length, dollars)


STAYS = st.builds(stay, st.sampled_from("abc"), st.floats(0, 5000), st.floats(0, 5000), st.floats(0, 50))


def record(**more: Any) -> dict[str, Any]:
    return {"step": "p.s", "pod": "s-0", "began": BEGAN, "seconds": 600.0, "boot": "b", "node_booted": AT, **more}


@given(st.lists(STAYS, max_size=12), st.floats(0, 5000))
def test_what_is_paid_is_no_more_than_for_each_alone_and_no_less_than_for_the_dearest(
    stays: list[Stay], since: float
) -> None:
    alone = [cost([stay]) for stay in stays]
    assert (
        max(alone, default=0.0) - 1e-6 <= cost(stays) <= sum(alone) + 1e-6 or len({s.dollars for s in stays}) > 1
    )
    assert cost(stays) == pytest.approx(cost(stays[::-1]))
    assert -1e-9 <= cost(stays, since) <= cost(stays) + 1e-9
    assert cost(stays) <= cost([*stays, Stay("d", 0, 100, 1)])


def test_a_node_is_paid_from_its_boot_until_it_is_gone_and_two_pods_on_it_once() -> None:
    booted = record(node_booted=AT - 600)
    first = stay_of(booted, TEN)
    assert first is not None
    assert first == Stay("b", AT - 600, AT + 600 + 600, 10.0)
    assert cost([first]) == pytest.approx(5.0)
    beside = stay_of(record(pod="s-1", node_booted=AT - 600, seconds=900.0), TEN, kept=False)
    assert beside is not None
    assert cost([first, beside]) == pytest.approx(5.0)
    long_ago = stay_of(record(node_booted=AT - 30 * HOUR), TEN)
    assert long_ago is not None
    assert long_ago.begins == AT
    by_pod = stay_of(record(), Price(1.0, by_pod=True))
    assert by_pod is not None
    assert (by_pod.begins, by_pod.ends) == (AT, AT + 600)


@pytest.mark.parametrize(
    "wrong", [{"began": "yesterday"}, {"seconds": None}, {"price": {"dolars": 1}}, {"began": None}]
)
def test_a_damaged_record_counts_for_nothing(wrong: dict[str, Any]) -> None:
    assert stay_of(record(**wrong), TEN) is None


class Store:
    """A store with limits, and the guard of one pod."""

    def __init__(self, root: Path, run: float | None = None, month: float | None = None) -> None:
        self.root, self.run, self.month, self.clock, self.now = root, run, month, 0.0, AT
        self.allow(run, month)
        self.record = root / ".usage" / "p/s/0123456789" / "0.json"

    def allow(self, run: float | None, month: float | None = None) -> None:
        price = {"t4": {"dollars": 10.0, "kept": 600.0, "by_pod": False}}
        content = {"stack": "dev", "run": run, "month": month, "runs": ["p/s/0123456789", "p/t/abcdef0123"]}
        (self.root / "limits.json").write_text(json.dumps({**content, "prices": {"p.s": price, "p.t": price}}))

    def put(self, path: str, content: dict[str, Any] | str) -> None:
        file = self.root / ".usage" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))

    def guard(self, pool: str = "t4", path: str = "p/s/0123456789") -> Guard:
        file = self.root / ".usage" / path / "0.json"
        times = {"every": 30.0, "grace": 60.0}
        return Guard(
            lambda: Limits.read(self.root / "limits.json"),
            file,
            "p.s",
            pool,
            **times,
            clock=lambda: self.clock,
            now=lambda: self.now,
        )


def test_a_run_is_what_made_its_results_whichever_update_that_was(tmp_path: Path) -> None:
    store = Store(tmp_path, run=10.0)
    guard = store.guard()
    assert guard.look(record()) is None
    store.put("p/t/abcdef0123/0.json", record(boot="c", step="p.t", seconds=3000.0, ended=ITSELF))
    assert (reached := guard.look(record()))
    assert (reached.kind, reached.limit) == (RUN, 10.0)
    store.put("p/t/abcdef0123/0.json", record(boot="c", step="p.t", seconds=1800.0, ended=TOLD))
    assert guard.look(record()) is None
    gone = [record(boot=f"c{index}", step="p.t", seconds=600.0) for index in range(3)]
    store.put("p/t/abcdef0123/0.json", record(boot="c", step="p.t", seconds=1800.0, ended=TOLD, before=gone))
    assert guard.look(record())
    store.allow(100.0)
    assert guard.look(record()) is None
    store.put("p/t/fedcba9876/0.json", record(boot="d", seconds=100 * HOUR, ended=ITSELF))
    assert guard.look(record()) is None


def test_a_run_by_the_clock_is_one_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path, run=10.0)
    guard = store.guard(path="p/s/0123456789-20261126-0300")
    store.put("p/t/abcdef0123-20261125-0300/0.json", record(boot="c", seconds=HOUR, ended=ITSELF))
    store.put("p/t/abcdef0123/0.json", record(boot="d", seconds=HOUR, ended=ITSELF))
    assert guard.look(record()) is None
    store.put("p/t/abcdef0123-20261126-0300/0.json", record(boot="e", seconds=HOUR, ended=ITSELF))
    assert guard.look(record())


def test_what_another_pod_used_since_its_record_counts_while_it_runs(tmp_path: Path) -> None:
    store = Store(tmp_path, run=10.0)
    guard, other = store.guard(), record(boot="c", step="p.t")
    # The other node's clock is ten minutes ahead: only how long its record is unchanged counts.
    for look in range(12):
        store.put("p/t/abcdef0123/0.json", {**other, "began": "2026-11-26T15:10:00+00:00", "seconds": 30.0 * look})
        assert guard.look(record(seconds=0.0)) is None
        store.clock += 30.0
    store.allow(6.4)
    assert guard.look(record(seconds=0.0))
    store.clock += 200.0
    assert guard.look(record(seconds=0.0)) is None


def test_a_month_is_all_that_the_stack_paid_in_it_and_its_records_are_read_once(tmp_path: Path) -> None:
    store = Store(tmp_path, month=20.0)
    month, first = month_of(AT)
    assert month == "2026-11"
    assert first == AT - 25 * 24 * HOUR - 15 * HOUR
    guard = store.guard()
    guard.keep(record(pod="s-0"))
    store.put(f".months/other/{month}/x.json", record(pod="x", boot="x", seconds=9 * HOUR, ended=ITSELF))
    store.put(f".months/dev/{month}/broken.json", "{")
    store.put(f".months/dev/{month}/s-0.json", record(pod="s-0", boot="y", seconds=9 * HOUR, ended=ITSELF))
    assert guard.look(record(pod="s-0")) is None
    silent = record(pod="t-0", boot="c", began="2026-10-30T12:00:00+00:00", seconds=38 * HOUR, node_booted=None)
    store.put(f".months/dev/{month}/t-0.json", silent)
    # Of those 38 hours two are in November: $20 with those of this pod.
    assert (reached := guard.look(record(pod="s-0")))
    assert (reached.kind, reached.month) == (MONTH, month)
    store.clock += CLOSED + 1
    store.put(f".months/dev/{month}/t-0.json", record(pod="t-0", boot="c"))
    assert guard.look(record(pod="s-0"))


def test_prices_are_those_that_a_record_has_else_the_dearest_of_its_step(tmp_path: Path) -> None:
    store = Store(tmp_path, run=10.0)
    store.put("p/t/abcdef0123/0.json", record(boot="c", step="p.t", seconds=HOUR, ended=TOLD))
    assert store.guard(pool="own").look(record())
    cheap = {"dollars": 0.1, "kept": 0.0, "by_pod": False}
    store.put("p/t/abcdef0123/0.json", record(boot="c", step="p.t", seconds=HOUR, ended=TOLD, price=cheap))
    guard = store.guard(pool="own")
    assert (guard.price, guard.look(record())) == (None, None)
    assert Limits.read(tmp_path / "limits.json").dearest("p.t") == TEN


def test_a_pod_that_would_end_at_once_is_known_before_it_has_a_node(tmp_path: Path) -> None:
    store = Store(tmp_path, run=10.0)
    guard = store.guard()
    store.put("p/s/0123456789/0.json", record(boot="c", seconds=2000.0, ended=TOLD))
    # What is to come counts: $1.92 of a node that is kept for ten minutes.
    store.allow(5.55 + 1.8)
    guard = store.guard(path="p/t/abcdef0123")
    assert (reached := guard.look_ahead(1))
    assert reached.kind == RUN
    store.allow(5.55 + 2.0)
    assert guard.look_ahead(1) is None
    assert guard.look_ahead(2)


@pytest.mark.parametrize(
    ("limits", "month", "holds"),
    [
        (Limits("dev", run=40.0), "2026-11", True),
        (Limits("dev", run=40.03, month=1.0), "2026-11", False),
        (Limits("dev", month=40.0), "2026-11", False),
    ],
)
def test_a_budget_that_was_spent_still_is_until_it_is_raised(limits: Limits, month: str, holds: bool) -> None:
    assert Reached(RUN, "", 40.02, 40.0).holds(limits, month) is holds
    of_month = Reached(MONTH, "", 40.02, 40.0, month)
    assert of_month.holds(Limits("dev", month=limits.run), month) is holds
    assert not of_month.holds(Limits("dev", month=limits.run), "2026-12")


def words(root: Path, *options: str, program: str) -> list[str]:
    measure = [sys.executable, "-m", "slipway.runtime.usage.measure", "--step", "p.s"]
    file = root / ".usage" / "p/s/0123456789" / "{index}.json"
    return [*measure, "--file", str(file), *options, "--", sys.executable, "-c", program]


def run(root: Path, *options: str, program: str, **more: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY")}
    environment = {**known, "PYTHONPATH": str(ROOT), "POD_NAME": "s-0", "SLIPWAY_VIRTUAL_NODE": "n", **more}
    return subprocess.run(
        words(root, *options, program=program), env=environment, capture_output=True, text=True, check=False
    )


LIMITED = ("--pool", "t4", "--limits-every", "0.1", "--grace", "5")

SAVES = """
import json, os, pathlib, signal, sys, time
def save(*_):
    notice = json.loads(pathlib.Path(os.environ["SLIPWAY_NOTICE"]).read_text())
    print("saved", notice["reason"], flush=True)
    sys.exit(0 if "clean" in sys.argv else 1)
signal.signal(signal.SIGTERM, save)
print("runs", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_at_the_limit_a_program_gets_notice_and_what_comes_later_is_not_started(tmp_path: Path) -> None:
    store = Store(tmp_path)
    limits = ("--limits", str(tmp_path / "limits.json"), *LIMITED)
    store.allow(10.0 * (600 + 5 + 2.5) / HOUR)
    ended = run(tmp_path, *limits, program=SAVES)
    assert ended.returncode == BUDGET_SPENT
    assert "saved" in ended.stdout
    assert "slipway:budget.run" in ended.stderr.splitlines()[-1]
    kept = json.loads(store.record.read_text())
    assert (kept["ended"], kept["price"]["dollars"], kept["done"]) == (ITSELF, 10.0, False)
    assert Reached.read(kept) == Reached.parse(ended.stderr.splitlines()[-1])

    # When a pod began is kept in whole seconds.
    store.allow(10.0 * (600 + 5 + 1.0) / HOUR)
    late = run(tmp_path, *limits, program=SAVES)
    assert late.returncode == BUDGET_SPENT
    assert "runs" not in late.stdout
    assert (reached := Reached.read(json.loads(store.record.read_text())))
    assert reached.kind == RUN

    store.allow(100.0)
    assert run(tmp_path, *limits, program="print('goes on')").returncode == 0
    store.allow(0.0)
    assert run(tmp_path, *limits, program="print('runs')").returncode == BUDGET_SPENT


def test_limits_that_cannot_be_read_start_nothing(tmp_path: Path) -> None:
    (tmp_path / "limits.json").write_text("{")
    ended = run(tmp_path, "--limits", str(tmp_path / "limits.json"), *LIMITED, program="print('runs')")
    assert ended.returncode not in (0, BUDGET_SPENT)
    assert "runs" not in ended.stdout


NVML = r"""
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned gpu, memory; } Use;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) {
    *device = (void *)(unsigned long)(i + 1); return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) { strncpy(name, "Tesla T4", length); return 0; }
int nvmlDeviceGetUtilizationRates(void *device, Use *use) {
    use->gpu = device == (void *)1 ? atoi(getenv("BUSY")) : 0; use->memory = 1; return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, void *memory) { return 3; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { return 3; }
"""


@pytest.mark.slow
def test_gpus_that_are_held_and_not_used_end_the_step_with_the_money(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, of which the driver's stand-in is made")
    source, library = tmp_path / "nvml.c", tmp_path / "nvml.so"
    source.write_text(NVML)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    Store(tmp_path)
    options = ("--gpus", "2", "--idle-for", "3", "--limits", str(tmp_path / "limits.json"), *LIMITED)
    given = {"SLIPWAY_NVML": str(library)}
    began = time.monotonic()
    stopped = run(tmp_path, *options, "--idle-then", "stop", program=SAVES, BUSY="6", **given)
    assert stopped.returncode == GPU_IDLE
    assert "saved" in stopped.stdout
    reached = Reached.parse(stopped.stderr.splitlines()[-1])
    assert reached is not None
    assert (reached.kind, reached.dollars) == (IDLE, 0.01)
    assert time.monotonic() - began < 60
    program = "import time; time.sleep(5)"
    warned = run(tmp_path, *options, program=program, BUSY="0", **given)
    assert (warned.returncode, "warning: its 2 GPUs" in warned.stdout) == (0, True)
    busy = run(tmp_path, *options, "--idle-then", "stop", program=program, BUSY="20", **given)
    assert (busy.returncode, "idle, below" in busy.stdout) == (0, False)


@pytest.mark.slow
def test_a_program_that_is_told_to_end_from_outside_is_no_limit_that_was_reached(tmp_path: Path) -> None:
    store = Store(tmp_path, run=100.0)
    limits = ("--limits", str(tmp_path / "limits.json"), *LIMITED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POD_NAME": "s-0"}
    process = subprocess.Popen(
        words(tmp_path, *limits, program="print('runs', flush=True); import time; time.sleep(60)"),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    assert json.loads(store.record.read_text())["ended"] == TOLD
