"""A stack on GKE Autopilot for tests."""

from collections.abc import Mapping
from typing import Any

from slipway.infra.review.stack import Stack
from tests.support.previewing import previewed
from tests.support.stack_values import GONE

CLUSTER: Mapping[str, Any] = {
    "cloud": "gcp",
    "mode": "autopilot",
    "location": "us-central1",
    "pools": {
        "cpu": {},
        "spot": {"spot": True},
        "scale-out": {"compute_class": "Scale-Out"},
        "n2": {"compute_class": "Performance", "machine_family": "n2"},
        "t4": {"accelerator": "nvidia-tesla-t4", "spot": True},
    },
}

STEPS: Mapping[str, Any] = {
    "prepare": {"pool": "spot", "cpu": "300m", "memory": "6Gi"},
    "train": {"pool": "t4", "gpus": 1, "cpu": "2", "memory": "8Gi", "time_limit": "4h"},
    "predict": {"pool": "cpu", "cpu": "2", "memory": "8Gi"},
}

STACK: Mapping[str, Any] = {
    "clusters": {"batch": CLUSTER},
    "store": {"kind": "gcs", "location": "us-central1"},
    "pipelines": {"mnist": {"steps": STEPS}},
}
"""A small, valid stack."""

CHANGES: Mapping[str, Any] = {
    "clusters": {"batch": CLUSTER},
    "pipelines": {"mnist": {"steps": STEPS}},
    "rehearsal": GONE,
}
"""What makes such a stack of `gcp-dev`."""


def evaluated(changes: Mapping[str, Any] | None = None) -> Stack:
    """The stack as a preview sees it, with the settings at dotted paths changed."""
    return previewed("gcp-dev", {**CHANGES, **(changes or {})})
