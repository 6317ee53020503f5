"""Run steps as a pod does: as processes, by their command lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.loaded import Loaded

ROOT = Path(__file__).resolve().parents[2]
MNIST_FILES = os.environ.get("SLIPWAY_MNIST_DIR", "")


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")}
    return {**kept, **changes}


def command(module: str, *arguments: object) -> list[str]:
    """`module` is a program of a pipeline, as in `mnist.train`, or any other module by its whole name."""
    program = ROOT / "workloads" / f"{module.replace('.', '/')}.py"
    if (program.parent / "pipeline.yaml").is_file():
        return [sys.executable, str(program), *(str(argument) for argument in arguments)]
    return [sys.executable, "-m", module, *(str(argument) for argument in arguments)]


def start(module: str, *arguments: object, **changes: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(module, *arguments),
        cwd=ROOT,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_loaded(module: str, *arguments: object, **changes: str) -> Loaded:
    """As `start`, where TensorFlow is imported already."""
    return Loaded(command(module, *arguments)[1:], ROOT, environment(**changes))


def run(module: str, *arguments: object, code: int = 0, loaded: bool = False, **changes: str) -> str:
    """Run a step to its end and return what it wrote; the test fails where it ends with another exit code."""
    process = (start_loaded if loaded else start)(module, *arguments, **changes)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == code, f"exit code {process.returncode} instead of {code}:\n{output}"
    return output


def errors(output: str) -> list[str]:
    """The error lines of a step. A traceback is none: it fails the test."""
    assert "Traceback" not in output, output
    return [line for line in output.splitlines() if line.startswith("error: ")]


def only_error(output: str) -> str:
    lines = errors(output)
    assert len(lines) == 1, output
    return lines[0]
