"""A stack on a terminal: a table of its steps, and all that is known of the one under the cursor."""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from infra.schema.problems import printable
from tools.watch.states import Phase, StepState, View, ago, dollars, duration

MARKS = {
    Phase.ABSENT: ("·", "dim"),
    Phase.QUEUED: ("≡", "yellow"),
    Phase.CREATING: ("◌", "yellow"),
    Phase.WAITING: ("◌", "yellow"),
    Phase.PULLING: ("↓", "cyan"),
    Phase.STARTING: ("◔", "cyan"),
    Phase.MEETING: ("⋯", "yellow"),
    Phase.RUNNING: ("▶", "green"),
    Phase.LOST: ("?", "red"),
    Phase.ENDING: ("■", "yellow"),
    Phase.RETRYING: ("↻", "yellow"),
    Phase.DONE: ("✔", "green"),
    Phase.FAILED: ("✘", "red"),
    Phase.UNKNOWN: ("?", "red"),
}

KEYS = "↑ ↓ or k j: another step   q: quit"

NARROW = 110
"""Columns below which pools and costs give way."""

LEAST_TAIL = 3
"""Lines of a log that are shown even where there is little room."""


def screen(view: View, selected: int, height: int, width: int, *, keys: bool = True) -> RenderableType:
    """The whole picture, as high as the terminal. ``selected`` is the number of the step under the cursor."""
    step = view.steps[selected] if view.steps else None
    head = list(header(view))
    upper = [*head, *(Text(f"! {printable(each)}", "red") for each in (*view.trouble, *view.alarms))]
    below = list(detail(step, view.at)) if step else []
    rows = max(height - len(upper) - len(below) - LEAST_TAIL - 6, 3)
    shown, hidden = _window(len(view.steps), selected, rows)
    tables = table(view, selected if keys else None, width, shown)
    more = [Text(f"  and {hidden} more steps", "dim")] if hidden else []
    left = height - len(upper) - len(shown) - len(more) - len(below) - 6
    tail = _Tail(step, max(left, LEAST_TAIL)) if step else Text("")
    parts: list[RenderableType] = [*upper, tables, *more]
    if step:
        title = Text(f" {printable(step.name)} ", "bold")
        parts.append(Panel(Group(*below, tail), title=title, title_align="left", border_style="dim"))
    if keys:
        parts.append(Text(KEYS, "dim"))
    return Group(*parts)


def header(view: View) -> Iterator[Text]:
    """The stack, what it holds and what that costs."""
    yield Text.assemble(
        (printable(view.stack), "bold"),
        f"  {view.at.astimezone():%H:%M:%S}  ",
        (held(view), "bold" if view.gpus else ""),
        f"  {paid(view)}",
    )


def held(view: View) -> str:
    """``holds 2 GPUs on 2 nodes``."""
    nodes = {(step.cluster, pod.node) for step in view.steps for pod in step.pods if pod.holds_node}
    if not nodes:
        return "holds no node"
    where = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    if not view.gpus:
        return f"holds {where}, no GPU"
    return f"holds {view.gpus} {'GPU' if view.gpus == 1 else 'GPUs'} on {where}"


def paid(view: View) -> str:
    """``$1.20 so far, $0.84 an hour now``, at list prices."""
    if view.dollars is None:
        return "no price known" if view.unpriced else ""
    parts = [f"{'at least ' if view.least else ''}{dollars(view.dollars)} so far"]
    if view.hourly:
        parts.append(f"{dollars(view.hourly)} an hour now")
    if view.unpriced:
        parts.append(f"without {', '.join(view.unpriced)}, whose price is not known")
    return ", ".join(parts)


def table(view: View, selected: int | None, width: int, shown: range) -> Table:
    """A line for each step."""
    wide = width >= NARROW
    found = Table(box=None, padding=(0, 1), expand=True, show_edge=False, header_style="dim")
    found.add_column("", width=2, no_wrap=True)
    found.add_column("step", no_wrap=True, overflow="ellipsis", max_width=34 if wide else 24)
    if wide:
        found.add_column("pool", no_wrap=True, overflow="ellipsis", style="dim", max_width=16)
    found.add_column("state", ratio=1, no_wrap=True, overflow="ellipsis")
    found.add_column("", width=12 if wide else 8, no_wrap=True)
    found.add_column("pods", justify="right", no_wrap=True)
    found.add_column("time", justify="right", no_wrap=True)
    if wide:
        found.add_column("cost", justify="right", no_wrap=True)
    for number in shown:
        step = view.steps[number]
        mark, style = MARKS[step.phase]
        cells: list[RenderableType] = [Text(mark, style), Text(printable(step.name))]
        if wide:
            cells.append(Text(printable(step.pool)))
        cells += [Text(line_of(step), style if step.phase is Phase.FAILED else ""), _bar(step)]
        cells += [pods(step), time_of(step, view.at)]
        if wide:
            cells.append(price(step))
        found.add_row(*cells, style="reverse" if number == selected else "")
    return found


def _bar(step: StepState) -> RenderableType:
    share = step.progress.share if step.progress and step.phase is Phase.RUNNING else None
    return "" if share is None else ProgressBar(total=1.0, completed=share)


