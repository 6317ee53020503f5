"""``make show runs`` and ``make show compare``: rehearsals, and a stack that is up behind real tar."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from slipway.command.app import app
from slipway.command.watch.plan import Expected, Plan, PlanError
from slipway.features.history import document as documents
from slipway.features.history import live
from slipway.features.history.comparison import Difference, History, HistoryError, compare, pairs
from slipway.features.history.listing import print_runs
from slipway.features.history.live import rehearsed
from slipway.features.history.results import results
from slipway.infra.review.stack import Resource, Stack
from slipway.runtime.usage.limits import RUN, Reached
from tests.command.test_show import KUBECTL, READER
from tests.support.rehearsing import SMALL, pipeline_folder, recording_console, rehearse_file, stack_file
from tests.support.stores import add_result

TRAIN = """
import json, pathlib, sys
rate, output = float(sys.argv[2]), pathlib.Path(sys.argv[4])
output.joinpath("metrics.json").write_text(json.dumps({"loss": rate * len(sys.argv[1])}))
"""
STEPS: Mapping[str, Any] = {
    "prepare": {"run": ["python", "prepare.py", "{output}"]},
    "train": {
        "run": ["python", "train.py", "{prepare}", "{rate}", "--output", "{output}"],
        "results": {"loss": "metrics.json#/loss"},
    },
}


def differences(history: History, first: str, second: str) -> dict[str, Difference]:
    return {
        difference.what: difference
        for one, other in pairs(history, first, second)
        for difference in compare(history, one, other)
    }


def test_two_rehearsals_differ_in_what_was_changed(tmp_path: Path) -> None:
    folder = pipeline_folder(
        tmp_path / "toy",
        {"prepare.py": "import sys; open(sys.argv[1] + '/rows', 'w').write('1')", "train.py": TRAIN},
        parameters={"rate": {"type": "number", "default": 0.5}},
        steps=STEPS,
    )
    section = {"uses": folder, "steps": dict.fromkeys(STEPS, SMALL)}
    for rate, more in ((0.5, ""), (0.25, "# what the program does is as before\n")):
        (tmp_path / "toy" / "train.py").write_text(more + TRAIN)
        file = stack_file(tmp_path / "stack.yaml", pipelines={"toy": {**section, "rate": rate}})
        outcome, printed = rehearse_file(tmp_path / "out", file)
        assert outcome.exit_code == 0, printed
    history = rehearsed(tmp_path / "out", "local", tmp_path)
    after, before = (result for result in history.results if result.step == "train")
    assert after.facts["stack"] == "local"
    assert after.seconds is not None
    assert before.facts["pool"] == "cpu"
    seen = differences(history, before.path, f"train/{after.digest[:6]}")
    assert (seen["word 3"].one, seen["word 3"].other) == ("0.5", "0.25")
    assert seen["code"].other == "train.py"
    assert float(seen["loss"].change) < 0
    assert "input prepare" not in seen, "the step before was not run again"
    with pytest.raises(HistoryError, match="different steps"):
        pairs(history, "prepare/", after.path)
    with pytest.raises(HistoryError, match="no result"):
        history.find("20261122-0300")


PULUMI = """#!{python}
import pathlib, sys
print((pathlib.Path({folder!r}) / (sys.argv[2] + ".json")).read_text())
"""


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def job(name: str, pipeline: str, step: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    return {
        "type": "kubernetes:batch/v1:Job",
        "urn": f"urn:pulumi:local::slipway::kubernetes:batch/v1:Job::{name}",
        "id": f"slipway/{name}-1",
        "provider": "urn:pulumi:local::slipway::pulumi:providers:kubernetes::local::1",
        "inputs": {
            "metadata": {
                "labels": {"app.kubernetes.io/name": pipeline, "app.kubernetes.io/component": step},
                "annotations": dict(annotations),
            }
        },
    }


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack that is up, whose claim is a folder, with two nights and the run of `pulumi up` before them."""
    store = tmp_path / "store"
    for name, day, loss in (
        ("aaaaaaaaaa", "2026-11-20T12:30:00", 0.5),
        ("aaaaaaaaaa-20261121-0300", "2026-11-21T03:10:00", 0.4),
        ("bbbbbbbbbb-20261122-0300", "2026-11-22T03:10:00", 0.3),
    ):
        data = add_result(store, f"shop/prepare/{name}", {"rows.json": [day]}, made=moment(day) - 60)
        command = ["python", "train.py", "--rate", "0.1" if name.startswith("a") else "0.2"]
        add_result(
            store,
            f"shop/train/{name}",
            {"metrics.json": {"loss": loss}, "model.bin": 1},
            made=moment(day),
            inputs={"prepare": data},
            settings={"command": command},
        )
    declared = [{"kind": "number", "name": "loss", "title": "loss", "path": "metrics.json", "select": "/loss"}]
    provider = {
        "type": "pulumi:providers:kubernetes",
        "urn": "urn:pulumi:local::slipway::pulumi:providers:kubernetes::local",
        "inputs": {"kubeconfig": "apiVersion: v1"},
    }
    gate = job("store-gate-local", "store-gate", "local", {})
    train = job("shop-train", "shop", "train", {"slipway/results": json.dumps(declared)})
    (tmp_path / "export.json").write_text(json.dumps({"deployment": {"resources": [provider, gate, train]}}))
    updates = [
        ("update", 3, "2026-11-21T09:00:00.000Z", {"git.head": "c" * 40, "git.dirty": "true"}),
        ("refresh", 2, "2026-11-20T13:00:00.000Z", {"git.head": "d" * 40}),
        ("update", 1, "2026-11-20T12:00:00.000Z", {"git.head": "e" * 40}),
    ]
    keys = ("kind", "version", "startTime", "environment")
    noted = [dict(zip(keys, update, strict=True)) for update in updates]
    (tmp_path / "history.json").write_text(json.dumps(noted))
    kept = [
        {
            "metadata": {
                "annotations": {
                    "slipway/run": f"shop/train/{name}",
                    "slipway/data": json.dumps({"images": ["gs://team-data/images", digest * 64]}),
                }
            },
            "spec": {"template": {"spec": {"containers": [{"image": "example/image@sha256:1"}]}}},
            "status": {"startTime": f"{day}T03:00:00Z", "completionTime": f"{day}T03:10:00Z"},
        }
        for name, day, digest in (
            ("aaaaaaaaaa-20261121-0300", "2026-11-21", "1"),
            ("bbbbbbbbbb-20261122-0300", "2026-11-22", "2"),
        )
    ]
    (tmp_path / "jobs.json").write_text(json.dumps({"items": kept}))
    (tmp_path / "job.json").write_text(json.dumps(READER))
    listing = 'if words[:2] == ["get", "jobs"]:\n    print((folder / "jobs.json").read_text())\nelif words[:2]'
    (tmp_path / "bin").mkdir()
    for name, text in (("kubectl", KUBECTL.replace("if words[:2]", listing, 1)), ("pulumi", PULUMI)):
        program = tmp_path / "bin" / name
        program.write_text(text.format(python=sys.executable, folder=str(tmp_path)))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def not_evaluated(stack: str, root: Path) -> None:
        raise PlanError(f"{stack} in {root}")

    monkeypatch.setattr(live, "evaluate", not_evaluated)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["show", "--stack", "local", *words])


