"""`slipway explain`: what a key means, by its path, in which names may be left out."""

import json
import re
from typing import Any

import pytest

from slipway.command.reference.explain import main
from slipway.infra.exits import Exit
from tests.support.checkout import ROOT

ANY_STEP = "pipelines.<name>.steps.<name>"


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]) -> Any:
    def explain(path: str) -> list[dict[str, Any]]:
        assert main(path, as_json=True) == Exit.DONE, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)["explained"]

    return explain


@pytest.mark.parametrize("path", ["clusters.pools.spot", "slipway:clusters.dev.pools.train.spot"])
def test_a_key_has_each_of_its_meanings(explained: Any, path: str) -> None:
    found = explained(path)
    assert {entry["path"] for entry in found} == {"clusters.<name>.pools.<name>.spot"}
    assert [entry["where"] for entry in found] == ["where `cloud: gcp`", "where `cloud: aws`"]
    assert {(entry["value"], entry["default"], entry["required"]) for entry in found} == {
        ("boolean", "false", False)
    }


@pytest.mark.parametrize(
    ("path", "shown", "value"),
    [
        ("steps.run", "steps.<name>.run", "list of words, at least 1"),
        ("steps.train.run", "steps.<name>.run", "list of words, at least 1"),
        ("pipelines.steps.gpus", f"{ANY_STEP}.gpus", "whole number, 0 or more"),
        ("pipelines.mnist.steps.train.gpus", "pipelines.mnist.steps.train.gpus", "whole number, 0 or more"),
        ("pipelines.steps.places[0].pool", f"{ANY_STEP}.places[].pool", "text"),
        ("pipelines.schedule.cron", "pipelines.<name>.schedule.cron", "cron"),
        ("egress.allow.mirror.cidr", "egress.allow.<name>.cidr", "CIDR block"),
    ],
)
def test_what_is_the_same_everywhere_is_said_once(explained: Any, path: str, shown: str, value: str) -> None:
    (entry,) = explained(path)
    assert (entry["path"], entry["value"]) == (shown, value)


def test_a_section_has_its_keys(explained: Any) -> None:
    (mnist,) = explained("pipelines.mnist")
    keys = {key["key"]: key for key in mnist["keys"]}
    assert (keys["epochs"]["default"], keys["dataset"]["choices"]) == ("12", ["digits", "mnist", "idx", "images"])
    assert keys["steps"]["required"]
    assert [entry["file"] for entry in explained("")] == ["stack file", "pipeline.yaml"]


def test_people_read_the_whole_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("store.soft_delete_days", as_json=False) == Exit.DONE
    text = capsys.readouterr().out
    assert [fact for fact in ("kind: gcs", "0 to 90", "default 7", "; 0 off") if fact not in text] == []


def test_a_key_that_went_has_its_successor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("clusters.pools.image_type", as_json=False) == Exit.REFUSED
    told = capsys.readouterr().err
    assert "gcp.container.NodePool" in told
    assert "`node_config.image_type`" in told


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("clusters.pool", "clusters.pools"),
        ("clusters.pools.spott", "clusters.pools.spot"),
        ("pipelines.mnst", "pipelines.mnist"),
        ("steps.args", "steps.build.args"),
        ("clusters.dev.pools.cpu.spt", "clusters.pools.spot"),
    ],
)
def test_what_is_near_is_suggested(capsys: pytest.CaptureFixture[str], path: str, meant: str) -> None:
    assert main(path, as_json=False) == Exit.REFUSED
    assert f"`{meant}`" in capsys.readouterr().err


def test_every_key_of_the_page_is_explained(explained: Any) -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## `([^`]+)`[^\n]*\n(.*?)(?=^## )", text, flags=re.MULTILINE | re.DOTALL)
    paths = {
        f"{'' if section == 'slipway:' else section}.{key}".removeprefix(".")
        for section, content in sections
        for key in re.findall(r"^\| `([^`]+)`", content, flags=re.MULTILINE)
    }
    assert len(paths) > 150
    for path in paths:
        assert path.replace("[]", "") in {entry["path"].replace("[]", "") for entry in explained(path)}, path
