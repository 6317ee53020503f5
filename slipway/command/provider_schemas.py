"""Reads from the providers' schemas which changes replace a resource, and which properties keep their value where
they are taken away, and writes it to each cloud's ``data``.

    python -m slipway.command.provider_schemas [--check] [--schema PACKAGE=FILE]

Asks the Pulumi CLI for the schema of each cloud's pinned provider, or reads the file that is given for it. With
``--check`` it only compares.
"""

import argparse
import ast
import contextlib
import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from slipway.files import replacing
from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.places import LIBRARY
from slipway.infra.review.stack import Properties, at, mapping, texts

FILE = Path("data", "replacing.json")
BLOCK = "{}"
"""At the end of a path: only whether the block is there, or how many of it, not what is in it."""

_REFERENCE = "#/types/"


class SchemaError(Exception):
    """A schema that cannot be had or used. The text says why."""


def table(schema: Properties, names: set[str], source: str, date: str) -> dict[str, Any]:
    """What the file of a package holds. ``names`` are the resources wanted, as the SDK calls them: ``ec2.Vpc``."""
    resources = mapping(schema.get("resources"))
    tokens = {sdk_name(token): token for token in resources}
    if missing := sorted(names - set(tokens)):
        raise SchemaError(f"{schema.get('name')} {schema.get('version')} has no resource {', '.join(missing)}")
    types = mapping(schema.get("types"))
    return {
        "package": schema.get("name"),
        "version": str(schema.get("version")),
        "source": source,
        "date": date,
        "types": {
            token: sorted(_paths(mapping(mapping(resources[token]).get("inputProperties")), types))
            for token in sorted(tokens[name] for name in names)
        },
        "computed": {
            token: paths
            for token in sorted(tokens[name] for name in names)
            if (paths := sorted(_computed_of(mapping(resources[token]), types)))
        },
    }


def sdk_name(token: str) -> str:
    """What the Python SDK calls a resource type: ``aws:ec2/vpc:Vpc`` is ``ec2.Vpc``."""
    _, module, name = token.split(":")
    return f"{module.partition('/')[0]}.{name}"


