"""Apps of a rehearsal that read the best of a sweep, or the newest good run."""

import json
import shutil
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from infra.program import declare
from offline.rehearsal.engine import Engine
from offline.rehearsal.output.outcome import Options, Outcome
from offline.rehearsal.session import Session, configure
from tests.offline.rehearsal.toy import ROOT
from workloads.runtime.apps import newest

pytestmark = pytest.mark.slow

PIPELINE = """
description: Trains two, and shows the better one.
parameters:
  rate: {type: integer, default: 1}
steps:
  train:
    run: [python, train.py, "{output}", "{rate}"]
    matrix: {rate: [1, 2]}
    best: {by: score}
    results:
      score: {number: "numbers.json#/score"}
  judge:
    run: [python, judge.py, "{train}", "{output}"]
apps:
  sweep:
    kind: program
    run: [python, ask.py, "{port}", "{train}/numbers.json"]
    port: 8080
  newest:
    kind: program
    run: [python, ask.py, "{port}", "{judge}/verdict"]
    port: 8080
"""
TRAIN = """
import json, pathlib, sys
(pathlib.Path(sys.argv[1]) / "numbers.json").write_text(json.dumps({"score": int(sys.argv[2])}))
"""
JUDGE = """
import pathlib, sys
(pathlib.Path(sys.argv[2]) / "verdict").write_text("good")
"""
ASK = """
import http.server, pathlib, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(pathlib.Path(sys.argv[2]).read_bytes())
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
SMALL = {"pool": "cpu", "cpu": "100m", "memory": "512Mi", "ephemeral_storage": "100Mi"}


@pytest.fixture
def rehearse(tmp_path: Path) -> Callable[..., tuple[Outcome, str]]:
    def run(apps: dict[str, Any], keep: Callable[[Engine], None]) -> tuple[Outcome, str]:
        code = tmp_path / "toy"
        code.mkdir()
        for name, content in (("train", TRAIN), ("judge", JUDGE), ("ask", ASK)):
            (code / f"{name}.py").write_text(content)
        (code / "pipeline.yaml").write_text(PIPELINE.replace("  newest:\n", "  look:\n"))
        content = yaml.safe_load((ROOT / "stacks" / "Pulumi.local.yaml").read_text(encoding="utf-8"))
        section = {"uses": str(code), "steps": {"train": SMALL, "judge": SMALL}, "apps": apps}
        content["config"]["slipway:pipelines"] = {"toy": section}
        file = tmp_path / "stack.yaml"
        file.write_text(json.dumps(content), encoding="utf-8")
        console = Console(record=True, width=200, highlight=False)
        options = Options("local", ROOT, tmp_path / "out", file)
        outcome = Session(declare, configure("local", ROOT, file), options, console, keep).run()
        return outcome, console.export_text()

    return run


def asked(engine: Engine, name: str) -> str:
    (server,) = [each for each in engine.services.servers if each.record.name == name]
    (port,) = server.ports.values()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=5) as answer:
        return answer.read().decode()


def eventually(ask: Callable[[], str], wanted: str, within: float = 40) -> None:
    began, found = time.monotonic(), ""
    while time.monotonic() - began < within:
        try:
            found = ask()
        except OSError:
            found = "nobody answers"
        if found == wanted:
            return
        time.sleep(0.2)
    raise AssertionError(f"{found!r} is not {wanted!r}")


def test_an_app_reads_the_best_and_another_the_newest_run(
    tmp_path: Path, rehearse: Callable[..., tuple[Outcome, str]]
) -> None:
    def keep(engine: Engine) -> None:
        assert asked(engine, "toy-sweep") == '{"score": 2}'
        assert asked(engine, "toy-look") == "good"
        # A night, as the Jobs of a schedule leave it.
        store = tmp_path / "out" / "store"
        runs = store / "toy/newest/runs.json"
        (earlier,) = newest.read(runs)
        steps = {name: f"{path}-20261122-0300" for name, path in earlier.steps.items()}
        for name, path in steps.items():
            shutil.copytree(store / earlier.steps[name], store / path)
        verdict = store / steps["judge"]
        (verdict / "verdict").write_text("best")
        noted = newest.GoodRun("20261122-0300", earlier.published, steps)
        newest.write(runs, [noted, earlier])
        eventually(lambda: asked(engine, "toy-look"), "best")

    outcome, printed = rehearse({"sweep": SMALL, "look": {**SMALL, "follow": "newest"}}, keep)
    assert outcome.exit_code == 0, printed
