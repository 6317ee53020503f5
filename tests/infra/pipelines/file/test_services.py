"""Services, items and workers: what a ``pipeline.yaml`` and a stack file say of them, and what becomes of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.features.items.feature import Items
from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.pipelines import valkey
from slipway.infra.pipelines.contract import Probe, ServiceDeclaration, StepDeclaration
from slipway.infra.pipelines.discovery import DeclaredPipeline, declared_steps, services_of
from slipway.infra.pipelines.images import lock_problem
from slipway.infra.pipelines.results import Table
from slipway.infra.placed import Step
from slipway.infra.placement.placing import place
from slipway.infra.settings.loading import load
from slipway.infra.stack.configuration import shipping_problems
from tests.infra.pipelines.days import DAYS, IMAGE, stack, written
from tests.support.checkout import ROOT
from tests.support.recording import record
from tests.support.stack_values import changed
from tests.support.stand_in import platform


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "days")


def declared(
    folder: Path, changes: dict[str, Any] | None = None
) -> tuple[Sequence[StepDeclaration], Sequence[ServiceDeclaration]]:
    settings = load(stack(folder, changes)).pipelines["days"]
    return declared_steps(str(folder), settings), services_of(str(folder), settings)


def placed(folder: Path, changes: dict[str, Any] | None = None) -> dict[str, Step]:
    """The steps by name, on a pool that has two nodes with 3900m and 13000Mi each."""
    settings = load(stack(folder, changes)).pipelines["days"]
    pipeline = DeclaredPipeline("days", str(folder), settings)

    def program() -> Any:
        return place([pipeline], {"here": platform()}, Gates("image"), ROOT)["days"]

    return {step.name: step for step in record(program, {}, preview=True).result}


def test_a_step_with_items_keeps_their_references_for_the_workers(folder: Path) -> None:
    days = declared(folder)[0][1]
    assert days.arguments == ["python", "train_day.py", "--day", "{item}", "--output", "{output}", "--seed", "1"]
    (items,) = days.parts
    assert isinstance(items, Items)
    meant = Items("{prepare}/days/*.csv", "parallel", "queue", attempts=2, allow_failed=1, lease=120, pods=4)
    assert replace(items, results=()) == meant
    assert (days.pods, days.inputs, days.connects) == (4, {"prepare": "prepare"}, ("queue", "feature-cache"))


def test_a_valkey_server_refuses_writes_below_its_memory_limit_and_keeps_what_it_was_told(folder: Path) -> None:
    queue, _ = declared(folder)[1]
    begins = queue.arguments.index("valkey-server") + 1
    *words, bind, _, _ = queue.arguments[begins:]
    assert bind == "--bind"
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options["--maxmemory"] == "768mb"
    assert options["--maxmemory-policy"] == "noeviction"
    assert (options["--appendonly"], options["--appendfsync"]) == ("yes", "everysec")
    assert (options["--port"], options["--dir"]) == ("{port}", "{data}")
    assert queue.image.startswith("valkey/valkey:9")
    assert "@sha256:" in queue.image
    assert (queue.placed_by.cpu, queue.placed_by.storage) == ("500m", "2Gi")
    larger = declared(folder, {"services.queue": {"pool": "cpu", "memory": "2Gi"}})[1][0]
    assert "1536mb" in larger.arguments


def test_a_valkey_server_of_which_nobody_says_what_it_needs_is_a_small_one(tmp_path: Path) -> None:
    folder = written(tmp_path / "days", changed(DAYS, {"services.queue": {"kind": "valkey"}}))
    queue, _ = declared(folder)[1]
    assert (queue.placed_by.cpu, queue.placed_by.memory) == ("250m", "256Mi")
    assert "192mb" in queue.arguments
    larger, _ = declared(folder, {"services.queue": {"pool": "cpu", "memory": "1Gi"}})[1]
    assert (larger.placed_by.cpu, larger.placed_by.memory) == ("250m", "1Gi")


def test_what_stands_in_for_a_valkey_server_takes_its_options_and_is_locked(folder: Path) -> None:
    substitute = declared(folder)[1][0].substitute
    assert substitute is not None
    assert substitute.requirements is not None
    assert lock_problem(Path(substitute.requirements)) is None
    assert "--appendonly" in substitute.run
    assert substitute.program == "valkey-server"


def test_the_password_of_a_valkey_server_is_in_no_command_line(folder: Path) -> None:
    queue, _ = declared(folder)[1]
    assert queue.substitute is not None
    for words in (queue.arguments, queue.substitute.run, queue.probe.command):
        assert not any("{password}" in word or "requirepass {" in word for word in words)
    assert 'requirepass "$QUEUE_PASSWORD"' in queue.arguments[2]
    probe = [word.format(port=6379) for word in queue.probe.command]
    assert valkey.probe_settings(probe) == ("QUEUE_PASSWORD", 6379)
    assert valkey.probe_settings(["sh", "-c", "true", "6379"]) is None


def test_a_program_of_ones_own_is_a_service(folder: Path) -> None:
    cache = declared(folder, {"seed": 7})[1][1]
    assert (cache.image, cache.port, cache.probe) == (IMAGE, 7000, Probe("/healthz"))
    assert cache.arguments[-4:] == ["{data}", "--key={password}", "--seed", "7"]
    assert cache.substitute is not None
    assert (list(cache.substitute.run), cache.substitute.requirements) == (
        ["python", "cached.py", "{port}"],
        str(folder / "cache.txt"),
    )


def test_the_table_of_items_has_the_columns_that_the_program_adds(folder: Path) -> None:
    (table,) = declared(folder)[0][1].results
    assert isinstance(table, Table)
    assert (table.name, table.title, table.path) == ("items", "Items", "items.json")
    assert [column.key for column in table.columns] == [
        "item", "state", "attempts", "seconds", "average_precision", "reason"
    ]  # fmt: skip


def test_a_stack_file_says_how_many_work_and_how_items_are_handed_out(folder: Path) -> None:
    steps, services = declared(folder, {"steps.days": {"pool": "cpu", "workers": 2, "assignment": "static"}})
    (items,) = steps[1].parts
    assert isinstance(items, Items)
    assert (items.pods, items.queue, steps[1].connects) == (2, None, ("feature-cache",))
    assert [service.name for service in services] == ["feature-cache"], "nobody connects to the queue"
    ordered = {"steps.days": {"pool": "cpu", "workers": 1, "mode": "ordered"}}
    (items,) = declared(folder, ordered)[0][1].parts
    assert isinstance(items, Items)
    assert (items.pods, items.mode, items.queue) == (1, "ordered", "queue")


def test_a_stack_has_services_only_where_a_step_connects_to_one(tmp_path: Path) -> None:
    content = changed(DAYS, {"steps.days.connects": [], "services": {"queue": {"kind": "valkey"}}})
    folder = written(tmp_path / "days", content)
    services = {"services": {"queue": {"pool": "cpu"}}}
    assert load(stack(folder, services)).request.has_services
    static = {**services, "steps.days": {"pool": "cpu", "assignment": "static"}}
    assert not load(stack(folder, static)).request.has_services
    assert not load(stack(folder, static)).pipelines["days"].schedule


def test_a_service_is_made_once_for_all_steps_that_connect_to_it(tmp_path: Path) -> None:
    content = changed(DAYS, {"steps.days.matrix": {"seed": [1, 2]}, "steps.report.connects": ["feature-cache"]})
    steps = placed(written(tmp_path / "days", content))
    first, second = steps["days-1"], steps["days-2"]
    assert first.connects["queue"] is second.connects["queue"]
    assert steps["report"].connects["feature-cache"] is first.connects["feature-cache"]
    queue = first.connects["queue"]
    assert list(queue.clients) == ["days-1", "days-2"]
    assert (queue.address, queue.address_variable) == ("days-queue:6379", "QUEUE_ADDRESS")
    assert (queue.pool.name, queue.storage, queue.resources.memory) == ("cpu", 2048, 1024)
    cache = first.connects["feature-cache"]
    assert cache.password_variable == "FEATURE_CACHE_PASSWORD"
    assert not steps["prepare"].connects


def test_variants_with_workers_wait_for_room_for_all_of_them(tmp_path: Path) -> None:
    """Pods of 3 CPUs have room on two nodes, and beside services on one: the second variant would wait."""
    content = changed(DAYS, {"steps.days.matrix": {"seed": [1, 2]}, "steps.days.workers": 2})
    folder = written(tmp_path / "days", content)
    steps = placed(folder, {"steps.days": {"pool": "cpu", "cpu": "3"}})
    assert steps["days-1"] in steps["days-2"].after


def test_more_workers_than_the_pool_has_room_for_are_said(folder: Path, warnings: list[str]) -> None:
    placed(folder, {"steps.days": {"pool": "cpu", "cpu": "3", "workers": 9}})
    (warning,) = warnings
    assert warning.startswith("slipway:pipelines.days.steps.days.workers: ")
    assert "1 of 9" in warning
    placed(folder, {"steps.days": {"pool": "cpu", "cpu": "3", "workers": 1}})
    assert len(warnings) == 1


def test_services_take_room_that_steps_lack(folder: Path, warnings: list[str]) -> None:
    services = {f"services.{name}": {"pool": "cpu", "cpu": "2"} for name in ("queue", "feature-cache")}
    steps = placed(folder, {**services, "steps.prepare": {"pool": "cpu", "cpu": "2"}, "steps.days.workers": 2})
    assert steps["prepare"].resources.cpu == 2000
    (warning,) = warnings
    assert warning.startswith("slipway:pipelines.days.steps.prepare.pool: ")
    assert "days-queue, days-feature-cache" in warning


def test_a_lock_file_of_a_service_is_checked_and_ships_with_no_step(folder: Path) -> None:
    assert shipping_problems(stack(folder), ROOT) == []
    command = placed(folder)["prepare"].command
    assert command is not None
    assert (folder / "cache.txt").resolve() in command.left_out
    (folder / "cache.txt").write_text("flask\n", encoding="utf-8")
    (problem,) = shipping_problems(stack(folder), ROOT)
    assert problem.key == f"{folder}/pipeline.yaml: services.feature-cache.rehearsal.requirements"
    assert "not a lock file" in problem.reason
