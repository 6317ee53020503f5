"""The programs of apps in a rehearsal: what they find here, what stands in, and that they get what they read."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from infra.program import declare
from infra.schema.problems import SettingsError
from offline.rehearsal.cluster.services import Server
from offline.rehearsal.demo import opened
from offline.rehearsal.engine import Engine
from offline.rehearsal.output.outcome import Options, Outcome
from offline.rehearsal.session import Session, configure
from tests.offline.rehearsal.toy import ROOT
from tests.workloads.wheels import pin, write_wheel

pytestmark = pytest.mark.slow

PIPELINE = '''
from pydantic import Field

from infra.pipelines import tensorboard
from infra.pipelines.apps import AppDeclaration, AppSettings, KeptAppSettings
from infra.pipelines.contract import Pipeline, PipelineSettings, StepDeclaration, StepSettings
from infra.pipelines.pods import Command, Probe, Substitute

CODE = %(code)r
IMAGE = "example/site@sha256:" + "1" * 64
LOCK = %(lock)r


class Settings(PipelineSettings):
    """Tries apps."""

    train: StepSettings = Field(description="Trains.")
    site: KeptAppSettings | None = Field(default=None, description="A site.")
    odd: AppSettings | None = Field(default=None, description="A program that no machine has.")
    nowhere: AppSettings | None = Field(default=None, description="Another one, without a substitute.")
    board: AppSettings | None = Field(default=None, description="TensorBoard.")


def steps(settings: Settings) -> list[StepDeclaration]:
    run = ["python", "train.py", "{output}"]
    return [StepDeclaration("train", None, settings.train, run, command=Command(CODE))]


def apps(settings: Settings) -> list[AppDeclaration]:
    found = []
    if settings.site:
        found.append(
            AppDeclaration(
                "site", "Site", settings.site, 8000,
                ["python3", "site_of_toys.py", "0.0.0.0:{port}", "{train}/model", "{data}", "{token}"],
                command=Command(CODE), image=IMAGE, inputs={"train": "train"}, secrets={"KEY": "own-key"},
                requirements=LOCK, token=True, keeps_data=True, probe=Probe("/ready"), path="/draw",
            )
        )
    if settings.odd:
        found.append(
            AppDeclaration(
                "odd", "Odd", settings.odd, 8000, ["no-such-server", "{model}"], image=IMAGE,
                inputs={"model": "train"}, connects=["site"], token=True,
                substitute=Substitute(["python", "-c", %(substitute)r, "{port}", "{model}/model", "{token}"]),
            )
        )
    if settings.nowhere:
        found.append(AppDeclaration("nowhere", "Nowhere", settings.nowhere, 8000, ["no-such-tool"], image=IMAGE))
    if settings.board:
        found.append(tensorboard.declaration("board", settings.board, "train"))
    return found


PIPELINE = Pipeline(settings=Settings, steps=steps, apps=apps)
'''

TRAIN = "import pathlib, shutil, sys\nout = pathlib.Path(sys.argv[1])\n(out / 'model').write_text('seven')\n"

SITE = """
import http.server, importlib.util, os, pathlib, signal, sys
import tiny
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
address, model, data, token = sys.argv[1:]
there = [name for name in ("tensorflow", "pulumi", "tiny") if importlib.util.find_spec(name)]
print("finds", there, "key", os.environ["KEY"], "token", len(token), token, flush=True)
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
port, model, token = sys.argv[1:]
print("instead", pathlib.Path(model).read_text(), "token", len(token), os.environ["SITE_ADDRESS"], flush=True)
listening = socket.create_server(("127.0.0.1", int(port)))
while True:
    listening.accept()[0].close()
"""

SMALL = {"pool": "cpu", "cpu": "100m", "memory": "512Mi", "ephemeral_storage": "100Mi"}


def stack(folder: Path, *apps: str) -> Path:
    code, wheels = folder / "toy", folder / "wheels"
    for each in (code, wheels):
        each.mkdir()
    wheel = write_wheel(wheels, "tiny", "1.0", {"tiny.py": b""})
    (code / "tiny.txt").write_text(pin("tiny", "1.0", wheel), encoding="utf-8")
    (code / "train.py").write_text(TRAIN, encoding="utf-8")
    (code / "site_of_toys.py").write_text(SITE, encoding="utf-8")
    written = PIPELINE % {"code": str(code), "lock": str(code / "tiny.txt"), "substitute": SUBSTITUTE}
    (code / "pipeline.py").write_text(written, encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load((ROOT / "stacks" / "Pulumi.local.yaml").read_text(encoding="utf-8"))
    section: Mapping[str, Any] = {"uses": str(code), **dict.fromkeys(("train", *apps), SMALL)}
    content["config"]["slipway:pipelines"] = {"toy": section}
    content["config"]["slipway:secrets"] = {"own-key": {"secure": "v1:abc"}}
    file = folder / "stack.yaml"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


@pytest.fixture
def rehearse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Outcome, str]]:
    def run(*apps: str, keep: Callable[[Engine], None] | None = None) -> tuple[Outcome, str]:
        file = stack(tmp_path, *apps)
        monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
        console = Console(record=True, width=200, highlight=False)
        options = Options("local", ROOT, tmp_path / "out", file)
        outcome = Session(declare, configure("local", ROOT, file), options, console, keep).run()
        return outcome, console.export_text()

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
        page = opened(by_name(engine)["toy-site"])
        assert page is not None
        assert page.has_token
        assert "/draw?token=" in page.url
        answers["page"] = urllib.request.urlopen(page.url, timeout=5).read().decode()

    outcome, printed = rehearse("site", "odd", keep=keep)
    assert outcome.exit_code == 0, printed
    assert answers["page"] == "seven"
    log = (tmp_path / "out" / "logs" / "toy-site.log").read_text(encoding="utf-8")
    assert "finds ['tiny'] key [secret] token 32 [secret]\n" in log
    texts = [path.read_text(encoding="utf-8") for path in (tmp_path / "out" / "logs").iterdir()]
    texts += [printed, (tmp_path / "out" / "report.html").read_text(encoding="utf-8")]
    assert not [text for text in texts if "planted-key" in text]
    assert (tmp_path / "out" / "services" / "toy-site" / "data" / "kept").exists()
    assert "toy.odd runs `python -c" in printed or "toy.odd runs what stands in for `no-such-server`" in printed
    instead = (tmp_path / "out" / "logs" / "toy-odd.log").read_text(encoding="utf-8")
    assert "instead seven token 32 127.0.0.1:" in instead


def test_a_program_of_an_app_that_is_nowhere_is_refused_before_anything_runs(tmp_path: Path) -> None:
    file = stack(tmp_path, "nowhere")
    with pytest.raises(SettingsError) as error:
        configure("local", ROOT, file)
    (problem,) = error.value.problems
    assert problem.key == "slipway:pipelines.toy.nowhere"
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
        asked = urllib.request.Request(f"{address}/data/environment", headers={"Host": "attacker.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=5)
        shown["another site"] = refused.value.code

    outcome, printed = rehearse("board", keep=keep)
    assert outcome.exit_code == 0, printed
    assert shown["environment"]["data_location"].endswith("/out/store/toy/train")
    assert shown["another site"] == 421
    log = (tmp_path / "out" / "logs" / "toy-board.log").read_text(encoding="utf-8")
    assert "cpu_feature_guard" not in log, "it does without TensorFlow"
