"""Stand-ins for secret values, and for values that are not known before an update."""

from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class Unknown:
    """A property's value that only an update can tell; all of them count as equal.

    ``source`` says which output it is, where that is known: ``store.projectNumber``.
    """

    source: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown)

    def __hash__(self) -> int:
        return hash(Unknown)

    def __repr__(self) -> str:
        return f"[{self.source or 'unknown'}]"


UNKNOWN = Unknown()
"""An unknown value whose source is not known."""


class Partial(str):
    """A text that is known but for what only an update can tell, which stands in it as ``[resource.property]``."""

    __slots__ = ()


def unknown(value: object) -> bool:
    """Whether only an update can tell all of ``value``."""
    return isinstance(value, Unknown | Partial) or (isinstance(value, Secret) and value.partial)


@dataclass(frozen=True)
class Secret:
    """Stands for a secret value. Two are equal where their values are, as far as ``digest`` tells.

    The digest is keyed, with a key that no run of the preview keeps, so nothing can be guessed from it.
    ``partial`` says that only an update can tell a part of the value.
    """

    digest: str
    partial: bool = False

    def __repr__(self) -> str:
        return "[secret]"
