"""Which resource of the base is which of now: the same URN, or one that an alias names."""

from collections.abc import Iterator, Mapping

from infra.review.resource import Resource
from infra.review.stack import Stack

Pair = tuple[Resource | None, Resource | None]


def pairs(before: Stack, after: Stack) -> list[Pair]:
    """The managed resources of both sides, matched; then those that are gone, in the order of their deletion."""
    old, new = _managed(before), _managed(after)
    left = dict(old)
    found: list[Pair] = []
    for urn, resource in new.items():
        match = left.pop(urn, None)
        if match is None:
            earlier = (each for each in _earlier_urns(resource, after) if each in left and each not in new)
            match = left.pop(next(earlier, ""), None)
        found.append((match, resource))
    return [*found, *((resource, None) for resource in reversed(left.values()))]


def _managed(stack: Stack) -> Mapping[str, Resource]:
    return {urn: each for urn, each in stack.resources.items() if each.custom and not each.read}


def _earlier_urns(resource: Resource, stack: Stack) -> Iterator[str]:
    """The URNs that its aliases, and those of the components around it, give a resource."""
    yield from _aliased(resource)
    # A child is named after its parent, and Pulumi's SDKs alias it with its parent.
    parent = stack.resources.get(resource.parent)
    while parent is not None:
        if resource.name.startswith(parent.name):
            for urn in _aliased(parent):
                name = urn.rpartition("::")[2] + resource.name.removeprefix(parent.name)
                yield _renamed(resource.urn, name)
        parent = stack.resources.get(parent.parent)


def _aliased(resource: Resource) -> Iterator[str]:
    for alias in resource.aliases:
        yield alias if alias.startswith("urn:pulumi:") else _renamed(resource.urn, alias)


def _renamed(urn: str, name: str) -> str:
    return f"{urn.rpartition('::')[0]}::{name}"
