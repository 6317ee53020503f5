"""The programs of apps in a rehearsal: what they find here, what stands in, and that they get what they read."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.schema.problems import SettingsError
from slipway.rehearse.cluster.services import Server
from slipway.rehearse.demo import opened_page
from slipway.rehearse.engine import Engine
from slipway.rehearse.output.outcome import Outcome
from slipway.rehearse.session import configure
from tests.support.checkout import ROOT
from tests.support.rehearsing import SMALL, log, rehearse_file, stack_file
from tests.support.tree import write_tree
from tests.support.wheels import pin, write_wheel

pytestmark = pytest.mark.slow

IMAGE = "example/site@sha256:" + "1" * 64


def pipeline(substitute: str) -> dict[str, Any]:
    program: dict[str, Any] = {"kind": "program", "port": 8000, "image": IMAGE}
    serve = "python -m http.server --bind 127.0.0.1"
    script = "pip --version; python -m pip --version; exec " + serve + " {port}"
    site = ["python3", "site_of_toys.py", "0.0.0.0:{port}", "{train}/model", "{data}", "{token}"]
    instead = ["python", "-c", substitute, "{port}", "{train}/model", "{token}", "{pipeline}"]
    return {
        "steps": {"train": {"run": ["python", "train.py", "{output}"]}},
        "apps": {
            "site": {
                **program,
                "run": site,
                "requirements": "tiny.txt",
                "secrets": {"KEY": "own-key"},
                "probe": {"path": "/ready"},
                "path": "/draw",
            },
            "odd": {
                **program,
                "run": ["no-such-server", "{port}", "{train}", "{token}"],
                "connects": ["site"],
                "rehearsal": {"run": instead},
            },
            "nowhere": {**program, "run": ["no-such-tool", "{port}"]},
            "shell": {**program, "run": ["sh", "-c", script]},
            "board": {"kind": "tensorboard", "step": "train"},
        },
    }


TRAIN = "import pathlib, shutil, sys\nout = pathlib.Path(sys.argv[1])\n(out / 'model').write_text('seven')\n"

SITE = """
import http.server, importlib.util, os, pathlib, signal, sys
import tiny
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
address, model, data, token = sys.argv[1:]
modules = [name for name in ("tensorflow", "pulumi", "tiny") if importlib.util.find_spec(name)]
print("finds", modules, "key", os.environ["KEY"], "token", len(token), token, flush=True)
pathlib.Path(data, "kept").touch()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" or token in self.path else 403)
        self.end_headers()
        self.wfile.write(pathlib.Path(model).read_bytes())
host, port = address.split(":")
http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
"""

SUBSTITUTE = """
import os, pathlib, socket, sys, time
port, model, token, pipeline = sys.argv[1:]
print("instead of", pathlib.Path(pipeline).name, pathlib.Path(model).read_text(), "token", len(token), flush=True)
print("site", os.environ["SITE_ADDRESS"], flush=True)
listening = socket.create_server(("127.0.0.1", int(port)))
while True:
    listening.accept()[0].close()
