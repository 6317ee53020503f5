"""How long Jobs took before: in rehearsals on this machine, and in real runs."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from infra.review.stack import JOB, Properties, mapping, mappings
from offline.evaluated.timeline import JobDuration
from offline.rehearsal.state import Place, State


class TimesError(Exception):
    """A file of times cannot be used. The message says why."""


def rehearsed(folder: Path) -> dict[str, JobDuration]:
    """The durations of Jobs in the last rehearsal in ``folder``, by logical name; empty if there was none."""
    jobs = State.load(Place(folder)).jobs.values()
    return {job.name: JobDuration(job.seconds, "rehearsed") for job in jobs if job.phase.good and job.seconds}


def exported(file: Path) -> dict[str, dict[str, JobDuration]]:
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
