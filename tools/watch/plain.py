"""A stack where there is no terminal: a line for each change of a step's state."""

from dataclasses import dataclass, field
from datetime import datetime

from infra.schema.printable import printable
from tools.watch.durations import dollars, duration
from tools.watch.screen import held, line_of, paid
from tools.watch.states import Phase, StepState, View

PROGRESS = 60.0
"""Least seconds between two lines about the progress of one step."""


@dataclass
class Changes:
    """Remembers what was said of each step, and gives the lines that say what is new."""

    _said: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    _at: dict[str, datetime] = field(default_factory=dict[str, datetime])
    _trouble: tuple[str, ...] = ()
    _alarms: tuple[str, ...] = ()

    def lines(self, view: View) -> list[str]:
        """The lines since the last view, each with the time of day."""
        clock = f"{view.at.astimezone():%H:%M:%S}"
        found: list[str] = []
        if tuple(view.trouble) != self._trouble:
            found += [f"{clock}  {printable(each)}" for each in view.trouble]
            if not view.trouble:
                found.append(f"{clock}  all clusters can be read again")
            self._trouble = tuple(view.trouble)
        found += [f"{clock}  {printable(each)}" for each in view.alarms if each not in self._alarms]
        self._alarms = tuple(view.alarms)
        for step in view.steps:
            found += [f"{clock}  {each}" for each in self._of(step, view.at)]
        return found

    def _of(self, step: StepState, now: datetime) -> list[str]:
        key = (str(step.phase), step.reason.says, str(step.retries), step.remark, str(step.running))
        first = step.name not in self._said
        changed = self._said.get(step.name) != key
        moved = step.phase is Phase.RUNNING and step.progress is not None and step.progress.share is not None
        told = self._at.get(step.name)
        due = moved and (told is None or (now - told).total_seconds() >= PROGRESS)
        self._said[step.name] = key
        if not changed and not due:
            return []
        self._at[step.name] = now
        if step.reason.kind == "new" or (first and step.phase is Phase.ABSENT):
            # What comes later is said when it comes.
            return []
        return [described(step)]


def described(step: StepState) -> str:
    """A step on one line, with the fix where there is one."""
    parts = [f"{step.name}: {line_of(step)}"]
    if step.phase.over and step.began and step.ended:
        parts[0] += (
            f" in {duration((step.ended - step.began).total_seconds())}" if step.phase is Phase.DONE else ""
        )
        if step.cost.dollars is not None:
            parts[0] += f", {'at least ' if step.cost.least else ''}{dollars(step.cost.dollars)}"
    if step.wanted > 1 and step.phase is Phase.RUNNING:
        parts[0] += f", {step.running} of {step.wanted} pods"
    if step.reason.fix and step.phase is not Phase.RUNNING:
        parts.append(f"Fix: {step.reason.fix}")
    if step.remark:
        parts.append(step.remark)
    return printable(". ".join(part.rstrip(".") for part in parts))


def summary(view: View) -> str:
    """What the stack holds, and what it cost."""
    return printable(", ".join(filter(None, [held(view), paid(view)])))
