"""A key that a release renamed: its old name works for one minor version, with a warning that names the new."""

import json
import logging
import re
from collections.abc import Iterator
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.engine.evaluation.__main__ import evaluate_stack
from slipway.engine.evaluation.decoding import decode
from slipway.engine.evaluation.encoding import Secrets
from slipway.infra.clouds.existing.settings import ExistingPool
from slipway.infra.pipelines.app_kinds.contract import AppKind
from slipway.infra.pipelines.file.shape import PipelineStep
from slipway.infra.schema.base import Model
from slipway.infra.schema.problems import Problem, SettingsError
from slipway.infra.schema.renamed import Removed, Renamed
from slipway.infra.settings.loading import load
from slipway.infra.version import FIRST, newest_release
from slipway.preview.build import Options, build
from slipway.preview.revisions import Evaluations
from tests.support.checkout import ROOT
from tests.support.project import PROJECT_FILE
from tests.support.stack_values import changed
from tests.support.tree import write_tree

COUNT = {"description": "Counts.", "command": ["python", "count.py", "{output}"]}
"""A step by the old name of its command."""

POOL = "clusters.here.pools.cpu"
LABELS = {"kubernetes.io/os": "linux"}


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if version 0.2 had renamed a key of the stack file and one of `pipeline.yaml`."""
    monkeypatch.setattr(ExistingPool, "renamed", {"labels": Renamed("selector", "0.2")})
    monkeypatch.setattr(PipelineStep, "renamed", {"command": Renamed("run", "0.2")})


def folder(at: Path, step: dict[str, Any], **more: Any) -> Path:
    content = yaml.safe_dump({"description": "Counts.", "steps": {"count": step}, **more})
    return write_tree(at / "lines", {"pipeline.yaml": content, "count.py": "print()\n"})


def stack(pipeline: Path) -> dict[str, Any]:
    """A stack that names the nodes of its pool by the old name of that key."""
    pool = {"labels": LABELS, "cpu": "4", "memory": "8Gi", "ephemeral_storage": "10Gi"}
    return {
        "clusters": {"here": {"cloud": "existing", "kubeconfig": "~/.kube/config", "pools": {"cpu": pool}}},
        "store": {"kind": "pvc"},
        "pipelines": {"lines": {"uses": str(pipeline), "steps": {"count": {"pool": "cpu"}}}},
    }


def problems(raw: dict[str, Any]) -> dict[str, Problem]:
    with pytest.raises(SettingsError) as refused:
        load(raw)
    assert len(refused.value.problems) == len({problem.key for problem in refused.value.problems})
    return {problem.key: problem for problem in refused.value.problems}


@pytest.mark.usefixtures("released")
def test_the_old_names_work_and_are_told_once(tmp_path: Path) -> None:
    pipeline = folder(tmp_path, COUNT)
    overlay = {"clusters": {"here": {"pools": {"cpu": {"labels": {}}}}}}
    told: list[Problem] = []
    settings = load({**stack(pipeline), "rehearsal": {**overlay, "namespace": "here"}}, warn=told.append)
    assert settings.clusters["here"].pools["cpu"].model_dump()["selector"] == LABELS
    keys = [f"slipway:{POOL}.labels", f"slipway:rehearsal.{POOL}.labels"]
    assert [problem.key for problem in told] == [*keys, f"{pipeline}/pipeline.yaml: steps.count.command"]
    assert all("`selector`" in problem.fix for problem in told[:2])
    assert "`run`" in told[2].fix
    assert all("0.3" in problem.fix for problem in told), "the version that refuses them"
    wrong = changed(stack(pipeline), {f"{POOL}.labels": "linux", f"{POOL}.cpu": "x"})
    assert problems(wrong).keys() == {f"slipway:{POOL}.labels", f"slipway:{POOL}.cpu"}, "as the file has them"


@pytest.mark.usefixtures("released")
def test_both_names_are_a_problem(tmp_path: Path) -> None:
    pipeline = folder(tmp_path, {**COUNT, "run": "true"})
    both = changed(stack(pipeline), {f"{POOL}.selector": LABELS})
    expected = {f"slipway:{POOL}.labels": "`selector`", f"{pipeline}/pipeline.yaml: steps.count.command": "`run`"}
    refused = problems(both)
    assert refused.keys() == expected.keys()
    assert all("remove" in problem.fix and expected[key] in problem.fix for key, problem in refused.items())


def test_after_a_minor_version_the_old_name_is_unknown_and_its_fix_has_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExistingPool, "renamed", {"labels": Renamed("selector", "0.2", removed=True)})
    monkeypatch.setattr(PipelineStep, "renamed", {"command": Renamed("run", "0.2", removed=True)})
    pipeline = folder(tmp_path, COUNT)
    refused = problems(stack(pipeline))
    assert {key: problem.fix for key, problem in refused.items()} == {
        f"slipway:{POOL}.labels": "write `selector`",
        f"{pipeline}/pipeline.yaml: steps.count.command": "write `run`",
    }


@pytest.mark.usefixtures("released")
def test_a_preview_has_each_as_a_finding_and_not_as_a_remark_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = folder(tmp_path, COUNT)
    config = {f"slipway:{key}": value for key, value in stack(pipeline).items()}
    project = {"Pulumi.yaml": PROJECT_FILE, "__main__.py": "from slipway import run\n\nrun()\n"}
    write_tree(tmp_path, {**project, "stacks/Pulumi.here.yaml": json.dumps({"config": config})})
    document = evaluate_stack("here", tmp_path, Secrets(b"k"), lambda _: None)
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("pools.cpu.labels" in message for message in messages) == 1, "what `pulumi up` says"
    evaluated = decode("here", json.loads(json.dumps({**document, "remarks": messages})))
    [preview] = build(Evaluations({"here": evaluated}, {}), Options(date(2026, 11, 26), lambda _: {})).stacks
    findings = [finding for finding in preview.findings if finding.policy == "deprecated-key"]
    assert {finding.name: finding.severity for finding in findings} == {
        f"slipway:{POOL}.labels": "warning",
        f"{pipeline}/pipeline.yaml: steps.count.command": "warning",
    }
    assert not [remark for remark in preview.remarks if "labels" in remark or "command" in remark]


def test_a_removed_key_or_kind_is_refused_with_what_to_write_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `cpus` is as near to `cpu` as a misspelling, and is none.
    monkeypatch.setattr(ExistingPool, "removed", {"cpus": Removed("write `nodes`")})
    monkeypatch.setattr(PipelineStep, "removed", {"runs": Removed("write two steps")})
    monkeypatch.setattr(AppKind, "removed_kinds", {"programs": Removed("write `program`, once for each")})
    pipeline = folder(tmp_path, {"run": "true", "runs": 2}, apps={"shop": {"kind": "programs"}})
    raw = changed(stack(pipeline), {f"{POOL}.cpus": 2})
    raw["clusters"]["here"]["pools"]["cpu"]["selector"] = raw["clusters"]["here"]["pools"]["cpu"].pop("labels")
    assert {key: problem.fix for key, problem in problems(raw).items()} == {
        f"slipway:{POOL}.cpus": "write `nodes`",
        f"{pipeline}/pipeline.yaml: steps.count.runs": "write two steps",
        f"{pipeline}/pipeline.yaml: apps.shop.kind": "write `program`, once for each",
    }


def models(model: type[Model] = Model) -> Iterator[type[Model]]:
    yield model
    for below in model.__subclasses__():
        yield from models(below)


def test_every_renamed_key_is_right_and_none_works_longer_than_it_should() -> None:
    # The commit of a release has it in the changelog before it has its tag.
    major, minor, _ = map(int, (newest_release(ROOT) or FIRST).split("."))
    for model in models():
        for old, new in model.renamed.items():
            assert new.to in model.model_fields, f"{model.__name__}: {old} is now {new.to}, which is no key of it"
            assert old not in model.model_fields, f"{model.__name__}: {old} is a key of it"
            works = (major, minor) < tuple(map(int, new.until.split(".")))
            assert works != new.removed, f"{model.__name__}: {old} should {'' if works else 'not '}work in {minor}"
        for old, gone in model.removed.items():
            assert old not in model.model_fields, f"{model.__name__}: {old} is a key of it"
            since = tuple(map(int, gone.since.split(".")))
            assert (major, minor) <= since, f"{model.__name__}: {old} is gone since {gone.since}: drop the entry"


def set_by_transformations() -> Iterator[Any]:
    for model in models():
        for key, gone in model.removed.items():
            if gone.argument:
                yield pytest.param(gone, id=f"{model.__name__}.{key}")


@pytest.mark.parametrize("gone", list(set_by_transformations()))
def test_what_a_transformation_sets_is_an_argument_of_a_resource(gone: Removed) -> None:
    path, name, argument = re.findall(r"([a-z0-9.]+)\.([A-Z]\w+)\.(.+)", gone.argument)[0]
    module = import_module(f"pulumi_{path}")
    holder = getattr(module, name)
    for key in re.sub(r"\[\d+\]", "", argument).split("."):
        held = re.search(r"outputs\.(\w+)", str(getattr(holder, key).fget.__annotations__["return"]))
        holder = getattr(module.outputs, held[1]) if held else None
    assert name in gone.instead
    assert argument in gone.instead
    assert f"`{argument.partition('.')[0]}" in (ROOT / "docs" / "transformations.md").read_text(encoding="utf-8")
