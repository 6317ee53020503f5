"""Kubernetes objects as patches leave them: what a program declares of an object that is there already.

A patch (`ServicePatch`, `IngressPatch`, …) changes the object of its name, which the same program may declare, or
somebody else (pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply,
seen November 2026). Lists are taken to be replaced.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from infra.review.properties import at
from infra.review.stack import Resource, Stack

PATCH = "Patch"
"""What the type of a patch has behind that of the object."""


def as_patched(stack: Stack, *types: str) -> Iterator[Resource]:
    """The objects of the ``types`` with their patches, and the patches of objects that the stack lacks."""
    left = {each.urn: each for each in stack.of_type(*(f"{type_}{PATCH}" for type_ in types))}
    for each in stack.of_type(*types):
        found = each
        for urn, patch in list(left.items()):
            if patch.type == f"{each.type}{PATCH}" and _of(patch) == _of(each):
                found = replace(found, properties=_laid_over(found.properties, patch.properties))
                del left[urn]
        yield found
    yield from left.values()


def _of(resource: Resource) -> tuple[str, object, object]:
    """Which object it is: by its cluster's provider, its namespace and its name."""
    name, namespace = (at(resource.properties, "metadata", key) for key in ("name", "namespace"))
    return resource.provider, namespace or "default", name


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        there = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(there, Mapping)
        merged[key] = _laid_over(cast("Any", there), cast("Any", value)) if both else value
    return merged
