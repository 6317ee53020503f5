"""One preview of stacks, from their evaluation to what is written and the exit code."""

import io
import json
import os
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.text import Text

from slipway import files
from slipway.engine.stack_config import ConfigError, find_referring, load_stack
from slipway.evaluated.model import Preview
from slipway.evaluated.schedule import JobDuration
from slipway.infra.exits import Exit, report_error
from slipway.infra.places import PROJECT
from slipway.infra.review.contract import Severity
from slipway.infra.review.stack import JOB, Properties, mapping, mappings
from slipway.infra.terminal import new_console
from slipway.preview.revisions import Checkout, FormatError, TreeError, check_out, evaluate_trees, stacks_of
from slipway.rehearse.state import Place, State

if TYPE_CHECKING:
    from slipway.preview.base_software import BaseSoftware


class TimesError(Exception):
    """A file of times cannot be used. The message says why."""


def read_rehearsal(folder: Path) -> dict[str, JobDuration]:
    """The durations of Jobs in the last rehearsal in ``folder``, by logical name; empty if there was none."""
    jobs = State.load(Place(folder)).jobs.values()
    return {
        job.name: JobDuration(job.seconds, "rehearsed", job.parts)
        for job in jobs
        if job.phase.good and job.seconds
    }


def read_export(file: Path) -> dict[str, dict[str, JobDuration]]:
    """By stack and the Jobs' logical names, what the last run took, from what ``pulumi stack export`` wrote.

    Jobs that did not complete are left out. Raises TimesError where it is no such file.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TimesError(f"{file} cannot be read: {error}") from error
    deployment = mapping(mapping(content).get("deployment"))
    if not deployment:
        raise TimesError(f"{file} is not what `pulumi stack export` writes: it has no deployment")
    durations: dict[str, dict[str, JobDuration]] = {}
    for urn, measured in _completed_jobs(deployment):
        # urn:pulumi:<stack>::<project>::<types>::<name>
        stack, *_, name = urn.removeprefix("urn:pulumi:").split("::")
        durations.setdefault(stack, {})[name] = measured
    return durations


def _completed_jobs(deployment: Properties) -> Iterator[tuple[str, JobDuration]]:
    for resource in mappings(deployment.get("resources")):
        if resource.get("type") != JOB or resource.get("delete"):
            continue
        status = mapping(mapping(resource.get("outputs")).get("status"))
        seconds = _seconds_between(_epoch(status.get("startTime")), _epoch(status.get("completionTime")))
        if seconds:
            yield str(resource.get("urn", "")), JobDuration(seconds, "measured")


def _epoch(time: object) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp() if isinstance(time, str) else None
    except ValueError:
        return None


def _seconds_between(begun: float | None, ended: float | None) -> float | None:
    """Seconds between the two; None if one is missing or they are in the wrong order."""
    return ended - begun if begun is not None and ended is not None and ended > begun else None


WIDTH = 140
"""Columns of output that does not go to a terminal; the default of 80 would cut tables."""


@dataclass(frozen=True)
class Files:
    """Where a preview is written to, and as what: ``text``, ``markdown`` or ``json``."""

    format: str = "text"
    output: Path | None = None
    json: Path | None = None


class OutputError(Exception):
    """A file cannot be written. The message has its path and the reason."""


def main(
    stacks: Sequence[str],
    base: str,
    fail_on: str,
    written: Files,
    times: Path | None = None,
    *,
    policies_only: bool = False,
) -> Exit:
    """Previews ``stacks``, all without, against ``base``, where there is one.

    ``times`` is a file with what the Jobs of a stack took. With ``policies_only`` no costs and no times are told.
    """
    try:
        # Whatever can be wrong without them is told before the stacks are evaluated.
        _check(written)
        last_runs = read_export(times) if times else {}
        with check_out(PROJECT, base) if base else nullcontext() as checkout:
            trees = [PROJECT] if checkout is None else [PROJECT, checkout.path]
            if not stacks and not any(map(stacks_of, trees)):
                raise TreeError(
                    f"{PROJECT} has no stack file; `pulumi stack init dev` and `pulumi config set` write one"
                )
            named = stacks and [*stacks, *(_find_referring(trees, stacks) if checkout else ())]
            if times and last_runs.keys().isdisjoint(concerned := named or stacks_of(PROJECT)):
                raise TimesError(f"{times} has the times of no Job of {', '.join(sorted(concerned))}")
            software = _base_software(checkout)
            evaluations = evaluate_trees(
                PROJECT, checkout.path if checkout else None, named, base_python=software.python
            )
            title = checkout.title if checkout else ""
    except (OutputError, TreeError, FormatError, TimesError) as error:
        report_error(error)
        return Exit.REFUSED
    # `evaluate_trees` imports most of this while the workers run.
    from slipway.preview.build import Options, build, exit_code  # noqa: PLC0415

    def measured(name: str) -> Mapping[str, JobDuration]:
        return last_runs.get(name) or read_rehearsal(PROJECT / "build" / "rehearsal" / name)

    preview = build(
        evaluations,
        Options(
            today=today(),
            configuration=_configuration,
            base=title,
            versions=software.versions,
            measured=measured,
            policies_only=policies_only,
        ),
    )
    try:
        _write(preview, written.format, written.output)
        if written.json is not None:
            _write(preview, "json", written.json)
    except OutputError as error:
        report_error(error)
        return Exit.REFUSED
    return exit_code(preview, Severity(fail_on))


def _base_software(checkout: Checkout | None) -> "BaseSoftware":
    """What evaluates the base. Raises TreeError."""
    # Nobody else needs what makes environments.
    from slipway.preview.base_software import AT_HAND, provide  # noqa: PLC0415

    console = new_console(stderr=True)
    return (
        provide(checkout, PROJECT, lambda text: console.print(Text(text), soft_wrap=True)) if checkout else AT_HAND
    )


def _check(written: Files) -> None:
    """Raises OutputError for a file that cannot be written."""
    for file in (written.output, written.json):
        if file is not None:
            with _report_write_errors(file):
                files.check(file)


def _find_referring(trees: Sequence[Path], stacks: Sequence[str]) -> list[str]:
    """The stacks that use clusters of ``stacks``, which a change of these concerns."""
    return list(dict.fromkeys(name for tree in trees for name in find_referring(tree, stacks)))


def today() -> date:
    """Today in UTC, or the day of SOURCE_DATE_EPOCH if it is set, for reproducible output."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(epoch), UTC).date() if epoch else datetime.now(UTC).date()


