"""How long an update waits for Kubernetes objects, and a pod for its image."""

import re
from collections.abc import Iterable
from pathlib import Path

from infra.review.durations import durations
from infra.review.facts import Seconds
from infra.review.resource import Resource
from infra.review.stack import JOB

TABLE = durations(Path(__file__).parents[1] / "data" / "times.toml")

RELEASE = "kubernetes:helm.sh/v3:Release"

GPU_TAG = re.compile(r":[^/]*(gpu|cuda)")

SCALE_DOWN = TABLE["autoscaler", "scale-down"]
"""How long a node without pods is kept."""


def creation(resource: Resource) -> Seconds | None:
    """How long this one takes; None for a Job, which takes as long as its work, and for what is elsewhere."""
    if resource.package != "kubernetes" or resource.type == JOB:
        return None
    return TABLE["creation", "release" if resource.type == RELEASE else "object"]


def pull(images: Iterable[str]) -> Seconds:
    """How long a node that has none of them takes to pull a pod's images.

    Those made for GPUs, which are many times larger, are told by their tags, as TensorFlow and PyTorch write them.
    """
    return TABLE["pull", "gpu" if any(GPU_TAG.search(image) for image in images) else "cpu"]
