"""Results that were deleted, truncated or replaced come back with the next rehearsal."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pulumi
import pytest

from slipway.files import LOCK, MARK
from slipway.infra.pipelines.results import Column, Picture, Table
from slipway.rehearse import state as result_integrity
from slipway.rehearse.output.outcome import Outcome
from slipway.rehearse.state import Phase, Place, State
from slipway.runtime import store
from slipway.runtime.exits import BAD_INPUT, OK
from tests.rehearse.toy import Toys, rehearse
from tests.support.checkout import ROOT
from tests.support.rehearsing import phases

PNG = b"\x89PNG ten digits"

STEP = f"""
import json, pathlib, sys
sys.path.insert(0, {str(ROOT)!r})
from slipway.runtime.exits import run
from slipway.runtime.store import check, finished, publish, staging
step, out, source = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
def main():
    with open(out.parent / "ran", "a") as log:
        log.write(step[0])
    inputs = {{"source": check(source).digest}} if step != "prepare" else {{}}
    if finished(out, step, inputs, {{}}) is not None:
        return 0
    with staging() as staged:
        if step == "predict":
            images = [{{"path": f"{{n}}.png", "digit": n, "confidence": 0.9, "label": n}} for n in range(10)]
            (staged / "predictions.json").write_text(json.dumps({{"images": images}}))
            (staged / "contact_sheet.png").write_bytes({PNG!r})
        else:
            content = (out.parent / "ran").read_bytes() if step == "train" else b"always the same"
            (staged / "data").mkdir()
            (staged / "data" / f"{{step}}.bin").write_bytes(content + b" " * 100)
        publish(staged, out, step=step, inputs=inputs, settings={{}}, summary={{}})
    return 0
run(main)
"""
"""A step as the workloads write them. What `train` makes is never twice the same."""

MODEL, PREDICTIONS = "run/train/data/train.bin", "run/predict/predictions.json"


COLUMNS = (
    Column(key="digit", title="Digit", format="integer"),
    Column(key="confidence", title="Confidence", format="percent"),
)
RESULTS = (
    Table(name="predictions", title="Predictions", path="predictions.json", select="/images", columns=COLUMNS),
    Picture(name="sheet", title="All digits", path="contact_sheet.png"),
)
COPY, SHEET = "results/predict/predictions.json", "results/predict/contact_sheet.png"


def pipeline() -> None:
    toys = Toys()
    before: list[pulumi.Resource] = []
    source = ""
    for step in ("prepare", "train", "predict"):
        before = [
            toys.job(
                step,
                STEP,
                *(step, f"/store/run/{step}", f"/store/{source}"),
                after=before,
                run=f"run/{step}",
                inputs={source.rpartition("/")[2]: source} if source else None,
                results=RESULTS if step == "predict" else (),
            )
        ]
        source = f"run/{step}"


def predict(script: str, *arguments: str) -> None:
    """Another program as the step whose results are shown."""
    Toys().job("predict", script, *arguments, run="run/predict", results=RESULTS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the pipeline was rehearsed once."""
    folder = tmp_path_factory.mktemp("results") / "whole"
    (folder / "store" / "run").mkdir(parents=True)
    (folder / LOCK).write_bytes(MARK)
    outcome, _ = rehearse(pipeline, folder)
    assert outcome.exit_code == 0
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    return shutil.copytree(whole, tmp_path / "folder")


def ran(folder: Path) -> str:
    """The first letters of the steps that ran since the fixture's."""
    return (folder / "store" / "run" / "ran").read_text(encoding="utf-8").removeprefix("ptp")


def assert_all_there(folder: Path, outcome: Outcome) -> None:
    assert outcome.exit_code == 0
    (table,) = outcome.results.jobs[0].tables
    assert len(table.rows) == 10
    copied = json.loads((folder / COPY).read_text(encoding="utf-8"))
    assert [image["digit"] for image in copied["images"]] == list(range(10))
    assert (folder / SHEET).read_bytes() == PNG
    for step in ("prepare", "train", "predict"):
        assert store.whole(folder / "store" / "run" / step) == (True, "")


