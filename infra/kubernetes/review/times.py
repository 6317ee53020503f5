"""How long an update waits for Kubernetes objects, and a pod for its image."""

from pathlib import Path

from infra.durations import durations
from infra.review import Declared, Seconds

TABLE = durations(Path(__file__).parents[1] / "data" / "times.toml")

JOB = "kubernetes:batch/v1:Job"
RELEASE = "kubernetes:helm.sh/v3:Release"

SCALE_DOWN = TABLE["autoscaler", "scale-down"]
"""How long a node without pods is kept."""


def creation(resource: Declared) -> Seconds | None:
    """How long this one takes; None for a Job, which takes as long as its work, and for what is elsewhere."""
    if resource.package != "kubernetes" or resource.type == JOB:
        return None
    return TABLE["creation", "release" if resource.type == RELEASE else "object"]


def pull(gpus: int) -> Seconds:
    """How long a node that does not have it takes to pull the image of a pod with so many GPUs."""
    return TABLE["pull", "gpu" if gpus else "cpu"]
