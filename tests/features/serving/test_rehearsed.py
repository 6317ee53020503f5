"""A tabular model served by a ``pipeline.yaml``: trained, examined, published and asked, with the real steps."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from slipway.rehearse.engine import Engine
from tests.support.rehearsing import log, pipeline_folder, rehearse_file, stack_file

pytestmark = pytest.mark.slow

TRAIN = """
import argparse, json, pathlib
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--slope", type=float)
parser.add_argument("--output", type=pathlib.Path)
options = parser.parse_args()
ages = np.linspace(-1, 1, 40, dtype=np.float32).reshape(-1, 1)


class Risk(tf.Module):
    def __init__(self):
        super().__init__()
        self.slope = tf.Variable(options.slope)

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, name="age")])
    def __call__(self, age):
        return {"risk": tf.sigmoid(self.slope * age)}


options.output.mkdir(parents=True, exist_ok=True)
tf.saved_model.save(Risk(), str(options.output / "exported"))
np.savez(options.output / "held_out.npz", age=ages, ill=(ages[:, 0] > 0).astype(int))
"""

PIPELINE: dict[str, Any] = {
    "parameters": {"slope": {"type": "number", "default": 4.0}},
    "steps": {
        "train": {
            "run": ["python", "train.py", "--slope", "{slope}", "--output", "{output}"],
            # It has no use for Keras, which takes half of TensorFlow's import.
            "environment": {"TF_USE_LEGACY_KERAS": "1"},
        }
    },
    "apps": {
        "server": {
            "kind": "tensorflow-serving",
            "model": "risk",
            "step": "train",
            "path": "exported",
            "requests": "{train}/held_out.npz",
            "truth": "ill",
            "min_accuracy": 0.9,
        }
    },
}


def rehearse(folder: Path, answers: dict[str, Any], **section: object) -> tuple[int, str]:
    small = {"pool": "cpu", "cpu": "500m", "memory": "1Gi"}
    risk = {
        "uses": pipeline_folder(folder / "risk", {"train.py": TRAIN}, **PIPELINE),
        "steps": {"train": small},
        "apps": {"server": {"pool": "cpu", "poll": 1, "publish": small}},
    }
    file = stack_file(folder / "stack.yaml", pipelines={"risk": {**risk, **section}})

    def keep(engine: Engine) -> None:
        (server,) = engine.services.servers
        address = f"http://127.0.0.1:{server.ports[8501]}/v1/models/risk"
        body = json.dumps({"instances": [[-1.0], [1.0]]}).encode()
        with urllib.request.urlopen(f"{address}:predict", body, timeout=30) as answer:
            answers["risks"] = json.loads(answer.read())["predictions"]
        with urllib.request.urlopen(address, timeout=30) as answer:
            statuses = json.loads(answer.read())["model_version_status"]
            answers["versions"] = [status["version"] for status in statuses]

    outcome, printed = rehearse_file(folder / "out", file, keep=keep)
    return outcome.exit_code, printed


def test_each_training_that_is_good_enough_is_the_next_version(tmp_path: Path) -> None:
    answers: dict[str, Any] = {}
    code, printed = rehearse(tmp_path, answers)
    assert code == 0, printed
    (low,), (high,) = answers["risks"]
    assert low < 0.1
    assert high > 0.9
    assert answers["versions"] == ["1"]

    # Nobody waits for the steps then: the server itself does.
    code, printed = rehearse(tmp_path, answers, slope=8.0, runs="cluster")
    assert code == 0, printed
    assert answers["versions"] == ["2"]
    assert "All that it reads is there" in log(tmp_path / "out", "risk-server")

    answers.clear()
    code, printed = rehearse(tmp_path, answers, slope=-4.0)
    assert code == 1
    assert "0.0000 of 40 requests rightly, 0.9 is asked for; nothing is published" in printed
    versions = tmp_path / "out" / "store" / "risk" / "models" / "risk"
    assert sorted(path.name for path in versions.iterdir() if path.is_dir()) == ["1", "2"]
