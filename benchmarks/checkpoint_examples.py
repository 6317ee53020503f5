"""Kill each example of docs/checkpoints.md, and look whether it goes on from its checkpoint.

Run as `python -m benchmarks.checkpoint_examples`; `--site DIR` names folders with packages that this Python lacks
(`pip install --target DIR torch`, `pip install --target DIR jax orbax-checkpoint`), and the words are headings.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.stand_in_job import StandInJob
from slipway.workloads.runtime.checkpoints.copies import FOLDER
from slipway.workloads.runtime.store import MANIFEST

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/checkpoints.md"
DISTRIBUTED = "PyTorch's distributed checkpoints"
LONGEST = 300.0


def examples() -> dict[str, tuple[str, str]]:
    """The language and the text of the first program below each heading."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(
        r"^### ([^\n]+)\n(?:(?!^#).)*?^```(python|text)\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    return {heading: (language, program) for heading, language, program in blocks}


def goes_on(folder: Path, language: str, program: str, sites: Sequence[str] = (), *, told: bool = False) -> int:
    """After which step the program goes on when it was killed, or `told` to end, once a checkpoint was copied."""
    code = folder / "code"
    code.mkdir(parents=True)
    (code / "program").write_text(program)
    words = [sys.executable if language == "python" else "bash", "program"]
    command = [
        sys.executable, "-m", "slipway.workloads.runtime.steps.command", "--output", str(folder / "out"), "--code",
        str(code), "--checkpoints", json.dumps({"grace": 20}), "--", *words,
    ]  # fmt: skip
    python = os.pathsep.join([*sites, str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": python, "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    log = folder / "log"
    after: list[int] = []
    for awaited in ("is in the store", "goes on after"):
        with log.open("w") as writing:
            process = subprocess.Popen(
                command, env=environment, stdout=writing, stderr=writing, start_new_session=True
            )
        try:
            _wait(log, awaited, lambda process=process: process.poll() is None)
            if told:
                process.send_signal(signal.SIGTERM)
                process.wait(30)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        after.append(_after(log.read_text()))
    if after[0] != 0:
        raise RuntimeError(f"it began with {after[0]}")
    return after[1]


def goes_on_together(folder: Path, program: str, sites: Sequence[str]) -> list[int]:
    """After which step two pods go on when one was killed."""
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "program.py").write_text(program)
    flags = ["--output", folder / "out", "--code", folder / "code", "--checkpoints", json.dumps({"parts": True})]
    environment = {"PYTHONPATH": os.pathsep.join([*sites, str(ROOT)]), "PYTHONUNBUFFERED": "1"}
    job = StandInJob(folder, 2, ["--wait", 60, *flags], [sys.executable, "program.py"], environment=environment)
    job.start_all()
    try:
        end = time.monotonic() + LONGEST
        # Both parts of one: those that each pod copies at first may be of others.
        while not any(len([*place.glob(f"*/{MANIFEST}")]) == 2 for place in (folder / "out" / FOLDER).glob("*")):
            if time.monotonic() > end:
                raise RuntimeError(f"no checkpoint is whole:\n{job.logs()}")
            job.look_after()
            time.sleep(0.1)
        for process in job.processes(1):
            os.kill(process, signal.SIGKILL)
        for rank in range(2):
            _wait(job.log(rank), r"goes on after [1-9]", lambda: job.look_after() is None)
        return [_after(job.text(rank)) for rank in range(2)]
    finally:
        job.kill()


def _wait(log: Path, awaited: str, alive: object) -> None:
    end = time.monotonic() + LONGEST
    while not re.search(awaited, log.read_text() if log.exists() else ""):
        if time.monotonic() > end or not alive():  # type: ignore[operator]
            raise RuntimeError(f"{awaited!r} is not in:\n{log.read_text()}")
        time.sleep(0.1)


def _after(text: str) -> int:
    return int(re.findall(r"goes on after (\d+)", text)[-1])


def main() -> None:
    """Try the examples, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint_examples", description=__doc__)
    parser.add_argument("--site", action="append", default=[], help="a folder with more packages")
    parser.add_argument("headings", nargs="*", help="default: all")
    options = parser.parse_args()
    for heading, (language, program) in examples().items():
        if options.headings and heading not in options.headings:
            continue
        for told in (False, True):
            with tempfile.TemporaryDirectory(prefix="checkpoint-examples-") as folder:
                if heading == DISTRIBUTED:
                    after: object = goes_on_together(Path(folder), program, options.site)
                else:
                    after = goes_on(Path(folder), language, program, options.site, told=told)
            print(f"{heading}: {'told to end' if told else 'killed'}, goes on after {after}", flush=True)
            if heading == DISTRIBUTED:
                break


if __name__ == "__main__":
    main()
