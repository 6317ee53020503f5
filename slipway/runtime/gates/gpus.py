"""Test the GPUs of this pod before its program starts, once a day for each life of its node.

With TensorFlow (`slipway.runtime.gates.accelerator`); where the image has none, they are counted and named by
NVIDIA's driver. What passed is remembered in the store, by GPU, node, test, driver and image: ten pods on one node
test once. A node that starts again, or a new one, is tested again. Where the step has its result already, nothing
is tested: its program has nothing to do.

Run as `python3 -m slipway.runtime.gates.gpus --model nvidia-tesla-t4 --count 1 -- python train.py`: the program
takes the place of this one; without a program the test is all. Standard library only, Python 3.9, but for the test
with TensorFlow.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from slipway.runtime.devices import virtual_request
from slipway.runtime.exits import (
    ACCELERATOR_REFUSED,
    INTERRUPTED,
    OK,
    RECORD_VARIABLE,
    StepError,
    exit_code,
    run,
)
from slipway.runtime.gates import accelerator
from slipway.runtime.parts import GATE, node_life, timed
from slipway.runtime.steps.program import Forwarding
from slipway.runtime.store import NotWholeError, load_manifest, read_file, write_atomically
from slipway.runtime.supplied import become
from slipway.runtime.usage.figures import Nvml, UnavailableError

FRESH = 24 * 3600.0
"""Seconds for which a test counts: a node may stay for months, and a GPU may break in that time."""

CUDA = "libcuda.so.1"
"""The driver's own library, which the node gives every GPU container."""

NODE, POD = "NODE_NAME", "POD_NAME"