def same_size(file: Path) -> None:
    file.write_bytes(b"x" * file.stat().st_size)


def replace_by_a_link(file: Path) -> None:
    file.rename(file.with_name("moved"))
    file.symlink_to(file.with_name("manifest.json"))


def replace_by_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no predictions": (lambda run: shutil.rmtree(run / "predict"), "p", "run/predict: there is no such directory"),
    "nothing": (
        lambda run: [shutil.rmtree(run / step) for step in ("prepare", "train", "predict")],
        "ptp",
        "run/prepare: there is no such directory",
    ),
    "truncated model": (
        lambda run: os.truncate(run.parent / MODEL, 10),
        "tp",
        "run/train: data/train.bin has 10 bytes, its manifest says",
    ),
    "garbage": (lambda run: (run.parent / PREDICTIONS).write_text("{"), "p", "predictions.json has 1 bytes"),
    "garbage of the same size": (lambda run: same_size(run.parent / PREDICTIONS), "p", "was altered"),
    "deleted manifest": (lambda run: (run / "train/manifest.json").unlink(), "tp", "it has no manifest.json"),
    "garbage manifest": (lambda run: (run / "train/manifest.json").write_text("[]"), "tp", "cannot be read"),
    "replaced model": (lambda run: shutil.copy(run.parent / PREDICTIONS, run.parent / MODEL), "tp", "bytes"),
    "a link": (lambda run: replace_by_a_link(run.parent / PREDICTIONS), "p", "predictions.json has"),
    "a pipe": (lambda run: replace_by_a_pipe(run.parent / PREDICTIONS), "p", "predictions.json is missing"),
    "result of another run": (
        lambda run: (shutil.rmtree(run / "train"), shutil.copytree(run / "prepare", run / "train")),
        "tp",
        "run/train has other results than before",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_result_is_made_again_with_what_depends_on_it(folder: Path, damage: str) -> None:
    harm, again, reason = DAMAGES[damage]
    harm(folder / "store" / "run")
    outcome, printed = rehearse(pipeline, folder)
    assert_all_there(folder, outcome)
    assert ran(folder) == again
    assert reason in printed
    if damage == "nothing":
        assert "0 Jobs run, 3 unchanged" in rehearse(pipeline, folder)[1]


def test_what_read_a_damaged_result_stays_where_the_same_comes_back(folder: Path) -> None:
    same_size(folder / "store" / "run" / "prepare" / "data" / "prepare.bin")
    outcome, _ = rehearse(pipeline, folder)
    assert_all_there(folder, outcome)
    assert ran(folder) == "p"


def test_results_are_read_once_and_only_where_something_is_known_of_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    real = result_integrity.subprocess.run

    def run(command: list[str], **options: object) -> object:
        commands.append(command[3:])
        return real(command, **options)

    monkeypatch.setattr(result_integrity.subprocess, "run", run)
    rehearse(pipeline, folder)
    assert commands == [[str(folder / "store" / "run" / step) for step in ("predict", "prepare", "train")]]
    rehearse(pipeline, folder, fresh=True)
    assert len(commands) == 1


@pytest.mark.parametrize("fresh", [False, True])
def test_the_last_copy_stays_where_nothing_replaces_it(folder: Path, fresh: bool) -> None:
    before = (folder / COPY).read_bytes()
    shutil.rmtree(folder / "store" / "run" / "predict")

    def failing() -> None:
        Toys().job("predict", "raise SystemExit(1)")

    outcome, printed = rehearse(failing, folder, fresh=fresh)
    assert outcome.exit_code == 1
    assert (folder / COPY).read_bytes() == before
    assert (folder / SHEET).read_bytes() == PNG
    assert "Kept from an earlier rehearsal, since this one made none: results/predict\n" in printed


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", 1),
        ("[]", 0),
        ('{"images": 3}', 0),
        ('{"images": [{"path": "1.png", "digit": "three", "confidence": NaN}]}', 0),
        ("\xff", 0),
    ],
)
def test_what_a_failed_job_left_or_nobody_understands_replaces_no_copy(folder: Path, text: str, code: int) -> None:
    before = (folder / COPY).read_bytes()
    script = "import pathlib, sys; pathlib.Path(sys.argv[1], 'predictions.json').write_text(sys.argv[2])"
    outcome, printed = rehearse(lambda: predict(f"{script}; sys.exit({code})", "/store/run/predict", text), folder)
    assert outcome.exit_code == code
    assert code or "run/predict/predictions.json cannot be understood" in printed
    assert (folder / COPY).read_bytes() == before


