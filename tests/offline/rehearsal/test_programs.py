"""Steps with a program of their own in a rehearsal: what they find here, what stands in, and what is refused."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from infra.program import declare
from infra.schema.problems import Problem, SettingsError
from offline.rehearsal import session
from offline.rehearsal.machine.programs import search_path
from offline.rehearsal.output.outcome import Configuration, Options, Outcome
from offline.rehearsal.session import Session, configure
from tests.offline.rehearsal.toy import ROOT
from tests.workloads.wheels import pin, write_wheel

IMAGE = "registry.example.com/r@sha256:" + "0" * 64
PLANTED = "hunter2-planted"

PREPARE = """
import json, pathlib, sys
import shout
pathlib.Path(sys.argv[1], "data.json").write_text(json.dumps({"said": shout.WORD}))
"""
TRAIN = """
import importlib.util, json, os, pathlib, sys
data, rate, output = sys.argv[1:]
print("key is", os.environ["KEY"])
print("there:", [name for name in ("tensorflow", "pulumi", "shout", "tiny") if importlib.util.find_spec(name)])
pathlib.Path(output, "metrics.json").write_text(json.dumps({"score": float(rate)}))
"""
SHOUT = b"""
import pathlib, sys
WORD = "hello"
def main():
    print("best is", sys.argv[1])
    pathlib.Path(sys.argv[2], "said").touch()
"""
STEPS: Mapping[str, Any] = {
    "prepare": {"run": ["python", "prepare.py", "{output}"], "requirements": "requirements.txt"},
    "train": {
        "run": ["no-such-r", "train.R", "{prepare}", "{rate}", "{output}"],
        "image": IMAGE,
        "matrix": {"rate": [0.2, 0.1]},
        "best": {"by": "score"},
        "results": {"score": "metrics.json#/score"},
        "secrets": {"KEY": "own-key"},
        "rehearsal": {"run": ["python", "train.py", "{prepare}", "{rate}", "{output}"], "requirements": "own.txt"},
    },
    "report": {"run": ["shout", "{train}", "{output}"], "requirements": "requirements.txt"},
}
FAILING: Mapping[str, Any] = {
    "forgot": {"run": ["python", "-c", "import shout"]},
    "absent": {"run": ["no-such-tool", "{output}"], "requirements": "requirements.txt"},
    "unhashed": {"run": ["python", "-V"], "image": IMAGE, "rehearsal": {"requirements": "broken.txt"}},
    "lost": {"run": ["python", "-c", "print(1)", "{output}"], "results": {"score": "metrics.json#/score"}},
}


def pipeline(folder: Path, name: str, steps: Mapping[str, Any], locks: Mapping[str, str]) -> str:
    """Writes a pipeline; returns its folder."""
    made = folder / name
    made.mkdir(parents=True)
    for file, text in {"prepare.py": PREPARE, "train.py": TRAIN, **locks}.items():
        (made / file).write_text(text, encoding="utf-8")
    rate = {"type": "number", "default": 0.5}
    declared = {"description": "A toy.", "parameters": {"rate": rate}, "steps": steps}
    (made / "pipeline.yaml").write_text(yaml.safe_dump(declared, sort_keys=False), encoding="utf-8")
    return str(made)


def lock_files(folder: Path) -> Mapping[str, str]:
    """Writes the wheels of what the lock files pin; returns these."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    entry = b"[console_scripts]\nshout = shout:main\n"
    shout = write_wheel(wheels, "shout", "1.0", {"shout.py": SHOUT, "shout-1.0.dist-info/entry_points.txt": entry})
    tiny = write_wheel(wheels, "tiny", "1.0", {"tiny.py": b""})
    return {
        "requirements.txt": pin("shout", "1.0", shout),
        "own.txt": pin("tiny", "1.0", tiny),
        "broken.txt": f"tiny==1.0 --hash=sha256:{'0' * 64}\n",
    }


