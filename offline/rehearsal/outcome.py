"""What a rehearsal was asked for and what it found out: for the summary, the report and the exit code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from infra.settings.model import Settings
from offline.engine.evaluate import Evaluation
from offline.engine.other_stacks import OtherStacks
from offline.engine.stack_config import StackConfig
from offline.rehearsal.comparison import Comparison
from offline.rehearsal.job_records import JobRecord
from offline.rehearsal.job_results import Collected
from offline.rehearsal.job_usage import UsedBy
from offline.rehearsal.programs import Program
from offline.rehearsal.service_records import ServiceRecord

OK, FAILED, WRONG_SETTINGS, INTERRUPTED = 0, 1, 2, 130
"""Exit codes of the command."""


@dataclass(frozen=True)
class Options:
    """What to rehearse and how. ``folder`` gets everything that the rehearsal makes."""

    stack: str
    root: Path
    folder: Path
    config_file: Path | None = None
    fresh: bool = False
    disrupt: str | None = None
    quiet: int = 0


@dataclass(frozen=True)
class Configuration:
    """The configuration that is rehearsed. ``remarks`` say how it differs from what `pulumi up` would use.

    ``others`` are the stacks whose clusters it names.
    ``programs`` are those of the steps that are no modules of the project's, by the name of the step's Job.
    ``secrets`` are values of the stack's secrets by name; ``values`` have placeholders in their place.
    """

    config: StackConfig
    values: Mapping[str, Any]
    settings: Settings
    overlay: Mapping[str, Any]
    remarks: tuple[str, ...]
    others: OtherStacks
    programs: Mapping[str, Program] = field(default_factory=dict[str, Program])
    secrets: Mapping[str, SecretStr] = field(default_factory=dict[str, SecretStr])


@dataclass(frozen=True)
class Outcome:
    """What a rehearsal found out.

    ``comparisons`` are those of steps with variants. ``executed`` are the URNs of the Jobs that ran. ``began`` and
    ``ended`` are seconds since the epoch. ``used`` is what Jobs used that are measured.
    """

    options: Options
    configuration: Configuration
    evaluation: Evaluation
    records: list[JobRecord]
    results: Collected
    comparisons: tuple[Comparison, ...]
    executed: frozenset[str]
    began: float
    ended: float
    interrupted: bool
    services: Sequence[ServiceRecord] = ()
    used: Sequence[UsedBy] = ()

    @property
    def exit_code(self) -> int:
        """`OK` where every resource was created and every Job succeeded."""
        if self.interrupted:
            return INTERRUPTED
        return FAILED if self.evaluation.failed else OK
