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

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slipway.command.watch.moved import MOVED
from slipway.command.watch.states import Phase, StepState, View, ago, dollars, duration, times
from slipway.evaluated.phrasing import many
from slipway.infra.schema.problems import printable

MARKS = {
    Phase.ABSENT: ("·", "dim"),
    Phase.HELD: ("·", "dim"),
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
    head = Text.assemble(
        (printable(view.stack), "bold"),
        f"  {view.at.astimezone():%H:%M:%S}  ",
        (describe_nodes(view), "bold" if view.gpus else ""),
        f"  {describe_cost(view)}",
    )
    upper = [
        head,
        *(Text(f"! {printable(line)}", "red") for line in (*view.trouble, *view.alarms)),
        *(Text(f"· {printable(line)}", "dim") for line in view.waiting),
        *([Text(view.node_time.says, "dim")] if view.node_time else []),
    ]
    below = list(detail(step, view.at)) if step else []
    room = height - len(upper) - len(below) - 6
    count, rows = len(view.steps), max(room - LEAST_TAIL, 3)
    # Where there is no room for all steps, those around the selected one are shown.
    first = min(max(selected - rows // 2, 0), max(count - rows, 0))
    shown = range(first, min(first + rows, count))
    more = [Text(f"  and {count - rows} more steps", "dim")] if count > rows else []
    parts: list[RenderableType] = [*upper, table(view, selected if keys else None, width, shown), *more]
    if step:
        tail = _tail(step, max(room - len(shown) - len(more), LEAST_TAIL))
        title = Text(f" {printable(step.name)} ", "bold")
        parts.append(Panel(Group(*below, *tail), title=title, title_align="left", border_style="dim"))
    return Group(*parts, *([Text(KEYS, "dim")] if keys else []))


def describe_nodes(view: View) -> str:
    """``holds 2 GPUs on 2 nodes``."""
    nodes = {(step.cluster, pod.node) for step in view.steps for pod in step.pods if pod.holds_node}
    if not nodes:
        return "holds no node"
    where = many(len(nodes), "node")
    return f"holds {many(view.gpus, 'GPU')} on {where}" if view.gpus else f"holds {where}, no GPU"


def describe_cost(view: View) -> str:
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
    grid = Table(box=None, padding=(0, 1), expand=True, show_edge=False, header_style="dim")
    grid.add_column("", width=2, no_wrap=True)
    grid.add_column("step", no_wrap=True, overflow="ellipsis", max_width=34 if wide else 24)
    if wide:
        grid.add_column("pool", no_wrap=True, overflow="ellipsis", style="dim", max_width=16)
    grid.add_column("state", ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column("", width=12 if wide else 8, no_wrap=True)
    for title in ("pods", "time", "cost") if wide else ("pods", "time"):
        grid.add_column(title, justify="right", no_wrap=True)
    for number in shown:
        step = view.steps[number]
        mark, style = MARKS[step.phase]
        share = step.progress.share if step.progress and step.phase is Phase.RUNNING else None
        grid.add_row(
            Text(mark, style),
            Text(printable(step.name)),
            *([Text(printable(step.pool))] if wide else []),
            Text(describe_state(step), style if step.phase is Phase.FAILED else ""),
            "" if share is None else ProgressBar(total=1.0, completed=share),
            f"{step.running} of {step.wanted}" if step.wanted > 1 and not step.phase.over else "",
            describe_time(step, view.at),
            *([describe_price(step)] if wide else []),
            style="reverse" if number == selected else "",
        )
    return grid


def describe_state(step: StepState) -> str:
    """The state in one line, with what else should be known of it."""
    again = f" (started again {times(step.retries)})" if step.retries and not step.phase.over else ""
    if step.phase is Phase.DONE and step.retries:
        return f"done, after {many(step.retries, 'retry', 'retries')}"
    return printable(step.says + again)


def describe_time(step: StepState, now: datetime) -> str:
    """How long the step took, or is in its state."""
    if step.phase.over:
        return duration((step.ended - step.began).total_seconds()) if step.ended and step.began else ""
    return ago(step.since, now)


def describe_price(step: StepState, least: str = "≥ ") -> str:
    """What the step's nodes cost so far."""
    if step.cost.dollars is None:
        return ""
    return f"{least if step.cost.least else ''}{dollars(step.cost.dollars)}"


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
    nodes = sorted({pod.node for pod in step.pods if pod.holds_node})
    if nodes:
        yield f"on {' and '.join(nodes)}" if len(nodes) <= 2 else f"on {len(nodes)} nodes"
    if step.gpus:
        yield many(step.gpus, "GPU")
    if step.deadline and not step.phase.over:
        left = (step.deadline - now).total_seconds()
        yield f"{duration(left)} left of its time limit" if left > 0 else "past its time limit"
    yield describe_price(step)
    if step.node_time:
        yield step.node_time.says


def _tail(step: StepState, rows: int) -> Iterator[Text]:
    """The end of a step's log."""
    if not step.tail and step.pods:
        yield Text("no log (any more)" if step.phase.over else "no log yet", "dim")
    for line in list(step.tail)[-rows:]:
        yield Text(printable(line.expandtabs()), no_wrap=True, overflow="ellipsis")


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
def keyboard() -> Generator["Keys"]:
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
        self._unread = b""

    def wait(self, seconds: float) -> Key | None:
        """The next key that means something."""
        if self._descriptor < 0:
            select.select([], [], [], seconds)
            return None
        if not self._unread and select.select([self._descriptor], [], [], seconds)[0]:
            self._unread = os.read(self._descriptor, 64)
            if not self._unread:
                # The terminal is gone.
                return Key.QUIT
        for code, key in _MEANINGS.items():
            if self._unread.startswith(code):
                self._unread = self._unread[len(code) :]
                return key
        # An unknown sequence is passed over whole.
        self._unread = b"" if self._unread.startswith(b"\x1b") else self._unread[1:]
        return None


PROGRESS = 60.0
"""Least seconds between two lines about the progress of one step."""


@dataclass
class Changes:
    """Remembers what was printed of each step, and gives the lines that say what is new."""

    _printed: dict[str, tuple[object, ...]] = field(default_factory=dict[str, tuple[object, ...]])
    _times: dict[str, datetime] = field(default_factory=dict[str, datetime])
    _trouble: tuple[str, ...] = ()
    _alarms: tuple[str, ...] = ()
    _waiting: tuple[str, ...] = ()

    def lines(self, view: View) -> list[str]:
        """The lines since the last view, each with the time of day."""
        trouble, alarms = tuple(view.trouble), tuple(view.alarms)
        lines: list[str] = []
        if trouble != self._trouble:
            lines += map(printable, trouble or ["all clusters can be read again"])
        lines += [printable(alarm) for alarm in alarms if alarm not in self._alarms]
        lines += [printable(line) for line in view.waiting if line not in self._waiting]
        lines += [describe(step) for step in view.steps if self._is_new(step, view.at)]
        self._trouble, self._alarms, self._waiting = trouble, alarms, tuple(view.waiting)
        return [f"{view.at.astimezone():%H:%M:%S}  {line}" for line in lines]

    def _is_new(self, step: StepState, now: datetime) -> bool:
        says = step.reason.says
        if step.reason.kind == MOVED:
            # How many minutes it has waited is said with the rest.
            says = says.partition(" of ")[2]
        key = (step.phase, says, step.retries, step.remark, step.running)
        first, changed = step.name not in self._printed, self._printed.get(step.name) != key
        moved = step.phase is Phase.RUNNING and step.progress is not None and step.progress.share is not None
        last = self._times.get(step.name)
        due = moved and (last is None or (now - last).total_seconds() >= PROGRESS)
        self._printed[step.name] = key
        if changed or due:
            self._times[step.name] = now
        # What comes later is said when it comes.
        later = step.reason.kind == "new" or (first and step.phase in {Phase.ABSENT, Phase.HELD})
        return (changed or due) and not later


def describe(step: StepState) -> str:
    """A step on one line, with the fix where there is one."""
    text = f"{step.name}: {describe_state(step)}"
    if step.phase is Phase.DONE and step.began and step.ended:
        text += f" in {duration((step.ended - step.began).total_seconds())}"
    if step.phase.over and step.began and step.ended and step.cost.dollars is not None:
        text += f", {describe_price(step, 'at least ')}"
    if step.wanted > 1 and step.phase is Phase.RUNNING:
        text += f", {step.running} of {step.wanted} pods"
    fix = f"Fix: {step.reason.fix}" if step.reason.fix and step.phase is not Phase.RUNNING else ""
    return printable(". ".join(part.rstrip(".") for part in (text, fix, step.remark) if part))


def summary(view: View) -> str:
    """What the stack holds, and what it cost."""
    time = view.node_time.says if view.node_time else ""
    return printable(", ".join(filter(None, [describe_nodes(view), describe_cost(view), time])))
