"""Which changes replace a resource, and what updates in place do."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from infra.review.replacements import in_place_from, replacing_from

DATA = Path(__file__).parents[1] / "data"


replacing = partial(replacing_from, DATA / "replacing.json")
"""By resource type, the paths of the properties whose change replaces it."""

in_place = partial(in_place_from, DATA / "in_place.toml")
"""By resource type, what updates in place mean for what is there."""


def _is_taken_away(_: object, after: object) -> bool:
    return after is None


SOMETIMES: Mapping[str, Mapping[str, Callable[[object, object], bool]]] = {
    "aws:eks/cluster:Cluster": {"encryptionConfig": _is_taken_away}
}
"""What the provider's own code decides, so that the schema does not have it. Source:
https://github.com/hashicorp/terraform-provider-aws/blob/main/internal/service/eks/cluster.go, 2026-06-02."""