def line_of(step: StepState) -> str:
    """The state in one line, with what else should be known of it."""
    again = f" (started again {times(step.retries)})" if step.retries and not step.phase.over else ""
    said = step.says
    if step.phase is Phase.DONE and step.retries:
        said = f"done, after {step.retries} {'retry' if step.retries == 1 else 'retries'}"
    return printable(said + again)


def times(number: int) -> str:
    """``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def pods(step: StepState) -> str:
    """``2 of 2`` where the step has several pods."""
    return f"{step.running} of {step.wanted}" if step.wanted > 1 and not step.phase.over else ""


def time_of(step: StepState, now: datetime) -> str:
    """How long the step took, or is in its state."""
    if step.phase.over:
        return duration((step.ended - step.began).total_seconds()) if step.ended and step.began else ""
    return ago(step.since, now)


def price(step: StepState) -> str:
    """What the step's nodes cost so far."""
    if step.cost.dollars is None:
        return ""
    return f"{'≥ ' if step.cost.least else ''}{dollars(step.cost.dollars)}"


def detail(step: StepState, now: datetime) -> Iterator[Text]:
    """All that is known of a step but its log."""
    _, style = MARKS[step.phase]
    since = ago(step.since, now)
    clock = f", for {since}" if since and not step.phase.over else ""
    yield Text(printable(f"{step.says}{clock}"), style)
    if step.reason.fix and step.phase is not Phase.RUNNING:
        yield Text(f"→ {printable(step.reason.fix)}", "bold")
    if step.reason.words and step.reason.words not in step.reason.says and step.phase is not Phase.FAILED:
        yield Text(f"“{printable(step.reason.words)}”", "dim")
    if step.retries:
        last = ", the last time" if step.retries > 1 else ""
        why = f"{last} because {step.retried}" if step.retried else ""
        yield Text(printable(f"started again {times(step.retries)}{why}"), "yellow")
    if step.remark:
        yield Text(printable(step.remark), "yellow")
    yield Text(printable(", ".join(filter(None, _facts(step, now)))), "dim")


def _facts(step: StepState, now: datetime) -> Iterator[str]:
    yield f"Job {step.job}"
    if step.pool:
        yield f"pool {step.pool}" + (f" of cluster {step.cluster}" if step.cluster else "")
    nodes = sorted({pod.node for pod in step.pods if pod.node and not pod.over})
    if nodes:
        yield f"on {' and '.join(nodes)}" if len(nodes) <= 2 else f"on {len(nodes)} nodes"
    if step.gpus:
        yield f"{step.gpus} {'GPU' if step.gpus == 1 else 'GPUs'}"
    if step.deadline and not step.phase.over:
        left = (step.deadline - now).total_seconds()
        yield f"{duration(left)} left of its time limit" if left > 0 else "past its time limit"
    if step.cost.dollars is not None:
        yield price(step)


class _Tail:
    """The end of a step's log, as many lines as there is room for."""

    def __init__(self, step: StepState, rows: int) -> None:
        self._step, self._rows = step, rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = list(self._step.tail)[-self._rows :]
        if not lines and self._step.pods:
            yield Text("no log (any more)" if self._step.phase.over else "no log yet", "dim")
        for line in lines:
            yield Text(printable(line.expandtabs()), no_wrap=True, overflow="ellipsis")


def _window(count: int, selected: int, rows: int) -> tuple[range, int]:
    """Which steps are shown where there is no room for all: those around the selected one."""
    if count <= rows:
        return range(count), 0
    first = min(max(selected - rows // 2, 0), count - rows)
    return range(first, first + rows), count - rows


# Keys that are pressed while a screen is shown.


class Key(StrEnum):
    """What a key means."""

    UP = "up"
    DOWN = "down"
    QUIT = "quit"


_MEANINGS = {
    b"k": Key.UP,
    b"j": Key.DOWN,
    b"q": Key.QUIT,
    b"\x1b[A": Key.UP,
    b"\x1b[B": Key.DOWN,
    b"\x1bOA": Key.UP,
    b"\x1bOB": Key.DOWN,
    b"\x03": Key.QUIT,
}


@contextlib.contextmanager
def pressed() -> Generator["Keys"]:
    """The keys of the terminal that is standard input, one by one and not shown."""
    if not sys.stdin.isatty():
        yield Keys(-1)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Keys:
    """``wait`` gives the next key, or None after so many seconds."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._left = b""

    def wait(self, seconds: float) -> Key | None:
        """The next key that means something."""
        if self._descriptor < 0:
            select.select([], [], [], seconds)
            return None
        if not self._left and select.select([self._descriptor], [], [], seconds)[0]:
            self._left = os.read(self._descriptor, 64)
            if not self._left:
                # The terminal is gone.
                return Key.QUIT
        return self._next()

    def _next(self) -> Key | None:
        for code, key in _MEANINGS.items():
            if self._left.startswith(code):
                self._left = self._left[len(code) :]
                return key
        # An unknown sequence is passed over whole.
        self._left = b"" if self._left.startswith(b"\x1b") else self._left[1:]
        return None


# A stack where there is no terminal: a line for each change of a step's state.


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
        found += [f"{clock}  {printable(alarm)}" for alarm in view.alarms if alarm not in self._alarms]
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
