"""Which changes replace a resource."""

from collections.abc import Mapping, Sequence


def replacing() -> Mapping[str, Sequence[str]]:
    """By resource type, the paths of the properties whose change replaces it."""
    return {}
