"""Ctrl-C ends every command of the Makefile without a traceback, also while it still imports."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

INTERRUPTS_FIRST_IMPORT = """
import signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name in ("typer", "pydantic", "pulumi", "yaml", "slipway.infra", "jinja2"):
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""

INTERRUPTS_CALLBACK = """
import signal, sys, threading, time, weakref

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name in ("typer", "pydantic", "pulumi", "yaml", "slipway.infra", "jinja2"):
            sys.meta_path.remove(self)
            held = Interrupt()
            weakref.finalize(held, signal.raise_signal, signal.SIGINT)
            del held
            time.sleep(1)

sys.meta_path.insert(0, Interrupt())
"""


def commands() -> list[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    # These import nothing but the standard library before they begin.
    return sorted({*re.findall(r"-m (slipway(?: [a-z][\w-]*|\.[\w.]+))", text)} - {"slipway.command.progress"})


def interrupted(command: str, how: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(how, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(folder)}
    words = [sys.executable, "-m", *command.split(), "--help"]
    return subprocess.run(words, cwd=ROOT, env=env, check=False, capture_output=True, text=True, timeout=60)


def test_commands_are_found() -> None:
    assert {
        "slipway rehearse",
        "slipway demo",
        "slipway logs",
        "slipway new",
    } <= set(commands())


@pytest.mark.parametrize("command", commands())
def test_interrupt_while_importing(command: str, tmp_path: Path) -> None:
    done = interrupted(command, INTERRUPTS_FIRST_IMPORT, tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_interrupt_in_a_callback_of_an_import(tmp_path: Path) -> None:
    done = interrupted("slipway watch", INTERRUPTS_CALLBACK, tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_interrupt_of_a_command_with_a_progress_line() -> None:
    words = [
        sys.executable,
        "-m",
        "slipway.command.progress",
        "setup",
        sys.executable,
        "-c",
        "import time; time.sleep(60)",
    ]
    process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        time.sleep(1)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()

    assert (process.returncode, errors.strip()) == (130, "")
