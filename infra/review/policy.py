"""Policies: rules about a whole stack."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from infra.review.stack import Stack


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
    breach of it, where that is the same for all of them. ``harm`` says that a breach opens something to others, or
    has something billed at all times.
    """

    id: str
    severity: Severity
    title: str
    check: Callable[[Stack], Iterable[Violation]]
    fix: str = ""
    harm: bool = False