def main(arguments: Sequence[str] | None = None) -> int:
    """Test what has to be tested, and start the program; returns the exit code where it does not start.

    Raises:
        StepError: ACCELERATOR_REFUSED, which names the node; what else the test ends with; StoreError; USAGE where
            there is no such program.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    split_at = given.index("--") if "--" in given else len(given)
    options, words = _parse(given[:split_at]), given[split_at + 1 :]
    code = check(options)
    if code == OK and words:
        become(words, options.code, os.environ)
    return code


@timed(GATE)
def check(options: argparse.Namespace) -> int:
    """Test what has to be tested; returns the exit code. Raises StepError as `main` does."""
    if options.output is not None and has_result(options.output):
        print(f"{options.output} has a result: no GPU is tested", flush=True)
        return OK
    if not options.tensorflow:
        accelerator.require(options.model, options.count, cuda_models())
        return OK
    node = os.environ.get(NODE) or platform.node()
    words = ["--model", options.model, *([f"--libraries={options.libraries}"] if options.libraries else [])]
    gpus = identities()
    passed = Passed.of(options.passed, _describe(words, options.image), gpus)
    if len(gpus) == options.count and (age := passed.age()) is not None:
        print(f"The GPUs of node {node} passed their test {age / 60:.0f} min ago: not tested again", flush=True)
        return OK
    code = run_test([*words, "--count", str(options.count)])
    if code == ACCELERATOR_REFUSED:
        passed.forget()
        raise StepError(
            code,
            f"the GPUs of node {node} failed their test, so nothing was started on them; if the node is at fault, "
            f"`kubectl cordon {node}` keeps the next pod from it",
        )
    if code == OK:
        passed.remember(node)
    return code


def run_test(arguments: Sequence[str]) -> int:
    """The exit code of the test, in a process of its own: what it holds of the GPUs ends with it."""
    environment = {name: value for name, value in os.environ.items() if name != RECORD_VARIABLE}
    with Forwarding(signal.SIGTERM) as signals:
        process = subprocess.Popen(
            [sys.executable, "-m", accelerator.__name__, *arguments], env=environment, stdin=subprocess.DEVNULL
        )
        signals.to(process)
        code = process.wait()
    return INTERRUPTED if signals.received else exit_code(code)


def has_result(output: Path) -> bool:
    """Whether a step has published its result in ``output``. Its program checks it; nothing is read of it here.

    Raises:
        StoreError: the store cannot be read.
    """
    try:
        load_manifest(output)
    except NotWholeError:
        return False
    return True


def cuda_models() -> list[str]:
    """What CUDA calls each GPU of this pod (docs.nvidia.com/cuda/cuda-driver-api, November 2026); of GPUs that are
    stood in for, their accelerator.

    Raises:
        StepError: ACCELERATOR_REFUSED where the driver is not here, or does not answer.
    """
    if virtual := virtual_request():
        model, count = virtual
        return [model] * count
    try:
        cuda = ctypes.CDLL(CUDA)
    except OSError as error:
        raise StepError(ACCELERATOR_REFUSED, f"no GPU: {CUDA} is not here. {accelerator.HINT}") from error

    def call(function: str, *arguments: object) -> None:
        if code := getattr(cuda, function)(*arguments):
            raise StepError(ACCELERATOR_REFUSED, f"{function} answers {code}. {accelerator.HINT}")

    gpus, device, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(gpus))
    models: list[str] = []
    for number in range(gpus.value):
        call("cuDeviceGet", ctypes.byref(device), number)
        call("cuDeviceGetName", name, len(name), device)
        models.append(name.value.decode())
    return models


def identities() -> list[str]:
    """What each GPU of this pod, or each part of one, is called by its driver; empty where nobody says."""
    if virtual := virtual_request():
        model, count = virtual
        return [f"{model}:{index}" for index in range(count)]
    try:
        nvml = Nvml()
        with contextlib.closing(nvml):
            return nvml.identities()
    except (UnavailableError, AttributeError):
        return []


class Passed:
    """What is remembered of the GPUs of this pod: a file for each, among those of other nodes.

    They lie in 256 folders, so that whoever tidies one has little to read. Without ``files`` nothing is known.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    @classmethod
    def of(cls, folder: Path | None, test: str, gpus: Sequence[str]) -> Passed:
        """That of ``gpus``, which ``test`` describes, below ``folder``."""
        if folder is None:
            return cls([])
        life = node_life(os.environ.get(POD, ""), time.time()).boot
        digests = [hashlib.sha256(f"{life}\0{gpu}\0{test}".encode()).hexdigest()[:40] for gpu in gpus]
        return cls([folder / digest[:2] / f"{digest}.json" for digest in digests])

    def age(self) -> float | None:
        """Seconds since the first of the GPUs passed; None where one has not, or not of late."""
        now = time.time()
        ages = [now - when for when in map(_time_of, self._files) if when is not None]
        if not ages or len(ages) < len(self._files) or not -FRESH < min(ages) <= max(ages) < FRESH:
            return None
        return max(ages)

    def remember(self, node: str) -> None:
        """Note that all passed, and delete what counts no more. A store that takes no note stops nobody."""
        content = json.dumps({"node": node, "passed": round(time.time())}).encode()
        try:
            for file in self._files:
                file.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(file, content)
        except OSError as error:
            print(f"warning: the next pod tests these GPUs again: {error}", file=sys.stderr, flush=True)
            return
        for folder in {file.parent for file in self._files}:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                old = [entry.path for entry in entries if time.time() - entry.stat().st_mtime > 2 * FRESH]
                for path in old:
                    Path(path).unlink(missing_ok=True)

    def forget(self) -> None:
        """See to it that the GPUs are tested again."""
        for file in self._files:
            with contextlib.suppress(OSError):
                file.unlink()


def _time_of(file: Path) -> float | None:
    try:
        return float(json.loads(read_file(file) or b"{}")["passed"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _describe(words: Sequence[str], image: str) -> str:
    """Changes with all that decides how the test of a GPU ends, but for that GPU and its node."""
    program = Path(accelerator.__file__).read_bytes()
    return json.dumps([hashlib.sha256(program).hexdigest(), image, accelerator.driver_version(), *words])


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m slipway.runtime.gates.gpus",
        usage="%(prog)s --model NAME [options] [-- PROGRAM [ARGUMENT...]]",
        description=__doc__,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--tensorflow", action="store_true", help="each GPU adds; default: they are only counted and named")
    add("--model", required=True, help="accelerator as the cloud's label names it: nvidia-tesla-t4")
    add("--count", type=int, default=1, help="accelerators this pod was given (default: 1)")
    add("--libraries", type=Path, metavar="DIR", help="what slipway.runtime.cuda.install published")
    add("--passed", type=Path, metavar="DIR", help="what passed before; default: it is tested each time")
    add("--image", default="", help="the image that this runs in")
    add("--output", type=Path, metavar="DIR", help="nothing is tested where this has the result of the step")
    add("--code", type=Path, default=Path(), metavar="DIR", help="where the program starts; default: here")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
