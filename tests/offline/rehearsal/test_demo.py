"""A demo keeps the apps of a rehearsal on this machine until it is told to end, and then nothing is left."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.offline.rehearsal.test_ports import found_elsewhere
from tests.offline.rehearsal.toy import ROOT

pytestmark = pytest.mark.slow

WITHIN = 60


@dataclass
class Shown:
    """A demo that runs, and what it has printed."""

    process: subprocess.Popen[str]
    port: int
    lines: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WITHIN
        while not condition():
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.05)

    @property
    def url(self) -> str:
        """The address of the page, once it was printed."""
        self.until(lambda: "Ctrl-C ends them all" in self.text)
        (found,) = re.findall(r"Draw a digit +(\S+)", self.text)
        return found

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def ended(self, code: int = 0) -> str:
        assert self.process.wait(timeout=WITHIN) == code, self.text
        self._reader.join(timeout=WITHIN)
        return self.text


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=15)
    return not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Callable[[], Shown]]:
    made: list[Shown] = []

    def start(port: int | None = None) -> Shown:
        # What this process found, it would keep from the demo.
        port = port or found_elsewhere()
        command = [sys.executable, "-m", "tests.offline.rehearsal.toy", str(tmp_path), "site"]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        made.append(Shown(process, port))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()


def test_the_page_answers_at_its_own_port_until_ctrl_c_and_then_nothing_is_left(
    shown: Callable[..., Shown], tmp_path: Path
) -> None:
    demo = shown()
    url = demo.url
    assert url == f"http://127.0.0.1:{demo.port}/draw?token=planted-token"
    assert "An address with a token lets in whoever has it" in demo.text
    assert "listens at" not in demo.text, "nothing listens beyond this machine"
    assert read(url) == "seven"
    assert (tmp_path / "report.html").exists(), "the report is there before the apps end"
    children = demo.children()
    os.killpg(demo.process.pid, signal.SIGINT)
    demo.until(lambda: "Ends the apps; Ctrl-C again does not wait for them" in demo.text)
    # `deaf` has ten seconds.
    os.killpg(demo.process.pid, signal.SIGINT)
    text = demo.ended()
    assert gone(children)
    assert "Traceback" not in text
    written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not any("planted-token" in each for each in written)


def test_an_app_that_crashes_is_said_and_started_again_at_the_same_address(shown: Callable[..., Shown]) -> None:
    demo = shown()
    url = demo.url
    with contextlib.suppress(OSError):
        read(url.replace("/draw?token=planted-token", "/die"))
    demo.until(lambda: "page: ready again after" in demo.text)
    assert "page: container 'main' exited with 7 (Error); starting again" in demo.text
    assert read(url) == "seven"
    demo.process.terminate()
    demo.until(lambda: "Ends the apps" in demo.text)
    demo.process.terminate()
    demo.ended()


def test_a_port_that_is_taken_is_left_to_whoever_has_it(shown: Callable[..., Shown]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        demo = shown(other.getsockname()[1])
        url = demo.url
        assert f":{demo.port}/" not in url
        assert read(url) == "seven"


def test_a_demo_that_is_killed_leaves_no_process(shown: Callable[..., Shown]) -> None:
    demo = shown()
    assert read(demo.url) == "seven"
    children = demo.children()
    assert len(children) >= 3, "the reaper and both apps"
    demo.process.kill()
    assert gone(children)


def test_a_stack_without_apps_is_refused_before_anything_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "offline.rehearsal.demo", "--stack", "local", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=WITHIN)
    assert done.returncode == 2
    assert "slipway:pipelines.mnist.apps" in done.stderr
    assert "make demo STACK=demo" in done.stderr
    assert list(tmp_path.iterdir()) == []
