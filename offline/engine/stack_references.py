"""Which clusters of other stacks the stack files of a checkout name. Imports no Pulumi, as a preview's process."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.review.properties import mapping, text
from infra.schema.problems import without_prefix
from infra.schema.yaml_files import ConfigError
from offline.engine.stack_config import load_stack, stack_names


@dataclass(frozen=True)
class Reference:
    """A cluster of another stack, as a stack file names it: ``name`` there, and ``cluster`` in the other file.

    ``reference`` is what the file calls the stack, ``stack`` its name without organization and project.
    """

    name: str
    reference: str
    cluster: str

    @property
    def stack(self) -> str:
        """The stack's name in its project."""
        return self.reference.rpartition("/")[2]


def references(raw: Mapping[str, Any]) -> list[Reference]:
    """The clusters of other stacks in ``raw``, the plain values of a stack file, right or wrong."""
    sections = {str(name): mapping(each) for name, each in mapping(raw.get("clusters")).items()}
    return [
        Reference(name, text(each["stack"]), text(each.get("cluster")))
        for name, each in sections.items()
        if text(each.get("stack"))
    ]


def referring(root: Path, stacks: Collection[str]) -> list[str]:
    """The stacks of the checkout at ``root`` whose files name a cluster of one of ``stacks``."""
    try:
        names = [name for name in stack_names(root) if name not in stacks]
    except ConfigError:
        return []
    return [name for name in names if any(each.stack in stacks for each in _references_of(name, root))]


def _references_of(stack: str, root: Path) -> list[Reference]:
    try:
        return references(without_prefix(load_stack(stack, root).values))
    except ConfigError:
        return []
