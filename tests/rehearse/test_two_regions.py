"""A step whose first place has too few nodes runs in another region, on the clusters of a stack with two."""

import json
import re
from pathlib import Path

import pytest

from tests.rehearse.test_end_to_end import rehearse
from tests.support.rehearsing import log, stack_file

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TRAIN = {"nodes": 2, "places": ["cpu-eu", "cpu"], "next_after": "10m", "cpu": "1", "memory": "3Gi"}


def test_a_training_on_two_nodes_goes_to_the_other_region(tmp_path: Path) -> None:
    pipelines = {"handwriting": {"epochs": 2, "steps": {"prepare": {"pool": "cpu"}, "train": TRAIN}}}
    file, trace = stack_file(tmp_path / "stack.yaml", "gcp-anywhere", pipelines=pipelines), tmp_path / "trace.json"
    trace.write_text(json.dumps({"gap_seconds": 300, "pools": {"cpu-eu": [[1, 1]]}}), encoding="utf-8")
    folder = tmp_path / "out"
    done = rehearse("gcp-anywhere", folder, "--config-file", str(file), "--capacity", str(trace))
    if done.returncode and re.search(r"error sending request|failed to fetch", done.stdout + done.stderr, re.I):
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"handwriting-train: its way: cpu-eu .+ → cpu ", done.stdout)
    assert re.search(r"\nhandwriting-train +cpu ", done.stdout)
    # The mover is in the first region: the programs in the other one began by its order.
    assert "Waiting for an order" in log(folder, "handwriting-train")
    (metrics,) = (folder / "store" / "handwriting" / "train").glob("*/metrics.json")
    assert len(json.loads(metrics.read_text(encoding="utf-8"))["history"]) == 2