def test_without_kubectl_runs_are_refused_in_one_line(up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (up / "bin/kubectl").unlink()
    monkeypatch.setenv("PATH", str(up / "bin"))
    result = run("runs")
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    (line,) = result.stderr.splitlines()
    assert "kubectl is not on PATH" in line


def test_of_a_rehearsal_the_ways_are_named_that_read_it() -> None:
    result = CliRunner().invoke(app, ["show", "--stack", "local", "--rehearsal", "predictions"])
    assert result.exit_code == 2
    assert "`make show STACK=local REHEARSAL=1 runs`" in result.stderr


def test_a_stack_that_is_up_shows_its_runs_and_those_by_the_clock(up: Path) -> None:
    with live.history_of("local", up) as history:
        facts = {result.path: result.facts for result in history.results if result.step == "train"}
        numbers = {result.path: history.numbers(result) for result in history.results if result.step == "train"}
        night = history.find("20261122-0300")
        assert not list(history.store.rglob("model.bin")), "only what the history is in was copied"
    commits = {
        path.rpartition("/")[2]: (of["commit"][:1], of["changed"], of["update"]) for path, of in facts.items()
    }
    assert commits == {
        "aaaaaaaaaa": ("e", False, 1),
        "aaaaaaaaaa-20261121-0300": ("e", False, 1),
        "bbbbbbbbbb-20261122-0300": ("c", True, 3),
    }
    assert [of["loss"] for of in numbers.values()] == [0.3, 0.4, 0.5]
    assert {result.step: result.seconds for result in night} == {"train": 600.0, "prepare": None}
    calls = [json.loads(line) for line in (up / "calls").read_text().splitlines()]
    assert calls[-1][calls[-1].index("slipway") + 1] == "delete", "the pod goes again"


def test_two_nights_are_compared_step_by_step_with_their_inputs(up: Path) -> None:
    done = run("compare", "20261121-0300", "20261122-0300")
    assert done.exit_code == 0, done.output
    with live.history_of("local", up) as history:
        seen = differences(history, "20261121-0300", "20261122-0300")
    assert (seen["--rate"].one, seen["--rate"].other) == ("0.1", "0.2")
    assert (seen["loss"].one, seen["loss"].other, seen["loss"].change) == ("0.4", "0.3", "-0.1")
    assert seen["commit"].other.startswith("c" * 10)
    assert seen["commit"].other != "c" * 10, "files differed from the commit"
    assert seen["input prepare"].other == "shop/prepare/bbbbbbbbbb-20261122-0300"
    assert [seen["data images"].one[-1], seen["data images"].other[-1]] == ["1", "2"], "the bucket's files changed"
    assert all(text in done.output for text in ("--rate", "0.1", "0.2", "shop/prepare", "shop/train"))
    wrong = run("compare", "20261121-0300", "aaaaaaaaaa-2026")
    assert wrong.exit_code == 1
    assert "shop/prepare/aaaaaaaaaa-20261121-0300" in " ".join(wrong.output.split())


def test_a_run_that_a_limit_ended_is_named_with_the_money_until_it_goes_on(tmp_path: Path) -> None:
    usage, path = tmp_path / ".usage", "shop/train/cccccccccc"
    limit = Reached(RUN, "words", 40.02, 40.0).record()
    ended = {"began": "2026-11-26T15:00:00+00:00", "seconds": 3600.0, "done": False, "limit": limit}
    for file in (f"{path}/0.json", ".months/dev/2026-11/s-0.json"):
        (usage / file).parent.mkdir(parents=True)
        (usage / file).write_text(json.dumps(ended))
    (usage / path / "1.json").write_text(json.dumps({**ended, "limit": {}}))

    def history() -> History:
        return History(tmp_path, results(tmp_path), tmp_path, {})

    console = recording_console()
    print_runs(console, history())
    assert f"{path}: ended by the budget: $40.02 of $40.00, 2026-11-26 16:00 UTC" in console.export_text()
    (stopped,) = documents.runs("dev", history()).unfinished
    assert (stopped.run, stopped.kind, stopped.dollars, stopped.limit) == (path, "run", 40.02, 40.0)
    assert "budget.run" in stopped.fix
    with pytest.raises(HistoryError, match="no result"):
        print_runs(console, history(), "shop/prepare")
    with pytest.raises(HistoryError, match=r"\$40\.02 of \$40\.00"):
        history().find("cccccccccc")
    # A later pod of the same place has a record of its own.
    later = {"began": "2026-11-26T17:00:00+00:00", "seconds": 60.0, "done": True, "before": [ended]}
    (usage / path / "0.json").write_text(json.dumps(later))
    assert history().unfinished == []
    for name in ("aaaaaaaaaa", "cccccccccc"):
        add_result(tmp_path, f"shop/train/{name}", {"metrics.json": {"loss": 0.2}}, made=1796000000.0)
    stops = differences(history(), "shop/train/aaaaaaaaaa", path)["stopped before"]
    assert (stops.one, stops.other) == ("never", "ended by the budget: $40.02 of $40.00")


def declare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the program declare the stack, with a step that trains."""
    metadata = {
        "name": "shop-train-bbbbbbbbbb",
        "namespace": "slipway",
        "labels": {"app.kubernetes.io/name": "shop", "app.kubernetes.io/component": "train"},
        "annotations": {"slipway/run": "shop/train/bbbbbbbbbb"},
    }
    train = Resource("urn:train", "kubernetes:batch/v1:Job", "shop-train", {"metadata": metadata, "spec": {}})
    stack = Stack("local", {train.urn: train})

    def evaluate(*_: object) -> Stack:
        return stack

    monkeypatch.setattr(live, "evaluate", evaluate)


def test_pool_and_price_are_those_of_the_step_as_it_is_declared(up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Expected("shop-train", "shop-train-bbbbbbbbbb", "shop", "train", "local", "slipway", "t4", 2, rate=3.0)
    declare(monkeypatch)

    def planned(_: Stack) -> Plan:
        return Plan("local", [step], [])

    monkeypatch.setattr(live, "plan_of", planned)
    with live.history_of("local", up) as history:
        facts = {result.path: result.facts for result in history.results}
        night = next(result for result in history.results if result.path.endswith("bbbbbbbbbb-20261122-0300"))
    assert (facts[night.path]["rate"], night.dollars) == (3.0, 1.0), "two pods for ten minutes"
    assert "rate" not in facts["shop/train/aaaaaaaaaa"], "an older one may have run elsewhere"
    near, far = (replace(step, pool=pool, rate=rate, kept=60.0) for pool, rate in (("near", 3.0), ("far", None)))
    step = replace(step, places=[near, far])
    with live.history_of("local", up) as history:
        (moved,) = (result.facts for result in history.results if result.path == night.path)
    assert moved["pools"] == {"near": {"rate": 3.0, "kept": 60.0}, "far": {"kept": 60.0}}
