"""Run a program as a step for each trial of a search: one of several workers, or the only one.

The program gets the words of its command line, in which `{output}` and the names of the parameters in braces are
replaced. Run as `python -m slipway.features.search.pod.worker --search JSON --output DIR -- python train.py
--rate {rate} --output {output}`. Standard library only, but for Optuna and matplotlib, which `--sampler` brings;
Python 3.11.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.features.items.pod import items
from slipway.features.items.pod.item_runner import Stopping
from slipway.features.items.pod.items import Record
from slipway.features.items.pod.worker import add_worker_options, parse_worker, run_worker, take_back
from slipway.features.search.pod.trial_worker import (
    FOLDER,
    GivenSearch,
    Parameters,
    TrialWork,
    TrialWorker,
    listed,
)
from slipway.runtime.exits import BAD_INPUT, OK, USAGE, StepError, run
from slipway.runtime.masking import Masker
from slipway.runtime.steps import command
from slipway.runtime.steps.outputs import require
from slipway.runtime.steps.program import Program
from slipway.runtime.store import MANIFEST, finished, load_manifest
from slipway.runtime.supplied import unpack_packages

if TYPE_CHECKING:
    from slipway.features.search.pod.study import Plan


def main(arguments: list[str] | None = None) -> int:
    """Work on trials until this worker is not needed any more; returns the exit code.

    Raises:
        StepError: ITEMS_FAILED where more trials failed than may; USAGE, BAD_INPUT, STORE_TROUBLE, QUEUE_TROUBLE,
            NO_RESULT; INTERRUPTED after SIGTERM.
    """
    return run_worker(_parse(sys.argv[1:] if arguments is None else arguments), _run)


def _plan(options: argparse.Namespace, folder: Path) -> Plan:
    """The plan, once Optuna can be imported: by this process alone, the program finds nothing of it."""
    if options.sampler is not None:
        unpack_packages(options.sampler, folder)
        sys.path.insert(0, str(folder))
    if options.sampler_path is not None:
        sys.path.insert(0, str(options.sampler_path))
    try:
        from slipway.features.search.pod.study import Plan
    except ImportError as error:
        raise StepError(BAD_INPUT, f"--sampler: Optuna cannot be imported: {error}") from error
    try:
        return Plan.parse(options.search)
    except (ValueError, TypeError) as error:
        raise StepError(USAGE, f"--search: {error}") from error


def _run(options: argparse.Namespace, hidden: Sequence[str], masker: Masker, stopping: Stopping) -> int:
    with tempfile.TemporaryDirectory(prefix="slipway-sampler-") as folder:
        return _run_trials(options, _plan(options, Path(folder)), hidden, masker, stopping)


def _run_trials(
    options: argparse.Namespace, plan: Plan, hidden: Sequence[str], masker: Masker, stopping: Stopping
) -> int:
    output: Path = options.output
    options.mode, options.window = "parallel", plan.at_once
    parameters = Parameters(plan, output / FOLDER)
    given = _give(options, plan, parameters)
    whole = given.whole(options)
    altered: dict[str, Record] = {}
    if (output / MANIFEST).exists():
        earlier = finished(output, whole.step, whole.inputs, whole.settings)
        if earlier is not None:
            require(output, earlier.files, options.results)
            print(f"Nothing to do: {output} holds the result of {options.step}")
            return OK
        altered = take_back(output, output / FOLDER, given.items)
    with command.supply(options, given.environment) as environment:
        program = Program(given.words, options.code, environment, hidden)
        program.require()
        worker = TrialWorker(
            plan, parameters, options, given, program, altered=altered, masker=masker, stopping=stopping
        )
        return worker.run()


def _give(options: argparse.Namespace, plan: Plan, parameters: Parameters) -> GivenSearch:
    """Check the inputs; what decides of the trials is the program and these. Raises StepError."""
    given = command.take_inputs(options)
    supplied = {
        name: load_manifest(place).digest
        for name, place in (("packages", options.packages), ("libraries", options.libraries))
        if place is not None
    }
    settings: Mapping[str, Any] = {
        "command": command.portable(options),
        "code": items.digest_of_folder(options.code) if options.code != Path() else "",
        "fingerprint": options.fingerprint,
        "by": plan.by,
    }
    inputs = {**given.inputs, **supplied}
    # The number of trials decides nothing of any of them.
    search = {"search": {**vars(plan), "trials": None}} if plan.stop else {}
    work = TrialWork(options.step, inputs, settings, search=search, parameters=parameters.of)
    return GivenSearch(
        listed(plan.trials), given.words, given.environment, work, inputs, given.chosen, plan=vars(plan)
    )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m slipway.features.search.pod.worker",
        usage="%(prog)s --search JSON --output DIR [options] -- PROGRAM [ARGUMENT...]",
        description=__doc__,
        epilog="The other options are those of slipway.runtime.steps.command, which has its own --help.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--search", required=True, metavar="JSON", help="what slipway.features.search.pod.study.Plan has")
    add(
        "--sampler",
        type=Path,
        metavar="DIR",
        help="packages that slipway.runtime.steps.environment published",
    )
    add("--sampler-path", type=Path, metavar="DIR", help="a folder with these packages, in place of --sampler")
    add_worker_options(parser)
    options = parse_worker(parser, arguments)
    if options.queue is None and options.workers > 1:
        parser.error(f"--workers {options.workers} needs --queue: each trial waits for those before it")
    return options


if __name__ == "__main__":
    run(main)