"""


def stack(folder: Path, *apps: str) -> Path:
    code, wheels = folder / "toy", folder / "wheels"
    wheels.mkdir()
    lock = pin("tiny", "1.0", write_wheel(wheels, "tiny", "1.0", {"tiny.py": b""}))
    declared = json.dumps(pipeline(SUBSTITUTE))
    write_tree(code, {"tiny.txt": lock, "train.py": TRAIN, "site_of_toys.py": SITE, "pipeline.yaml": declared})
    section = {"uses": str(code), "steps": {"train": SMALL}, "apps": dict.fromkeys(apps, SMALL)}
    secrets = {"own-key": {"secure": "v1:abc"}}
    return stack_file(folder / "stack.yaml", pipelines={"toy": section}, secrets=secrets)


@pytest.fixture
def rehearse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Outcome, str]]:
    def run(*apps: str, keep: Callable[[Engine], None]) -> tuple[Outcome, str]:
        monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
        return rehearse_file(tmp_path / "out", stack(tmp_path, *apps), keep=keep)

    return run


def by_name(engine: Engine) -> dict[str, Server]:
    return {server.record.name: server for server in engine.services.servers}


def test_an_app_has_its_code_its_lock_file_and_what_it_reads_and_nothing_else(
    tmp_path: Path, rehearse: Callable[..., tuple[Outcome, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, str] = {}
    # What a stack's secret is on this machine.
    monkeypatch.setenv("SLIPWAY_SECRET_OWN_KEY", "planted-key-of-the-app")

    def keep(engine: Engine) -> None:
        page = opened_page(by_name(engine)["toy-site"])
        assert page is not None
        assert page.has_token
        assert "/draw?token=" in page.url
        answers["page"] = urllib.request.urlopen(page.url, timeout=5).read().decode()

    outcome, printed = rehearse("site", "odd", keep=keep)
    assert outcome.exit_code == 0, printed
    assert answers["page"] == "seven"
    assert "finds ['tiny'] key [secret] token 32 [secret]\n" in log(tmp_path / "out", "toy-site")
    texts = [path.read_text(encoding="utf-8") for path in (tmp_path / "out" / "logs").iterdir()]
    texts += [printed, (tmp_path / "out" / "report.html").read_text(encoding="utf-8")]
    assert not [text for text in texts if "planted-key" in text]
    assert (tmp_path / "out" / "services" / "toy-site" / "data" / "kept").exists()
    assert "toy.odd runs `python -c" in printed or "toy.odd runs what stands in for `no-such-server`" in printed
    substitute = log(tmp_path / "out", "toy-odd")
    assert "instead of toy seven token 32\n" in substitute
    assert "site 127.0.0.1:" in substitute


def test_an_app_starts_in_a_folder_without_other_files(tmp_path: Path) -> None:
    written = """
steps: {hello: {run: "echo hi > {output}/a.txt"}}
apps: {files: {kind: program, port: 8000, run: [python, -m, http.server, "{port}", --directory, "{hello}"]}}
"""
    folder = write_tree(tmp_path / "web", {"pipeline.yaml": written})
    small = {"hello": SMALL}
    section = {"uses": str(folder), "steps": small, "apps": {"files": SMALL}}
    outcome, printed = rehearse_file(
        tmp_path / "out", stack_file(tmp_path / "stack.yaml", pipelines={"web": section}), keep=lambda _: None
    )
    assert outcome.exit_code == 0, printed


def test_a_shell_of_an_app_finds_pip_and_python_of_one_environment(
    tmp_path: Path, rehearse: Callable[..., tuple[Outcome, str]]
) -> None:
    outcome, printed = rehearse("shell", keep=lambda _: None)
    assert outcome.exit_code == 0, printed
    pip, of_python = [line for line in log(tmp_path / "out", "toy-shell").splitlines() if line.startswith("pip ")]
    assert pip == of_python
    assert "/build/environments/" in pip


def test_a_program_of_an_app_that_is_nowhere_is_refused_before_anything_runs(tmp_path: Path) -> None:
    file = stack(tmp_path, "nowhere")
    with pytest.raises(SettingsError) as error:
        configure("local", ROOT, file)
    (problem,) = error.value.problems
    assert problem.key == "slipway:pipelines.toy.apps.nowhere"
    assert problem.value == "no-such-tool"
    assert "app `toy.nowhere` runs it" in problem.reason


def test_tensorboard_shows_the_runs_in_the_store(
    tmp_path: Path, rehearse: Callable[..., tuple[Outcome, str]]
) -> None:
    shown: dict[str, Any] = {}

    def keep(engine: Engine) -> None:
        board = by_name(engine)["toy-board"]
        address = f"http://127.0.0.1:{next(iter(board.ports.values()))}"
        with urllib.request.urlopen(f"{address}/data/environment", timeout=5) as answer:
            shown["environment"] = json.load(answer)
        # A web site may have its own name lead here (DNS rebinding).
        request = urllib.request.Request(f"{address}/data/environment", headers={"Host": "attacker.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=5)
        shown["another site"] = refused.value.code

    outcome, printed = rehearse("board", keep=keep)
    assert outcome.exit_code == 0, printed
    assert shown["environment"]["data_location"].endswith("/out/store/toy/train")
    assert shown["another site"] == 421
    board_log = log(tmp_path / "out", "toy-board")
    assert "cpu_feature_guard" not in board_log, "it does without TensorFlow"
