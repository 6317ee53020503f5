"""What is lost of a step with `checkpoints` that is killed at random moments, with notice and without.

A program counts in steps and saves its state, three files in a folder that have to agree, as often as it is told
into `{checkpoint}`; the store is slow (`benchmarks.slow_store`), so that many kills meet a copy. After each kill
the same command line starts again, as the next pod would, with an empty disk. Run as
`python -m benchmarks.checkpoint_kills --kills 100`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.slow_store import environment

PROGRAM = """
import hashlib, json, os, pathlib, shutil, signal, sys, time
folder, log = map(pathlib.Path, sys.argv[1:3])
interval, size = float(os.environ["SLIPWAY_CHECKPOINT_EVERY"]), int(sys.argv[3])

def say(**what):
    with open(log, "a") as file:
        file.write(json.dumps({"at": time.time(), **what}) + "\\n")

def save():
    new = folder / f"step-{step}.tmp"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    for part in range(3):
        with open(new / str(part), "w") as file:
            file.write(json.dumps([step, value]) + "\\n" + value[part] * size)
    if not (folder / f"step-{step}").exists():
        new.rename(folder / f"step-{step}")
        say(saved=step)
    for old in folder.glob("step-*"):
        if old.name != f"step-{step}":
            shutil.rmtree(old, ignore_errors=True)

def told(*_):
    global stopping
    stopping = True

stopping = False
signal.signal(signal.SIGTERM, told)
step, value = 0, "0" * 64
for kept in folder.glob("step-*"):
    parts = []
    for part in range(3):
        head, _, rest = (kept / str(part)).read_text().partition("\\n")
        parts.append(json.loads(head))
        if rest != parts[-1][1][part] * size:
            say(damaged=kept.name)
    if any(part != parts[0] for part in parts):
        say(mixed=kept.name)
    step, value = parts[0]
say(began=step, value=value)
saved = time.monotonic()
while True:
    time.sleep(0.05)
    step, value = step + 1, hashlib.sha256(f"{value}{step}".encode()).hexdigest()
    say(step=step)
    if stopping or time.monotonic() - saved > interval:
        save()
        saved = time.monotonic()
    if stopping:
        say(ended=step)
        sys.exit(1)
"""


@dataclass
class Losses:
    """What was lost at kills, in seconds of computing, and what was wrong with what was restored."""

    told: list[float] = field(default_factory=list)
    killed: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Trial:
    """One step that is killed again and again."""

    def __init__(self, folder: Path, seed: int, options: argparse.Namespace) -> None:
        self.folder = folder
        self.options = options
        self.random = random.Random(seed)
        self.log = folder / "log"
        self.losses = Losses()
        code = folder / "code"
        code.mkdir(parents=True)
        (code / "count.py").write_text(PROGRAM)
        output = folder / "store" / "out"
        self.command = list(map(str, [
            sys.executable, "-m", "slipway.workloads.runtime.steps.command", "--output", output, "--code", code,
            "--checkpoints", json.dumps({"grace": 25, "every": options.every}), "--", "python3", "count.py",
            "{checkpoint}", self.log, options.kilobytes * 1000 // 3,
        ]))  # fmt: skip
        self.environment = environment(folder, folder / "store", options.rate * 1e3)

    def lines(self) -> list[dict[str, float | str]]:
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]

    def run(self, kills: int) -> Losses:
        for _ in range(kills):
            self.kill(told=self.random.random() < 0.5)
        self.start()
        self.kill_now()
        self.judge()
        return self.losses

    def start(self) -> None:
        self.began = len(self.lines())
        self.process = subprocess.Popen(
            self.command, env={**self.environment, "TMPDIR": str(self.folder)}, start_new_session=True,
            stdout=(self.folder / "out").open("ab"), stderr=subprocess.STDOUT,
        )  # fmt: skip
        while not any("began" in line for line in self.lines()[self.began :]):
            if self.process.poll() is not None:
                raise SystemExit((self.folder / "out").read_text())
            time.sleep(0.05)

    def kill_now(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill(self, *, told: bool) -> None:
        self.start()
        time.sleep(self.random.uniform(0.0, 3 * self.options.every))
        with self.log.open("a") as file:
            file.write(json.dumps({"at": time.time(), "kill": "told" if told else "killed"}) + "\n")
        if told:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
        else:
            self.kill_now()

    def judge(self) -> None:
        """Go through the log: what each start began with, against how far the one before had come."""
        done: list[tuple[float, float]] = []
        saved: dict[float, float] = {}
        value = "0" * 64
        values = [value]
        how = ""
        for line in self.lines():
            at = float(line["at"])
            if "step" in line:
                step = int(line["step"])
                done.append((at, step))
                if step == len(values):
                    values.append(hashlib.sha256(f"{values[-1]}{step - 1}".encode()).hexdigest())
            elif "saved" in line:
                saved[float(line["saved"])] = at
            elif "kill" in line:
                how = str(line["kill"])
            elif "damaged" in line or "mixed" in line:
                self.losses.wrong.append(json.dumps(line))
            elif "began" in line:
                step = int(line["began"])
                if line["value"] != values[step]:
                    self.losses.wrong.append(f"step {step} has another value")
                # The seconds of the steps that are done again.
                lost = sum(0.05 for _, other in done if other > step)
                if how:
                    getattr(self.losses, how).append(lost)
                done = [(moment, other) for moment, other in done if other <= step]


def main() -> None:
    """Kill, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=4, help="steps that are killed at once")
    parser.add_argument("--every", type=float, default=4.0, help="`every` of the step, in seconds")
    parser.add_argument("--kilobytes", type=int, default=300, help="of a checkpoint")
    parser.add_argument("--rate", type=float, default=300.0, help="KB that the store takes in a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="checkpoint-kills-") as name, ThreadPoolExecutor(options.jobs) as pool:
        trials = [Trial(Path(name) / str(job), options.seed + job, options) for job in range(options.jobs)]
        counts = [len(range(job, options.kills, options.jobs)) for job in range(options.jobs)]
        losses = list(pool.map(Trial.run, trials, counts))
        said = "".join((trial.folder / "out").read_text() for trial in trials)
    print("| kills | number | lost at most, s | lost on average, s |\n| --- | --- | --- | --- |")
    for words, of_kind in (("with notice", "told"), ("without", "killed")):
        lost = [loss for of_trial in losses for loss in getattr(of_trial, of_kind)]
        print(f"| {words} | {len(lost)} | {max(lost, default=0):.2f} | {sum(lost) / max(len(lost), 1):.2f} |")
    wrong = [line for of_trial in losses for line in of_trial.wrong]
    lines = [line for line in said.splitlines() if "in the store: " in line]
    seconds = [float(line.rpartition(" in ")[2].split()[0]) for line in lines]
    print(f"damaged or mixed: {len(wrong)}; {len(lines)} copies, the longest took {max(seconds, default=0):.1f} s")
    print("\n".join(wrong))


if __name__ == "__main__":
    main()
