"""Apps: what a ``pipeline.yaml`` and a stack file say of them, what becomes of it, and what is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.features.notebook.feature import NotebookSettings
from slipway.features.page.feature import PageSettings
from slipway.infra.pipelines.apps import AppDeclaration, KeptAppSettings, Metrics
from slipway.infra.pipelines.discovery import apps_of
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from tests.infra.pipelines import file_problems
from tests.infra.pipelines.file_problems import check
from tests.infra.pipelines.shop import SHOP, stack, written
from tests.support.stack_values import GONE, changed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "shop")


def declared(folder: Path, changes: Mapping[str, Any] | None = None) -> dict[str, AppDeclaration]:
    settings = load(stack(folder, changes)).pipelines["shop"]
    return {app.name: app for app in apps_of(str(folder), settings)}


def problems(
    folder: Path, content: Mapping[str, Any] | None = None, section: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """What is wrong where the file and the section have these changes."""
    written(folder, changed(SHOP, content or {}))
    return file_problems.problems(folder, stack(folder, section))


def test_a_program_has_what_its_file_says(folder: Path) -> None:
    apps = declared(folder)
    model, shop, notes = apps["model"], apps["shop"], apps["notes"]
    assert model.arguments == ["serve", "--model={train}", "--port", "{port}", "--log", "{pipeline}/log"]
    assert (model.inputs, model.ports, model.people) == ({"train": "train"}, {"grpc": 9001}, False)
    assert (model.metrics, model.probe.path, model.command) == (Metrics("/numbers"), "/healthz", None)
    assert (model.placed_by.cpu, model.placed_by.memory) == ("500m", "1Gi")
    assert shop.arguments == ["python", "shop.py", "--port", "{port}", "--colour", "red"]
    assert (shop.environment, shop.secrets, shop.grace) == ({"TITLE": "{{shop}} in red"}, {"KEY": "shop-key"}, 60)
    assert (shop.connects, shop.after, shop.inputs) == (["model"], ["prepare"], {})
    assert shop.command is not None
    assert shop.command.code == str(folder)
    assert (notes.token, notes.keeps_data, shop.token, shop.keeps_data) == (True, True, False, False)
    assert isinstance(notes.placed_by, KeptAppSettings)
    assert notes.placed_by.storage == "2Gi"
    assert [app.uses_store for app in (model, shop, notes)] == [True, False, False]


def test_only_those_apps_run_that_the_stack_names(folder: Path) -> None:
    assert list(declared(folder, {"apps": {"model": {"pool": "cpu"}}})) == ["model"]
    assert declared(folder, {"apps": {}}) == {}
    assert declared(folder, {"apps": GONE}) == {}
    assert list(declared(folder, {"apps.shop": None, "apps.notes": None})) == ["model"]


def test_kinds_take_their_keys_from_the_file_and_their_places_from_the_stack(tmp_path: Path) -> None:
    apps = {
        "model": SHOP["apps"]["model"],
        "page": {
            "kind": "page",
            "serving": "model",
            "model": "it",
            "labels": ["no", "yes"],
            "samples": "{prepare}",
        },
        "notebook": {"kind": "notebook", "serving": "model", "resources": {"memory": "2Gi"}},
        "curves": {"kind": "tensorboard", "step": "train"},
    }
    folder = written(tmp_path / "shop", {**SHOP, "apps": apps})
    by_name = declared(folder, {"apps": {name: {"pool": "cpu"} for name in apps}})
    page, notebook = by_name["page"], by_name["notebook"]
    assert isinstance(page.placed_by, PageSettings)
    assert (page.connects, page.inputs) == (["model"], {"prepare": "prepare"})
    assert "--samples={prepare}" in page.arguments
    assert by_name["curves"].arguments[:2] == ["--logdir", "{pipeline}/train"]
    assert isinstance(notebook.placed_by, NotebookSettings)
    assert (notebook.placed_by.memory, notebook.after) == ("2Gi", ["prepare", "train"])


WRONG = {
    "apps.model.ports": {"http": 9002, "Grpc_": 9003, "other": 9000},
    "apps.model.port": 9000,
    "apps.model.metrics": {"port": "number"},
    "apps.model.probe": {"path": "healthz"},
    "apps.shop.run": ["python", "shop.py", "--model", "{model}", "{cache}", "{colr}", "{port}"],
    "apps.shop.environment": {"MODEL_ADDRESS": "x", "SLIPWAY_X": "y"},
    "apps.shop.connects": ["model", "cache", "shop", "modle", "model"],
    "apps.shop.after": ["prepair"],
    "apps.shop.code": "../elsewhere",
    "apps.notes.port": 80,
    "apps.notes.run": ["notes", "{data}"],
    "apps.notes.rehearsal": {},
    "apps.train": {"kind": "program", "run": ["x", "{port}"], "port": 7000},
    "apps.cache": {"kind": "program", "run": ["x", "{port}"], "port": 7000},
    "apps.page": {"kind": "pag", "serving": "model", "model": "it"},
    "apps.book": {"serving": "model", "examples": "{prepare}/*"},
    "parameters.port": {"type": "integer", "default": 1},
    "parameters.apps": {"type": "integer", "default": 1},
}


def test_everything_wrong_in_a_file_is_said_at_once(tmp_path: Path) -> None:
    texts = problems(tmp_path / "shop", WRONG)
    keys = """
        apps.model.ports.Grpc_ apps.shop.environment.SLIPWAY_X apps.shop.connects[1] apps.shop.connects[2]
        apps.shop.connects[4] apps.shop.code apps.notes.run apps.notes.rehearsal apps.train apps.cache
        parameters.port parameters.apps
    """
    names = {
        "apps.model.ports.http": ["`port`"],
        "apps.model.ports.other": ["`port`"],
        "apps.model.metrics.port": ["`http`"],
        "apps.model.probe.path": ["`/`"],
        "apps.shop.run[3]": ["`model`", "`MODEL_ADDRESS`"],
        "apps.shop.run[4]": ["`cache`"],
        "apps.shop.run[5]": ["`{colour}`"],
        "apps.shop.environment.MODEL_ADDRESS": ["`model`"],
        "apps.shop.connects[3]": ["`model`"],
        "apps.shop.after[0]": ["`prepare`"],
        "apps.notes.port": ["below 1024"],
        "apps.page.kind": ["`page`"],
        "apps.book.kind": ["`notebook`"],
        "stack.apps.shop": ["`cache`"],
    }
    check(texts, keys, names)


def test_apps_that_wait_for_one_another_are_refused(tmp_path: Path) -> None:
    assert problems(tmp_path / "shop", {"apps.model.connects": ["shop"]}).keys() == {"apps.model"}


SEVERAL: dict[str, Any] = {
    "steps.train.matrix": {"colour": ["red", "blue"]},
    "steps.train.run": ["python", "train.py", "{prepare}", "--output", "{output}", "{colour}"],
    "steps.show.run": ["python", "show.py"],
    "apps.model.run": ["serve", "--port", "{port}"],
}
"""Two steps `train`, which neither an app nor the step `show` reads."""

SERVER = {"kind": "tensorflow-serving", "model": "risk", "step": "train", "requests": "{prepare}/requests.npz"}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"apps.model.run": ["serve", "--model={train}", "{port}"]}, "apps.model.run[1]"),
        ({"apps.model.environment": {"MODEL": "{train}"}}, "apps.model.environment.MODEL"),
        (
            {"apps.page": {"kind": "page", "serving": "model", "model": "it", "samples": "{train}"}},
            "apps.page.samples",
        ),
        ({"apps.server": SERVER}, "apps.server.step"),
        ({"steps.show.environment": {"MODEL": "{train}"}}, "steps.show.environment.MODEL"),
    ],
)
def test_several_steps_are_refused_where_one_is_read(tmp_path: Path, changes: Mapping[str, Any], key: str) -> None:
    shown = {"steps.show": {"pool": "cpu"}}
    assert problems(tmp_path / "shop", {**SEVERAL, **changes}, shown).keys() == {key}


def test_a_word_of_a_command_becomes_one_for_each_of_several_steps(tmp_path: Path) -> None:
    several = {**SEVERAL, "apps.model.run": ["serve", "{train}", "{port}"]}
    assert problems(tmp_path / "shop", several, {"steps.show": {"pool": "cpu"}}) == {}


@pytest.mark.parametrize(("server", "variable"), [(SERVER, "SERVER_GRPC_ADDRESS"), (None, "MODEL_GRPC_ADDRESS")])
def test_a_variable_with_the_address_of_another_app_is_refused(
    tmp_path: Path, server: Mapping[str, Any] | None, variable: str
) -> None:
    changes = {"apps.server": server} if server else {}
    connects = ["server", "model"] if server else ["model"]
    texts = problems(
        tmp_path / "shop",
        {**changes, "apps.shop.connects": connects, "apps.shop.environment": {variable: "x"}},
        {"apps.server": {"pool": "cpu"}} if server else {},
    )
    assert texts.keys() == {f"apps.shop.environment.{variable}"}


def test_two_apps_whose_addresses_would_share_a_variable_are_refused(tmp_path: Path) -> None:
    other = {"kind": "program", "run": ["python", "shop.py", "{port}"], "port": 7000}
    placed = {"apps.model-grpc": {"pool": "cpu"}}
    changes = {"apps.model-grpc": other, "apps.shop.connects": ["model", "model-grpc"]}
    texts = problems(tmp_path / "shop", changes, placed)
    assert texts.keys() == {"apps.shop.connects[1]"}
    assert "`MODEL_GRPC_ADDRESS`" in texts["apps.shop.connects[1]"]
    alone = {**changes, "apps.shop.connects": ["model-grpc"]}
    assert problems(tmp_path / "one", alone, placed) == {}


def test_a_model_that_the_server_does_not_have_is_refused(tmp_path: Path) -> None:
    page = {"kind": "page", "serving": "server", "model": "rsk"}
    texts = problems(tmp_path / "shop", {"apps.server": SERVER, "apps.page": page})
    check(texts, "", {"apps.page.model": ["`server`", "`risk`"]})


def test_a_model_that_could_not_be_published_is_refused(tmp_path: Path) -> None:
    server = {"kind": "tensorflow-serving", "model": "../train", "step": "train", "requests": "held_out.npz"}
    page = {"kind": "page", "serving": "server", "model": "../train"}
    texts = problems(tmp_path / "shop", {"apps.server": {**server, "path": "/exported"}, "apps.page": page})
    names = {"apps.server.requests": ["`{prepare}/test.npz`"]}
    check(texts, "apps.server.model apps.server.path", names)


def test_a_step_with_the_name_of_the_one_that_publishes_is_refused(tmp_path: Path) -> None:
    step = {"run": ["python", "train.py", "{output}"]}
    texts = problems(tmp_path / "shop", {"apps.server": SERVER, "steps.server-publish": step})
    assert texts.keys() >= {"steps.server-publish"}


def test_a_stack_that_leaves_out_what_an_app_connects_to_is_refused(folder: Path) -> None:
    texts = problems(folder, section={"apps.model": GONE})
    check(texts, "", {"stack.apps.shop": ["`model`", "`model: {pool: …}`"]})


@pytest.mark.parametrize(
    ("changes", "key", "name"),
    [
        ({"apps.notes.replicas": 2}, "notes.replicas", "volume"),
        ({"apps.notes.autoscale": {"most": 2}}, "notes.autoscale", "volume"),
        ({"apps.model.replicas": 3, "apps.model.autoscale": {"most": 3}}, "model.autoscale.most", "3"),
        ({"apps.model.pool": "cpus"}, "model.pool", "`cpu`"),
        ({"apps.model.gpus": 1}, "model.gpus", "GPUs"),
        ({"apps.model.pool": "train"}, "model.gpus", "idle"),
        ({"apps.shop.memory": "100Gi"}, "shop.memory", "`cpu`"),
        ({"apps.model.replicas": 50}, "model.replicas", "50"),
        ({"apps.shop.storage": "1Gi"}, "shop.storage", ""),
        ({"apps.sop": {"pool": "cpu"}}, "sop", "`shop`"),
    ],
)
def test_a_place_that_cannot_work_is_refused(folder: Path, changes: dict[str, Any], key: str, name: str) -> None:
    check(problems(folder, section=changes), "", {f"stack.apps.{key}": [name]})


def test_a_secret_that_an_app_lacks_is_named(folder: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        load(changed(stack(folder), {"secrets": GONE}))
    (problem,) = raised.value.problems
    assert problem.key == "slipway:secrets.shop-key"
    assert "app `shop` of pipeline `shop` needs it for `KEY`" in problem.reason


def test_two_services_of_one_name_are_refused(folder: Path) -> None:
    values = stack(folder)
    other = {**values["pipelines"]["shop"], "uses": str(folder)}
    renamed = {"kind": "program", "run": ["x", "{port}"], "port": 7000}
    written(folder, changed(SHOP, {"apps.a-b": renamed, "apps.b": renamed}))
    sections = {
        "shop": {**other, "apps": {"a-b": {"pool": "cpu"}}},
        "shop-a": {**other, "apps": {"b": {"pool": "cpu"}}},
    }
    with pytest.raises(SettingsError) as raised:
        load({**values, "pipelines": sections})
    assert "called `shop-a-b`" in raised.value.problems[0].reason
