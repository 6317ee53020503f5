"""`slipway rehearse --format json`: how a rehearsal went, as data."""

import contextlib
import json
import os
import sys
from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from slipway.evaluated.model import EnumName, Model
from slipway.rehearse.output.outcome import Outcome
from slipway.rehearse.state import OUTPUTS, REPORT, RESULTS

FORMAT = 1


class Job(Model):
    """A Job, as `slipway.rehearse.state.JobRecord`. Times are in seconds."""

    name: str
    cluster: str
    namespace: str
    phase: EnumName
    pool: str
    node: str
    seconds: float
    pending: float
    attempts: int
    exit_code: int | None
    reason: str
    notes: list[str]


class Service(Model):
    """A service or an app, as `slipway.rehearse.state.ServiceRecord`."""

    name: str
    kind: str
    cluster: str
    namespace: str
    phase: EnumName
    pool: str
    node: str
    starts: int
    reason: str


class Rehearsed(Model):
    """A rehearsal. ``failed`` says by the name of a resource that is no Job why it could not be created.

    ``outputs`` are those of the stack; null is what only a cloud knows.
    """

    format: Literal[1] = FORMAT
    stack: str
    began: datetime
    ended: datetime
    interrupted: bool
    report: str
    results: str
    jobs: list[Job]
    services: list[Service]
    failed: dict[str, str]
    outputs: dict[str, Any]


def rehearsed(outcome: Outcome) -> Rehearsed:
    """The outcome as data, once the rehearsal has left its files."""
    folder, evaluation = outcome.options.folder, outcome.evaluation
    jobs = {record.urn for record in outcome.records}
    return Rehearsed(
        stack=outcome.options.stack,
        began=datetime.fromtimestamp(outcome.began, UTC),
        ended=datetime.fromtimestamp(outcome.ended, UTC),
        interrupted=outcome.interrupted,
        report=str(folder / REPORT),
        results=str(folder / RESULTS),
        jobs=[Job.model_validate(record, from_attributes=True) for record in outcome.records],
        services=[Service.model_validate(record, from_attributes=True) for record in outcome.services],
        failed={
            evaluation.resources[urn].name: reason for urn, reason in evaluation.failed.items() if urn not in jobs
        },
        outputs=json.loads((folder / OUTPUTS).read_text(encoding="utf-8")),
    )


@contextlib.contextmanager
def kept_for_document() -> Generator[TextIO]:
    """Standard output for one document: whatever else is written to it goes to standard error."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield output
        finally:
            output.flush()
            os.dup2(output.fileno(), 1)
