"""`slipway explain`: what a key means, by its path, in which names may be left out."""

import json
import re
from typing import Any

import pytest

from slipway.command.reference.explain import main
from slipway.infra.exits import Exit
from tests.support.checkout import ROOT

POOL, STEP = "clusters.<name>.pools.<name>", "pipelines.<name>.steps.<name>"


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]) -> Any:
    def explain(path: str) -> list[dict[str, Any]]:
        assert main(path, as_json=True) == Exit.DONE, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)["explained"]

    return explain


@pytest.mark.parametrize(
    ("path", "shown", "value", "meanings"),
    [
        ("clusters.pools.spot", f"{POOL}.spot", "boolean", 2),
        ("slipway:clusters.dev.pools.train.spot", f"{POOL}.spot", "boolean", 2),
        ("steps.train.run", "steps.<name>.run", "list of text, at least 1", 1),
        ("pipelines.steps.gpus", f"{STEP}.gpus", "whole number, 0 or more", 1),
        ("pipelines.mnist.steps.train.gpus", "pipelines.mnist.steps.train.gpus", "whole number, 0 or more", 1),
        ("pipelines.steps.places[0].pool", f"{STEP}.places[].pool", "text", 1),
        ("egress.allow.mirror.cidr", "egress.allow.<name>.cidr", "CIDR block", 1),
    ],
)
def test_a_key_has_each_of_its_meanings_once(
    explained: Any, path: str, shown: str, value: str, meanings: int
) -> None:
    entries = explained(path)
    assert {(entry["path"], entry["value"]) for entry in entries} == {(shown, value)}
    assert len({entry["where"] for entry in entries}) == len(entries) == meanings


def test_a_section_has_its_keys(explained: Any) -> None:
    (mnist,) = explained("pipelines.mnist")
    keys = {key["key"]: key for key in mnist["keys"]}
    assert (keys["epochs"]["default"], keys["dataset"]["choices"]) == ("12", ["digits", "mnist", "idx", "images"])
    assert keys["steps"]["required"]
    assert [entry["file"] for entry in explained("")] == ["stack file", "pipeline.yaml"]


@pytest.mark.parametrize(
    ("path", "code", "parts"),
    [
        ("store.soft_delete_days", Exit.DONE, ["kind: gcs", "0 to 90", "default 7", "; 0 off"]),
        ("clusters.pools.image_type", Exit.REFUSED, ["gcp.container.NodePool", "`node_config.image_type`"]),
        ("clusters.pool", Exit.REFUSED, ["`clusters.pools`"]),
        ("clusters.pools.spott", Exit.REFUSED, ["`clusters.pools.spot`"]),
        ("pipelines.mnst", Exit.REFUSED, ["`pipelines.mnist`"]),
        ("steps.args", Exit.REFUSED, ["`steps.build.args`"]),
        ("clusters.dev.pools.cpu.spt", Exit.REFUSED, ["`clusters.pools.spot`"]),
    ],
)
def test_people_read_what_it_is_or_what_to_write(
    capsys: pytest.CaptureFixture[str], path: str, code: Exit, parts: list[str]
) -> None:
    assert main(path, as_json=False) == code
    said = "".join(capsys.readouterr())
    assert [part for part in parts if part not in said] == []


def test_every_key_of_the_page_is_explained(explained: Any) -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## `([^`]+)`[^\n]*\n(.*?)(?=^## )", text, flags=re.MULTILINE | re.DOTALL)
    paths = [
        f"{section}.{key}".removeprefix("slipway:.")
        for section, content in sections
        for key in re.findall(r"^\| `([^`]+)`", content, flags=re.MULTILINE)
    ]
    assert len(paths) > 150
    assert [path for path in paths if path not in {entry["path"] for entry in explained(path)}] == []
