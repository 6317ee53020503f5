"""Mistakes in services, items and workers: all said at once, each with its key, its reason and its fix."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.schema.problems import SettingsError
from infra.settings.loading import load
from tests.infra.pipelines.days import DAYS, IMAGE, stack, written
from tests.support.stack_values import GONE, changed


def problems(folder: Path, content: object, section: dict[str, Any] | None = None) -> dict[str, str]:
    """Reasons and fixes by key: those of the file below `pipeline.yaml`, those of the stack below `days`."""
    written(folder, content)
    try:
        load(stack(folder, section))
    except SettingsError as error:
        found: dict[str, str] = {}
        for problem in error.problems:
            key = problem.key.removeprefix(f"{folder}/pipeline.yaml").removeprefix(": ")
            key = key.replace("slipway:pipelines.days", "stack")
            found[key] = "\n".join(filter(None, [found.get(key), problem.reason, problem.fix]))
        return found
    return {}


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
    found = problems(tmp_path / "days", wrong, {"services": {"report": {"pool": "cpu"}}})
    expected = {
        "parameters.schedule": ["a meaning of its own"],
        "parameters.port": ["`{port}` means something else in commands of services"],
        "parameters.item": ["`{item}` means something else in commands of steps with items"],
        "services.queue.kind": ["did you mean `valkey`?"],
        "services.cache.run[1]": ["services do not mount the store"],
        "services.cache.run[2]": ["no parameter is called `pasword`", "did you mean `{password}`?"],
        "services.cache.image": ["required, and not there", "`kind: valkey`"],
        "services.cache.prt": ["did you mean `port`?"],
        "services.cache.probe.path": ["begin it with `/`"],
        "services.Prepare": ["not a Kubernetes name"],
        "services.Prepare.run": ["a service of the kind `valkey` has its own", "remove it"],
        "services.Prepare.port": ["a service of the kind `valkey` has its own"],
        "services.Prepare.probe": ["a service of the kind `valkey` has its own"],
        "services.report": ["a step has that name too"],
        "services.report.rehearsal": ["empty", "`requirements`"],
        "services.9th": ["none begins with a digit"],
        "services.9th.run": ["on which port to listen", "`{port}`"],
        "services.9th.port": ["above 65535"],
        "services.9th.rehearsal.requirements": ["not a path below the pipeline's folder"],
        "steps.prepare.run[3]": ["`cache` is a service", "read `CACHE_ADDRESS`"],
        "steps.prepare.workers": ["only a step with `items` has workers", "add `items`"],
        "steps.days.run": ["which item it works on", "`{item}`"],
        "steps.days.run[1]": ["these wait for no other", "`mode: ordered`"],
        "steps.days.environment.CACHE_ADDRESS": ["told of the service `cache` in that variable"],
        "steps.days.environment.DAY": ["another for each item", "write it in `run`"],
        "steps.days.secrets.QUEUE_PASSWORD": ["told of the service `queue` in that variable"],
        "steps.days.items.files": ["not a pattern of files", "`{prepare}`"],
        "steps.days.items.queue": ["there is no such service", "did you mean `queue`?"],
        "steps.days.items.attempts": ["below 1"],
        "steps.days.items.lease": ["1 seconds, and a lease has 5 to 3600", "`60s`"],
        "steps.days.items.columns.state": ["every table of items has that column"],
        "steps.days.items.columns.rate": ["did you mean `percent`?"],
        "steps.days.workers": ["below 1"],
        "steps.days.connects[2]": ["it stands here twice"],
        "steps.days.connects[3]": ["there is no such service", "`services: {nothing-like-it: {kind: valkey}}`"],
        "steps.days.results.items": ["the table of the items has that name"],
        "steps.days.results.curve": ["`items.json` alone", "`items.columns`"],
        "steps.weeks.items.files": ["`{weeks}` is the step itself"],
        "steps.weeks.workers": ["3 of them would idle", "`mode: parallel`"],
    }
    for key, words in expected.items():
        assert key in found, f"nothing is said of {key}: {sorted(found)}"
        for word in words:
            assert word in found[key], f"{key}: {found[key]}"
    unexpected = {
        key: said
        for key, said in found.items()
        if key not in expected and not key.startswith(("stack", "slipway:"))
    }
    assert unexpected == {}


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"services.idle": {"kind": "valkey"}}, "services.idle", ["no step connects to it", "`connects`"]),
        ({"steps.days.items": GONE}, "steps.days.run[3]", ["only a step with `items` has `{item}`"]),
        ({"steps.days.items.files": "{prepare}"}, "steps.days.items.files", ["not a pattern of files"]),
        ({"steps.days.items.files": "{prepare}/../*"}, "steps.days.items.files", ["not a pattern of files"]),
        ({"steps.days.items.files": "{folder}/*.csv"}, "steps.days.items.files", ["not a pattern of files"]),
        ({"steps.days.items.files": "{output}/*.csv"}, "steps.days.items.files", ["called `output`"]),
        ({"steps.days.items.mode": "orderd"}, "steps.days.items.mode", ["did you mean `ordered`?"]),
        (
            {"steps.prepare.matrix": {"seed": [1, 2]}, "steps.prepare.run": ["x", "{seed}", "{output}"]},
            "steps.days.items.files",
            ["`prepare` becomes several steps", "add `best` to `prepare`"],
        ),
        ({"services.feature-cache.storage": "2"}, "services.feature-cache.storage", ["did you mean `2Mi`?"]),
        ({"services.data": {"kind": "valkey"}, "steps.days.connects": ["feature-cache", "data", "queue", "queue"]},
         "steps.days.connects[3]", ["it stands here twice"]),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_said_at_its_key(
    tmp_path: Path, changes: dict[str, Any], key: str, words: list[str]
) -> None:
    found = problems(
        tmp_path / "days", changed(DAYS, changes), {"services": {}} if "services.data" in changes else {}
    )
    assert key in found, found
    for word in words:
        assert word in found[key]


ORDERED = {"steps.days.items.mode": "ordered", "steps.days.workers": GONE}


@pytest.mark.parametrize(
    ("content", "section", "key", "words"),
    [
        (
            {},
            {"steps.days": {"pool": "cpu", "mode": "ordered"}},
            "stack.steps.days.workers",
            ["3 of them would idle", "write `workers: 1`"],
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
            ["names no service that hands out the items", "write `static`"],
        ),
        ({}, {"steps.days": {"pool": "cpu", "workers": 0}}, "stack.steps.days.workers", ["below 1"]),
        ({}, {"steps.days": {"pool": "cpu", "mod": "parallel"}}, "stack.steps.days.mod", ["did you mean `mode`?"]),
        ({}, {"steps.prepare": {"pool": "cpu", "workers": 2}}, "stack.steps.prepare.workers", ["no such key"]),
        ({}, {"services.queue": GONE}, "stack.services.queue", ["required, and not there"]),
        ({}, {"services": GONE}, "stack.services", ["required, and not there"]),
        ({}, {"services.queue": {}}, "stack.services.queue.pool", ["required, and not there"]),
        ({}, {"services.quee": {"pool": "cpu"}}, "stack.services.quee", ["did you mean `queue`?"]),
        ({}, {"services.queue.pool": "cqu"}, "stack.services.queue.pool", ["did you mean `cpu`?"]),
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
            ["one node of pool `cpu` has"],
        ),
        ({}, {"services.queue.gpus": 1}, "stack.services.queue.gpus", ["no such key"]),
        ({}, {"schedule": {"cron": "0 3 * * 7"}}, "stack.schedule.cron", ["write `0` for Sunday"]),
        (
            {},
            {"schedule": {"cron": "0 3 * * *", "time_zone": "Berlin"}},
            "stack.schedule.time_zone",
            ["did you mean `Europe/Berlin`?"],
        ),
    ],
)
def test_a_mistake_in_the_stack_file_is_said_at_its_key(
    tmp_path: Path, content: dict[str, Any], section: dict[str, Any], key: str, words: list[str]
) -> None:
    found = problems(tmp_path / "days", changed(DAYS, content), section)
    assert list(found) == [key]
    for word in words:
        assert word in found[key]


def test_what_the_file_says_is_not_said_again_of_the_stack(tmp_path: Path) -> None:
    found = problems(tmp_path / "days", changed(DAYS, {"steps.days.items.mode": "ordered"}))
    assert list(found) == ["steps.days.workers"]


@pytest.mark.parametrize(
    "text",
    ["services: 3", "services: []", "services: {queue: 3}", "services: {queue: null}", "services: [queue]"],
)
def test_services_that_cannot_be_read_make_nothing_else_wrong(tmp_path: Path, text: str) -> None:
    content = changed(DAYS, {**yaml.safe_load(text), "steps.days.connects": []})
    found = problems(tmp_path / "days", content)
    assert set(found) <= {"services", "services.queue"}
    assert found


@pytest.mark.parametrize("items", [3, [], {}, {"fils": "{prepare}/*"}, "{prepare}/*"])
def test_items_that_cannot_be_read_make_no_key_of_the_stack_file_wrong(tmp_path: Path, items: object) -> None:
    found = problems(
        tmp_path / "days",
        changed(
            DAYS, {"steps.days.items": items, "services": {"feature-cache": DAYS["services"]["feature-cache"]}}
        ),
        {"steps.days": {"pool": "cpu", "workers": 2, "mode": "parallel"}, "services.queue": GONE},
    )
    assert found
    assert not [key for key in found if key.startswith("stack")]


@pytest.mark.parametrize("name", ["_", "__class__", "model_config", "a b", "", "model_fields"])
def test_no_name_of_a_service_or_a_step_is_more_than_a_problem(tmp_path: Path, name: str) -> None:
    services = {**DAYS["services"], name: {"kind": "valkey"}}
    steps = {**DAYS["steps"], name: {"run": ["x"], "connects": [name]}}
    found = problems(tmp_path / "days", {**DAYS, "services": services, "steps": steps})
    for section in ("services", "steps"):
        (said,) = (each for key, each in found.items() if key.startswith(section))
        assert "not a Kubernetes name" in said


def test_a_stack_file_without_the_services_is_told_what_to_write(tmp_path: Path) -> None:
    values = stack(written(tmp_path / "days"))
    del values["pipelines"]["days"]["services"]
    with pytest.raises(SettingsError) as caught:
        load(values)
    (problem,) = caught.value.problems
    assert "`services: {queue: {pool: …}, feature-cache: {pool: …}}`" in problem.fix
