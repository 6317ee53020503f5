"""Typed looks into plain values: settings, Kubernetes objects, JSON files."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError

Document = Mapping[str, Any]


def document(value: object) -> Document:
    """``value`` where it is a mapping, else an empty one."""
    return cast("Document", value) if isinstance(value, Mapping) else {}


def documents(value: object) -> list[Document]:
    """The mappings in ``value`` where it is a list, else none."""
    return [document(each) for each in cast("list[object]", value)] if isinstance(value, list) else []


def strings(value: object) -> dict[str, str]:
    """A mapping of texts, such as labels."""
    return {key: str(each) for key, each in document(value).items()}


def texts(value: object) -> list[str]:
    """A list of texts, such as arguments."""
    return [str(each) for each in cast("list[object]", value)] if isinstance(value, list) else []


def first_problem(error: ValidationError) -> str:
    """The first thing that a model did not take: where it stands in the document, and why."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]
