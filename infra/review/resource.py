"""One resource of a stack, as the program declares it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast


@dataclass
class Resource:
    """What the program asks the engine for.

    ``properties`` are its inputs as they may be shown: `Unknown` where only an update knows the value, `Partial`
    where it knows a part of a text, and a `Secret` for each secret. ``inputs`` are the same for the engine that
    evaluates the program: secrets in clear, a `pulumi.output.Unknown` for each unknown value. They are empty where
    another process evaluated it. ``outputs`` are there once an engine has created it, without secrets.

    ``parent`` and ``provider`` are URNs, empty where there is none (for ``provider``: the default one).
    ``property_dependencies`` are URNs by property. ``create_timeout`` is text such as ``45m``, empty without one.
    ``read`` says that it is looked up, not managed.
    """

    urn: str
    type: str
    name: str
    properties: Mapping[str, Any]
    custom: bool = True
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
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def package(self) -> str:
        """The Pulumi package of its type."""
        return self.type.partition(":")[0]

    @property
    def needs(self) -> frozenset[str]:
        """URNs without which it cannot be created."""
        return self.dependencies | ({self.provider} if self.provider else frozenset[str]())

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The ``metadata`` of a Kubernetes object's inputs; empty for other resources."""
        found = self.inputs.get("metadata")
        return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