def _configuration(stack: str) -> Mapping[str, Any]:
    try:
        return load_stack(stack, PROJECT).values
    except ConfigError:
        return {}


def _write(preview: Preview, format: str, file: Path | None) -> None:
    if format == "text":
        from slipway.preview.terminal import show  # noqa: PLC0415

        if file is None:
            _speak(sys.stdout.encoding)
            show(preview, new_console(WIDTH))
            return
        console = Console(file=io.StringIO(), force_terminal=False, highlight=False, width=WIDTH)
        show(preview, console)
        assert isinstance(console.file, io.StringIO)
        text = console.file.getvalue()
    elif format == "markdown":
        from slipway.preview.markdown import comment  # noqa: PLC0415

        text = comment(preview)
    else:
        from slipway.evaluated.model import document  # noqa: PLC0415

        text = document(preview)
    if file is None:
        _speak("utf-8")
        sys.stdout.write(text)
    else:
        _replace(file, text)


def _speak(encoding: str) -> None:
    """Replaces characters that the encoding of stdout does not have, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        cast("io.TextIOWrapper[Any]", sys.stdout).reconfigure(encoding=encoding, errors="replace")


def _replace(file: Path, text: str) -> None:
    """Writes the file whole; raises OutputError."""
    with _report_write_errors(file):
        files.write(file, text)


@contextmanager
def _report_write_errors(file: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{file} cannot be written: {error.strerror}") from error
