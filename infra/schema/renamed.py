"""Keys with a new name: the old one works for one minor version, and says so.

A model names them in `Model.renamed`, whether it is a section of a stack file or of a ``pipeline.yaml``; reading
a file moves the value to the new name (`slipway.infra.schema.repairs.repair`). What reads plain values before
that has to know the old name itself.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Renamed:
    """The new name of a key, which it has ``since`` a minor version, as `0.2`.

    The next minor version refuses the old name: before its release a test asks for ``removed``. The entry stays,
    so that the fix names the new name.
    """

    to: str
    since: str
    removed: bool = False

    @property
    def until(self) -> str:
        """The minor version that refuses the old name."""
        major, minor = self.since.split(".")
        return f"{major}.{int(minor) + 1}"

    @property
    def reason(self) -> str:
        """Why the old name is refused, or will be."""
        gone = f"there is no such key since {self.until}"
        return gone if self.removed else f"called `{self.to}` since {self.since}"

    @property
    def fix(self) -> str:
        """What to write instead."""
        return f"write `{self.to}`" if self.removed else f"write `{self.to}`; {self.until} refuses the old name"


def warning(key: str, reason: str, fix: str) -> str:
    """What the program says of a key that still works by its old name."""
    return f"{key}: {reason}; {fix}"
