"""Run any program as a step: its inputs are whole, and what it leaves in a directory is a result, or it is none.

The program gets its own command line and nothing else. After a disruption it gets the same directory again, with
what it left there; docs/steps.md has the contract. Run as `python -m workloads.runtime.command --output DIR --
python train.py --output DIR`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads.runtime.archives import copy_libraries, unpack_packages
from workloads.runtime.exits import INTERRUPTED, INTERRUPTED_BY_KEYBOARD, OK, USAGE, StepError, run
from workloads.runtime.json_values import Choice, split
from workloads.runtime.masking import Masker
from workloads.runtime.outputs import Declared, collect, require
from workloads.runtime.program import Program
from workloads.runtime.store import (
    MANIFEST,
    Manifest,
    check,
    finished,
    load_manifest,
    store_errors,
    write_atomically,
)


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code: 0, or the program's own.

    Raises:
        StepError: with the program's exit code, or USAGE, BAD_INPUT, STORE_TROUBLE, NO_RESULT.
    """
    signal.signal(signal.SIGTERM, _stop)
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    secrets = _values(options.secrets)
    try:
        return _run(options, secrets)
    except StepError as error:
        raise StepError(error.code, Masker(secrets).mask(f"{options.step}: {error}")) from error


def _run(options: argparse.Namespace, secrets: Sequence[str]) -> int:
    output: Path = options.output
    work = _work(options)
    settings = {"command": _portable(options)}
    earlier = finished(output, options.step, work.inputs, settings)
    if earlier is not None:
        require(output, earlier.files, options.results)
        print(f"Nothing to do: {output} holds the result of {options.step}")
        return OK
    with store_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        # Nobody may take for a result what is about to change.
        (output / MANIFEST).unlink(missing_ok=True)
    with _supplied(options, work.environment) as environment:
        program = Program(work.words, options.code, environment, secrets)
        code = program.run(f"{options.step} goes on with what is in {output}")
    if code in {INTERRUPTED, INTERRUPTED_BY_KEYBOARD}:
        return code
    if code:
        raise StepError(code, _ending(work.words[0], code))
    files = collect(output)
    require(output, files, options.results)
    if not files:
        print(f"warning: {work.words[0]} ended well and wrote nothing into {output}", file=sys.stderr)
    manifest = Manifest(options.step, files, work.inputs, settings, {"best": work.chosen})
    with store_errors(output):
        write_atomically(output / MANIFEST, manifest.encode())
    print(f"Published {len(files)} files: {output}")
    return OK


@dataclass
class _Work:
    """Digests of the inputs by name, and what the program gets now that the best of them is chosen."""

    words: list[str]
    environment: dict[str, str]
    inputs: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)


def _work(options: argparse.Namespace) -> _Work:
    """Check the inputs and choose among them.

    Every input is read and checked whole, but of those among which one is chosen only it, and what decides of the
    others.
    """
    work = _Work(list(options.words), dict(os.environ))
    losers: dict[str, str] = {}
    for choice in options.choices:
        for variant in choice.among:
            check(options.inputs[variant], only=split(choice.reference)[0])
        best, number, reason = choice.best(options.inputs)
        print(reason, flush=True)
        work.chosen[choice.name] = {"is": best, "by": choice.reference, "of": choice.of, "value": number}
        losers.update({variant: choice.name for variant in choice.among if variant != best})
        place, directory = f"{{best:{choice.name}}}", str(options.inputs[best])
        work.words = [word.replace(place, directory) for word in work.words]
        work.environment = {name: value.replace(place, directory) for name, value in work.environment.items()}
    used = [*work.words, *work.environment.values()]
    for name, directory in options.inputs.items():
        read = name not in losers or any(str(directory) in text for text in used)
        work.inputs[name] = (check(directory) if read else load_manifest(directory)).digest
    return work


@contextlib.contextmanager
def _supplied(options: argparse.Namespace, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment in which the program finds what its image lacks, unpacked on the local disk."""
    supplied = dict(environment)
    with contextlib.ExitStack() as stack:

        def folder(purpose: str) -> Path:
            return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"slipway-{purpose}-")))

        if options.packages is not None:
            packages = folder("packages")
            if unpack_packages(options.packages, packages):
                _prepend(supplied, "PYTHONPATH", packages)
                _prepend(supplied, "PATH", packages / "bin")
        if options.libraries is not None:
            libraries = folder("libraries")
            if copy_libraries(options.libraries, libraries):
                _prepend(supplied, "LD_LIBRARY_PATH", libraries)
        yield supplied


def _prepend(environment: dict[str, str], variable: str, place: Path) -> None:
    before = environment.get(variable, os.defpath if variable == "PATH" else "")
    environment[variable] = f"{place}{os.pathsep}{before}" if before else str(place)


def _portable(options: argparse.Namespace) -> list[str]:
    """The words with names for directories: a result stays the same work where the store is mounted elsewhere."""
    places = {str(options.output): "{output}"}
    places.update({str(directory): f"{{{name}}}" for name, directory in options.inputs.items()})
    words = list(options.words)
    for directory in sorted(places, key=len, reverse=True):
        words = [word.replace(directory, places[directory]) for word in words]
    return words


def _ending(name: str, code: int) -> str:
    if code <= 128 or code - 128 not in set(signal.Signals):
        return f"{name} failed; what it wrote is above"
    number = signal.Signals(code - 128)
    why = ", as it is where the memory limit is reached" if number is signal.SIGKILL else ""
    return f"{name} was ended by {number.name}{why}"


def _stop(*_: object) -> None:
    print("error: stopped by SIGTERM: the same command starts over", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


def _values(variables: Sequence[str]) -> list[str]:
    absent = [variable for variable in variables if variable not in os.environ]
    if absent:
        raise StepError(USAGE, f"--secret: {', '.join(absent)} is not set in the environment")
    return [os.environ[variable] for variable in variables if os.environ[variable].strip()]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.runtime.command",
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
    add("--packages", type=Path, help="what workloads.runtime.environment published")
    add("--libraries", type=Path, help="what workloads.cuda.install published")
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
    split_at = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split_at])
    options.words = list(arguments[split_at + 1 :])
    if not options.words:
        parser.error("the program to run is missing: write it after --")
    pairs = [text.partition("=") for text in options.inputs]
    if wrong := [f"{name}{sep}{place}" for name, sep, place in pairs if not name or not place]:
        parser.error(f"--input {wrong[0]!r}; write NAME=DIR")
    options.inputs = {name: Path(place) for name, _, place in pairs}
    if len(options.inputs) < len(pairs):
        parser.error("two inputs have one name")
    options.choices = [Choice.parse(text) for text in options.choices]
    options.results = [Declared.parse(text) for text in options.results]
    unknown = [name for choice in options.choices for name in choice.among if name not in options.inputs]
    if unknown:
        parser.error(f"--best: {', '.join(unknown)} is no --input")
    return options


if __name__ == "__main__":
    run(main)
