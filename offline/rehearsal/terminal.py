"""Shows a rehearsal on a terminal: a live tree of resources, or plain lines where there is no terminal."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from infra.clouds.registry import CLOUDS
from infra.review.stack import Resource
from infra.schema.printable import printable, printable_lines
from offline.rehearsal.job_records import JobRecord, Phase
from offline.rehearsal.service_records import ServicePhase, ServiceRecord

MARKS = {
    Phase.WAITING: ("·", "dim"),
    Phase.QUEUED: ("◌", "yellow"),
    Phase.PENDING: ("◌", "yellow"),
    Phase.SUCCEEDED: ("✔", "green"),
    Phase.UNCHANGED: ("=", "green"),
    Phase.FAILED: ("✘", "red"),
    Phase.INTERRUPTED: ("!", "yellow"),
    Phase.NOT_RUN: ("-", "dim"),
    Phase.SKIPPED: ("-", "dim"),
}

SERVICE_MARKS = {
    ServicePhase.UNUSED: ("·", "dim"),
    ServicePhase.STARTING: ("◌", "yellow"),
    ServicePhase.RUNNING: ("▶", "green"),
    ServicePhase.ENDED: ("■", "dim"),
    ServicePhase.FAILED: ("✘", "red"),
}

WIDE = 100
"""Columns from which on there is room for long progress bars."""

WARNING = "warning: "
"""How a line begins that is shown in red."""

EPOCH_LINES = 4
"""Lines that a training prints where there is no terminal, at most."""


def group_of(resource: Resource) -> str:
    """The group that a resource is counted in: the outermost component around it, or its package."""
    chain = resource.urn.split("::")[2].split("$")
    if len(chain) > 1:
        return chain[0].rpartition(":")[2]
    package = resource.type.partition(":")[0]
    cloud = CLOUDS.get(package)
    return cloud.title if cloud else {"kubernetes": "Kubernetes", "pulumi": "Providers"}.get(package, package)


@dataclass
class PlainDisplay:
    """One line for each thing that happens, with the seconds since the start."""

    console: Console
    quiet: int = 0
    _began: float = field(default_factory=time.monotonic)
    _phases: dict[str, Phase] = field(default_factory=dict[str, Phase])
    _epochs: dict[str, int] = field(default_factory=dict[str, int])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> "PlainDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def say(self, text: str) -> None:
        """A line that belongs to no Job."""
        if not self.quiet:
            self.console.print(Text(printable_lines(text), _style(text)), soft_wrap=True)

    def resource(self, resource: Resource) -> None:
        """Prints nothing: there are too many resources for a line each."""

    def note(self, record: JobRecord | ServiceRecord, text: str) -> None:
        """A retry, an eviction, a pod that waits."""
        self._line(record, text)

    def service(self, record: ServiceRecord) -> None:
        """A line where the service starts and ends, unless a note says more."""
        if record.phase in {ServicePhase.STARTING, ServicePhase.ENDED}:
            self._line(record, describe_service(record))

    def job(self, record: JobRecord) -> None:
        """A line where the Job came to another phase, or some epochs further."""
        with self._lock:
            changed = self._phases.get(record.name) is not record.phase
            self._phases[record.name] = record.phase
        if changed and record.phase not in {Phase.PENDING, Phase.QUEUED}:
            self._line(record, describe(record))
        elif record.epochs and self._next_epoch(record.name, *record.epochs):
            self._line(record, f"epoch {record.epochs[0]}/{record.epochs[1]}")

    def _next_epoch(self, name: str, done: int, every: int) -> bool:
        step = max(every // EPOCH_LINES, 1)
        with self._lock:
            if done // step <= self._epochs.get(name, 0):
                return False
            self._epochs[name] = done // step
            return True

    def _line(self, record: JobRecord | ServiceRecord, text: str) -> None:
        if not self.quiet:
            seconds = time.monotonic() - self._began
            line = f"{seconds:6.1f} s  {record.name}: {printable(text)}"
            self.console.print(Text(line, _style(text)), soft_wrap=True)


@dataclass
class LiveDisplay:
    """A tree that is drawn anew several times a second."""

    console: Console
    stack: str
    _began: float = field(default_factory=time.monotonic)
    _created: Counter[str] = field(default_factory=Counter[str])
    _jobs: dict[str, JobRecord] = field(default_factory=dict[str, JobRecord])
    _services: dict[str, ServiceRecord] = field(default_factory=dict[str, ServiceRecord])
    _spinners: dict[str, Spinner] = field(default_factory=dict[str, Spinner])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _live: Live | None = None

    def __enter__(self) -> "LiveDisplay":
        self._live = Live(console=self.console, get_renderable=self._draw, refresh_per_second=8, transient=True)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line above the tree."""
        self.console.print(Text(printable_lines(text), _style(text)), soft_wrap=True)

    def resource(self, resource: Resource) -> None:
        """Counts the resource."""
        if resource.custom:
            with self._lock:
                self._created[group_of(resource)] += 1

    def service(self, record: ServiceRecord) -> None:
        """Adds the service to the tree, or updates it."""
        with self._lock:
            self._services[record.name] = record

    def note(self, record: JobRecord | ServiceRecord, text: str) -> None:
        """A line above the tree."""
        self.console.print(Text(f"{record.name}: {printable(text)}", style=_style(text) or "yellow"))

    def job(self, record: JobRecord) -> None:
        """Adds the Job to the tree, or updates it."""
        with self._lock:
            self._jobs[record.name] = record

    def _draw(self) -> RenderableType:
        with self._lock:
            created, jobs = dict(self._created), list(self._jobs.values())
            services = list(self._services.values())
        seconds = time.monotonic() - self._began
        title = Text.assemble((f"{self.stack}", "bold"), f"  rehearsal, {seconds:.0f} s")
        counts = Table.grid(padding=(0, 1))
        for name, count in created.items():
            if name != "StepJob":
                counts.add_row("├─", Text("✔", "green"), name, Text(f"{count}", "dim"))
        rows = Table.grid(padding=(0, 1))
        for name in ("branch", "mark", "job", "pool", "progress"):
            # Where the terminal is narrow, the pool gives way.
            rows.add_column(no_wrap=name != "pool")
        for service in services:
            mark, style = SERVICE_MARKS[service.phase]
            rows.add_row(
                "├─", Text(mark, style), service.name, Text(service.pool, "dim"), describe_service(service)
            )
        for index, record in enumerate(jobs):
            branch = "└─" if index == len(jobs) - 1 else "├─"
            rows.add_row(branch, self._mark(record), record.name, *self._progress(record))
        return Group(title, counts, rows)

    def _mark(self, record: JobRecord) -> RenderableType:
        if record.phase is Phase.RUNNING:
            return self._spinners.setdefault(record.name, Spinner("dots", style="cyan"))
        mark, style = MARKS[record.phase]
        return Text(mark, style)

    def _progress(self, record: JobRecord) -> tuple[RenderableType, RenderableType]:
        where = Text(record.pool, "dim", overflow="ellipsis", no_wrap=True)
        if record.nodes:
            where.append(f", {record.nodes} nodes")
            where.append(f", generation {record.generations}" if record.generations > 1 else "")
        elif record.workers > 1:
            where.append(f", {record.workers} pods")
        if record.accelerator:
            where.append(f" ({record.accelerator})")
        if record.phase is Phase.RUNNING and record.epochs:
            done, every = record.epochs
            line = Table.grid(padding=(0, 1))
            line.add_row(
                ProgressBar(total=every, completed=done, width=24 if self.console.width >= WIDE else 10),
                f"epoch {done}/{every}",
            )
            return where, line
        if record.phase is Phase.RUNNING:
            return where, Text(f"{max(time.time() - record.started, 0):.0f} s")
        if record.phase is Phase.SUCCEEDED:
            return where, Text(f"{record.seconds:.1f} s")
        return where, Text("unchanged" if record.phase is Phase.UNCHANGED else describe(record))


