"""What is found out about a stack before its first `pulumi up`: missing, not to be told, or fine."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

STACK = "{stack}"
"""Stands for the stack's name in a text, so that one text can be told of several stacks."""


class State(StrEnum):
    """How one thing was found: ``WRONG`` makes `pulumi up` fail or surprise, ``UNKNOWN`` could not be checked."""

    WRONG = "wrong"
    UNKNOWN = "unknown"
    FINE = "fine"


@dataclass(frozen=True)
class Observation:
    """One thing that was checked, or could not be.

    ``subject`` says what, ``said`` what was found, in words that follow it. ``mend`` is the command that puts it
    right or shows it, empty where there is none, and ``advice`` what a command cannot do. `STACK` in ``mend`` is
    the stack.
    """

    state: State
    subject: str
    said: str
    mend: str = ""
    advice: str = ""


def wrong(subject: str, said: str, mend: str, advice: str = "") -> Observation:
    """What makes `pulumi up` fail or surprise, with the command that mends it or that ``advice`` needs."""
    return Observation(State.WRONG, subject, said, mend, advice)


def unknown(subject: str, said: str, mend: str = "") -> Observation:
    """What could not be checked, why, and the command by which a person can."""
    return Observation(State.UNKNOWN, subject, said, mend)


def fine(subject: str, said: str) -> Observation:
    """What is as it has to be."""
    return Observation(State.FINE, subject, said)


@dataclass(frozen=True)
class Probe:
    """A check that may ask somebody else, and so take its time. ``run`` is called in a thread of its own."""

    subject: str
    run: Callable[[], Iterable[Observation]]
