"""The options of a rehearsal and its outcome, for the summary, the report and the exit code."""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from slipway.engine.evaluate import Evaluation
from slipway.engine.evaluation.worker import where
from slipway.engine.monitor import EvaluationError
from slipway.engine.other_stacks import OtherStacks
from slipway.engine.stack_config import ConfigError, StackConfig
from slipway.files import BusyError, FolderError
from slipway.infra.exits import Exit, report_error, report_problems
from slipway.infra.places import PROJECT
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.model import Settings
from slipway.rehearse.beside import not_run
from slipway.rehearse.capacity import Trace
from slipway.rehearse.cluster.server_specs import only_said
from slipway.rehearse.machine.programs import Program
from slipway.rehearse.output.charts import UsedBy
from slipway.rehearse.output.comparison import Comparison
from slipway.rehearse.output.results import CollectedResults
from slipway.rehearse.state import JobRecord, ServiceRecord


@dataclass(frozen=True)
class Options:
    """What to rehearse and how. ``folder`` gets everything that the rehearsal makes."""

    stack: str
    root: Path
    folder: Path
    fresh: bool = False
    disrupt: str | None = None
    quiet: int = 0


@dataclass(frozen=True)
class Configuration:
    """The configuration that is rehearsed. ``remarks`` say how it differs from what `pulumi up` would use.

    ``others`` are the stacks whose clusters it names.
    ``programs`` are those of the steps that are no modules of the project's, by the name of the step's Job.
    ``secrets`` are values of the stack's secrets by name; ``values`` have placeholders in their place.
    ``trace`` says how many nodes pools can have, where anything does.
    """

    config: StackConfig
    values: Mapping[str, Any]
    settings: Settings
    overlay: Mapping[str, Any]
    remarks: tuple[str, ...]
    others: OtherStacks
    programs: Mapping[str, Program] = field(default_factory=dict[str, Program])
    secrets: Mapping[str, SecretStr] = field(default_factory=dict[str, SecretStr])
    trace: Trace | None = None


@dataclass(frozen=True)
class Outcome:
    """What a rehearsal found out. ``missed`` says why nothing was evicted where a pod was to be.

    ``comparisons`` are those of steps with variants. ``executed`` are the URNs of the Jobs that ran. ``began`` and
    ``ended`` are seconds since the epoch. ``used`` is what Jobs used that are measured.
    ``beside`` are the URNs of what the program declares beside `slipway.run`.
    """

    options: Options
    configuration: Configuration
    evaluation: Evaluation
    records: list[JobRecord]
    results: CollectedResults
    comparisons: tuple[Comparison, ...]
    executed: frozenset[str]
    began: float
    ended: float
    interrupted: bool
    services: Sequence[ServiceRecord] = ()
    used: Sequence[UsedBy] = ()
    beside: frozenset[str] = frozenset()
    missed: str = ""

    @property
    def only_said(self) -> list[str]:
        """What a rehearsal does not run and says: schedules, sizes of apps, addresses, and what is ``beside``."""
        resources = self.evaluation.resources.values()
        ours = [resource for resource in resources if resource.urn not in self.beside]
        return [*only_said(ours), *not_run(resource for resource in resources if resource.urn in self.beside)]

    @property
    def exit_code(self) -> Exit:
        """`Exit.DONE` where every resource was created, every Job succeeded, and what was to be evicted was."""
        if self.interrupted:
            return Exit.INTERRUPTED
        return Exit.FAILED if self.evaluation.failed or self.missed else Exit.DONE


def folder_for(stack: str, output: Path | None) -> Path:
    """Where a command puts what a rehearsal of the stack makes."""
    return (output or PROJECT / "build" / "rehearsal" / stack).resolve()


COLLECTIONS = (200_000, 50, 100)
"""New objects until a collection of garbage, and collections of one generation until one of the next."""


def exit_code(run: Callable[[], Exit]) -> Exit:
    """The exit code of ``run``, or of what it raises, which is said on standard error."""
    # What is imported and declared from here on is in use until the end. Looking for garbage in it, as Python does
    # every 700 objects and once more at the end, is two fifths of a rehearsal that finds nothing to do.
    gc.set_threshold(*COLLECTIONS)
    try:
        return run()
    except SettingsError as error:
        report_problems(error.problems, " in the stack's settings; nothing was run")
        return Exit.REFUSED
    except ConfigError as error:
        report_error(error)
        return Exit.REFUSED
    except (BusyError, FolderError, EvaluationError) as error:
        report_error(error)
        return Exit.FAILED
    except Exception as error:
        # Its text may quote a value of the stack file, as a traceback may.
        place = where(error, PROJECT) or "Python"
        report_error(f"the rehearsal failed with {type(error).__name__} in {place}")
        return Exit.FAILED
    except KeyboardInterrupt:
        # Before the Jobs or after them; while they run, the session handles it.
        return Exit.INTERRUPTED
    finally:
        gc.freeze()
