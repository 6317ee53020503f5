"""MNIST on GKE Autopilot, rehearsed for real: pods find nodes by the ways that the stack file names."""

import json
from pathlib import Path

import pytest
import yaml

from tests.offline.rehearsal.test_end_to_end import PREDICTIONS, rehearse, table
from tests.offline.rehearsal.toy import ROOT
from tests.support.autopilot import STACK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_ten_digits_are_predicted_and_a_second_run_runs_nothing(tmp_path: Path) -> None:
    content = yaml.safe_load((ROOT / "stacks" / "Pulumi.gcp-dev.yaml").read_text(encoding="utf-8"))
    content["config"] = {f"slipway:{key}": value for key, value in STACK.items()}
    file = tmp_path / "autopilot.yaml"
    file.write_text(yaml.safe_dump(json.loads(json.dumps(content))), encoding="utf-8")
    folder = tmp_path / "out"

    done = rehearse("gcp-dev", folder, "--config-file", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(table(done.stdout).values()) == {"succeeded"}
    predicted = json.loads((folder / PREDICTIONS).read_text(encoding="utf-8"))["images"]
    assert sum(each["digit"] == each["label"] for each in predicted) >= 9
    assert "mnist-prepare: succeeded on spot" in done.stdout
    assert "mnist-train: succeeded on t4 (nvidia-tesla-t4)" in done.stdout
    assert "cuda-libraries: succeeded on n2" in done.stdout

    again = rehearse("gcp-dev", folder, "--config-file", str(file))
    assert again.returncode == 0, again.stdout + again.stderr
    assert set(table(again.stdout).values()) == {"unchanged"}
