"""Apps: what a ``pipeline.yaml`` and a stack file say of them, what becomes of it, and what is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.pipelines.apps import AppDeclaration, KeptAppSettings, Metrics
from infra.pipelines.discovery import apps_of
from infra.pipelines.notebook import NotebookSettings
from infra.pipelines.page import PageSettings
from infra.schema.problems import SettingsError
from infra.settings.loading import load
from tests.infra.pipelines.shop import SHOP, stack, written
from tests.support.stack_values import GONE, changed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "shop")


def declared(folder: Path, changes: Mapping[str, Any] | None = None) -> dict[str, AppDeclaration]:
    settings = load(stack(folder, changes)).pipelines["shop"]
    return {each.name: each for each in apps_of(str(folder), settings)}


def problems(
    folder: Path, content: Mapping[str, Any] | None = None, section: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Reasons and fixes by key: those of the file below `apps`, those of the stack below `stack`."""
    written(folder, changed(SHOP, content or {}))
    try:
        load(stack(folder, section))
    except SettingsError as error:
        found: dict[str, str] = {}
        for problem in error.problems:
            key = problem.key.removeprefix(f"{folder}/pipeline.yaml").removeprefix(": ")
            key = key.replace("slipway:pipelines.shop", "stack")
            found[key] = "\n".join(filter(None, [found.get(key), problem.reason, problem.fix]))
        return found
    return {}


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
    assert [each.uses_store for each in (model, shop, notes)] == [True, False, False]


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
        "notebook": {"kind": "notebook", "serving": "model", "model": "it", "resources": {"memory": "2Gi"}},
        "curves": {"kind": "tensorboard", "step": "train"},
    }
    folder = written(tmp_path / "shop", {**SHOP, "apps": apps})
    found = declared(folder, {"apps": {name: {"pool": "cpu"} for name in apps}})
    page, notebook = found["page"], found["notebook"]
    assert isinstance(page.placed_by, PageSettings)
    assert (page.connects, page.inputs) == (["model"], {"prepare": "prepare"})
    assert "--samples={prepare}" in page.arguments
    assert found["curves"].arguments[:2] == ["--logdir", "{pipeline}/train"]
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
    found = problems(tmp_path / "shop", WRONG)
    expected = {
        "apps.model.ports.http": ["`port` is called that"],
        "apps.model.ports.Grpc_": ["not the name of a port", "lower-case"],
        "apps.model.ports.other": ["`port` is that port too"],
        "apps.model.metrics.port": ["no port of that name", "`http`"],
        "apps.model.probe.path": ["begin it with `/`"],
        "apps.shop.run[3]": ["`model` is an app", "read `MODEL_ADDRESS`"],
        "apps.shop.run[4]": ["`cache` is a service, to which steps alone connect"],
        "apps.shop.run[5]": ["did you mean `{colour}`?"],
        "apps.shop.environment.MODEL_ADDRESS": ["told of the app `model` in that variable"],
        "apps.shop.environment.SLIPWAY_X": ["are Slipway's"],
        "apps.shop.connects[1]": ["a service, to which steps alone connect"],
        "apps.shop.connects[2]": ["the app itself"],
        "apps.shop.connects[3]": ["did you mean `model`?"],
        "apps.shop.connects[4]": ["it stands here twice"],
        "apps.shop.after[0]": ["did you mean `prepare`?"],
        "apps.shop.code": ["not a path below the pipeline's folder"],
        "apps.notes.port": ["below 1024"],
        "apps.notes.run": ["on which port to listen"],
        "apps.notes.rehearsal": ["empty"],
        "apps.train": ["a step has that name too"],
        "apps.cache": ["a service has that name too"],
        "apps.page.kind": ["did you mean `page`?"],
        "apps.book.kind": ["required, and not there", "`notebook`"],
        "parameters.port": ["means something else in commands of apps"],
        "parameters.apps": ["a meaning of its own"],
        "stack.apps.shop": ["connects to the app `cache`, which the stack leaves out"],
    }
    for key, words in expected.items():
        assert key in found, f"nothing is said of {key}: {sorted(found)}"
        for word in words:
            assert word in found[key], f"{key}: {found[key]}"
    assert set(found) - set(expected) == set()


