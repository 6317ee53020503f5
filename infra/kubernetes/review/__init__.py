"""What a preview says of Kubernetes objects. None of it imports the SDK.

Nodes and quotas are the clouds' to know.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from infra.kubernetes.review import access, charges
from infra.kubernetes.review.holdings import holding
from infra.review.contract import Review
from infra.review.data_files import durations, in_place_from
from infra.review.facts import Seconds
from infra.review.stack import JOB, Resource

DATA = Path(__file__).parents[1] / "data"
FILE = DATA / "replacing.toml"
TIMES = durations(DATA / "times.toml")

PASSWORD = "random:index/randomPassword:RandomPassword"
RELEASE = "kubernetes:helm.sh/v3:Release"

GPU_TAG = re.compile(r":[^/]*(gpu|cuda)")

SCALE_DOWN = TIMES["autoscaler", "scale-down"]
"""How long a node without pods is kept."""

in_place = partial(in_place_from, DATA / "in_place.toml")
"""By resource type, what updates in place mean for what is there."""


@cache
def replacing() -> Mapping[str, Sequence[str]]:
    """By resource type, the paths of the properties whose change replaces it."""
    with FILE.open("rb") as file:
        data = tomllib.load(file)
    objects = {type_: [*data["every"], *paths] for type_, paths in data["types"].items()}
    return {**objects, **data["others"]}


def creation(resource: Resource) -> Seconds | None:
    """How long this one takes; None for a Job, which takes as long as its work, and for what is elsewhere.

    That of a service is from its pod's start on.
    """
    if resource.type == PASSWORD:
        return TIMES["creation", "password"]
    if resource.package != "kubernetes" or resource.type == JOB:
        return None
    return TIMES["creation", "release" if resource.type == RELEASE else "object"]


def pull(images: Iterable[str]) -> Seconds:
    """How long a node that has none of them takes to pull a pod's images.

    Those made for GPUs, which are many times larger, are told by their tags, as TensorFlow and PyTorch write them.
    """
    return TIMES["pull", "gpu" if any(GPU_TAG.search(image) for image in images) else "cpu"]


REVIEW = Review(
    charges=charges.charges,
    replacing=replacing,
    holding=holding,
    creation=creation,
    in_place=in_place,
    grants=access.grants,
)
