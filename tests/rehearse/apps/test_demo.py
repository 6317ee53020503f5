"""A demo keeps the apps of a rehearsal on this machine until it is told to end, and then nothing is left."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rehearse.machine.test_ports import port_of_another
from tests.support.checkout import ROOT
from tests.support.rehearsing import Running, all_end, texts_below

pytestmark = pytest.mark.slow


class RunningDemo(Running):
    """A demo of a page at this port."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__("-m", "tests.rehearse.toy", str(folder), "site", PORT=str(port))
        self.port = port

    @property
    def url(self) -> str:
        """The address of the page, once it was printed."""
        self.until(lambda: "Ctrl-C ends them all" in self.text)
        (url,) = re.findall(r"Draw a digit +(\S+)", self.text)
        return url


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningDemo]]:
    with contextlib.ExitStack() as stack:

        def begin(port: int = 0) -> RunningDemo:
            # A port that this process has taken it would keep from the demo.
            demo = RunningDemo(tmp_path, port or port_of_another())
            stack.callback(demo.kill)
            return demo

        yield begin


def test_the_page_answers_at_its_own_port_until_ctrl_c_and_then_nothing_is_left(
    start: Callable[..., RunningDemo], tmp_path: Path
) -> None:
    demo = start()
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
    text = demo.end()
    assert all_end(children)
    assert "Traceback" not in text
    assert not any("planted-token" in content for content in texts_below(tmp_path))


def test_an_app_that_crashes_is_said_and_started_again_at_the_same_address(
    start: Callable[..., RunningDemo],
) -> None:
    demo = start()
    url = demo.url
    with contextlib.suppress(OSError):
        read(url.replace("/draw?token=planted-token", "/die"))
    demo.until(lambda: "page: ready again after" in demo.text)
    assert "page: container 'main' exited with 7 (Error); starting again" in demo.text
    assert read(url) == "seven"
    assert f" in place of {demo.port}" not in demo.text
    demo.process.terminate()
    demo.until(lambda: "Ends the apps" in demo.text)
    demo.process.terminate()
    demo.end()


def test_a_port_that_is_taken_is_left_to_whoever_has_it(start: Callable[..., RunningDemo]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        demo = start(other.getsockname()[1])
        url = demo.url
        assert f":{demo.port}/" not in url
        assert f" in place of {demo.port}" in demo.text
        assert read(url) == "seven"


def test_a_stack_without_apps_is_refused_before_anything_runs(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "slipway",
        "demo",
        "--stack",
        "local",
        "--output",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert "slipway:pipelines.mnist.apps" in done.stderr
    assert list(tmp_path.iterdir()) == []