def test_apps_that_wait_for_one_another_are_refused(tmp_path: Path) -> None:
    circle = {"apps.model.connects": ["shop"]}
    assert "wait for one another" in problems(tmp_path / "shop", circle)["apps.model"]


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
        ({"apps.book": {"kind": "notebook", "examples": "{train}/*.png"}}, "apps.book.examples"),
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
    found = problems(
        tmp_path / "shop",
        {**changes, "apps.shop.connects": connects, "apps.shop.environment": {variable: "x"}},
        {"apps.server": {"pool": "cpu"}} if server else {},
    )
    assert found.keys() == {f"apps.shop.environment.{variable}"}


def test_a_model_that_the_server_does_not_have_is_refused(tmp_path: Path) -> None:
    page = {"kind": "page", "serving": "server", "model": "rsk"}
    notebook = {"kind": "notebook", "serving": "server"}
    found = problems(tmp_path / "shop", {"apps.server": SERVER, "apps.page": page, "apps.book": notebook})
    said = "the app `server` serves the model `risk`\nwrite `risk`"
    assert found == {"apps.page.model": said, "apps.book.model": said}


def test_a_model_that_could_not_be_published_or_never_answers_is_refused(tmp_path: Path) -> None:
    server = {"kind": "tensorflow-serving", "model": "../train", "step": "train", "requests": "held_out.npz"}
    page = {"kind": "page", "serving": "server", "model": "../train", "version": "best"}
    found = problems(tmp_path / "shop", {"apps.server": {**server, "path": "/exported"}, "apps.page": page})
    assert found.keys() == {"apps.server.model", "apps.server.path", "apps.server.requests", "apps.page.version"}
    assert "a folder of the store" in found["apps.server.model"]
    assert "an absolute path" in found["apps.server.path"]
    assert "write for example `{prepare}/test.npz`" in found["apps.server.requests"]
    assert "write `stable` or `canary`, or `null`" in found["apps.page.version"]


def test_a_step_with_the_name_of_the_one_that_publishes_is_refused(tmp_path: Path) -> None:
    step = {"run": ["python", "train.py", "{output}"]}
    found = problems(tmp_path / "shop", {"apps.server": SERVER, "steps.server-publish": step})
    assert "publishes for the app `server`" in found["steps.server-publish"]


def test_a_stack_that_leaves_out_what_an_app_connects_to_is_refused(folder: Path) -> None:
    found = problems(folder, section={"apps.model": GONE})
    assert found.keys() == {"stack.apps.shop"}
    assert "connects to the app `model`, which the stack leaves out" in found["stack.apps.shop"]
    assert "add `model: {pool: …}` beside it" in found["stack.apps.shop"]


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"apps.notes.replicas": 2}, "stack.apps.notes.replicas", "keeps its data on a volume"),
        ({"apps.notes.autoscale": {"most": 2}}, "stack.apps.notes.autoscale", "keeps its data on a volume"),
        (
            {"apps.model.replicas": 3, "apps.model.autoscale": {"most": 3}},
            "stack.apps.model.autoscale.most",
            "not more than the 3 pods",
        ),
        ({"apps.model.pool": "cpus"}, "stack.apps.model.pool", "did you mean `cpu`?"),
        ({"apps.model.gpus": 1}, "stack.apps.model.gpus", "has no GPUs"),
        ({"apps.model.pool": "train"}, "stack.apps.model.gpus", "would be paid for and idle"),
        ({"apps.shop.memory": "100Gi"}, "stack.apps.shop.memory", "one node of pool `cpu` has"),
        ({"apps.model.replicas": 50}, "stack.apps.model.replicas", "would wait for ever"),
        ({"apps.shop.storage": "1Gi"}, "stack.apps.shop.storage", "there is no such key"),
        ({"apps.sop": {"pool": "cpu"}}, "stack.apps.sop", "did you mean `shop`?"),
    ],
)
def test_a_place_that_cannot_work_is_refused(folder: Path, changes: dict[str, Any], key: str, words: str) -> None:
    found = problems(folder, section=changes)
    assert found.keys() == {key}
    assert words in found[key]


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
