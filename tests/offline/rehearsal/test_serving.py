"""A tabular model served by a ``pipeline.yaml``: trained, examined, published and asked, with the real steps."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from infra.program import declare
from offline.rehearsal.engine import Engine
from offline.rehearsal.output.outcome import Options
from offline.rehearsal.session import Session, configure
from tests.offline.rehearsal.toy import ROOT

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
    "description": "Tells who is at risk.",
    "parameters": {"slope": {"type": "number", "default": 4.0}},
    "steps": {"train": {"run": ["python", "train.py", "--slope", "{slope}", "--output", "{output}"]}},
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


def rehearse(folder: Path, asked: dict[str, Any], **section: object) -> tuple[int, str]:
    code = folder / "risk"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(TRAIN, encoding="utf-8")
    (code / "pipeline.yaml").write_text(yaml.safe_dump(PIPELINE), encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load((ROOT / "stacks" / "Pulumi.local.yaml").read_text(encoding="utf-8"))
    small = {"pool": "cpu", "cpu": "500m", "memory": "1Gi"}
    apps = {"server": {"pool": "cpu", "poll": 1, "publish": small}}
    content["config"]["slipway:pipelines"] = {
        "risk": {"uses": str(code), "steps": {"train": small}, "apps": apps, **section}
    }
    file = folder / "stack.yaml"
    file.write_text(json.dumps(content), encoding="utf-8")

    def keep(engine: Engine) -> None:
        (server,) = engine.services.servers
        address = f"http://127.0.0.1:{server.ports[8501]}/v1/models/risk/labels/stable"
        body = json.dumps({"instances": [[-1.0], [1.0]]}).encode()
        with urllib.request.urlopen(f"{address}:predict", body, timeout=30) as answer:
            asked["risks"] = json.loads(answer.read())["predictions"]
        with urllib.request.urlopen(address, timeout=30) as answer:
            asked["versions"] = [each["version"] for each in json.loads(answer.read())["model_version_status"]]

    console = Console(record=True, width=200, highlight=False)
    options = Options("local", ROOT, folder / "out", file)
    outcome = Session(declare, configure("local", ROOT, file), options, console, keep).run()
    return outcome.exit_code, console.export_text()


def test_each_training_that_is_good_enough_is_the_next_version(tmp_path: Path) -> None:
    asked: dict[str, Any] = {}
    code, printed = rehearse(tmp_path, asked)
    assert code == 0, printed
    (low,), (high,) = asked["risks"]
    assert low < 0.1
    assert high > 0.9
    assert asked["versions"] == ["1"]

    code, printed = rehearse(tmp_path, asked, slope=8.0)
    assert code == 0, printed
    assert asked["versions"] == ["2"]

    asked.clear()
    code, printed = rehearse(tmp_path, asked, slope=-4.0)
    assert code == 1
    assert "0.0000 of 40 requests rightly, 0.9 is asked for; nothing is published" in printed
    versions = tmp_path / "out" / "store" / "risk" / "models" / "risk"
    assert sorted(path.name for path in versions.iterdir() if path.is_dir()) == ["1", "2"]
