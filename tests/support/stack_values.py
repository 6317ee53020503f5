"""Plain values of small, valid stacks, for tests that change one thing in them."""

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from slipway.engine.other_stacks import OtherStacks
from slipway.engine.stack_config import load_stack
from slipway.infra.program import declare
from slipway.infra.schema.problems import without_prefix
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.checkout import ROOT


def stack_config(stack: str, root: Path) -> dict[str, Any]:
    """The values of ``stack`` in the project at ``root``, by their full key. Raises ConfigError."""
    return dict(load_stack(stack, root).values)


GCP: Mapping[str, Any] = {
    "clusters": {
        "dev": {
            "cloud": "gcp",
            "location": "us-central1",
            "zones": ["us-central1-a", "us-central1-b"],
            "pools": {
                "cpu": {"machine_type": "e2-standard-4", "nodes": {"total_min": 0, "total_max": 2}},
                "train": {
                    "machine_type": "n1-standard-4",
                    "accelerator": "nvidia-tesla-t4",
                    "gpus": 1,
                    "nodes": {"total_min": 0, "total_max": 1},
                },
                "predict": {
                    "machine_type": "a3-highgpu-1g",
                    "accelerator": "nvidia-h100-80gb",
                    "gpus": 1,
                    "spot": True,
                    "nodes": {"total_min": 0, "total_max": 1},
                },
            },
        }
    },
    "store": {"kind": "gcs", "location": "us-central1"},
    "pipelines": {
        "mnist": {
            "steps": {
                "prepare": {"pool": "cpu", "cpu": "2", "memory": "6Gi"},
                "train": {"pool": "train", "gpus": 1, "cpu": "2", "memory": "8Gi"},
                "predict": {"pool": "predict", "gpus": 1, "cpu": "2", "memory": "8Gi"},
            }
        }
    },
}

EXISTING: Mapping[str, Any] = {
    "clusters": {
        "here": {
            "cloud": "existing",
            "pools": {"cpu": {"selector": {"kubernetes.io/os": "linux"}, "cpu": "4", "memory": "8Gi"}},
        }
    },
    "store": {"kind": "pvc"},
    "pipelines": {"mnist": {"steps": {step: {"pool": "cpu"} for step in ("prepare", "train", "predict")}}},
}

GONE = object()
"""In place of a value: the key is taken out."""


def changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the value at each dotted path replaced; missing sections on the way are made."""
    values = copy.deepcopy(dict(base))
    for path, value in changes.items():
        *way, last = path.split(".")
        section: dict[str, Any] = values
        for part in way:
            section = section.setdefault(part, {})
        if value is GONE:
            section.pop(last, None)
        else:
            section[last] = value
    return values


def stack_settings(stack: str) -> Settings:
    """The settings of one of the repository's stack files."""
    values = stack_config(stack, ROOT)
    return load(without_prefix(values), other_stacks(stack).resolve)


def other_stacks(stack: str, *, preview: bool = True) -> OtherStacks:
    """The repository's stacks as the one of this name reads them."""
    return _repository(preview).of(stack)


@cache
def _repository(preview: bool) -> OtherStacks:
    return OtherStacks(ROOT, declare, preview)
