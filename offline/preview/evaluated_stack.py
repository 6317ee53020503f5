"""Decodes what a revision printed of a stack into the `Stack` that reviews, policies and comparisons read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import TypeAdapter

from infra.clouds.registry import reviews
from infra.platform import Node
from infra.review.contract import reviewed
from infra.review.properties import UNKNOWN, Secret, Unknown
from infra.review.stack import Resource, Stack
from offline.engine.scheduling import pool_of_nodes
from offline.engine.unknown_outputs import told
from offline.evaluation.encoding import LISTS, MARK

_RESOURCE, _NODE = TypeAdapter(Resource), TypeAdapter(Node)


@dataclass(frozen=True)
class Failed:
    """Why a stack could not be evaluated.

    ``kind`` is the name of the error's class, ``message`` its text. ``problems`` are those of wrong settings, each
    with ``key``, ``value``, ``reason`` and ``fix``. ``where`` is the file and line of the program's last frame in
    the tree (``infra/step.py:12``), empty where there is none.
    """

    kind: str
    message: str
    problems: Sequence[Mapping[str, str]] = ()
    where: str = ""


@dataclass(frozen=True)
class Evaluated:
    """One stack of one revision: either ``stack`` or ``failure`` is set.

    ``outputs`` says of each stack output whether it is a secret. ``remarks`` are warnings of the program and of
    its evaluation.
    """

    name: str
    stack: Stack | None = None
    failure: Failed | None = None
    outputs: Mapping[str, bool] = field(default_factory=dict[str, bool])
    remarks: Sequence[str] = ()


def evaluated(name: str, document: Mapping[str, Any]) -> Evaluated:
    """Decodes the document that was printed of the stack ``name``."""
    remarks = tuple(document.get("remarks", ()))
    if failure := document.get("failure"):
        return Evaluated(name, failure=Failed(**failure), remarks=remarks)
    stack = reviewed(
        Stack(
            name=name,
            resources={each["urn"]: _resource(each) for each in document["resources"]},
            configuration=_opened(document["configuration"]),
            pools=[pool_of_nodes(_NODE.validate_python(each)) for each in document["standing"]],
        ),
        reviews(),
    )
    return Evaluated(name, stack, outputs=document["outputs"], remarks=remarks)


def _resource(resource: Mapping[str, Any]) -> Resource:
    lists = {key: tuple(resource[key]) for key in LISTS}
    return _RESOURCE.validate_python({**resource, **lists, "properties": _opened(resource["properties"])})


_MARKED: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "unknown": lambda marked: Unknown(marked["of"]) if "of" in marked else UNKNOWN,
    "secret": lambda marked: Secret(marked["digest"], marked.get("partial", False)),
    "mapping": lambda marked: {key: _opened(each) for key, each in marked["value"].items()},
}


def _opened(value: Any) -> Any:
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        if MARK in mapping:
            return _MARKED[mapping[MARK]](mapping)
        return {key: _opened(each) for key, each in mapping.items()}
    if isinstance(value, list):
        return [_opened(each) for each in cast("list[Any]", value)]
    return told(value) if isinstance(value, str) else value