def record(urn: str, **values: object) -> str:
    return json.dumps({"format": 2, "jobs": {urn: {"urn": urn, "name": "train", "phase": "succeeded", **values}}})


STATES = {
    "": "damaged",
    "{": "damaged",
    "[]": "damaged",
    '{"format": 2}': "jobs: Field required",
    '{"format": 99, "jobs": {}}': "of another version of Slipway",
    '{"format": 2, "jobs": [1]}': "jobs: ",
    '{"format": 2, "jobs": {"urn": 3}}': "jobs.urn: ",
    record("urn", started="yesterday"): "jobs.urn.started: ",
    record("urn", started=float("nan")): "damaged",
    record("urn", finished=1e300): "jobs.urn.finished: ",
    record("urn", phase="done"): "jobs.urn.phase: ",
    record("urn", phase=["succeeded"]): "jobs.urn.phase: ",
    record("urn", requested={"cpu": []}): "jobs.urn.requested",
    record("urn", results={"run/train": None}): "jobs.urn.results",
    record("urn").replace('"urn": "urn"', '"urn": "other"'): "urn has the record of another Job",
    "[" * 10_000: "damaged",
}


@pytest.mark.parametrize("state", STATES, ids=lambda text: text[:60])
def test_a_state_that_cannot_be_used_says_why(tmp_path: Path, state: str) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "state.json").write_text(state, encoding="utf-8")
    loaded = State.load(Place(tmp_path))
    assert loaded.jobs == {}
    assert f"{tmp_path / 'state.json'} is " in loaded.problem
    assert STATES[state] in loaded.problem


def test_without_a_state_every_job_runs_again(folder: Path) -> None:
    (folder / "state.json").write_text(record("urn", started="yesterday"), encoding="utf-8")
    outcome, printed = rehearse(pipeline, folder)
    assert_all_there(folder, outcome)
    assert "state.json is damaged: jobs.urn.started: Input should be a valid number" in printed
    assert "every Job runs again" in printed
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}


def test_files_of_the_wrong_kind_are_renamed_and_named(folder: Path) -> None:
    for name in ("state.json", "report.html", "outputs.json", COPY):
        (folder / name).unlink()
        (folder / name).mkdir()
    shutil.rmtree(folder / "logs")
    (folder / "logs").write_text("mine", encoding="utf-8")
    (folder / "logs.1").write_text("too", encoding="utf-8")
    outcome, printed = rehearse(pipeline, folder)
    assert_all_there(folder, outcome)
    assert "logs is a file where a rehearsal keeps a folder; it is now logs.2" in printed
    assert "predictions.json is a folder where a rehearsal keeps a file; it is now predictions.json.1" in printed
    assert (folder / "logs.2").read_text(encoding="utf-8") == "mine"


def test_a_store_that_cannot_be_checked_is_one_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_integrity, "CHECKER", "workloads.nowhere")
    with pytest.raises(
        result_integrity.FolderError, match=r"the results in .*store cannot be checked: .*workloads\.nowhere"
    ):
        rehearse(pipeline, folder)


def test_the_manifest_has_one_name_and_the_checker_its_codes() -> None:
    assert result_integrity.MANIFEST == store.MANIFEST
    assert (result_integrity.WHOLE, result_integrity.NOT_WHOLE) == (OK, BAD_INPUT)
