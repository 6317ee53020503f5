"""Searches in a ``pipeline.yaml``: what their Jobs are told, and what is wrong with them, all at once."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.features.search.feature import Search
from slipway.infra.kubernetes.pods.pod import arguments
from slipway.infra.kubernetes.run import plan, runner
from slipway.infra.pipelines.contract import StepDeclaration
from slipway.infra.pipelines.discovery import declared_steps
from slipway.infra.settings.loading import load
from tests.docs.fences import blocks
from tests.infra.pipelines import file_problems
from tests.infra.pipelines.file_problems import check
from tests.support.checkout import ROOT
from tests.support.placing import Steps, inspect
from tests.support.stack_values import GCP, GONE, changed

(SHOWN,) = (block.body for block in blocks(ROOT) if block.page == "docs/search.md" and block.info == "yaml")
CHURN: dict[str, Any] = yaml.safe_load(SHOWN)
SECTION = {
    "steps": {"tune": {"pool": "cpu"}, "predict": {"pool": "cpu"}},
    "services": {"queue": {"pool": "cpu"}},
}


def stack(folder: Path, content: object = CHURN, section: dict[str, Any] | None = None) -> dict[str, Any]:
    """A stack with the pipeline of docs/search.md, or with ``content``, and these changes of its section."""
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    for program in ("train.py", "predict.py"):
        (folder / program).write_text("")
    values = changed({**SECTION, "uses": str(folder)}, section or {})
    return changed(GCP, {"pipelines": {"churn": values}})


def tune(folder: Path, content: object = CHURN, section: dict[str, Any] | None = None) -> StepDeclaration:
    values = stack(folder, content, section)
    return declared_steps(str(folder), load(values).pipelines["churn"])[0]


def searched(step: StepDeclaration) -> Search:
    (part,) = step.parts
    assert isinstance(part, Search)
    return part


def test_the_search_that_is_shown_leaves_its_parameters_to_the_trials(tmp_path: Path) -> None:
    step = tune(tmp_path / "churn")
    assert step.arguments == [
        "python", "train.py", "--rate", "{rate}", "--units", "{units}", "--output", "{output}",
    ]  # fmt: skip
    plan = searched(step).plan
    rate = {"low": 0.00001, "high": 0.1, "log": True, "type": "number"}
    assert plan["parameters"] == {"rate": rate, "units": [64, 128, 256]}
    assert (plan["trials"], plan["at_once"], plan["by"]) == (40, 4, "metrics.json#/accuracy")
    assert (searched(step).pods, searched(step).queue) == (4, "queue")


def test_a_stack_file_says_how_many_trials_there_are(tmp_path: Path) -> None:
    step = tune(tmp_path / "churn", section={"steps.tune.trials": 60, "steps.tune.at_once": 2})
    search = searched(step)
    assert (search.plan["trials"], search.plan["at_once"], search.pods) == (60, 2, 2)


def test_a_stack_file_chooses_another_method_and_what_is_stopped(tmp_path: Path) -> None:
    content = changed(CHURN, {"steps.tune.search.stop": "median", "steps.tune.search.reports": "a.jsonl#/b"})
    folder = tmp_path / "churn"
    for stop, reports in (("hyperband", "a.jsonl#/b"), (None, "")):
        section = {"steps.tune.method": "random", "steps.tune.stop": stop}
        search = searched(tune(folder, content, section)).plan
        assert (search["method"], search["stop"], search["reports"]) == ("random", stop or "", reports)
    other = tmp_path / "other"
    section = {"steps.tune.method": "grid", "steps.tune.stop": "median"}
    texts = file_problems.problems(other, stack(other, CHURN, section))
    check(texts, "stack.steps.tune.method stack.steps.tune.stop", {})


def test_a_grid_knows_how_many_trials_it_has(tmp_path: Path) -> None:
    grid = {"rate": [0.1, 0.01], "units": {"low": 64, "high": 256, "step": 64}}
    change = {"method": "grid", "trials": GONE, "parameters": grid}
    content = changed(CHURN, {f"steps.tune.search.{key}": value for key, value in change.items()})
    assert searched(tune(tmp_path / "churn", content)).plan["trials"] == 8
    texts = file_problems.problems(
        tmp_path / "churn", stack(tmp_path / "churn", content, {"steps.tune.trials": 5})
    )
    check(texts, "", {"stack.steps.tune.trials": ["8"]})


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    step = {
        "run": ["python", "train.py", "{rate}", "{units}", "{kind}", "{deep}", "{output}"],
        "matrix": {"units": [1, 2]},
        "nodes": 2,
        "best": {"by": "accuracy"},
        "environment": {"RATE": "{rate}"},
        "search": {
            "parameters": {
                "rate": {"low": 0.1, "high": 0.01},
                "units": {"low": 0, "high": 5.5, "log": True},
                "kind": {"low": 1, "high": 2},
                "deep": {"low": 1},
                "free": [1, "two"],
                "unitss": [1],
            },
            "trials": 0,
            "at_once": 4,
            "by": "curve",
        },
        "results": {
            "accuracy": "metrics.json#/accuracy",
            "curve": "curve.png",
            "trials": "all.json#/number",
        },
    }
    parameters = {
        "rate": {"type": "number", "default": 1},
        "kind": {"type": "string", "default": "a"},
        **{name: {"type": "integer", "default": 1} for name in ("units", "deep", "free")},
    }
    content = {"description": "Tunes.", "parameters": parameters, "steps": {"tune": step}}
    section = {"services": GONE, "steps.predict": GONE, "steps.tune.nodes": GONE}
    folder = tmp_path / "churn"
    texts = file_problems.problems(folder, stack(folder, content, section))
    check(
        texts,
        " ".join(
            f"steps.tune.{key}"
            for key in (
                "matrix", "nodes", "best", "environment.RATE", "search.trials", "search.at_once",
                "search.parameters.rate.low", "search.parameters.units.low", "search.parameters.units.high",
                "search.parameters.kind", "search.parameters.deep", "search.parameters.free",
                "search.parameters.free.values[1]", "results.trials",
            )
        ),
        {"steps.tune.search.parameters.unitss": ["units"], "steps.tune.search.by": ["accuracy"]},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"search.trials": GONE}, "search.trials"),
        ({"search.queue": "quue"}, "search.queue"),
        ({"search.method": "grid"}, "search.parameters.rate.log"),
        ({"search.parameters.rate.log": GONE, "search.method": "grid"}, "search.parameters.rate"),
        ({"search.parameters.rate.step": 0.1}, "search.parameters.rate.step"),
        ({"search.parameters.rate": 3}, "search.parameters.rate"),
        ({"search.stop": "median"}, "search.stop"),
        ({"search.reports": "progress.jsonl#/loss"}, "search.reports"),
        ({"search.stop": "median", "search.reports": "../progress.jsonl"}, "search.reports"),
        ({"search.printed": "(?P<step>a)(?P<value>b)"}, "search.printed"),
        ({"search.stop": "median", "search.printed": "(?P<step>a)"}, "search.printed"),
        ({"search.stop": "median", "search.printed": "(?P<epoch>a)(?P<value>b)"}, "search.printed"),
        ({"search.stop": "median", "search.printed": r"(?P<value>(?:\d+ ?)+)$"}, "search.printed"),
        ({"search.stop": "median", "search.printed": r"(?:[(]|(?:\w*\s){2,})+ (?P<value>\d+)"}, "search.printed"),
        ({"search.stop": "median", "search.printed": f"{'a' * 200}(?P<value>b)"}, "search.printed"),
        ({"search.stop": "median", "search.printed": "(?P<step"}, "search.printed"),
        (
            {"search.stop": "median", "search.reports": "a.jsonl#/b", "search.printed": "(?P<step>a)(?P<value>b)"},
            "search.printed",
        ),
        ({"search.at_once": 2, "search.queue": GONE}, "search.at_once"),
    ],
)
def test_one_mistake_has_one_problem(change: dict[str, Any], key: str, tmp_path: Path) -> None:
    content = changed(CHURN, {f"steps.tune.{name}": value for name, value in change.items()})
    folder = tmp_path / "churn"
    assert f"steps.tune.{key}" in file_problems.problems(folder, stack(folder, content))


@pytest.mark.parametrize(
    "pattern",
    [
        r"loss=(?P<value>\S+)",
        r"Epoch (?P<step>\d+)/|val_accuracy: (?P<value>[\d.]+)",
        r"^\[(?:\d{2}:)+\d\d\] \(*epoch (?P<step>\d+)\)+.*(?:acc|accuracy)[=:]+ ?(?P<value>[^(*)]+)",
    ],
)
def test_the_search_gets_the_pattern_as_it_is_written(pattern: str, tmp_path: Path) -> None:
    change = {"steps.tune.search.stop": "median", "steps.tune.search.printed": pattern}
    assert searched(tune(tmp_path / "churn", changed(CHURN, change))).plan["reports"] == f"printed:{pattern}"


def test_the_job_gets_the_plan_and_what_chooses_the_parameters(tmp_path: Path) -> None:
    def words_of(steps: Steps) -> tuple[str, list[str]]:
        run = plan(steps["tune"], ROOT)
        return runner(run.step), arguments(run)

    folder = tmp_path / "churn"
    section = load(stack(folder)).pipelines["churn"]
    module, words = inspect(str(folder), section, words_of, name="churn")
    assert module == "slipway.features.search.pod.worker"
    assert json.loads(words[words.index("--search") + 1])["trials"] == 40
    assert words[words.index("--sampler") + 1].startswith("/store/packages/search")
    assert words[words.index("--") + 1 :][3] == "{rate}"


@pytest.mark.parametrize(
    "change",
    [
        {"search": 3},
        {"search.parameters.rate.low": "a"},
        {"search.trials": "many"},
        {"search.by": "nothing"},
        {"search.parameters.rates": [1]},
        {"search.queue": 3},
    ],
)
def test_a_wrong_search_makes_no_problem_of_the_stack_file(change: dict[str, Any], tmp_path: Path) -> None:
    content = changed(CHURN, {f"steps.tune.{name}": value for name, value in change.items()})
    folder = tmp_path / "churn"
    section = {"steps.tune.trials": 60, "steps.tune.at_once": 2, "steps.tune.method": "random"}
    (key,) = file_problems.problems(folder, stack(folder, content, section))
    assert f"{key}.".startswith(f"steps.tune.{next(iter(change))}.")
