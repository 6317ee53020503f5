"""Which changes replace a resource, and what updates in place do."""

import ipaddress
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from infra.review.replacements import computed_from, in_place_from, replacing_from

DATA = Path(__file__).parents[1] / "data"


replacing = partial(replacing_from, DATA / "replacing.json")
"""By resource type, the paths of the properties whose change replaces it."""

computed = partial(computed_from, DATA / "computed.toml")
"""By resource type, the properties that keep their value where they are taken away."""

in_place = partial(in_place_from, DATA / "in_place.toml")
"""By resource type, what updates in place mean for what is there."""


def _does_not_only_grow(before: object, after: object) -> bool:
    if not isinstance(before, str) or not isinstance(after, str):
        return True
    try:
        return not ipaddress.ip_network(before).subnet_of(ipaddress.ip_network(after))  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return True


SOMETIMES: Mapping[str, Mapping[str, Callable[[object, object], bool]]] = {
    "gcp:compute/subnetwork:Subnetwork": {"ipCidrRange": _does_not_only_grow}
}
"""What the provider's own code decides, so that the schema does not have it. Source: `IsShrinkageIpCidr`,
https://github.com/hashicorp/terraform-provider-google/blob/main/google/services/compute/resource_compute_subnetwork.go,
2026-08-28; previews of November 2026 agree."""
