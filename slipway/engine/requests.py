"""The resources and stack outputs of the requests that the SDK sends to an engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from google.protobuf import struct_pb2
from pulumi.dynamic.dynamic import PROVIDER_KEY
from pulumi.output import Unknown
from pulumi.runtime import rpc

from slipway.engine.provider_outputs import NOTICE, as_marks, is_marked, marked_name, unmark
from slipway.engine.secret_outputs import as_secrets, names_of
from slipway.engine.source_positions import place_of
from slipway.infra.review import stack as review
from slipway.infra.review.stack import Resource, Secret

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# Pulumi's messages have no types.

SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key of a mapping that is no mapping but a secret, an asset, or a resource
(github.com/pulumi/pulumi, sdk/python/lib/pulumi/runtime/rpc.py, 3.x)."""

DYNAMIC = "pulumi-python:dynamic"
"""What the type of a resource begins with whose provider is code of the program. Only an update runs it."""

SECRET = "[secret]"
"""What is shown of a secret, as in Pulumi's own output."""


class NamedUnknown(Unknown):
    """An unknown value whose output is known: ``name`` is the name of the output."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def read_request(urn: str, request: Any) -> Resource:
    """The resource of a RegisterResource or ReadResource request, which Pulumi's protocol leaves untyped."""
    read = not hasattr(request, "object")
    inputs: Any = _read_marks(rpc.deserialize_properties(request.properties if read else request.object))
    inputs = as_secrets(inputs, names_of(request))
    if request.type.startswith(DYNAMIC):
        # The pickled provider has the path of its file in it, and differs between two checkouts of the same code.
        inputs.pop(PROVIDER_KEY, None)
    by_property = {
        key: frozenset(str(other) for other in value.urns)
        for key, value in getattr(request, "propertyDependencies", {}).items()
    }
    return Resource(
        urn=urn,
        type=request.type,
        name=request.name,
        properties=_for_review(inputs),
        custom=read or request.custom,
        parent=request.parent,
        provider=request.provider.rpartition("::")[0],
        dependencies=frozenset(str(dependency) for dependency in request.dependencies).union(
            *by_property.values()
        ),
        property_dependencies=by_property,
        protect=bool(getattr(request, "protect", False)),
        retain_on_delete=bool(getattr(request, "retainOnDelete", False)),
        delete_before_replace=bool(getattr(request, "deleteBeforeReplace", False)),
        ignore_changes=tuple(getattr(request, "ignoreChanges", ())),
        replace_on_changes=tuple(getattr(request, "replaceOnChanges", ())),
        replace_with=frozenset(getattr(request, "replace_with", ())),
        aliases=tuple(alias.spec.name or alias.urn for alias in getattr(request, "aliases", ())),
        create_timeout=request.customTimeouts.create if hasattr(request, "customTimeouts") else "",
        read=read,
        place=place_of(request.sourcePosition),
        inputs=plain(inputs),
    )


@dataclass(frozen=True)
class StackOutput:
    """One output of a stack. ``known`` is false where what it comes from was not created.

    ``hidden`` are the entries of a mapping that have a secret in them, where it is not secret as a whole.
    """

    value: Any
    secret: bool = False
    known: bool = True
    hidden: frozenset[str] = frozenset()

    @classmethod
    def of(cls, value: Any) -> "StackOutput":
        """From a deserialized property, in which a secret is marked."""
        secret = rpc.is_rpc_secret(value)
        if secret:
            value = rpc.unwrap_rpc_secret(value)
        return cls(plain(value), secret, not _is_unknown(value))

    @classmethod
    def sent(cls, value: Any) -> "StackOutput":
        """From a property as the protocol has it. Of a mapping only those entries are secret that have a secret:
        deserialized in one go, it would be so as a whole.
        """
        if not isinstance(value, struct_pb2.Struct) or SIGNATURE in value:
            return cls.of(rpc.deserialize_property(value, keep_unknowns=True))
        entries = {key: rpc.deserialize_property(item, keep_unknowns=True) for key, item in value.items()}
        hidden = frozenset(key for key, entry in entries.items() if rpc.is_rpc_secret(entry))
        return cls(plain(entries), hidden=hidden)

    @property
    def shown(self) -> Any:
        """What may be printed."""
        if self.hidden and not self.secret:
            return {key: SECRET if key in self.hidden else entry for key, entry in self.value.items()}
        return SECRET if self.secret else self.value


def plain(value: Any) -> Any:
    """``value`` with its secrets in clear."""
    return plain(rpc.unwrap_rpc_secret(value)) if rpc.is_rpc_secret(value) else _map_parts(value, plain)


def mask(value: Any) -> Any:
    """``value`` with `SECRET` in place of every secret."""
    return SECRET if rpc.is_rpc_secret(value) else _map_parts(value, mask)


def stood_in(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """``inputs`` with a text in place of every unknown value, for who has to work with some value."""
    return cast("Mapping[str, Any]", _plain_values(inputs))


def _read_marks(value: Any) -> Any:
    """``value`` with an unknown value for each text and number of which nothing is known."""
    if rpc.is_rpc_secret(value):
        inner = _read_marks(rpc.unwrap_rpc_secret(value))
        return inner if isinstance(inner, Unknown) else rpc.wrap_rpc_secret(inner)
    if isinstance(value, Mapping | list):
        return _map_parts(value, _read_marks)
    marked = as_marks(value)
    name = marked_name(marked)
    return marked if name is None else NamedUnknown(name)


def _for_review(value: Any) -> Any:
    """Inputs as reviews read them: what only an update knows, and what is secret, say so."""
    if rpc.is_rpc_secret(value):
        secret = rpc.unwrap_rpc_secret(value)
        # A mistake of the program, and no secret; what stands beside it may be one.
        return NOTICE if NOTICE in str(secret) else Secret("", partial=_is_unknown(secret))
    if isinstance(value, Unknown):
        return review.Unknown(value.name) if isinstance(value, NamedUnknown) else review.UNKNOWN
    return unmark(value) if isinstance(value, str) else _map_parts(value, _for_review)


def _plain_values(value: Any) -> Any:
    return "unknown" if isinstance(value, Unknown) else _map_parts(value, _plain_values)


def _map_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with ``change`` applied to each part of a mapping or a list."""
    if isinstance(value, Mapping):
        return {str(key): change(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list):
        return [change(element) for element in cast("list[Any]", value)]
    if isinstance(value, float) and value.is_integer():
        # Protobuf has one kind of number; Kubernetes and people write integers as such.
        return int(value)
    return value


def _is_unknown(value: Any) -> bool:
    """Whether ``value`` or anything below it is unknown, or has the mark of an unknown value."""
    if isinstance(value, Mapping):
        return any(_is_unknown(item) for item in cast("Mapping[Any, Any]", value).values())
    if isinstance(value, list):
        return any(_is_unknown(element) for element in cast("list[Any]", value))
    return isinstance(value, Unknown) or is_marked(value)
