"""Outputs that are secret since a provider's SDK, or the program, says so of the resource."""

from collections.abc import Collection, Mapping
from typing import Any

from google.protobuf import struct_pb2
from pulumi.output import Unknown
from pulumi.runtime import rpc

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# The messages of Pulumi's protocol have no types.


def names_of(request: Any) -> frozenset[str]:
    """The ``additionalSecretOutputs`` of a RegisterResource or ReadResource request."""
    return frozenset(str(name) for name in request.additionalSecretOutputs)


def as_secrets(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Deserialized properties, of which those with these ``names`` are secret."""
    return {key: _as_secret(value) if key in names else value for key, value in values.items()}


def hide(known: struct_pb2.Struct, names: Collection[str]) -> None:
    """Makes the properties of these ``names`` in ``known`` secret. One that is missing is unknown, and secret."""
    for name in names:
        value = known[name] if name in known.fields else rpc.UNKNOWN
        known[name] = _as_secret(dict(value) if isinstance(value, struct_pb2.Struct) else value)


def _as_secret(value: Any) -> Any:
    # Nothing of an unknown value can be shown; its name may be.
    return value if rpc.is_rpc_secret(value) or isinstance(value, Unknown) else rpc.wrap_rpc_secret(value)


def secret_names(outputs: struct_pb2.Struct) -> list[str]:
    """The names of the ``outputs`` of a stack in which there is a secret."""
    return [name for name, value in outputs.items() if _has_secret(value)]


def _has_secret(value: Any) -> bool:
    """Whether a value of Pulumi's protocol has a secret in it."""
    if isinstance(value, struct_pb2.Struct):
        return rpc.is_rpc_secret(dict(value)) or any(map(_has_secret, value.values()))
    return isinstance(value, struct_pb2.ListValue) and any(map(_has_secret, value))
