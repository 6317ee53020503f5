"""A preview for machines: JSON, and the schema that it follows (docs/preview.schema.json).

python -m offline.preview.json_output [--check]
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from offline.pages import write_or_check
from offline.preview.model import Preview

SCHEMA = Path(__file__).parents[2] / "docs" / "preview.schema.json"


def document(preview: Preview) -> str:
    """The preview as JSON, with a line break at its end."""
    return preview.model_dump_json(indent=2) + "\n"


def schema() -> str:
    """The JSON Schema of `document`."""
    content = Preview.model_json_schema(mode="serialization")
    content["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    content["title"] = "Preview of Slipway's stacks"
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the schema, or with ``--check`` says whether it is up to date."""
    return write_or_check(SCHEMA, schema(), "offline.preview.json_output", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
