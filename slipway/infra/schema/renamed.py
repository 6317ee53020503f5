"""Keys of an earlier release: those with a new name, and those that are gone.

A model names them in `Model.renamed` and `Model.removed`, whether it is a section of a stack file or of a
``pipeline.yaml``; kinds of sections that are gone in `Model.removed_kinds`. An old name works for one minor
version, and a warning says the new one: reading a file moves the value there
(`slipway.infra.schema.repairs.repair`). What reads plain values before that has to know the old name itself. What
is gone is refused; for one minor version the error says what to write instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slipway.infra.commands import page


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


@dataclass(frozen=True)
class Removed:
    """A key, or a kind of section, that is gone ``since`` a minor version, as `0.2`.

    ``instead`` says what to write in its place, as the fix of a problem. The next minor version drops the entry: a
    test asks for that. ``docs/removed.md`` says the same with an example.
    """

    instead: str
    since: str = "0.1"
    argument: str = ""
    """What a transformation sets: class and argument of a resource, as `gcp.storage.Bucket.location`."""

    @property
    def reason(self) -> str:
        """Why it is refused."""
        return f"removed in {self.since}"


def by_transformation(resource: str, argument: str) -> Removed:
    """A key whose value only went to the ``argument`` of a ``resource`` that is declared."""
    shown = f"by a transformation, as {page('transformations.md')} shows"
    instead = f"set `{argument}` of the {resource} {shown}: else the next `pulumi up` sets the default"
    return Removed(instead, argument=f"{resource}.{argument}")


def warning(key: str, reason: str, fix: str) -> str:
    """What the program says of a key that still works by its old name."""
    return f"{key}: {reason}; {fix}"


CHART_KEYS: Mapping[str, Removed] = {
    key: by_transformation("kubernetes.helm.v3.Release", key) for key in ("chart", "version")
}
"""The keys that named a Helm chart in place of the pinned one."""
