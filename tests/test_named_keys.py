"""Keys that texts of the program name in backticks are keys that a stack file or a `pipeline.yaml` may have.

Three ways of writing one are recognised: YAML (`follow: newest`, `device_plugin: {declare: true}`), a path
(`rehearsal.run`, `slipway:teams`), and a word with an underscore (`authorized_networks`). A single plain word
may be anything, and is left alone.
"""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import yaml

from slipway.infra.pipelines.discovery import pipeline_names
from slipway.infra.pipelines.file.shape import PipelineFile
from slipway.infra.review.stack import items, mapping
from slipway.infra.settings.model import with_pipelines
from slipway.infra.settings.pipelines import each_of
from tests.support.checkout import ROOT

pytestmark = pytest.mark.slow

Schema = Mapping[str, Any]

HOLE = "HOLE"
"""What stands for a value that a text has in a place, or for one that the reader puts there."""

OTHERS: Mapping[str, str] = {
    "allowVolumeExpansion: true": "a StorageClass",
    "spec.active": "a Workload of Kueue's",
    "grpc: 8500": "a port with a name of the user's own",
    "saved_model": "a folder",
    "jax.distributed": "a module of JAX",
    "num_processes": "an argument of JAX",
    "process_id": "an argument of JAX",
    "template.metadata.labels": "a property of Kubernetes objects",
    "grants: false": "a key of an input, which only pipelines with inputs have",
    "idle_hourly": "a field of a preview's JSON",
}
"""What is written like a key of these files, and whose it is."""

HOSTS_AND_FILES = re.compile(rf"{HOLE}|[\w.-]+\.(json|yaml|py|toml|png|txt|in|org|com|config)|")
PATH = re.compile(r"[A-Za-z_]+(\.[A-Za-z_]+)+|[a-z]+(_[a-z]+)+")
YAML = re.compile(r"[A-Za-z_]+: [^\s*].*")


def texts_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts of a module with their lines, those that only document it aside."""
    within = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Expr)
        for child in ast.iter_child_nodes(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within:
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else HOLE for part in node.values]
            yield node.lineno, "".join(map(str, parts))


def strings(value: object) -> Iterator[str]:
    """The texts in plain data."""
    if isinstance(value, str):
        yield value
    for item in (*mapping(value).values(), *items(value)):
        yield from strings(item)


@cache
def words_in_backticks() -> Mapping[str, str]:
    """What stands in backticks, with a place of it."""
    places: dict[str, str] = {}
    for room in ("infra", "engine", "evaluated", "policies", "preview", "rehearse", "command", "features"):
        for path in sorted((ROOT / "slipway" / room).rglob("*")):
            place = path.relative_to(ROOT)
            if path.suffix == ".py":
                texts: Iterable[tuple[int, str]] = texts_of(ast.parse(path.read_text(encoding="utf-8")))
            elif path.suffix == ".toml":
                data = tomllib.loads(path.read_text(encoding="utf-8"))
                texts = ((0, string) for string in strings(data))
            else:
                continue
            for line, text in texts:
                for word in re.findall(r"`([^`\n]+)`", text):
                    places.setdefault(re.sub(r"<[^<>]*>|…|\{[a-z_.]+\}", HOLE, word), f"{place}:{line}")
    return places


@cache
def schemas() -> tuple[Schema, ...]:
    """The schemas of a stack file and of a `pipeline.yaml`."""
    return tuple(model.model_json_schema() for model in (with_pipelines(each_of(pipeline_names())), PipelineFile))


def alternatives(schema: Schema, root: Schema) -> Iterator[Schema]:
    """What a value of ``schema`` may be, references followed."""
    if "$ref" in schema:
        yield from alternatives(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    elif several := schema.get("anyOf", schema.get("oneOf")):
        for choice in several:
            yield from alternatives(choice, root)
    elif "allOf" in schema:
        yield from alternatives(schema["allOf"][0], root)
    else:
        yield schema


def fits(value: object, schema: Schema, root: Schema) -> bool:
    """Whether ``value`` has only keys that ``schema`` knows, and a word that it knows where it lists them."""
    return any(_fits(value, alternative, root) for alternative in alternatives(schema, root))


def _fits(value: object, schema: Schema, root: Schema) -> bool:
    if value in (HOLE, None, {}):
        return True
    if entries := mapping(value):
        return all(
            any(fits(entry, child, root) for child in children(key, schema)) for key, entry in entries.items()
        )
    if isinstance(value, list):
        return schema.get("type") == "array"
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if allowed is not None:
        return value in allowed
    return schema.get("type") not in {"object", "array"}


def children(key: str, schema: Schema) -> Iterator[Schema]:
    """What stands at ``key``; the user's own names, such as those of pools, have what all of them have."""
    properties = schema.get("properties", {})
    if HOLE in key:
        yield from properties.values()
    elif key in properties:
        yield properties[key]
    if isinstance(named_by_user := schema.get("additionalProperties"), Mapping):
        yield named_by_user


@cache
def sections() -> tuple[tuple[Schema, Schema], ...]:
    """Every section that a file may have, and the schema that it is of."""
    return tuple(
        (section, root)
        for root in schemas()
        for section in (root, *root["$defs"].values())
        if "properties" in section
    )


def is_known(value: Mapping[str, Any]) -> bool:
    """Whether some section may have these keys; one name of the user's may stand around them."""
    below = mapping(next(iter(value.values()))) if len(value) == 1 else None
    return any(fits(value, *section) or (below and fits(below, *section)) for section in sections())


def parse_keys(word: str) -> Mapping[str, Any] | None:
    """The keys that ``word`` names, as a section has them; None where it names none that can be told."""
    inside = word.removeprefix("slipway:")
    if HOSTS_AND_FILES.fullmatch(inside):
        return None
    if PATH.fullmatch(inside) or inside != word:
        path, _, value = inside.partition(": ")
        nested: Any = yaml.safe_load(value) if value else None
        for key in reversed(path.split(".")):
            nested = {key: nested}
        return nested
    return yaml.safe_load(inside) if YAML.fullmatch(inside) else None


@cache
def keys() -> Mapping[str, Mapping[str, Any]]:
    """The keys that texts name, by what stands in backticks."""
    return {word: section for word in words_in_backticks() if (section := parse_keys(word)) is not None}


def test_it_tells_keys_that_are_there_from_others() -> None:
    assert len(keys()) > 100
    for known in ({"device_plugin": {"declare": True}}, {"kind": "efs"}, {"shop": {"run": ["python"]}}):
        assert is_known(known), known
    for other in (
        {"device_plugin": {"declares": True}},
        {"kind": "floppy"},
        {"shop": {"runs": ["python"]}},
        {"valueFrom": {"secretKeyRef": None}},
    ):
        assert not is_known(other), other


def test_a_key_that_is_named_is_there() -> None:
    unknown = {word: words_in_backticks()[word] for word, section in keys().items() if not is_known(section)}
    assert {word: place for word, place in unknown.items() if word not in OTHERS} == {}
    assert OTHERS.keys() <= unknown.keys(), "each is still named, and still no key"