def stack(folder: Path, pipelines: Mapping[str, Mapping[str, Any]], **settings: Any) -> Path:
    """The stack file of `local` with these pipelines, whose steps all run on its pool."""
    content = yaml.safe_load((ROOT / "stacks" / "Pulumi.local.yaml").read_text(encoding="utf-8"))
    small = {"pool": "cpu", "cpu": "100m", "memory": "512Mi", "ephemeral_storage": "100Mi"}
    locks = lock_files(folder)
    content["config"]["slipway:pipelines"] = {
        name: {"uses": pipeline(folder, name, steps, locks), "steps": dict.fromkeys(steps, small)}
        for name, steps in pipelines.items()
    }
    content["config"].update({f"slipway:{key}": value for key, value in settings.items()})
    file = folder / "stack.yaml"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def refused(file: Path) -> list[Problem]:
    with pytest.raises(SettingsError) as error:
        configure("local", ROOT, file)
    return list(error.value.problems)


SECRETS = {"own-key": {"secure": "v1:abc"}}


def test_programs_that_are_not_here_are_refused_with_all_other_problems(tmp_path: Path) -> None:
    steps = {
        "train": {"run": ["no-such-r", "{rate}", "{output}"], "image": IMAGE, "matrix": {"rate": [0.1, 0.2]}},
        "plot": {"run": ["/opt/no-such/plot", "{train}"], "image": IMAGE},
        "draw": {"run": ["no-such-r"], "image": IMAGE, "rehearsal": {"run": ["no-such-julia"]}},
        "here": {"run": ["sh", "-c", "true"]},
    }
    found = refused(stack(tmp_path, {"toy": steps}))
    file = f"{tmp_path}/toy/pipeline.yaml"
    assert [(each.key, each.value) for each in found] == [
        (f"{file}: steps.train.run", "no-such-r"),
        (f"{file}: steps.plot.run", "/opt/no-such/plot"),
        (f"{file}: steps.draw.run", "no-such-julia"),
    ]
    assert "step `toy.train` runs it" in found[0].reason
    assert "rehearsal: {run:" in found[0].fix
    content = yaml.safe_load((tmp_path / "stack.yaml").read_text(encoding="utf-8"))
    content["config"]["slipway:service_account"] = 5
    (tmp_path / "stack.yaml").write_text(json.dumps(content), encoding="utf-8")
    keys = {each.key for each in refused(tmp_path / "stack.yaml")}
    assert {"slipway:service_account", found[0].key, found[1].key} <= keys


def configured(tmp_path: Path, steps: Mapping[str, Any], **settings: Any) -> Configuration:
    return configure("local", ROOT, stack(tmp_path, {"toy": steps}, **settings))


def with_service(folder: Path, **service: Any) -> Path:
    """A stack with a pipeline of one step, which connects to a service."""
    file = stack(folder, {"toy": {"ask": {"run": ["sh", "-c", "true"], "connects": ["cache"]}}})
    declared = folder / "toy" / "pipeline.yaml"
    content = yaml.safe_load(declared.read_text(encoding="utf-8"))
    content["services"] = {"cache": {"image": IMAGE, "port": 7000, **service}}
    declared.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings["config"]["slipway:pipelines"]["toy"]["services"] = {"cache": {"pool": "cpu"}}
    file.write_text(json.dumps(settings), encoding="utf-8")
    return file


def test_the_program_of_a_service_is_looked_for_like_that_of_a_step(tmp_path: Path) -> None:
    (problem,) = refused(with_service(tmp_path / "a", run=["no-such-server", "{port}"]))
    assert problem.key == f"{tmp_path}/a/toy/pipeline.yaml: services.cache.run"
    assert problem.value == "no-such-server"
    assert "service `toy.cache` runs it" in problem.reason
    assert "`rehearsal: {run: [python, …]}` of the service" in problem.fix
    instead = {"run": ["python", "-m", "http.server", "{port}", "--bind", "0.0.0.0", "--directory", "{data}"]}
    found = configure(
        "local", ROOT, with_service(tmp_path / "b", run=["no-such-server", "{port}"], rehearsal=instead)
    )
    (remark,) = [each for each in found.remarks if "toy.cache" in each]
    assert "`python -m http.server 7000 --bind 0.0.0.0 --directory /data` in place of `no-such-server" in remark


