"""Regions and zones of Google Cloud, told apart by how they are written."""

import re

ZONE = re.compile(r"([a-z]+-[a-z]+[0-9]+)-[a-z0-9]+")

REGION_ZONES = 3
"""Zones that GKE spreads the nodes of a regional cluster over when none are named.

Source: https://cloud.google.com/kubernetes-engine/docs/concepts/regional-clusters, 2026-11-20.
"""


def region_of(location: str) -> str:
    """The region of a zone, or the region itself."""
    match = ZONE.fullmatch(location)
    return match[1] if match else location


def is_zone(location: str) -> bool:
    """Whether a location is a zone and not a region."""
    return ZONE.fullmatch(location) is not None
