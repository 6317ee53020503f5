"""Run any program as a step: its inputs are whole, and what it leaves in a directory is a result, or it is none.

The program gets its own command line and nothing else. After a disruption it gets the same directory again, with
what it left there; docs/steps.md has the contract. Run as `python -m slipway.runtime.steps.command
--output DIR -- python train.py --output DIR`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.runtime.exits import (
    INTERRUPTED,
    OK,
    USAGE,
    WHY_STOPPED,
    StepError,
    parse_before_program,
    parse_pairs,
    run,
)
from slipway.runtime.json_values import Choice, split
from slipway.runtime.masking import Masker
from slipway.runtime.parts import PUBLISH, timed
from slipway.runtime.steps import outputs
from slipway.runtime.steps.attendant import Attendant, Settings, discard
from slipway.runtime.steps.local_inputs import LocalInputs
from slipway.runtime.steps.outputs import Declared, NoResultError, collect, require
from slipway.runtime.steps.program import Program
from slipway.runtime.store import (
    MANIFEST,
    Manifest,
    check,
    finished,
    load_manifest,
    store_errors,
    write_atomically,
)
from slipway.runtime.supplied import local_libraries, prepend, unpack_packages


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code: 0, or the program's own.

    Raises:
        StepError: with the program's exit code, or USAGE, BAD_INPUT, STORE_TROUBLE, NO_RESULT.
    """
    signal.signal(signal.SIGTERM, _stop)
    options = parse(sys.argv[1:] if arguments is None else arguments)
    secrets = secret_values(options.secrets)
    try:
        return _run(options, secrets)
    except StepError as error:
        raise StepError(error.code, Masker(secrets).mask(f"{options.step}: {error}")) from error


def _run(options: argparse.Namespace, secrets: Sequence[str]) -> int:
    step = Step(options)
    if not step.is_published():
        if not step.resume():
            with supply(options, step.given.environment) as environment:
                program = Program(step.given.words, options.code, environment, secrets)
                _run_program(options, step.work, program)
        step.publish()
    if options.checkpoints is not None:
        discard(options.output)
    return OK


def _run_program(options: argparse.Namespace, work: Manifest, program: Program) -> None:
    remark = f"the same command goes on with what is in {options.output}"
    if options.checkpoints is None:
        program.run(remark)
        return
    program.require()
    attendant = Attendant(options.checkpoints, options.output, work)
    try:
        attendant.prepare(program).run(f"{remark} and its newest checkpoint", attendant)
    finally:
        attendant.close()


class Step:
    """The work of a step, and what of it is in its directory already. All methods raise StepError.

    `publishes` says that the result is made here, and not by another pod.
    """

    def __init__(self, options: argparse.Namespace, *, publishes: bool = True) -> None:
        self.given = given = take_inputs(options)
        self.work = Manifest(
            options.step, {}, given.inputs, {"command": portable(options)}, {"best": given.chosen}
        )
        self._output: Path = options.output
        self._results: Sequence[Declared] = options.results
        self._references = [result.reference for result in options.results]
        self._ended: Manifest | None = None
        if publishes:
            outputs.refuse_other_work(self._output, self.work)

    def is_published(self) -> bool:
        """Whether the result was there before, which is then said."""
        earlier = finished(self._output, self.work.step, self.work.inputs, self.work.settings)
        if earlier is None:
            return False
        require(self._output, earlier.files, self._results)
        print(f"Nothing to do: {self._output} holds the result of {self.work.step}", flush=True)
        return True

    def resume(self) -> bool:
        """Whether the program ended well in an earlier attempt; else the directory is made ready for it."""
        self._ended = outputs.kept(self._output, self.work, self._references)
        if self._ended is None:
            outputs.begin(self._output, self.work)
            return False
        print(f"{self.given.words[0]} ended well before, and is not run again", flush=True)
        return True

    @timed(PUBLISH)
    def publish(self) -> None:
        """Look for the declared results, and write the manifest."""
        output = self._output
        ended = self._ended or dataclasses.replace(self.work, files=collect(output))
        try:
            require(output, ended.files, self._results)
        except NoResultError:
            outputs.keep(output, ended, self._references)
            raise
        if not ended.files:
            print(f"warning: {self.given.words[0]} ended well and wrote nothing into {output}", file=sys.stderr)
        with store_errors(output):
            manifest = dataclasses.replace(ended, summary=self.work.summary)
            write_atomically(output / MANIFEST, manifest.encode())
        outputs.end(output)
        print(f"Published {len(ended.files)} files: {output}", flush=True)


@dataclass
class Given:
    """What the program gets, now that the best inputs are chosen, and the digests of all inputs by name."""

    words: list[str]
    environment: dict[str, str]
    inputs: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)


