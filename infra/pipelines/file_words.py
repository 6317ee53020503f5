"""Values of a ``pipeline.yaml`` that stand in several of its sections: words of commands, and plain values."""

import json
import re
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field, WithJsonSchema

from infra.pipelines.contract import MOST_WORDS
from infra.schema.base import refuse

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What environment variables and arguments of a Dockerfile can be called."""

LONGEST_COMMAND = 500
"""Characters of a text that is shown again as the list of words that it should be."""


def _word(value: Any) -> Any:
    """YAML reads ``--trees, 300`` as a number; a word of a command line is text."""
    if isinstance(value, bool):
        raise refuse("true or false, which programs spell differently", 'write it in quotes: `"true"`')
    return str(value) if isinstance(value, int | float) else value


Word = Annotated[str, BeforeValidator(_word, json_schema_input_type=str | int | float)]
"""A word of a command line, or the value of an environment variable."""


def _plain(word: str) -> str:
    """``word`` as an item of a list in YAML."""
    return word if re.fullmatch(r"[\w./-][\w./=+-]*", word) else json.dumps(word)


def _words(value: Any) -> Any:
    if isinstance(value, str):
        words = map(_plain, value.split()[:12]) if len(value) <= LONGEST_COMMAND else ()
        raise refuse(
            "one text, and a command is a list of its words, which no shell reads",
            f"write `[{', '.join(words) or 'python, train.py'}]`",
        )
    if value == []:
        raise refuse("empty", "write the program and its arguments: `[python, train.py]`")
    items = cast("list[object]", value) if isinstance(value, list) else []
    if len(items) > MOST_WORDS:
        raise refuse(
            f"{len(items)} words, and a command has at most {MOST_WORDS}",
            "write them to a file beside the program, and let it read that",
        )
    if items and isinstance(items[0], str) and len(first := items[0].split()) > 1:
        words = [*first, *map(str, items[1:])]
        raise refuse(
            "its first word has a space, and is the program alone",
            f"write each word as an item: `[{', '.join(map(_plain, words[:12]))}]`",
        )
    return cast("Any", value)


Words = Annotated[list[Word], Field(min_length=1), BeforeValidator(_words, json_schema_input_type=list[Word])]
"""A command: its program, and the program's arguments."""


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise refuse("not a single value", "write a number, a text, or `true` or `false`")
    if value is None:
        raise refuse("empty", "write a value, or remove it")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse("not a number", "write a number")
    return value


Scalar = Annotated[Any, WithJsonSchema({"type": ["boolean", "number", "string"]}), BeforeValidator(_scalar)]
"""A value of a parameter, of whatever type."""

Bound = Annotated[Any, WithJsonSchema({"type": "number"}), BeforeValidator(_number)]
"""A number, whole or not."""