def test_what_a_pipeline_says_instead_runs_and_is_said(tmp_path: Path) -> None:
    found = configured(tmp_path, {"prepare": STEPS["prepare"], "train": STEPS["train"]}, secrets=SECRETS)
    (remark,) = [each for each in found.remarks if "toy.train" in each]
    assert re.search(r"toy\.train runs `python train\.py .* 0\.2 .*` in place of `no-such-r train\.R", remark)
    assert "not on this machine" in remark


def test_a_program_that_a_lock_file_may_bring_is_not_refused(tmp_path: Path) -> None:
    assert not configured(tmp_path, {"report": {**STEPS["report"], "run": ["shout"]}}).remarks


def test_programs_are_not_looked_for_in_virtual_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("venv", "plain"):
        (tmp_path / name / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    places = [str(tmp_path / name / "bin") for name in ("venv", "plain")]
    monkeypatch.setenv("PATH", os.pathsep.join([*places, "relative"]))
    assert search_path()[0] == places[1]
    assert places[0] not in search_path()
    assert "/usr/bin" in search_path()


def test_secrets_are_placeholders_unless_the_environment_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {"prepare": STEPS["prepare"], "train": STEPS["train"]}
    remarks = configured(tmp_path / "a", steps, secrets=SECRETS).remarks
    assert any("slipway:secrets.own-key" in remark and "SLIPWAY_SECRET_OWN_KEY" in remark for remark in remarks)
    monkeypatch.setenv("SLIPWAY_SECRET_OWN_KEY", PLANTED)
    found = configured(tmp_path / "b", steps, secrets=SECRETS)
    assert any("SLIPWAY_SECRET_OWN_KEY" in remark for remark in found.remarks)
    assert PLANTED not in repr(found)
    assert PLANTED not in json.dumps(found.values)


def test_the_environment_alone_may_have_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"prepare": STEPS["prepare"], "train": STEPS["train"]}
    with pytest.raises(SettingsError, match="for a rehearsal alone, set SLIPWAY_SECRET_OWN_KEY"):
        configured(tmp_path / "a", steps)
    monkeypatch.setenv("SLIPWAY_SECRET_OWN_KEY", PLANTED)
    found = configured(tmp_path / "b", steps)
    assert "secret own-key has the value of SLIPWAY_SECRET_OWN_KEY" in found.remarks
    assert PLANTED not in repr(found)
    assert PLANTED not in json.dumps(found.values)


def test_the_environment_alone_may_have_the_webhook_of_a_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = stack(tmp_path, {"toy": {"ask": {"run": ["sh", "-c", "true"]}}})
    settings = json.loads(file.read_text(encoding="utf-8"))
    schedule = {"cron": "0 3 * * *", "notify": {"secret": "chat"}}
    settings["config"]["slipway:pipelines"]["toy"]["schedule"] = schedule
    file.write_text(json.dumps(settings), encoding="utf-8")
    assert any("secret chat is not set" in remark for remark in configure("local", ROOT, file).remarks)
    monkeypatch.setenv("SLIPWAY_SECRET_CHAT", "https://chat.example/hook")

    found = configure("local", ROOT, file)

    assert "secret chat has the value of SLIPWAY_SECRET_CHAT" in found.remarks


def test_a_webhook_that_a_program_reads_too_is_asked_for(tmp_path: Path) -> None:
    ask = {"run": ["sh", "-c", "true"], "secrets": {"KEY": "chat"}}
    file = stack(tmp_path, {"toy": {"ask": ask}})
    settings = json.loads(file.read_text(encoding="utf-8"))
    schedule = {"cron": "0 3 * * *", "notify": {"secret": "chat"}}
    settings["config"]["slipway:pipelines"]["toy"]["schedule"] = schedule
    file.write_text(json.dumps(settings), encoding="utf-8")
    (problem,) = refused(file)
    assert (problem.key, "SLIPWAY_SECRET_CHAT" in problem.fix) == ("slipway:secrets.chat", True)


