"""What is said of GPUs that a Job held and did not use, and what that costs."""

import json
from pathlib import Path

import pytest

from slipway.evaluated.phrasing import money
from slipway.evaluated.rates import node_rate
from slipway.rehearse.output.charts import GpuTime, UsedBy, idle_gpus
from tests.rehearse.toy import Toys
from tests.support.previewing import previewed
from tests.support.rehearsing import rehearse_file, stack_file

WRITER = """
import json, pathlib, sys
folder = pathlib.Path("/store/.usage/mnist/train/1")
folder.mkdir(parents=True)
for pod, record in enumerate(json.loads(sys.argv[1])):
    (folder / f"{pod}.json").write_text(json.dumps(record))
"""


def usage(job: str, *times: GpuTime) -> UsedBy:
    return UsedBy(job, "", 600, 1.0, 100, "", "", times)


@pytest.mark.slow
def test_idle_time_costs_the_part_of_the_node_that_the_gpus_are() -> None:
    stack = previewed("gcp-dev", {"metrics": {}})
    (pool,) = [pool for pool in stack.pools if pool.name == "train"]
    rate = node_rate(stack, pool)
    assert rate
    assert pool.allocatable.gpus == 1

    # The second one was taken away, and paid all the same.
    (train,) = idle_gpus(stack, [usage("mnist-train", GpuTime(1, 7200, 0.75), GpuTime(1, 3600, 0.5))], 30)

    assert train.dollars == pytest.approx(rate * (2 * 0.75 + 0.5))
    assert train.says == (
        f"mnist-train: 1 GPU idle 67 % of 120 min: about {money(train.dollars)} for nothing, at list prices"
    )

    jobs = [usage(f"mnist-{name}", GpuTime(1, 600, 0.9)) for name in ("train", "predict")]
    idle = idle_gpus(stack, [*jobs, usage("mnist-prepare")], 30)
    assert [gpu.job for gpu in idle] == ["mnist-predict", "mnist-train"], "an H100 costs more than a T4"
    assert idle_gpus(stack, [usage("mnist-train", GpuTime(1, 600, 0.3))], 30) == [], "that is little"


def test_without_a_price_no_money_is_made_up() -> None:
    stack = previewed("local", {"metrics": {"collect": False}})
    pods = [usage("mnist-train", GpuTime(2, 45, 0.9)), usage("mnist-train", GpuTime(2, 40, 0.9))]

    (train,) = idle_gpus(stack, pods, 30)

    assert train.says == "mnist-train: 4 GPUs idle 90 % of 45 s"


def test_a_rehearsal_says_it_before_all_else_and_in_its_report(tmp_path: Path) -> None:
    record = {"gpus_asked": 1, "gpu_busy": 0.1, "gpu_idle": 0.8, "seconds": 600, "memory_peak_mib": 100}
    before = [{"gpus_asked": 1, "gpu_idle": 0.5, "seconds": 60}]
    file = stack_file(tmp_path / "stack.yaml", metrics={"collect": False})

    def program() -> None:
        Toys().job("train", WRITER, json.dumps([{**record, "before": before}]), usage=".usage/mnist/train/1")

    outcome, printed = rehearse_file(tmp_path / "place", file, program)

    assert outcome.exit_code == 0
    assert "GPU IDLE  train: 1 GPU idle 77 % of 10 min\n" in printed
    assert printed.index("GPU IDLE") < printed.index("Ran for")
    page = (tmp_path / "place" / "report.html").read_text()
    assert "train: 1 GPU idle 77 % of 10 min" in page
    assert page.index("GPUs that did next to nothing") < page.index("<h2>Use</h2>")
