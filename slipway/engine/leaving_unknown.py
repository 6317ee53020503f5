"""What is unknown because what stands in for it cannot be used.

- A callback of ``apply``. Before the first update the real engine calls none that depends on a new resource: what
  it returns is unknown. This engine calls them with marks in place of unknown texts and numbers, because most
  build a text from them. One that takes a text apart, such as ``id.apply(lambda id: id.split("/")[8])``, fails on
  a mark.
- An output of a resource of another type than the input of its name. The inputs are all that is known of a new
  resource; some providers return, for a list of identities, a mapping of them.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# Pulumi's outputs have no types here.

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any, cast

import pulumi
from pulumi.output import UNKNOWN
from pulumi.runtime import rpc

from slipway.engine.provider_outputs import is_marked


class OtherTypeError(Exception):
    """An input is of another type than the output of the same name."""


_note: ContextVar[Callable[[Exception], object] | None] = ContextVar("note", default=None)


def leave_unknown(note: Callable[[Exception], object]) -> None:
    """From now on, in this context, both are unknown in place of an error.

    ``note`` learns of each: the error of a callback, or an OtherTypeError. An error of a callback that was given
    no mark is raised, as ever.
    """
    _install()
    _note.set(note)


@cache
def _install() -> None:
    output: Any = pulumi.Output
    apply = output.apply
    sdk: Any = rpc
    translate = sdk.translate_output_properties

    def applying(self: Any, func: Callable[[Any], Any], *more: Any, **options: Any) -> "pulumi.Output[Any]":
        def guarded(value: Any) -> Any:
            try:
                return func(value)
            except Exception as error:
                note = _note.get()
                if note is None or not _has_mark(value):
                    raise
                note(error)
                return UNKNOWN

        return apply(self, guarded, *more, **options)

    def translating(value: Any, *more: Any, **options: Any) -> Any:
        try:
            return translate(value, *more, **options)
        except AssertionError:
            note = _note.get()
            if note is None:
                raise
            note(
                OtherTypeError(
                    "outputs are unknown whose type is another one than that of the input of their name"
                )
            )
            return UNKNOWN

    output.apply = applying
    sdk.translate_output_properties = translating


def _has_mark(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_mark(item) for item in cast("Mapping[Any, Any]", value).values())
    if isinstance(value, list | tuple):
        return any(_has_mark(item) for item in cast("list[Any]", value))
    # The result of a provider function is an object with fields.
    return (
        _has_mark(vars(value)) if hasattr(value, "__dict__") and not isinstance(value, str) else is_marked(value)
    )