def take_inputs(options: argparse.Namespace, *, kept: int = 0) -> Given:
    """Check the inputs and choose among them.

    Every input is read and checked whole, but of those among which one is chosen only it, and what decides of the
    others. With a cache the program is given copies of those that it is told of; the last `kept` words name the
    inputs themselves.
    """
    given = Given(list(options.words), dict(os.environ))
    losers: set[str] = set()
    for choice in options.choices:
        for variant in choice.among:
            check(options.inputs[variant], only=split(choice.reference)[0])
        best, number, reason = choice.best(options.inputs)
        print(reason, flush=True)
        given.chosen[choice.name] = {"is": best, "by": choice.reference, "of": choice.of, "value": number}
        losers.update(variant for variant in choice.among if variant != best)
        place, directory = f"{{best:{choice.name}}}", str(options.inputs[best])
        given.words = [word.replace(place, directory) for word in given.words]
        given.environment = {name: value.replace(place, directory) for name, value in given.environment.items()}
    used = [*given.words, *given.environment.values()]
    end = len(given.words) - kept
    told = [*given.words[:end], *given.environment.values()]
    copies = LocalInputs(options.cache, options.cache_mib << 20) if options.cache else None
    for name, directory in options.inputs.items():
        if name in losers and not any(str(directory) in text for text in used):
            manifest = load_manifest(directory)
        elif copies and any(str(directory) in text for text in told):
            manifest = copies.take(name, directory)
        else:
            manifest = check(directory)
        given.inputs[name] = manifest.digest
    if copies:
        for name, directory in options.data.items():
            if any(str(directory) in text for text in told):
                copies.take_folder(name, directory)
        given.words[:end] = [copies.moved(word) for word in given.words[:end]]
        given.environment = {name: copies.moved(value) for name, value in given.environment.items()}
    return given


@contextlib.contextmanager
def supply(options: argparse.Namespace, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment in which the program finds what its image lacks, unpacked on the local disk."""
    supplied = dict(environment)
    with contextlib.ExitStack() as stack:

        def folder(purpose: str) -> Path:
            return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"slipway-{purpose}-")))

        if options.packages is not None:
            packages = folder("packages")
            if unpack_packages(options.packages, packages):
                prepend(supplied, "PYTHONPATH", packages)
                prepend(supplied, "PATH", packages / "bin")
        if options.libraries is not None and (libraries := local_libraries(options.libraries)):
            prepend(supplied, "LD_LIBRARY_PATH", libraries)
        yield supplied


def portable(options: argparse.Namespace) -> list[str]:
    """The words with names for directories: a result stays the same work where the store is mounted elsewhere."""
    places = {str(options.output): "{output}"}
    places.update({str(directory): f"{{{name}}}" for name, directory in options.inputs.items()})
    # As a whole path or as the beginning of one: `out` is not a part of `--layout`.
    anywhere = "|".join(re.escape(directory) for directory in sorted(places, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w./-])(?:{anywhere})(?![\w.-])")
    return [pattern.sub(lambda match: places[match.group()], word) for word in options.words]


def _stop(*_: object) -> None:
    print(f"error: stopped by SIGTERM: the same command goes on{WHY_STOPPED}", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


def secret_values(variables: Sequence[str]) -> list[str]:
    absent = [variable for variable in variables if variable not in os.environ]
    if absent:
        raise StepError(USAGE, f"--secret: {', '.join(absent)} is not set in the environment")
    return [os.environ[variable] for variable in variables if os.environ[variable].strip()]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m slipway.runtime.steps.command",
        usage="%(prog)s --output DIR [options] -- PROGRAM [ARGUMENT...]",
        description=__doc__,
    )
    add = functools.partial(parser.add_argument, metavar="DIR")
    several = functools.partial(parser.add_argument, action="append", default=[])
    add("--output", type=Path, required=True, help="the directory that becomes the result")
    add("--step", default="command", metavar="NAME", help="whose result it is, as in churn.train")
    add("--code", type=Path, default=Path(), help="where the program starts; default: here")
    several("--input", dest="inputs", metavar="NAME=DIR", help="the result of another step; has to be whole")
    several(
        "--best",
        dest="choices",
        metavar="NAME=of:FILE#/pointer:INPUT,INPUT",
        help="{best:NAME} stands for the directory of that input whose number is the largest (of is max) or "
        "the smallest (min)",
    )
    add("--cache", type=Path, help="a folder of the node's disk, to which the inputs are copied that are named")
    parser.add_argument("--cache-mib", type=int, default=0, metavar="N", help="MiB that the copies may have")
    several("--data", metavar="NAME=DIR", help="a folder that nobody published, to be copied there, too")
    add("--packages", type=Path, help="what slipway.runtime.steps.environment published")
    add("--libraries", type=Path, help="what slipway.runtime.cuda.install published")
    several(
        "--result",
        dest="results",
        metavar="NAME=FILE[#/pointer]",
        help="a file, or a value of a JSON file, that has to be there at the end",
    )
    several(
        "--secret",
        dest="secrets",
        metavar="VARIABLE",
        help="an environment variable whose value is masked in all that the program prints",
    )
    add(
        "--checkpoints",
        type=Settings.parse,
        metavar="JSON",
        help="how what the program renames into {checkpoint} is copied: an object with every, bandwidth, signal, "
        "grace and parts",
    )
    options = parse_before_program(parser, arguments)
    options.inputs = {name: Path(place) for name, place in parse_pairs(parser, "--input", options.inputs).items()}
    options.data = {name: Path(place) for name, place in parse_pairs(parser, "--data", options.data).items()}
    options.choices = [Choice.parse(text) for text in options.choices]
    options.results = [Declared.parse(text) for text in options.results]
    unknown = [name for choice in options.choices for name in choice.among if name not in options.inputs]
    if unknown:
        parser.error(f"--best: {', '.join(unknown)} is no --input")
    return options


if __name__ == "__main__":
    run(main)
