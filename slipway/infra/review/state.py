"""A stack as its state has it: what its last update made, as `pulumi stack export` tells it."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from slipway.infra.review.stack import UNKNOWN, Properties, Resource, Stack, is_true, mapping, text, texts

SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key that marks a value of the state as no mapping: a secret, which has ``plaintext`` beside it, an asset, a
reference to a resource (pulumi/pulumi, sdk/go/common/resource/sig, seen November 2026)."""

DEFAULTS = "__defaults"
"""Names, in each mapping of a resource's inputs, the keys that its provider filled in and no program has set
(pkg/tfbridge of pulumi/pulumi-terraform-bridge, seen November 2026)."""


def stack_of_state(name: str, exported: Sequence[Properties]) -> Stack:
    """The resources that are managed and there. Secrets, and what no JSON value is, are `UNKNOWN`."""
    resources = (_resource(resource) for resource in exported if not is_true(resource.get("delete")))
    return Stack(name, {resource.urn: resource for resource in resources})


def _resource(exported: Properties) -> Resource:
    urn = text(exported.get("urn"))
    return Resource(
        urn=urn,
        type=text(exported.get("type")),
        name=urn.rpartition("::")[2],
        properties=cast("Mapping[str, Any]", _input(mapping(exported.get("inputs")))),
        custom=is_true(exported.get("custom")),
        parent=text(exported.get("parent")),
        # A provider's URN and its ID.
        provider=text(exported.get("provider")).rpartition("::")[0],
        dependencies=frozenset(texts(exported.get("dependencies"))),
        property_dependencies={
            key: frozenset(texts(urns)) for key, urns in mapping(exported.get("propertyDependencies")).items()
        },
        protect=is_true(exported.get("protect")),
        retain_on_delete=is_true(exported.get("retainOnDelete")),
        read=is_true(exported.get("external")),
    )


def _input(value: object) -> object:
    if isinstance(value, list):
        return [_input(item) for item in cast("list[object]", value)]
    if not isinstance(value, Mapping):
        return value
    inputs = cast("Mapping[str, object]", value)
    if SIGNATURE in inputs:
        return UNKNOWN
    filled_in = {DEFAULTS, *texts(inputs.get(DEFAULTS))}
    return {key: _input(item) for key, item in inputs.items() if key not in filled_in}
