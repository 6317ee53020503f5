"""Mistakes in services, items and workers: all said at once, each with its key, its reason and its fix."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from tests.infra.pipelines import file_problems
from tests.infra.pipelines.days import DAYS, IMAGE, stack, written
from tests.infra.pipelines.file_problems import check
from tests.support.stack_values import GONE, changed


def problems(folder: Path, content: object, section: dict[str, Any] | None = None) -> dict[str, str]:
    """What is wrong where the file has ``content``, and its section these changes."""
    return file_problems.problems(folder, stack(written(folder, content), section))


def test_a_valid_file_has_no_problems(tmp_path: Path) -> None:
    assert problems(tmp_path / "days", DAYS) == {}


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    wrong = {
        "description": "Trains on one day after the other.",
        "parameters": {
            "schedule": {"type": "string", "default": "x"},
            "port": {"type": "integer", "default": 1},
            "item": {"type": "string", "default": "x"},
        },
        "services": {
            "queue": {"kind": "valky"},
            "cache": {"run": ["cached", "{prepare}", "{pasword}"], "prt": 7000, "probe": {"path": "healthz"}},
            "Prepare": {"kind": "valkey", "run": ["x"], "port": 1, "probe": {"path": "/x"}},
            "report": {"kind": "valkey", "rehearsal": {}},
            "9th": {"image": IMAGE, "run": ["x"], "port": 70000, "rehearsal": {"requirements": "../x.txt"}},
        },
        "steps": {
            "prepare": {"run": ["x", "{item}", "{output}", "{cache}"], "workers": 2},
            "days": {
                "run": ["x", "{previous}", "{output}"],
                "environment": {"CACHE_ADDRESS": "x", "DAY": "{output}"},
                "secrets": {"QUEUE_PASSWORD": "key"},
                "items": {
                    "files": "/data/*.csv",
                    "queue": "queu",
                    "attempts": 0,
                    "lease": "1s",
                    "columns": {"state": "text", "rate": "percents"},
                },
                "workers": 0,
                "connects": ["cache", "queue", "cache", "nothing-like-it"],
                "results": {"items": "x.png", "curve": "curve.png"},
            },
            "weeks": {
                "run": ["x", "{item}"],
                "items": {"files": "{weeks}/*", "mode": "ordered", "queue": "report"},
                "workers": 4,
                "connects": ["Prepare", "9th"],
            },
            "report": {"run": ["x", "{days}"]},
        },
    }
    texts = problems(tmp_path / "days", wrong, {"services": {"report": {"pool": "cpu"}}})
    keys = """
        parameters.schedule services.cache.run[1] services.Prepare services.report services.9th
        services.9th.rehearsal.requirements steps.days.items.columns.state steps.days.connects[2]
        steps.days.results.items
    """
    names = {
        "parameters.port": ["`{port}`"],
        "parameters.item": ["`{item}`"],
        "services.queue.kind": ["`valkey`"],
        "services.cache.run[2]": ["`pasword`", "`{password}`"],
        "services.cache.image": ["`kind: valkey`"],
        "services.cache.prt": ["`port`"],
        "services.cache.probe.path": ["`/`"],
        "services.Prepare.run": ["`valkey`"],
        "services.Prepare.port": ["`valkey`"],
        "services.Prepare.probe": ["`valkey`"],
        "services.report.rehearsal": ["`requirements`"],
        "services.9th.run": ["`{port}`"],
        "services.9th.port": ["above 65535"],
        "steps.prepare.run[3]": ["`cache`", "`CACHE_ADDRESS`"],
        "steps.prepare.workers": ["`items`"],
        "steps.days.run": ["`{item}`"],
        "steps.days.run[1]": ["`mode: ordered`"],
        "steps.days.environment.CACHE_ADDRESS": ["`cache`"],
        "steps.days.environment.DAY": ["`run`"],
        "steps.days.secrets.QUEUE_PASSWORD": ["`queue`"],
        "steps.days.items.files": ["`{prepare}`"],
        "steps.days.items.queue": ["`queue`"],
        "steps.days.items.attempts": ["below 1"],
        "steps.days.items.lease": ["1 seconds, and a lease has 5 to 3600", "`60s`"],
        "steps.days.items.columns.rate": ["`percent`"],
        "steps.days.workers": ["below 1"],
        "steps.days.connects[3]": ["`services: {nothing-like-it: {kind: valkey}}`"],
        "steps.days.results.curve": ["`items.json`", "`items.columns`"],
        "steps.weeks.items.files": ["`{weeks}`"],
        "steps.weeks.workers": ["3 of them would idle", "`mode: parallel`"],
    }
    of_file = {key: text for key, text in texts.items() if not key.startswith(("stack", "slipway:"))}
    check(of_file, keys, names)


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"services.idle": {"kind": "valkey"}}, "services.idle", ["`connects`"]),
        ({"steps.days.items": GONE}, "steps.days.run[3]", ["`items`", "`{item}`"]),
        ({"steps.days.items.files": "{prepare}"}, "steps.days.items.files", []),
        ({"steps.days.items.files": "{prepare}/../*"}, "steps.days.items.files", []),
        ({"steps.days.items.files": "{folder}/*.csv"}, "steps.days.items.files", []),
        ({"steps.days.items.files": "{output}/*.csv"}, "steps.days.items.files", ["`output`"]),
        ({"steps.days.items.mode": "orderd"}, "steps.days.items.mode", ["`ordered`"]),
        (
            {"steps.prepare.matrix": {"seed": [1, 2]}, "steps.prepare.run": ["x", "{seed}", "{output}"]},
            "steps.days.items.files",
            ["`prepare`", "`best`"],
        ),
        ({"services.feature-cache.storage": "2"}, "services.feature-cache.storage", ["`2Mi`"]),
        ({"services.data": {"kind": "valkey"}, "steps.days.connects": ["feature-cache", "data", "queue", "queue"]},
         "steps.days.connects[3]", []),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_said_at_its_key(
    tmp_path: Path, changes: dict[str, Any], key: str, words: list[str]
) -> None:
    section: dict[str, Any] = {"services": {}} if "services.data" in changes else {}
    texts = problems(tmp_path / "days", changed(DAYS, changes), section)
    check({key: texts.get(key, "")}, "", {key: words})


ORDERED = {"steps.days.items.mode": "ordered", "steps.days.workers": GONE}


@pytest.mark.parametrize(
    ("content", "section", "key", "words"),
    [
        (
            {},
            {"steps.days": {"pool": "cpu", "mode": "ordered"}},
            "steps.days.workers",
            ["3 of them would idle", "`workers: 1`", "for this stack alone", ".steps.days.workers`"],
        ),
        (
            ORDERED,
            {"steps.days": {"pool": "cpu", "workers": 2, "assignment": "static"}},
            "stack.steps.days.workers",
            ["1 of them would idle"],
        ),
        (
            {"steps.days.items.queue": GONE, "services.queue": GONE},
            {"services.queue": GONE, "steps.days": {"pool": "cpu", "assignment": "queue"}},
            "stack.steps.days.assignment",
            ["`static`"],
        ),
        ({}, {"steps.days": {"pool": "cpu", "workers": 0}}, "stack.steps.days.workers", ["below 1"]),
        ({}, {"steps.days": {"pool": "cpu", "mod": "parallel"}}, "stack.steps.days.mod", ["`mode`"]),
        ({}, {"steps.prepare": {"pool": "cpu", "workers": 2}}, "stack.steps.prepare.workers", []),
        ({}, {"services.queue": GONE}, "stack.services.queue", []),
        ({}, {"services": GONE}, "stack.services", []),
        ({}, {"services.queue": {}}, "stack.services.queue.pool", []),
        ({}, {"services.quee": {"pool": "cpu"}}, "stack.services.quee", ["`queue`"]),
        ({}, {"services.queue.pool": "cqu"}, "stack.services.queue.pool", ["`cpu`"]),
        (
            {},
            {"services.queue.pool": "train"},
            "stack.services.queue.pool",
            ["the pool has GPUs, which would be paid for", "`cpu`"],
        ),
        (
            {},
            {"services.queue": {"pool": "cpu", "memory": "900Gi"}},
            "stack.services.queue.memory",
            ["`cpu`"],
        ),
        ({}, {"services.queue.gpus": 1}, "stack.services.queue.gpus", []),
        ({}, {"schedule": {"cron": "0 3 * * 7"}}, "stack.schedule.cron", ["`0`"]),
        (
            {},
            {"schedule": {"cron": "0 3 * * *", "time_zone": "Berlin"}},
            "stack.schedule.time_zone",
            ["`Europe/Berlin`"],
        ),
    ],
)
def test_a_mistake_in_the_stack_file_is_said_at_its_key(
    tmp_path: Path, content: dict[str, Any], section: dict[str, Any], key: str, words: list[str]
) -> None:
    check(problems(tmp_path / "days", changed(DAYS, content), section), "", {key: words})


def test_what_the_file_says_is_not_said_again_of_the_stack(tmp_path: Path) -> None:
    texts = problems(tmp_path / "days", changed(DAYS, {"steps.days.items.mode": "ordered"}))
    assert list(texts) == ["steps.days.workers"]


@pytest.mark.parametrize(
    "text",
    ["services: 3", "services: []", "services: {queue: 3}", "services: {queue: null}", "services: [queue]"],
)
def test_services_that_cannot_be_read_make_nothing_else_wrong(tmp_path: Path, text: str) -> None:
    content = changed(DAYS, {**yaml.safe_load(text), "steps.days.connects": []})
    texts = problems(tmp_path / "days", content)
    assert set(texts) <= {"services", "services.queue"}
    assert texts


@pytest.mark.parametrize("items", [3, [], {}, {"fils": "{prepare}/*"}, "{prepare}/*"])
def test_items_that_cannot_be_read_make_no_key_of_the_stack_file_wrong(tmp_path: Path, items: object) -> None:
    texts = problems(
        tmp_path / "days",
        changed(
            DAYS, {"steps.days.items": items, "services": {"feature-cache": DAYS["services"]["feature-cache"]}}
        ),
        {"steps.days": {"pool": "cpu", "workers": 2, "mode": "parallel"}, "services.queue": GONE},
    )
    assert texts
    assert not [key for key in texts if key.startswith("stack")]


@pytest.mark.parametrize("name", ["_", "__class__", "model_config", "a b", "", "model_fields"])
def test_no_name_of_a_service_or_a_step_is_more_than_a_problem(tmp_path: Path, name: str) -> None:
    services = {**DAYS["services"], name: {"kind": "valkey"}}
    steps = {**DAYS["steps"], name: {"run": ["x"], "connects": [name]}}
    texts = problems(tmp_path / "days", {**DAYS, "services": services, "steps": steps})
    for section in ("services", "steps"):
        (said,) = (text for key, text in texts.items() if key.startswith(section))
        assert "not a Kubernetes name" in said


def test_a_stack_file_without_the_services_is_told_what_to_write(tmp_path: Path) -> None:
    values = stack(written(tmp_path / "days"))
    del values["pipelines"]["days"]["services"]
    with pytest.raises(SettingsError) as caught:
        load(values)
    (problem,) = caught.value.problems
    assert "`services: {queue: {pool: …}, feature-cache: {pool: …}}`" in problem.fix
