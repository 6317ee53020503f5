"""Start an app with the results that it reads behind fixed paths: the best of several, or those of the newest run.

Each result is a link below `--into`. With `--follow` the program ends when there is a newer good run, and the
container that takes its place begins with that. Run as `python3 -m slipway.runtime.apps.inputs --into
DIR --input train=DIR -- python serve.py DIR/train`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from slipway.runtime.apps import newest
from slipway.runtime.apps.newest import NEWEST, GoodRun
from slipway.runtime.exits import (
    BAD_INPUT,
    OK,
    StepError,
    exit_code,
    parse_before_program,
    parse_pairs,
    run,
)
from slipway.runtime.json_values import Choice
from slipway.runtime.steps.program import Forwarding
from slipway.runtime.supplied import become, not_started

PAUSE = 15.0
"""Seconds between two looks at whether there is a newer run."""

GRACE = 30.0
"""Seconds that the program has for its last requests, where nothing else is said."""


def main(arguments: list[str] | None = None) -> int:
    """Start the program; with `--follow newest` returns once it ended, else only where it cannot be started.

    Raises:
        StepError: BAD_INPUT where a result is not there; USAGE where there is no such program or folder; the exit
            code of the program where it ended by itself; StoreError.
    """
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    good: GoodRun | None = None
    inputs: Mapping[str, Path] = {name: Path(place) for name, place in options.inputs.items()}
    if options.follow:
        good = newest.named(newest.read(options.follow), options.run, options.follow)
        inputs = _of_run(good, options)
        print(f"Reads the run {good.name}, published at {good.published}", flush=True)
    chosen = dict(inputs)
    for choice in options.choices:
        best, _, reason = choice.best(inputs)
        chosen[choice.name] = inputs[best]
        print(reason, flush=True)
    _link(chosen, options.into)
    if good is None or options.run != NEWEST:
        become(options.words, options.code, os.environ)
    return _watch(good, options)


def _of_run(good: GoodRun, options: argparse.Namespace) -> dict[str, Path]:
    """The directories of the results that the app reads, in that run. Raises StepError where one is not whole."""
    store = options.follow.parents[2]
    lacking = sorted({step for step in options.inputs.values() if step not in good.steps})
    if lacking:
        raise StepError(BAD_INPUT, f"the run {good.name} has no result of {', '.join(lacking)}")
    newest.require_whole(store, {step: good.steps[step] for step in options.inputs.values()})
    return {name: store / good.steps[step] for name, step in options.inputs.items()}


def _link(chosen: Mapping[str, Path], into: Path) -> None:
    try:
        # A container that starts anew finds what the one before it left.
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        for name, directory in chosen.items():
            if not directory.is_dir():
                raise StepError(BAD_INPUT, f"there is no result {name} in {directory}")
            (into / name).symlink_to(directory)
    except OSError as error:
        raise StepError(BAD_INPUT, f"{into}: {error.strerror}") from error


def _watch(good: GoodRun, options: argparse.Namespace) -> int:
    """Run the program until there is a newer run that is whole, or it ends, or is told to."""
    with Forwarding(signal.SIGTERM) as signals:
        try:
            process = subprocess.Popen(options.words, cwd=options.code)
        except OSError as error:
            raise not_started(options.words, options.code, error) from error
        signals.to(process)
        printed = ""
        while True:
            try:
                code = process.wait(PAUSE)
            except subprocess.TimeoutExpired:
                pass
            else:
                if code == 0:
                    return OK
                ended = f"signal {-code}" if code < 0 else f"exit code {code}"
                raise StepError(exit_code(code), f"{options.words[0]} ended with {ended}")
            newer, why = _newer(good, options)
            if why and why != printed:
                print(f"Stays with the run {good.name}: {why}", file=sys.stderr, flush=True)
            printed = why
            if newer:
                return _end(process, newer, options)


def _newer(good: GoodRun, options: argparse.Namespace) -> tuple[str, str]:
    """The name of a newer run that can be read, or why the newest one cannot; both empty where there is none."""
    try:
        run = newest.named(newest.read(options.follow), NEWEST, options.follow)
        if run.steps == good.steps:
            return "", ""
        _of_run(run, options)
    except StepError as error:
        return "", str(error)
    return run.name, ""


def _end(process: subprocess.Popen[bytes], newer: str, options: argparse.Namespace) -> int:
    # Of several pods each has another moment, so that the others answer.
    turn = hashlib.sha256(socket.gethostname().encode()).digest()[0] / 256 * options.spread
    print(f"Run {newer} is good: starting with it{f' in {turn:.0f} s' if turn else ''}", flush=True)
    try:
        process.wait(turn)
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(options.grace)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return OK


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m slipway.runtime.apps.inputs",
        usage="%(prog)s --into DIR [options] -- PROGRAM [ARGUMENT...]",
        description=__doc__,
    )
    add = parser.add_argument
    add("--into", type=Path, required=True, help="a folder of the local disk, emptied first, for the links")
    add("--code", type=Path, default=Path(), help="where the program starts; default: here")
    add(
        "--input", dest="inputs", action="append", default=[], metavar="NAME=DIR",
        help="a result that it reads; with --follow NAME=STEP",
    )  # fmt: skip
    add(
        "--best", dest="choices", action="append", default=[], metavar="NAME=of:FILE#/pointer:INPUT,INPUT",
        help="NAME is that input whose number is the largest (of is max) or the smallest (min)",
    )  # fmt: skip
    add("--follow", type=Path, metavar="FILE", help="<store>/<pipeline>/newest/runs.json")
    add("--run", default=NEWEST, help="the run of that file, by its name; default: the newest, and those after it")
    add("--grace", type=float, default=GRACE, metavar="SECONDS", help="between SIGTERM and SIGKILL")
    add("--spread", type=float, default=0, metavar="SECONDS", help="in which the pods of an app start anew")
    options = parse_before_program(parser, arguments)
    options.inputs = parse_pairs(parser, "--input", options.inputs)
    options.choices = [Choice.parse(text) for text in options.choices]
    if unknown := [name for choice in options.choices for name in choice.among if name not in options.inputs]:
        parser.error(f"--best: {', '.join(unknown)} is no --input")
    return options


if __name__ == "__main__":
    run(main)