def declarable(package: str, root: Path = LIBRARY) -> set[str]:
    """The resources of ``package`` that its code names, whether or not any stack declares them now."""
    classes: set[str] = set()
    for path in sorted((root / "slipway/infra/clouds" / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            # Called, or handed to the function that calls it.
            for named in [node.func, *node.args] if isinstance(node, ast.Call) else ():
                match named:
                    case ast.Attribute(value=ast.Attribute(value=ast.Name(id=sdk), attr=module), attr=name) if (
                        sdk == package and name[0].isupper() and not name.endswith("Args")
                    ):
                        classes.add(f"{module}.{name}")
                    case _:
                        pass
    return classes


def pins(root: Path = LIBRARY) -> dict[str, str]:
    """The pinned version of each of the project's dependencies."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    dependencies = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    pinned = (dependency.partition("==") for dependency in dependencies)
    return {name: version for name, sign, version in pinned if sign}


def _paths(
    properties: Properties, types: Properties, prefix: str = "", seen: frozenset[str] = frozenset()
) -> Iterator[str]:
    for name, declared in properties.items():
        property_ = mapping(declared)
        inner = _reference(property_)
        fields = mapping(mapping(types.get(inner)).get("properties"))
        if property_.get("willReplaceOnChanges"):
            yield f"{prefix}{name}{BLOCK if fields else ''}"
        if inner and inner not in seen:
            yield from _paths(fields, types, f"{prefix}{name}.", seen | {inner})


def _computed_of(resource: Properties, types: Properties) -> Iterator[str]:
    """The optional properties that the provider computes where nobody sets them: no input has to be there, and an
    output always is.

    Pulumi makes a ``name`` itself where nobody sets one.
    """
    always = {*texts(resource.get("required"))} - {*texts(resource.get("requiredInputs")), "name"}
    yield from _computed_paths(mapping(resource.get("inputProperties")), always, types)


def _computed_paths(
    properties: Properties,
    always: set[str],
    types: Properties,
    prefix: str = "",
    seen: frozenset[str] = frozenset(),
) -> Iterator[str]:
    """Without what is in elements of lists, which have no name by which to tell that one lacks a property."""
    for name, declared in properties.items():
        if name in always:
            yield f"{prefix}{name}"
        inner = str(mapping(declared).get("$ref", "")).removeprefix(_REFERENCE)
        if inner in types and inner not in seen:
            block = mapping(types[inner])
            outputs = texts(at(block, "language", "nodejs", "requiredOutputs"))
            yield from _computed_paths(
                mapping(block.get("properties")),
                {*outputs} - {*texts(block.get("required"))},
                types,
                f"{prefix}{name}.",
                seen | {inner},
            )


def _reference(property_: Properties) -> str:
    """The object type of a property, or of the elements of a list or a map of them; else empty."""
    reference = str(property_.get("$ref", ""))
    if reference.startswith(_REFERENCE):
        return reference.removeprefix(_REFERENCE)
    inner = mapping(property_.get("items") or property_.get("additionalProperties"))
    return _reference(inner) if inner else ""


def _published_schema(package: str, version: str) -> tuple[Properties, str]:
    """A provider's schema as the Pulumi CLI has it, and where it is from."""
    command = ["pulumi", "package", "get-schema", f"{package}@{version}"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise SchemaError("the Pulumi CLI is not there; install it, or name a file with --schema") from error
    if done.returncode:
        raise SchemaError(f"{' '.join(command)}: {done.stderr.strip()}")
    return mapping(json.loads(done.stdout)), " ".join(command)


def _from_file(path: Path) -> tuple[Properties, str]:
    """A provider's schema from a file, and where it is from: what the file says itself, else which file it was."""
    try:
        content = path.read_bytes()
        schema = mapping(json.loads(content))
    except (OSError, ValueError) as error:
        raise SchemaError(f"{path} cannot be read as JSON: {error}") from error
    digest = hashlib.sha256(content).hexdigest()
    return schema, str(schema.get("source") or f"the file {path.name} with the SHA-256 {digest}")


def _parse_arguments(arguments: Sequence[str]) -> Mapping[str, Path]:
    """The files that were named, by package. Raises SchemaError for what names none."""
    parts = [argument.partition("=") for argument in arguments]
    packages = [package for package, cloud in CLOUDS.items() if cloud.sdk]
    for package, _, path in parts:
        if package not in packages or not path:
            raise SchemaError(
                f"--schema takes PACKAGE=FILE with one of {', '.join(packages)}, not {package}={path}"
            )
    return {package: Path(path) for package, _, path in parts}


def _table(package: str, version: str, given: Path | None) -> dict[str, Any]:
    schema, source = _from_file(given) if given else _published_schema(package, version)
    if str(schema.get("version")) != version:
        raise SchemaError(f"that is {schema.get('version')}, and pyproject.toml pins {version}")
    return table(schema, declarable(package), source, datetime.now(UTC).date().isoformat())


def main(arguments: Sequence[str]) -> int:
    """Writes or checks the files of all clouds that have a provider; the exit status.

    Writes all of them or, where one of the schemas cannot be had, none.
    """
    parser = argparse.ArgumentParser(prog="python -m slipway.command.provider_schemas", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("--schema", action="append", default=[], metavar="PACKAGE=FILE")
    chosen = parser.parse_args(arguments)
    versions = pins()
    made: dict[Path, dict[str, Any]] = {}
    errors: list[str] = []
    try:
        given = _parse_arguments(chosen.schema)
    except SchemaError as error:
        parser.error(str(error))
    for package, cloud in CLOUDS.items():
        if cloud.sdk is None or (given and package not in given):
            continue
        try:
            made[LIBRARY / "slipway/infra/clouds" / package / FILE] = _table(
                package, versions[cloud.sdk], given.get(package)
            )
        except SchemaError as error:
            errors.append(f"{package}: {error}")
    if chosen.check:
        errors += filter(None, (_report_differences(path, content) for path, content in made.items()))
    elif errors:
        errors.append("nothing was written")
    else:
        _write(made)
    for error in errors:
        print(error, file=sys.stderr)
    return int(bool(errors))


def _write(made: Mapping[Path, dict[str, Any]]) -> None:
    """Writes all files beside their places before it puts the first into its own."""
    with contextlib.ExitStack() as written:
        for path, content in made.items():
            temporary = written.enter_context(replacing(path))
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _report_differences(path: Path, made: Properties) -> str:
    """What is wrong with the file; empty where it is up to date."""
    differences = _differences(mapping(json.loads(path.read_text("utf-8"))), made)
    return (
        f"{path} is out of date; run: python -m slipway.command.provider_schemas\n{differences}"
        if differences
        else ""
    )


def _differences(before: Properties, now: Properties) -> str:
    """One line for each version or type that is not the same; sources and dates may differ."""
    lines: list[str] = []
    if before.get("version") != now.get("version"):
        lines.append(f"version {before.get('version')} is {now.get('version')}")
    for key in ("types", "computed"):
        old, new = mapping(before.get(key)), mapping(now.get(key))
        for token in sorted({*old, *new}):
            gone = sorted({*old.get(token, ())} - {*new.get(token, ())})
            come = sorted({*new.get(token, ())} - {*old.get(token, ())})
            if gone or come:
                words = ["computed:"] if key == "computed" else []
                lines.append(
                    " ".join([*words, token, *(f"-{path}" for path in gone), *(f"+{path}" for path in come)])
                )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
