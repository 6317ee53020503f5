"""Results of provider functions that only a cloud knows, for programs that read them in plain Python.

``aws.ec2.get_ami_output()`` returns an `Output`, which can be unknown. ``aws.ec2.get_ami()`` returns an object
whose fields the program reads at once, and the SDK has no unknown value for it: it returns None, at which every
provider's SDK fails with an AssertionError. So such a result is an object of the declared type with a mark in each
field:

- a text is a mark that methods of texts leave whole; a number is a mark; a truth value is false,
- a list has `ENTRIES` entries, and an entry at any other index where the program asks for one,
- a mapping has no entries, and a value at any key where the program asks for one,
- a nested object has the fields of its type,
- a value of no declared type can be read as a text, by key and by index.

`is_marked` finds the marks in whatever the program makes of them, so that a preview shows them as unknown.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportMissingSuperCall=false
# The SDK declares the types of output classes in a private module, and has no types for most of it.

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from types import UnionType
from typing import Any, SupportsIndex, Union, cast, get_args, get_origin

import pulumi
from pulumi import _types
from pulumi.runtime.invoke import InvokeResult

from slipway.engine.provider_outputs import mark, number_mark

ENTRIES = 3
"""How many entries a list has that only a cloud knows: a region of most clouds has at least three zones."""


class UnknownText(str):
    """The mark of a text. Methods that would cut it return it whole, because a part of a mark is no mark."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str) -> "UnknownText":
        text = super().__new__(cls, mark(name))
        text.name = name
        return text

    def __getitem__(self, key: Any) -> Any:
        return self

    def __int__(self) -> int:
        return number_mark(self.name)

    def __float__(self) -> float:
        return float(number_mark(self.name))


def _whole(text: UnknownText, *_: Any, **__: Any) -> UnknownText:
    return text


def _in_one_part(text: UnknownText, *_: Any, **__: Any) -> "UnknownList":
    return UnknownList(text.name, lambda _: text, 1)


def _in_three_parts(text: UnknownText, *_: Any) -> tuple[UnknownText, str, UnknownText]:
    return text, "", text


_METHODS: Mapping[Callable[..., Any], str] = {
    _whole: "upper lower title capitalize casefold swapcase strip lstrip rstrip removeprefix removesuffix replace "
    "translate zfill ljust rjust center expandtabs",
    _in_one_part: "split rsplit splitlines",
    _in_three_parts: "partition rpartition",
}

for _method, _names in _METHODS.items():
    for _name in _names.split():
        setattr(UnknownText, _name, _method)