def rehearse(folder: Path, file: Path) -> tuple[Outcome, str]:
    console = Console(record=True, width=200, highlight=False, quiet=False, file=(folder / "printed").open("w"))
    options = Options("local", ROOT, folder / "out", config_file=file)
    return Session(declare, configure("local", ROOT, file), options, console).run(), console.export_text()


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome, str]:
    """A folder in which a pipeline that is right and one that fails were rehearsed, and what was printed."""
    folder = tmp_path_factory.mktemp("programs")
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {
            "UV_NO_INDEX": "1",
            "UV_FIND_LINKS": str(folder / "wheels"),
            "UV_CACHE_DIR": str(folder / "cache"),
            "SLIPWAY_SECRET_OWN_KEY": PLANTED,
        }.items():
            patched.setenv(name, value)
        patched.setattr(session, "ENVIRONMENTS", folder / "build" / "environments")
        file = stack(folder, {"toy": STEPS, "failing": FAILING}, secrets=SECRETS)
        outcome, printed = rehearse(folder, file)
    return folder, outcome, printed


def log(rehearsed: tuple[Path, Outcome, str], job: str) -> str:
    return (rehearsed[0] / "out" / "logs" / f"{job}.log").read_text(encoding="utf-8")


pytestmark = pytest.mark.timeout(300)
slow = pytest.mark.slow


@slow
def test_the_steps_run_in_the_environments_of_their_lock_files(rehearsed: tuple[Path, Outcome, str]) -> None:
    _, outcome, printed = rehearsed
    phases = {record.name: str(record.phase) for record in outcome.records}
    toy = {name: phase for name, phase in phases.items() if name.startswith("toy-")}
    assert toy == dict.fromkeys(["toy-prepare", "toy-train-0-2", "toy-train-0-1", "toy-report"], "succeeded"), (
        printed
    )
    assert "there: ['tiny']" in log(rehearsed, "toy-train-0-2")
    assert re.search(r"best is \S+/toy/train-0-2/", log(rehearsed, "toy-report"))
    assert (
        len(re.findall(r"made an environment with requirements\.txt and TensorFlow's packages in", printed)) == 1
    )
    (packages,) = (record.name for record in outcome.records if record.name.startswith("packages-"))
    assert "Nothing is lacking" in log(rehearsed, packages)
    assert len(re.findall(r"toy\.train runs `python train\.py .* in place of `no-such-r", printed)) == 1


@slow
def test_variants_run_side_by_side(rehearsed: tuple[Path, Outcome, str]) -> None:
    first, second = (record for record in rehearsed[1].records if record.name.startswith("toy-train"))
    assert max(first.started, second.started) < min(first.finished, second.finished)


@slow
def test_what_fails_says_why(rehearsed: tuple[Path, Outcome, str]) -> None:
    _, outcome, printed = rehearsed
    failures = {record.name: record for record in outcome.records if record.phase == "failed"}
    assert set(failures) == {f"failing-{step}" for step in FAILING}
    assert "No module named 'shout'" in log(rehearsed, "failing-forgot")
    assert "step failing.absent runs 'no-such-tool'" in failures["failing-absent"].reason
    assert (
        "step failing.unhashed: its packages (broken.txt) cannot be installed here: "
        "Failed to download `tiny==1.0`: Hash mismatch for `tiny==1.0`; check that the lock file"
    ) in printed
    assert failures["failing-lost"].exit_code == 9
    assert "score" in log(rehearsed, "failing-lost")


@slow
def test_a_secret_reaches_the_program_and_no_file(rehearsed: tuple[Path, Outcome, str]) -> None:
    folder, _, printed = rehearsed
    assert "key is [secret]" in log(rehearsed, "toy-train-0-2")
    assert PLANTED not in printed
    for file in (path for path in (folder / "out").rglob("*") if path.is_file()):
        assert PLANTED.encode() not in file.read_bytes(), file
