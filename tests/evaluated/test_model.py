"""JSON, and the schema that machines rely on."""

import json

import pytest

from slipway.evaluated.model import SCHEMA, document, schema
from tests.preview.samples import broken, preview, stack


def test_the_published_schema_is_up_to_date() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema()


def test_a_preview_follows_the_published_schema() -> None:
    import jsonschema  # Its import takes seconds, which each worker would wait for.

    content = json.loads(document(preview(stack(), broken())))
    jsonschema.validate(content, json.loads(schema()))
    assert [each["stack"] for each in content["stacks"]] == ["gcp-dev", "wrong"]
    assert content["stacks"][0]["changes"]["resources"][0]["operation"] == "replace"


def test_a_document_that_breaks_the_schema_is_refused() -> None:
    import jsonschema

    content = json.loads(document(preview(stack())))
    content["stacks"][0]["costs"] = {}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, json.loads(schema()))
