"""The pipelines that docs/steps.md shows, and the reference of pipeline.yaml."""

import json
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from slipway.command.reference import pipeline as reference
from slipway.infra.pipelines.contract import Variant
from slipway.infra.pipelines.discovery import declared_steps, pipeline
from slipway.infra.pipelines.file.shape import PipelineFile
from slipway.infra.settings.loading import load
from tests.docs.fences import blocks
from tests.support.checkout import ROOT
from tests.support.stack_values import GCP, changed

SHOWN = [block for block in blocks(ROOT) if block.page == "docs/steps.md"]


def test_the_yaml_that_is_shown_is_a_pipeline_and_its_section(tmp_path: Path) -> None:
    declaration, section, *_ = (block.body for block in SHOWN if block.info == "yaml")
    (tmp_path / "pipeline.yaml").write_text(declaration, encoding="utf-8")
    shown = yaml.safe_load(section)["config"]["slipway:pipelines"]["lines"]
    settings = load(changed(GCP, {"pipelines.lines": {**shown, "uses": str(tmp_path)}})).pipelines["lines"]
    split, count, draw = declared_steps(str(tmp_path), settings)
    assert split.arguments[3] == "{store}/uploads/words.txt"
    assert (count.name, count.variant) == ("count-4", Variant("count", {"shortest": 4}))
    assert (draw.inputs, draw.placed_by.time_limit) == ({"count": "count"}, "10m")


def test_the_reference_is_up_to_date() -> None:
    assert reference.main(["--check"]) == 0, "run: python -m slipway.command.reference.pipeline"


def test_every_key_says_what_it_is() -> None:
    def unsaid(model: type[BaseModel]) -> list[str]:
        return [f"{model.__name__}.{name}" for name, field in model.model_fields.items() if not field.description]

    schema = json.loads(reference.schema())
    assert unsaid(PipelineFile) == []
    assert all(definition["properties"] for definition in schema["$defs"].values())


@pytest.mark.parametrize("folder", ["neighbours", "handwriting"])
def test_the_schema_takes_the_pipelines_of_this_repository(folder: str) -> None:
    import jsonschema  # Its import takes seconds, which each worker would wait for.

    content = yaml.safe_load((ROOT / "workloads" / folder / "pipeline.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(content, json.loads(reference.schema()))
    assert not pipeline(folder).problems
