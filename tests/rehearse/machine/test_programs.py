"""Steps with a program of their own in a rehearsal: what they find here, what stands in, and what is refused."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.schema.problems import Problem, SettingsError
from slipway.rehearse import session
from slipway.rehearse.machine.programs import search_path
from slipway.rehearse.output.outcome import Configuration, Outcome
from slipway.rehearse.session import configure
from tests.support import rehearsing
from tests.support.checkout import ROOT
from tests.support.rehearsing import SMALL, pipeline_folder, rehearse_file, stack_file
from tests.support.wheels import pin, write_wheel

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
print("has:", [name for name in ("tensorflow", "pulumi", "shout", "tiny") if importlib.util.find_spec(name)])
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


def stack(folder: Path, pipelines: Mapping[str, Mapping[str, Any]], services: Any = None, **settings: Any) -> Path:
    """The stack file of `local` with pipelines of these steps and services, all of which run on its pool."""
    files = {"prepare.py": PREPARE, "train.py": TRAIN, **lock_files(folder)}
    declared = {"parameters": {"rate": {"type": "number", "default": 0.5}}}
    sections = {
        name: {
            "uses": pipeline_folder(
                folder / name, files, **declared, steps=steps, **({"services": services} if services else {})
            ),
            "steps": dict.fromkeys(steps, SMALL),
            **({"services": {service: {"pool": "cpu"} for service in services}} if services else {}),
        }
        for name, steps in pipelines.items()
    }
    schedule = settings.pop("schedule", None)
    if schedule:
        sections["toy"]["schedule"] = schedule
    return stack_file(folder / "stack.yaml", pipelines=sections, **settings)


def problems_of(file: Path) -> list[Problem]:
    with pytest.raises(SettingsError) as error:
        configure("local", ROOT, file)
    return list(error.value.problems)


TWO_STEPS = {"prepare": STEPS["prepare"], "train": STEPS["train"]}
SECRETS = {"own-key": {"secure": "v1:abc"}}


def test_programs_that_are_not_here_are_refused_with_all_other_problems(tmp_path: Path) -> None:
    steps = {
        "train": {"run": ["no-such-r", "{rate}", "{output}"], "image": IMAGE, "matrix": {"rate": [0.1, 0.2]}},
        "plot": {"run": ["/opt/no-such/plot", "{train}"], "image": IMAGE},
        "draw": {"run": ["no-such-r"], "image": IMAGE, "rehearsal": {"run": ["no-such-julia"]}},
        "here": {"run": ["sh", "-c", "true"]},
    }
    problems = problems_of(stack(tmp_path, {"toy": steps}, service_account=5))
    file = f"{tmp_path}/toy/pipeline.yaml"
    programs = {problem.key: problem for problem in problems if "toy/pipeline.yaml" in problem.key}
    assert {key: problem.value for key, problem in programs.items()} == {
        f"{file}: steps.train.run": "no-such-r",
        f"{file}: steps.plot.run": "/opt/no-such/plot",
        f"{file}: steps.draw.run": "no-such-julia",
    }
    assert "slipway:service_account" in {problem.key for problem in problems}
    assert "rehearsal: {run:" in programs[f"{file}: steps.train.run"].fix


def configure_steps(tmp_path: Path, steps: Mapping[str, Any], **settings: Any) -> Configuration:
    return configure("local", ROOT, stack(tmp_path, {"toy": steps}, **settings))


def test_the_program_of_a_service_is_looked_for_like_that_of_a_step(tmp_path: Path) -> None:
    steps = {"ask": {"run": ["sh", "-c", "true"], "connects": ["cache"]}}
    cache = {"image": IMAGE, "port": 7000, "run": ["no-such-server", "{port}"]}
    (problem,) = problems_of(stack(tmp_path / "a", {"toy": steps}, {"cache": cache}))
    assert problem.key == f"{tmp_path}/a/toy/pipeline.yaml: services.cache.run"
    assert problem.value == "no-such-server"
    assert "of the service" in problem.fix
    instead = {"run": ["python", "-m", "http.server", "{port}", "--bind", "0.0.0.0", "--directory", "{data}"]}
    file = stack(tmp_path / "b", {"toy": steps}, {"cache": {**cache, "rehearsal": instead}})
    (remark,) = [remark for remark in configure("local", ROOT, file).remarks if "toy.cache" in remark]
    assert "`python -m http.server 7000 --bind 0.0.0.0 --directory /data` in place of `no-such-server" in remark


def test_what_a_pipeline_says_instead_runs_and_is_said(tmp_path: Path) -> None:
    remarks = configure_steps(tmp_path, TWO_STEPS, secrets=SECRETS).remarks
    (remark,) = [remark for remark in remarks if "toy.train" in remark]
    assert re.search(r"toy\.train runs `python train\.py .* 0\.2 .*` in place of `no-such-r train\.R", remark)
    assert "not on this machine" in remark


def test_a_program_that_a_lock_file_may_bring_is_not_refused(tmp_path: Path) -> None:
    assert not configure_steps(tmp_path, {"report": {**STEPS["report"], "run": ["shout"]}}).remarks


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


@pytest.mark.parametrize("secrets", [SECRETS, {}], ids=["in the stack", "nowhere else"])
def test_a_secret_is_that_of_the_environment_and_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secrets: Mapping[str, Any]
) -> None:
    """Without it, one of the stack is a placeholder, and one that the stack lacks is asked for."""
    if secrets:
        remarks = configure_steps(tmp_path / "a", TWO_STEPS, secrets=secrets).remarks
        assert any("slipway:secrets.own-key" in text and "SLIPWAY_SECRET_OWN_KEY" in text for text in remarks)
    else:
        (problem,) = problems_of(stack(tmp_path / "a", {"toy": TWO_STEPS}))
        assert "SLIPWAY_SECRET_OWN_KEY" in problem.fix
    monkeypatch.setenv("SLIPWAY_SECRET_OWN_KEY", PLANTED)
    configuration = configure_steps(tmp_path / "b", TWO_STEPS, secrets=secrets)
    assert "secret own-key has the value of SLIPWAY_SECRET_OWN_KEY" in configuration.remarks
    assert PLANTED not in repr(configuration)
    assert PLANTED not in json.dumps(configuration.values)


SCHEDULE = {"cron": "0 3 * * *", "notify": {"secret": "chat"}}


def test_the_environment_alone_may_have_the_webhook_of_a_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = stack(tmp_path, {"toy": {"ask": {"run": ["sh", "-c", "true"]}}}, schedule=SCHEDULE)
    assert any("secret chat is not set" in remark for remark in configure("local", ROOT, file).remarks)
    monkeypatch.setenv("SLIPWAY_SECRET_CHAT", "https://chat.example/hook")
    assert "secret chat has the value of SLIPWAY_SECRET_CHAT" in configure("local", ROOT, file).remarks


def test_a_webhook_that_a_program_reads_too_is_asked_for(tmp_path: Path) -> None:
    ask = {"run": ["sh", "-c", "true"], "secrets": {"KEY": "chat"}}
    (problem,) = problems_of(stack(tmp_path, {"toy": {"ask": ask}}, schedule=SCHEDULE))
    assert (problem.key, "SLIPWAY_SECRET_CHAT" in problem.fix) == ("slipway:secrets.chat", True)


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
        outcome, printed = rehearse_file(folder / "out", file)
    return folder, outcome, printed


def log(rehearsed: tuple[Path, Outcome, str], job: str) -> str:
    return rehearsing.log(rehearsed[0] / "out", job)


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
    assert "has: ['tiny']" in log(rehearsed, "toy-train-0-2")
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
