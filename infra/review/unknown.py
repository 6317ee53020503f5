"""Values that nobody may see, and values that nobody knows yet."""

from dataclasses import dataclass


class Unknown:
    """The type of `UNKNOWN`."""

    def __repr__(self) -> str:
        return "[unknown]"


UNKNOWN = Unknown()
"""A property's value that only an update can tell."""


class Partial(str):
    """A text that is known but for what only an update can tell, which stands in it as ``[resource.property]``."""

    __slots__ = ()


def unknown(value: object) -> bool:
    """Whether only an update can tell all of ``value``."""
    return isinstance(value, Unknown | Partial)


@dataclass(frozen=True)
class Secret:
    """Stands for a secret value. Two are equal where their values are, as far as ``digest`` tells.

    The digest is keyed, with a key that no run of the preview keeps, so nothing can be guessed from it.
    """

    digest: str

    def __repr__(self) -> str:
        return "[secret]"
