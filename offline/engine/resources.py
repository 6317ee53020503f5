"""Resources and stack outputs as an engine sees them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pulumi.output import Unknown
from pulumi.runtime import rpc

from offline.engine.unknown_outputs import as_marks, is_marked, whole

SECRET = "[secret]"
"""What is shown of a secret, as in Pulumi's own output."""


class Foreseen(Unknown):
    """An unknown value of which it is known which output it is: ``name`` says it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


@dataclass
class Resource:
    """A declared resource: what the program asked of the engine.

    ``inputs`` have secrets in clear, for the engine to act on; `shown_inputs` are for everything that is written
    down. In a preview, both have a `pulumi.output.Unknown` for each value that only an update knows (a `Foreseen`
    where it is known which), and texts of which a part is unknown have a mark for it (see `unknown_outputs`).
    ``provider`` and ``parent`` are URNs, empty where there is none. ``outputs`` are there once it is created,
    without secrets.
    """

    urn: str
    token: str
    name: str
    custom: bool
    inputs: Mapping[str, Any]
    shown_inputs: Mapping[str, Any]
    parent: str = ""
    provider: str = ""
    dependencies: frozenset[str] = frozenset()
    property_dependencies: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    protect: bool = False
    retain_on_delete: bool = False
    delete_before_replace: bool = False
    ignore_changes: Sequence[str] = ()
    replace_on_changes: Sequence[str] = ()
    replace_with: frozenset[str] = frozenset()
    aliases: Sequence[str] = ()
    create_timeout: str = ""
    read: bool = False
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def needs(self) -> frozenset[str]:
        """URNs without which it cannot be created."""
        return self.dependencies | ({self.provider} if self.provider else frozenset[str]())

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The ``metadata`` of a Kubernetes object; empty for other resources."""
        found = self.inputs.get("metadata")
        return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}

    @classmethod
    def of(cls, urn: str, request: Any) -> "Resource":
        """From a RegisterResource or ReadResource request, which Pulumi's protocol leaves untyped."""
        read = not hasattr(request, "object")
        inputs: Any = _unmarked(rpc.deserialize_properties(request.properties if read else request.object))
        by_property = {
            key: frozenset(str(each) for each in value.urns)
            for key, value in getattr(request, "propertyDependencies", {}).items()
        }
        return cls(
            urn=urn,
            token=request.type,
            name=request.name,
            custom=read or request.custom,
            inputs=plain(inputs),
            shown_inputs=masked(inputs),
            parent=request.parent,
            provider=request.provider.rpartition("::")[0],
            dependencies=frozenset(str(each) for each in request.dependencies).union(*by_property.values()),
            property_dependencies=by_property,
            protect=bool(getattr(request, "protect", False)),
            retain_on_delete=bool(getattr(request, "retainOnDelete", False)),
            delete_before_replace=bool(getattr(request, "deleteBeforeReplace", False)),
            ignore_changes=tuple(getattr(request, "ignoreChanges", ())),
            replace_on_changes=tuple(getattr(request, "replaceOnChanges", ())),
            replace_with=frozenset(getattr(request, "replace_with", ())),
            aliases=tuple(each.spec.name or each.urn for each in getattr(request, "aliases", ())),
            create_timeout=request.customTimeouts.create if hasattr(request, "customTimeouts") else "",
            read=read,
        )


@dataclass(frozen=True)
class StackOutput:
    """One output of a stack. ``known`` is false where what it comes from was not created."""

    value: Any
    secret: bool = False
    known: bool = True

    @classmethod
    def of(cls, value: Any) -> "StackOutput":
        """From a deserialized property, in which a secret is marked."""
        secret = rpc.is_rpc_secret(value)
        if secret:
            value = rpc.unwrap_rpc_secret(value)
        return cls(plain(value), secret, not (_has_unknown(value) or is_marked(value)))

    @property
    def shown(self) -> Any:
        """What may be printed."""
        return SECRET if self.secret else self.value


def plain(value: Any) -> Any:
    """``value`` with its secrets in clear."""
    return _walk(value, plain)


def masked(value: Any) -> Any:
    """``value`` with `SECRET` in place of every secret."""
    return _walk(value, _hide)


def _hide(_: Any) -> str:
    return SECRET


def stood_in(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """``inputs`` with a text in place of every unknown value, for who has to work with some value."""
    return cast("Mapping[str, Any]", _known(inputs))


def _unmarked(value: Any) -> Any:
    """``value`` with an unknown value for each text and number of which nothing is known."""
    if rpc.is_rpc_secret(value):
        found = _unmarked(rpc.unwrap_rpc_secret(value))
        return found if isinstance(found, Unknown) else rpc.wrap_rpc_secret(found)
    if isinstance(value, Mapping):
        return {key: _unmarked(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_unmarked(each) for each in cast("list[Any]", value)]
    marked = as_marks(value)
    name = whole(marked)
    return marked if name is None else Foreseen(name)


def _known(value: Any) -> Any:
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, Mapping):
        return {key: _known(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_known(each) for each in cast("list[Any]", value)]
    return value


def _walk(value: Any, of_secret: Callable[[Any], Any]) -> Any:
    if rpc.is_rpc_secret(value):
        return of_secret(rpc.unwrap_rpc_secret(value))
    if isinstance(value, Mapping):
        return {str(key): _walk(each, of_secret) for key, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_walk(each, of_secret) for each in cast("list[Any]", value)]
    if isinstance(value, float) and value.is_integer():
        # Protobuf has one kind of number; Kubernetes and people write integers as such.
        return int(value)
    return value


def _has_unknown(value: Any) -> bool:
    if isinstance(value, Unknown):
        return True
    if isinstance(value, Mapping):
        return any(_has_unknown(each) for each in cast("Mapping[Any, Any]", value).values())
    if isinstance(value, list):
        return any(_has_unknown(each) for each in cast("list[Any]", value))
    return False