def _style(text: str) -> str:
    return "red" if text.startswith(WARNING) else ""


def describe(record: JobRecord) -> str:
    """The Job's phase in a few words."""
    place = f" on {record.pool}" + (f" ({record.accelerator})" if record.accelerator else "")
    if record.nodes:
        place = f" in {record.nodes} pods on {record.nodes} nodes of {record.pool}" + place.removeprefix(
            f" on {record.pool}"
        )
    elif record.workers > 1:
        place = f" in {record.workers} pods{place}"
    texts = {
        Phase.QUEUED: "queued",
        Phase.PENDING: "Pending",
        Phase.RUNNING: f"running{place}",
        Phase.SUCCEEDED: f"succeeded{place} in {record.seconds:.1f} s",
        Phase.UNCHANGED: f"unchanged, succeeded before{place} in {record.seconds:.1f} s",
        Phase.FAILED: f"failed: {record.reason}",
        Phase.INTERRUPTED: "interrupted; the next rehearsal takes it up again",
        Phase.NOT_RUN: f"not run: {record.reason}",
        Phase.SKIPPED: f"skipped: {record.reason}",
    }
    return texts.get(record.phase, str(record.phase))


def describe_service(record: ServiceRecord) -> str:
    """The phase of a service or an app in a few words."""
    texts = {
        ServicePhase.UNUSED: f"{record.kind}, starts when a Job needs it",
        ServicePhase.STARTING: f"{record.kind} starts on {record.pool}",
        ServicePhase.RUNNING: f"{record.kind} runs on {record.pool}",
        ServicePhase.ENDED: f"{record.kind} ended after {record.seconds:.1f} s",
        ServicePhase.FAILED: f"{record.kind} failed: {record.reason}",
    }
    return texts[record.phase]
