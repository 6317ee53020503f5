"""Run a program as a step once for each item: one of several workers, or the only one.

The program gets the words of its command line, in which `{item}`, `{output}` and, in order, `{previous}` are
replaced, and nothing else; docs/steps.md has the contract. Run as `python -m
slipway.features.items.pod.worker --items 'days/*.csv' --output DIR -- python day.py {item} {output}`.
Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from slipway.features.items.pod import items
from slipway.features.items.pod.assignment import LINGERING
from slipway.features.items.pod.item_runner import Stopping
from slipway.features.items.pod.item_worker import ItemWorker, give
from slipway.features.items.pod.items import Item, Record
from slipway.features.items.pod.queue import PATIENCE
from slipway.runtime.exits import OK, USAGE, StepError, run
from slipway.runtime.masking import Masker
from slipway.runtime.steps import command
from slipway.runtime.steps.outputs import require
from slipway.runtime.steps.program import Program
from slipway.runtime.store import MANIFEST, finished, remove_file, store_errors


def main(arguments: list[str] | None = None) -> int:
    """Work on items until this worker is not needed any more; returns the exit code.

    Raises:
        StepError: ITEMS_FAILED where more items failed than may; USAGE, BAD_INPUT, STORE_TROUBLE, QUEUE_TROUBLE,
            NO_RESULT; INTERRUPTED after SIGTERM.
    """
    return run_worker(_parse(sys.argv[1:] if arguments is None else arguments), _run)


def run_worker(
    options: argparse.Namespace,
    run_items: Callable[[argparse.Namespace, Sequence[str], Masker, Stopping], int],
) -> int:
    """Run a worker whose secrets stay out of errors; ``run_items`` gets their values. Raises StepError."""
    variable = options.queue_password
    if variable and not os.environ.get(variable):
        raise StepError(USAGE, f"--queue-password: {variable} is not set in the environment")
    hidden = [*command.secret_values(options.secrets), *([os.environ[variable]] if variable else [])]
    masker = Masker(hidden)
    stopping = Stopping()
    try:
        return run_items(options, hidden, masker, stopping)
    except StepError as error:
        raise StepError(error.code, masker.mask(f"{options.step}: {error}")) from error


def _run(options: argparse.Namespace, hidden: Sequence[str], masker: Masker, stopping: Stopping) -> int:
    output: Path = options.output
    given = give(options)
    whole = given.whole(options)
    altered: dict[str, Record] = {}
    if (output / MANIFEST).exists():
        earlier = finished(output, whole.step, whole.inputs, whole.settings)
        if earlier is not None:
            require(output, earlier.files, options.results)
            print(f"Nothing to do: {output} holds the result of {options.step}")
            return OK
        altered = take_back(output, output, given.items)
    with command.supply(options, given.environment) as environment:
        program = Program(given.words, options.code, environment, hidden)
        program.require()
        worker = ItemWorker(options, given, program, altered=altered, masker=masker, stopping=stopping)
        return worker.run()


def take_back(directory: Path, output: Path, listed: Sequence[Item]) -> dict[str, Record]:
    """Undo the result in `directory` of a step that is not as it was, or was made from other inputs.

    `output` is the folder of the items. Returns the records of items whose files were altered, which are in the
    store no more.
    """
    with store_errors(directory):
        # First of all: nobody may take for a result what is about to change.
        remove_file(directory / MANIFEST)

    def altered(item: Item) -> Record | None:
        record = items.read_record(output, item.name)
        return record if record is not None and items.whole_result(output, record) is None else None

    records = {record.item: record for record in items.at_once(altered, listed) if record is not None}
    for name in records:
        items.forget(output, name)
    return records


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m slipway.features.items.pod.worker",
        usage="%(prog)s --items PATTERN --output DIR [options] -- PROGRAM [ARGUMENT...]",
        description=__doc__,
        epilog="The other options are those of slipway.runtime.steps.command, which has its own --help.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--items", required=True, metavar="PATTERN", help="the files to work on: each is an item")
    add("--mode", choices=("parallel", "ordered"), default="parallel", help="default: parallel")
    add_worker_options(parser)
    options = parse_worker(parser, arguments)
    if not any("{item}" in word for word in options.words):
        parser.error("no word of the program is {item}: every item would be the same to it")
    if options.queue is None and options.mode == "ordered" and options.workers > 1:
        parser.error(
            f"--mode ordered with --workers {options.workers} needs --queue: without one, each worker has its own "
            "share, and in order one item follows the other; name a queue, or --workers 1"
        )
    return options


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """The options of workers, whatever they work on."""
    add = parser.add_argument
    add("--attempts", type=int, default=3, metavar="N", help="after which an item is set aside; default: 3")
    add("--allow-failed", type=int, default=0, metavar="N", help="items that may be set aside; default: 0")
    add("--lease", type=float, default=60.0, metavar="SECONDS", help="after which a silent worker loses its item")
    add("--workers", type=int, default=1, metavar="N", help="how many there are; default: 1")
    add("--queue", metavar="HOST:PORT", help="where the items are handed out; default: each worker has its share")
    add("--queue-password", metavar="VARIABLE", help="the environment variable that has the queue's password")
    add("--patience", type=float, default=PATIENCE, metavar="SECONDS", help="to wait for a queue that is away")
    add(
        "--lingering",
        type=float,
        default=LINGERING,
        metavar="SECONDS",
        help="to look at what others do, at the end",
    )
    add("--fingerprint", default="", metavar="TEXT", help="what else decides the results, as the image does")


def parse_worker(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a worker: those of `parser`, and those of `slipway.runtime.steps.command`."""
    split_at = arguments.index("--") if "--" in arguments else len(arguments)
    items_options, others = parser.parse_known_args(list(arguments[:split_at]))
    options = command.parse([*others, *arguments[split_at:]])
    options = argparse.Namespace(**{**vars(options), **vars(items_options)})
    options.index = _index()
    for name in ("attempts", "workers", "lease"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name} {getattr(options, name)}: write a number above 0")
    if options.allow_failed < 0:
        parser.error(f"--allow-failed {options.allow_failed}: write 0 or more")
    if options.queue is None and options.index >= options.workers:
        parser.error(f"JOB_COMPLETION_INDEX is {options.index}, and --workers {options.workers} counts from 0")
    if options.queue is not None:
        host, _, port = options.queue.rpartition(":")
        if not host or not port.isdigit():
            parser.error(f"--queue {options.queue!r}; write HOST:PORT")
        options.queue = (host.strip("[]"), int(port))
    return options


def _index() -> int:
    text = os.environ.get("JOB_COMPLETION_INDEX") or "0"
    if not text.isdigit():
        raise StepError(
            USAGE, f"JOB_COMPLETION_INDEX is {text!r} in the environment; it has to be a number from 0"
        )
    return int(text)


if __name__ == "__main__":
    run(main)
