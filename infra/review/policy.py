"""Policies: rules about a whole stack."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from infra.review.stack import Stack


class Harm(StrEnum):
    """What a finding does to the user, the worst first."""

    LOSS = "loss"
    """Data or versions of models are deleted."""
    OPENING = "opening"
    """Something is open to others, or no longer guarded."""
    INTERRUPTION = "interruption"
    """What runs ends, or cannot go on."""
    REFUSAL = "refusal"
    """`pulumi up` refuses the update, or fails half-way."""
    COST = "cost"
    """Something is billed at all times."""


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Violation:
    """One breach of a policy. ``resource`` is a URN, or a configuration key where no resource is to blame."""

    resource: str
    reason: str
    fix: str


@dataclass(frozen=True)
class Policy:
    """A rule about a whole stack.

    ``id`` is what suppressions name; ``title`` says the rule in one sentence, and ``fix`` what to do about a
    breach of it, where that is the same for all of them. ``harm`` is what a breach does to the user, None where it
    is bad practice alone.
    """

    id: str
    severity: Severity
    title: str
    check: Callable[[Stack], Iterable[Violation]]
    fix: str = ""
    harm: Harm | None = None
