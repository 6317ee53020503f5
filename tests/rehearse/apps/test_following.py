"""Apps of a rehearsal that read the best of a sweep, or the newest good run."""

import shutil
import urllib.request
from pathlib import Path

import pytest

from slipway.rehearse.engine import Engine
from slipway.runtime.apps import newest
from tests.support.rehearsing import SMALL, rehearse_file, stack_file, wait_until
from tests.support.tree import write_tree

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
  look:
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


def answer(engine: Engine, name: str) -> str:
    """What the app says; nothing where it does not answer."""
    (server,) = [server for server in engine.services.servers if server.record.name == name]
    (port,) = server.ports.values()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=5) as response:
            return response.read().decode()
    except OSError:
        return ""


def test_an_app_reads_the_best_and_another_the_newest_run(tmp_path: Path) -> None:
    programs = {"train.py": TRAIN, "judge.py": JUDGE, "ask.py": ASK, "pipeline.yaml": PIPELINE}
    code = write_tree(tmp_path / "toy", programs)
    apps = {"sweep": SMALL, "look": {**SMALL, "follow": "newest"}}
    section = {"uses": str(code), "steps": {"train": SMALL, "judge": SMALL}, "apps": apps}

    def keep(engine: Engine) -> None:
        assert answer(engine, "toy-sweep") == '{"score": 2}'
        assert answer(engine, "toy-look") == "good"
        # A night, as the Jobs of a schedule leave it.
        store = tmp_path / "out" / "store"
        runs = store / "toy/newest/runs.json"
        (earlier,) = newest.read(runs)
        steps = {name: f"{path}-20261122-0300" for name, path in earlier.steps.items()}
        for name, path in steps.items():
            shutil.copytree(store / earlier.steps[name], store / path)
        (store / steps["judge"] / "verdict").write_text("best")
        newest.write(runs, [newest.GoodRun("20261122-0300", earlier.published, steps), earlier])
        wait_until(lambda: answer(engine, "toy-look") == "best")

    file = stack_file(tmp_path / "stack.yaml", pipelines={"toy": section})
    outcome, printed = rehearse_file(tmp_path / "out", file, keep=keep)
    assert outcome.exit_code == 0, printed

    # From here on pods write the list of runs over one that is there.
    write_tree(code, {"judge.py": JUDGE.replace("good", "better")})
    outcome, printed = rehearse_file(tmp_path / "out", file)
    assert outcome.exit_code == 0, printed
    assert len(newest.read(tmp_path / "out/store/toy/newest/runs.json")) == 3