class UnknownValue(UnknownText):
    """A value of no declared type: a text that can also be read by key and by index, as a mapping or a list."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self
        return UnknownValue(f"{self.name}[{key}]" if isinstance(key, int) else f"{self.name}.{key}")

    def __iter__(self) -> Iterator[Any]:
        return iter([self[index] for index in range(ENTRIES)])

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002
        """The value at ``key``."""
        return self[key]


class UnknownList(list[Any]):
    """A list whose length is assumed: an index beyond it has an entry as well."""

    def __init__(self, name: str, make: Callable[[str], Any], length: int = ENTRIES) -> None:
        super().__init__(make(f"{name}[{index}]") for index in range(length))
        self._name, self._make = name, make

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, SupportsIndex) and not -len(self) <= index.__index__() < len(self):
            return self._make(f"{self._name}[{index.__index__()}]")
        return super().__getitem__(index)


class UnknownMapping(dict[str, Any]):
    """A mapping whose keys are unknown: it has none of its own, and a value for each that is read."""

    def __init__(self, name: str, make: Callable[[str], Any]) -> None:
        super().__init__()
        self._name, self._make = name, make

    def __missing__(self, key: str) -> Any:
        return self._make(f"{self._name}.{key}")

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002
        """The value at ``key``."""
        return self[key]


def unknown_result(name: str, declared: Any) -> Any:
    """What stands for the result ``name`` of a function, or for a part of it.

    ``declared`` is its type as the provider's SDK has it, None where it has none.
    """
    kind, entry = _kind_of(declared)
    if _types.is_output_type(kind):
        return _object(name, kind)
    make = next((make for base, make in _MAKERS.items() if issubclass(kind, base)), None)
    return UnknownValue(name) if make is None else make(name, entry)


_MAKERS: Mapping[type, Callable[[str, Any], Any]] = {
    # A truth value is an integer, too, and cannot be marked.
    bool: lambda _name, _: False,
    int: lambda name, _: number_mark(name),
    float: lambda name, _: float(number_mark(name)),
    str: lambda name, _: UnknownText(name),
    Mapping: lambda name, entry: UnknownMapping(name, lambda part: unknown_result(part, entry)),
    Sequence: lambda name, entry: UnknownList(name, lambda part: unknown_result(part, entry)),
}


def _kind_of(declared: Any) -> tuple[type, Any]:
    """The class of a declared type, and the declared type of its entries."""
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in {Union, UnionType}:
        # Of a choice the text: a union of a text and an enumeration is sent as a text.
        kinds = [kind for kind in arguments if kind is not type(None)]
        return _kind_of(str if str in kinds else kinds[0])
    kind = origin or declared
    return (kind if isinstance(kind, type) else object), (arguments[-1] if arguments else None)


def _object(name: str, kind: type) -> Any:
    """An object of ``kind``. Parts of a nested one are made when they are read: some types contain themselves."""
    names = dict(_fields(kind))
    if not issubclass(kind, dict):
        made = object.__new__(kind)
        for field, declared in names.items():
            pulumi.set(made, field, unknown_result(f"{name}.{field}", declared))
        return made
    nested = cast("dict[str, Any]", dict.__new__(_lazy(kind)))
    vars(nested)["_slipway_name"] = name
    for field in names:
        dict.__setitem__(nested, field, UnknownText(f"{name}.{field}"))
    return nested


@cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """The fields of an output type by their names in Python, with their declared types."""
    declared = _types.output_type_types(kind)
    return tuple((python, declared.get(name)) for python, name, _ in _types._py_properties(kind))


@cache
def _lazy(kind: type) -> type:
    """A subclass of the output type ``kind``, a mapping, whose fields are made when they are read."""
    names = dict(_fields(kind))

    def read(self: Any, field: str) -> Any:
        return unknown_result(f"{vars(self)['_slipway_name']}.{field}", names.get(field))

    def get(self: Any, field: str, default: Any = None) -> Any:
        return read(self, field) if field in names else default

    properties = {field: property(lambda self, field=field: read(self, field)) for field in names}
    return type(kind.__name__, (kind,), {"__getitem__": read, "get": get, **properties})


_note: ContextVar[Callable[[str], object] | None] = ContextVar("note", default=None)


def stand_in_for_results(note: Callable[[str], object]) -> None:
    """From now on, in this context, plain results that are unknown are objects of their type.

    ``note`` learns for which functions one stood in, by their short names (``aws:ec2/getAmi``).
    """
    _install()
    _note.set(note)


def short_name(token: str) -> str:
    """``aws:ec2/getAmi`` of ``aws:ec2/getAmi:getAmi``: the module of many functions repeats their name."""
    module, _, function = token.rpartition(":")
    return module if module.endswith(f"/{function}") else token


@cache
def _install() -> None:
    # `pulumi.runtime.invoke` is the function, which hides the module of the same name.
    module: Any = sys.modules[InvokeResult.__module__]
    invoke = cast("Callable[..., InvokeResult]", module.invoke)
    asynchronous = cast("Callable[..., Awaitable[Any]]", module.invoke_async)

    # The providers' SDKs give these parameters by their names.
    def standing_in(
        tok: str, props: Any, opts: Any = None, typ: Any = None, package_ref: Any = None
    ) -> InvokeResult:
        result = invoke(tok, props, opts, typ, package_ref)
        if result.is_known or result.value is not None:
            return result
        # The result is known, as far as the program can tell: its marks say that it is not.
        return InvokeResult(_stand_in(tok, typ))

    async def standing_in_async(
        tok: str, props: Any, opts: Any = None, typ: Any = None, package_ref: Any = None
    ) -> Any:
        value = await asynchronous(tok, props, opts, typ, package_ref)
        return _stand_in(tok, typ) if value is None else value

    runtime: Any = pulumi.runtime
    for holder in (module, runtime):
        holder.invoke, holder.invoke_async = standing_in, standing_in_async


def _stand_in(token: str, declared: Any) -> Any:
    note = _note.get()
    if note is None:
        return None
    note(short_name(token))
    return unknown_result(short_name(token), declared)
