"""The configuration of a stack as the Pulumi CLI would hand it to the program, read without the CLI."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

SECRET_PLACEHOLDER = "[secret]"
"""Stands for a value that only the stack's passphrase or key service can decrypt."""


class ConfigError(Exception):
    """A stack that does not exist, or a project or stack file that cannot be used. The text says where and why."""


@dataclass(frozen=True)
class StackConfig:
    """``values`` by their full key (``slipway:clusters``); ``secrets`` are the keys with a placeholder in them."""

    file: Path
    values: Mapping[str, Any]
    secrets: Sequence[str] = ()


def stack_config(stack: str, root: Path) -> dict[str, Any]:
    """The values of ``stack`` in the project at ``root``, defaults of Pulumi.yaml included, by their full key.

    Raises ConfigError.
    """
    return dict(load_stack(stack, root).values)


def load_stack(stack: str, root: Path, file: Path | None = None) -> StackConfig:
    """The configuration of ``stack``; ``file`` is read instead of the stack's own, as ``--config-file`` does.

    Like the CLI, a value of the stack file replaces the project's default whole. Raises ConfigError.
    """
    project = _mapping(root / "Pulumi.yaml", read_yaml(root / "Pulumi.yaml"))
    name = str(project.get("name", ""))
    folder = root / str(project.get("stackConfigDir", "."))
    if file is None:
        file = folder / f"Pulumi.{stack}.yaml"
        if not file.is_file():
            known = sorted(
                path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in folder.glob("Pulumi.*.yaml")
            )
            raise ConfigError(f"there is no stack {stack!r} in {folder}; there is {', '.join(known) or 'none'}")
    content = _mapping(file, read_yaml(file))
    if content.get("environment"):
        raise ConfigError(f"{file}: `environment` (Pulumi ESC) can only be opened by the Pulumi CLI")
    values, required = _project_values(name, project.get("config") or {}, root / "Pulumi.yaml")
    values.update(_mapping(file, content.get("config") or {}))
    if missing := [key for key in required if key not in values]:
        raise ConfigError(
            f"{file}: missing configuration values: {', '.join(missing)} (Pulumi.yaml declares them)"
        )
    secrets: list[str] = []
    plain = {key: _without_secrets(value, key, secrets) for key, value in values.items()}
    return StackConfig(file, plain, secrets)


def for_engine(values: Mapping[str, Any]) -> dict[str, str]:
    """``values`` as the engine hands them to a program: text as it is, everything else as JSON."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def read_yaml(path: Path) -> Any:
    """The file's content; an empty mapping where it is empty. Raises ConfigError, with the line where it can."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        content: object = yaml.load(text, Loader=_StrictLoader)  # A SafeLoader.
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ConfigError(f"{where}: {error.problem or error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {error}") from error
    return {} if content is None else content


class _StrictLoader(yaml.SafeLoader):
    """YAML as the CLI's parser (gopkg.in/yaml.v3) reads it: ``yes`` is text, ``1e-3`` a number, a date text. A key
    may stand only once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = cast("object", self.construct_object(key_node, deep=True))  # pyright: ignore[reportUnknownMemberType]
            if isinstance(key, (list, dict)):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a scalar", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands here twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$", list("-+0123456789")),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
    ("merge", r"^(?:<<)$", ["<"]),
):
    _StrictLoader.add_implicit_resolver(  # pyright: ignore[reportUnknownMemberType]
        f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first
    )


def _project_values(project: str, config: Any, file: Path) -> tuple[dict[str, Any], list[str]]:
    """Defaults that Pulumi.yaml declares, and the keys that it declares without one."""
    values: dict[str, Any] = {}
    required: list[str] = []
    for key, declared in _mapping(file, config).items():
        full = key if ":" in key else f"{project}:{key}"
        if not isinstance(declared, Mapping):
            values[full] = declared
            continue
        declaration = cast("Mapping[str, Any]", declared)
        if "value" in declaration:
            values[full] = declaration["value"]
        elif "default" in declaration:
            values[full] = declaration["default"]
        elif "type" in declaration:
            required.append(full)
    return values, required


def _without_secrets(value: Any, key: str, found: list[str]) -> Any:
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        if set(mapping) == {"secure"}:
            found.append(key)
            return SECRET_PLACEHOLDER
        return {name: _without_secrets(each, f"{key}.{name}", found) for name, each in mapping.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_without_secrets(each, f"{key}[{index}]", found) for index, each in enumerate(items)]
    return value


def _mapping(path: Path, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a mapping of keys, found {type(content).__name__}")
    return {str(key): value for key, value in cast("dict[Any, Any]", content).items()}
