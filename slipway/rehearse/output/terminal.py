"""Shows a rehearsal on a terminal: a live tree of resources, or plain lines where there is no terminal."""

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pulumi.output import Unknown
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from slipway.engine.requests import StackOutput
from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.pipelines.results import PLATFORM, SHOW
from slipway.infra.review.stack import Resource, mapping
from slipway.infra.schema.problems import printable, printable_lines
from slipway.rehearse.output.charts import UsedBy
from slipway.rehearse.output.comparison import Comparison, shown_whole
from slipway.rehearse.output.results import CollectedResults, JobResults, ShownFile, ShownTable
from slipway.rehearse.state import JobRecord, Phase, ServicePhase, ServiceRecord, kept

MARKS = {
    Phase.WAITING: ("·", "dim"),
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
        if changed and record.phase is not Phase.PENDING:
            self._line(record, describe(record))
        elif record.epochs and self._next_epoch(record.name, *record.epochs):
            self._line(record, f"{record.unit} {record.epochs[0]}/{record.epochs[1]}")

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
        where = Text(where_of(record), "dim", overflow="ellipsis", no_wrap=True)
        if record.phase is Phase.RUNNING and record.epochs:
            done, every = record.epochs
            line = Table.grid(padding=(0, 1))
            line.add_row(
                ProgressBar(total=every, completed=done, width=24 if self.console.width >= WIDE else 10),
                f"{record.unit} {done}/{every}",
            )
            return where, line
        if record.phase is Phase.RUNNING:
            return where, Text(f"{max(time.time() - record.started, 0):.0f} s")
        if record.phase is Phase.SUCCEEDED:
            return where, Text(f"{record.seconds:.1f} s")
        return where, Text("unchanged" if record.phase is Phase.UNCHANGED else describe(record))


def _style(text: str) -> str:
    return "red" if text.startswith(WARNING) else ""


def where_of(record: JobRecord) -> str:
    """The Job's pool, on how many of its nodes or in how many pods, and the accelerator."""
    parts = [record.pool]
    if record.nodes:
        parts += [f"{record.nodes} nodes", *([f"generation {record.generations}"] * (record.generations > 1))]
    elif record.workers > 1:
        parts.append(f"{record.workers} pods")
    return ", ".join(parts) + (f" ({record.accelerator})" if record.accelerator else "")


def describe(record: JobRecord) -> str:
    """The Job's phase in a few words."""
    place = where_of(record)
    texts = {
        Phase.PENDING: "Pending",
        Phase.RUNNING: f"running on {place}",
        Phase.SUCCEEDED: f"succeeded on {place} in {record.seconds:.1f} s",
        Phase.UNCHANGED: f"unchanged, succeeded before on {place} in {record.seconds:.1f} s",
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


STYLES = {Phase.SUCCEEDED: "green", Phase.UNCHANGED: "green", Phase.FAILED: "red", Phase.INTERRUPTED: "yellow"}

SHOWN_WAIT = 0.1
"""Seconds of waiting that are worth a word."""

LOG_LINES = 20
"""Lines of a failed Job's log that are shown."""


def failures(
    console: Console,
    records: Sequence[JobRecord],
    log_of: Mapping[str, Path],
    refused: Mapping[str, str],
    apps: Sequence[str] = (),
    *,
    missed: str = "",
) -> None:
    """For each failed Job its reason, the end of its log, and what was not run because of it.

    ``refused`` are the reasons of other resources that could not be created, by name, ``apps`` the names of those
    that did not start, and ``missed`` why no pod was evicted where one was to be.
    """
    if missed:
        console.print(Text(printable_lines(missed), style="bold red"), soft_wrap=True)
    for name, reason in refused.items():
        console.print(Text(printable_lines(f"{name} failed: {reason}"), style="bold red"), soft_wrap=True)
    for record in records:
        if record.phase is not Phase.FAILED:
            continue
        console.print()
        console.print(Text(printable_lines(f"{record.name} failed: {record.reason}"), "bold red"), soft_wrap=True)
        lines = own_lines(record, log_of[record.name]) if record.attempts or record.started else []
        if lines == [record.reason]:
            continue
        for line in lines:
            if line == record.reason:
                continue
            console.print(Text(f"  │ {printable(line)}"), soft_wrap=True)
        if lines:
            console.print(Text(f"  whole log: {log_of[record.name]}", "dim"), soft_wrap=True)
    not_run = [*(job.name for job in records if job.phase is Phase.NOT_RUN), *apps]
    if not_run:
        why = "failed" if refused or any(job.phase is Phase.FAILED for job in records) else "was interrupted"
        console.print(Text(f"Not run, for they need what {why}: {', '.join(not_run)}"), soft_wrap=True)


NUMERIC = frozenset({"Waited", "Ran for", "CPU", "Memory at most", "Speed", "Peak memory"})
"""Columns of amounts."""


def _table(title: str, columns: Sequence[str], whole: str = "") -> Table:
    """A table without rows, in which the column ``whole`` is never wrapped."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in columns:
        justify = "right" if column in NUMERIC else "left"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=column == whole)
    return table


def jobs_table(records: Sequence[JobRecord]) -> Table:
    """The table of the Jobs: name, pool, how long each waited and ran, result."""
    # Where the terminal is narrow, the pool gives way: a Job's name is what people copy.
    table = _table("Jobs", ("Job", "Pool", "Waited", "Ran for", "Result"), whole="Job")
    for record in records:
        pool = record.pool + (f" ({record.accelerator})" if record.accelerator else "")
        result = str(record.phase)
        if record.phase is Phase.FAILED and record.exit_code:
            result += f", exit code {record.exit_code}"
        result += "".join(f", {pod}" for pod in pods_of(record))
        style = STYLES.get(record.phase, "dim")
        table.add_row(record.name, Text(printable(pool)), *times(record), Text(result, style))
    return table


def times(record: JobRecord) -> tuple[str, str]:
    """How long a Job waited and ran, as people read it; empty where it did not."""
    if not record.started:
        return "", ""
    return (f"{record.pending:.1f} s" if record.pending >= SHOWN_WAIT else ""), f"{record.seconds:.1f} s"


def usage_table(used: Sequence[UsedBy]) -> Table:
    """What Jobs used of this machine."""
    table = _table("Use", ("Job", "CPU", "Memory at most", "Speed", "GPU"))
    for usage in used:
        name = f"{usage.job}, pod {usage.pod}" if usage.pod else usage.job
        cores = "" if usage.cores is None else f"{usage.cores:.2f} cores"
        table.add_row(
            name, cores, f"{usage.memory} MiB", printable(usage.rate), Text(printable(usage.gpus), "dim")
        )
    return table


def pods_of(record: JobRecord) -> list[str]:
    """How many pods a Job has at once, how many it took in all, and how often they began together."""
    names: list[str] = []
    if record.nodes:
        names.append(f"{record.nodes} pods on {record.nodes} nodes")
    elif record.workers > 1:
        names.append(f"{record.workers} workers")
    if record.attempts > record.workers:
        names.append(f"{record.attempts} pods in all" if record.nodes else f"{record.attempts} pods")
    if record.generations > 1:
        names.append(f"began {record.generations} times")
    return names


def servers_table(kind: str, records: Sequence[ServiceRecord]) -> Table:
    """The table of the services, or of the apps: name, pool, how long each ran, its memory, how it ended."""
    table = _table(f"{kind}s", (kind, "Pool", "Ran for", "Peak memory", "Result"), whole=kind)
    for record in records:
        failed = record.phase is ServicePhase.FAILED
        seconds = f"{record.seconds:.1f} s" if record.started else ""
        memory = f"{record.peak_memory} MiB" if record.peak_memory else ""
        result = Text(ending(record), "red" if failed else "dim" if not record.started else "green")
        table.add_row(record.name, Text(printable(record.pool)), seconds, memory, result)
    return table


def ending(record: ServiceRecord) -> str:
    """How a service or an app ended, how often it was started, and how many pods it has in a cluster."""
    parts = [str(record.phase)]
    if record.kind == "app" and record.phase in {ServicePhase.RUNNING, ServicePhase.ENDED}:
        parts = [f"was ready, {record.phase}" if record.phase is ServicePhase.ENDED else "ready"]
    if record.starts > 1:
        parts.append(f"started {record.starts} times")
    if record.replicas > 1:
        parts.append(f"1 of {record.replicas} pods")
    return ", ".join(parts)


def result_table(shown_table: ShownTable) -> Table:
    """The first `SHOWN_ROWS` rows of a table; a row that is wrong is red and marked."""
    table = _titled_table(shown_table.heading)
    for heading, numeric in zip(shown_table.headings, shown_table.numeric, strict=True):
        table.add_column(Text(printable(heading)), justify="right" if numeric else "left")
    if shown_table.known > shown_table.right:
        table.add_column("")
    for row in shown_table.rows[:SHOWN_ROWS]:
        cells = [Text(printable(cell)) for cell in row.cells]
        wrong = row.right is False
        table.add_row(*cells, *(["✗"] if wrong else []), style="red" if wrong or row.failed else "")
    return table


SHOWN_ROWS = 20


def _titled_table(title: str) -> Table:
    text = Text(printable(title), "italic")
    # The title of a table that is narrower would be wrapped.
    return Table(title=text, title_justify="left", box=None, padding=(0, 2, 0, 0), min_width=text.cell_len)


def comparison_table(compared: Comparison) -> Table:
    """A row for each variant; the best is green and marked, and one that did not succeed red."""
    table = _titled_table(compared.title)
    for axis in compared.axes:
        numeric = all(isinstance(variant.values.get(axis), int | float) for variant in compared.variants)
        table.add_column(Text(printable(axis)), justify="right" if numeric else "left")
    for measure in compared.measures.values():
        table.add_column(Text(printable(measure)), justify="right")
    for title in ("Waited", "Ran for"):
        table.add_column(title, justify="right")
    table.add_column("")
    for variant in compared.variants:
        best = variant is compared.best
        cells = [variant.text(axis) for axis in compared.axes]
        cells += [compared.cell(variant, name) for name in compared.measures]
        result = "★ best" if best else "" if variant.record.phase.good else variant.result
        style = "green" if best else "" if variant.record.phase.good else "red"
        table.add_row(*(Text(printable(cell)) for cell in (*cells, *times(variant.record), result)), style=style)
    return table


def print_jobs(
    console: Console,
    records: Sequence[JobRecord],
    services: Sequence[ServiceRecord] = (),
    scheduled: Sequence[str] = (),
    used: Sequence[UsedBy] = (),
) -> None:
    """The Jobs, what they ``used``, the services, the apps, and what a rehearsal only says: what is
    ``scheduled``."""
    console.print()
    console.print(jobs_table(records) if records else "The stack runs no Jobs.")
    if used:
        console.print()
        console.print(usage_table(used))
    for title in ("Service", "App"):
        if of_kind := [service for service in services if service.kind == title.lower()]:
            console.print()
            console.print(servers_table(title, of_kind))
    if scheduled:
        console.print()
    for line in scheduled:
        console.print(Text(printable(line)), soft_wrap=True)


def results(console: Console, collected: CollectedResults, comparisons: Sequence[Comparison] = ()) -> None:
    """Prints the declared results of each pipeline; for compared variants, those of the best."""
    compared = {variant.record.name for compared_steps in comparisons for variant in compared_steps.variants}
    for pipeline in dict.fromkeys(
        [*collected.pipelines, *(compared_steps.pipeline for compared_steps in comparisons)]
    ):
        jobs = collected.pipelines.get(pipeline, [])
        numbers = [(job, number) for job in jobs if job.job not in compared for number in job.numbers]
        titles = Counter(number.title for _, number in numbers)
        console.print()
        console.print(Text(printable(f"Results of {pipeline}"), "bold"))
        for source, number in numbers:
            of = f" of {source.job}" if titles[number.title] > 1 else ""
            console.print(Text(printable(f"{number.title}{of}: {number.text}")), soft_wrap=True)
        for comparison in (candidate for candidate in comparisons if candidate.pipeline == pipeline):
            console.print()
            console.print(comparison_table(comparison))
            if comparison.rule:
                console.print(Text(printable(comparison.rule), "dim"), soft_wrap=True)
        for shown_job in shown_whole(jobs, comparisons):
            for table in filter(lambda table: table.rows, shown_job.tables):
                console.print()
                console.print(result_table(table))
                if (more := len(table.rows) - SHOWN_ROWS) > 0:
                    console.print(Text(f"… and {more} more in {kept(shown_job.job, table.path)}", "dim"))
            for page in shown_job.pages:
                place = kept(shown_job.job, page.path)
                console.print(Text(printable(f"{page.title}: in the report, and {place}")), soft_wrap=True)
            for other in shown_job.others:
                console.print(Text(printable(f"{other.title}: {place_of(shown_job, other)}")), soft_wrap=True)
    for problem in collected.problems:
        console.print(Text(printable(problem), "yellow"), soft_wrap=True)


def place_of(results: JobResults, file: ShownFile) -> str:
    """Where a file is that is not shown: its copy beside the report, or its place in the store."""
    return kept(results.job, file.path) if file.copied else str(file.file)


def stack_outputs(console: Console, outputs: Mapping[str, StackOutput], collected: CollectedResults) -> None:
    """What `pulumi stack output` would show."""
    shown_outputs = without_tables(outputs, collected)
    if not shown_outputs:
        return
    console.print()
    console.print(Text("Stack outputs", "italic"))
    for name, output in sorted(shown_outputs.items()):
        # Never wrapped: people copy commands from here.
        console.print(
            Text.assemble((f"{name}: ", "bold"), printable_lines(format_output(output.shown))), soft_wrap=True
        )


def without_tables(outputs: Mapping[str, StackOutput], collected: CollectedResults) -> dict[str, StackOutput]:
    """``outputs`` without the results of pipelines that are shown as tables, and what only programs read.

    A text in the place of a result stays: it says why there is none, or how to see it.
    """
    left: dict[str, StackOutput] = {}
    for name, output in outputs.items():
        tables = {table.name for job in collected.pipelines.get(name, []) for table in job.tables}
        entries = mapping(output.shown)
        value = {key: entry for key, entry in entries.items() if key not in tables or isinstance(entry, str)}
        if name not in {SHOW, PLATFORM} and (value or not entries):
            left[name] = replace(output, value=value) if entries else output
    return left


def format_output(value: Any, indent: str = "  ") -> str:
    """A value as text; each entry of a mapping on a line of its own, indented below it."""
    if isinstance(value, Unknown):
        return "unknown, for what it comes from did not run"
    entries = mapping(value)
    if entries:
        lines = (
            f"\n{indent}{key}: {format_output(entry, indent + '  ')}" for key, entry in sorted(entries.items())
        )
        return "".join(lines)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def own_lines(record: JobRecord, file: Path) -> list[str]:
    """The last lines of a Job's log; where one of several nodes made it fail, those of that one."""
    only = f"[{record.index}] " if record.nodes and record.index is not None else ""
    return last_lines(file, LOG_LINES, only)


def last_lines(file: Path, count: int, beginning: str = "") -> list[str]:
    """The last lines of a log that begin so; none where there is no log."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.startswith(beginning)][-count:]
