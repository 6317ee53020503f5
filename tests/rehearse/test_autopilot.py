"""MNIST on GKE Autopilot, rehearsed for real: pods find nodes by the ways that the stack file names."""

import json
from pathlib import Path

import pytest

from tests.rehearse.test_end_to_end import PREDICTIONS, rehearse, table
from tests.support.clouds.autopilot import STACK
from tests.support.stack_values import changed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_ten_digits_are_predicted(tmp_path: Path) -> None:
    file = tmp_path / "autopilot.yaml"
    few = changed(STACK, {"pipelines.mnist.epochs": 2})
    settings = {f"slipway:{key}": value for key, value in few.items()}
    file.write_text(json.dumps({"config": settings}), encoding="utf-8")
    folder = tmp_path / "out"

    done = rehearse("gcp-dev", folder, "--config-file", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(table(done.stdout).values()) == {"succeeded"}
    predicted = json.loads((folder / PREDICTIONS).read_text(encoding="utf-8"))["images"]
    assert sum(image["digit"] == image["label"] for image in predicted) >= 9
    assert "mnist-prepare: succeeded on spot" in done.stdout
    assert "mnist-train: succeeded on t4 (nvidia-tesla-t4)" in done.stdout
    assert "cuda-libraries: succeeded on n2" in done.stdout
    # It finds no GPU here, and publishes nothing: that is no program's mistake.
    assert "wrote nothing" not in done.stdout
