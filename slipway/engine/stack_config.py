"""The configuration of a stack as the Pulumi CLI would hand it to the program, read without the CLI."""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast

from slipway.infra.commands import page
from slipway.infra.review.stack import mapping, text
from slipway.infra.schema.problems import PREFIX, did_you_mean, nearest, printable, without_prefix
from slipway.infra.schema.secret_values import MASK
from slipway.infra.schema.yaml_files import ConfigError, read_yaml
from slipway.infra.settings.model import Settings

KEYS = ("config", "environment", "secretsprovider", "encryptedkey", "encryptionsalt")
"""Of a stack file (pulumi.com/docs/iac/concepts/projects/stack-settings-file, read November 2026)."""


@dataclass(frozen=True)
class StackConfig:
    """``values`` by their full key (``slipway:clusters``); ``secrets`` are the keys with a placeholder in them.

    ``written`` are those of the stack file as it has them, what is encrypted included, by their full key, too.
    ``ours`` says that the stack has settings of Slipway's, or is one of its own repository.
    """

    file: Path
    values: Mapping[str, Any]
    secrets: Sequence[str] = ()
    written: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ours: bool = True


KINDS: Mapping[type, str] = {str: "text", list: "a list", bool: "a truth value", type(None): "nothing"}


def load_stack(stack: str, root: Path, file: Path | None = None) -> StackConfig:
    """The configuration of ``stack``; ``file`` is read instead of the stack's own, as ``--config-file`` does.

    Like the CLI, a value of the stack file replaces the project's default whole, and a key that does not say whose
    it is belongs to the project (sdk/go/common/workspace/loaders.go, read November 2026); beside settings of
    Slipway's it is refused. Raises ConfigError.
    """
    project = _mapping(root / "Pulumi.yaml", read_yaml(root / "Pulumi.yaml"))
    name = str(project.get("name", ""))
    if not stack:
        raise ConfigError(f"name the stack: `--stack` with one of {', '.join(stack_names(root)) or 'none'}")
    if file is None:
        folder = _folder(project, root)
        file = folder / f"Pulumi.{stack}.yaml"
        # Whatever else stands in the file's place is told by reading it.
        if not os.path.lexists(file):
            known = _names(folder)
            hint = did_you_mean(stack, known, f"there is {', '.join(known) or 'none'}")
            raise ConfigError(f"there is no stack {stack!r} in {folder}; {hint}")
    raw = read_yaml(file)
    ours = _is_ours(name, raw)
    content = _mapping(file, raw if ours else raw or {})
    if ours and (wrong := [*_find_misplaced(content), *_without_namespace(content.get("config"))]):
        raise ConfigError("\n".join(f"{file}: {line}" for line in wrong))
    if content.get("environment"):
        raise ConfigError(f"{file}: `environment` (Pulumi ESC) can only be opened by the Pulumi CLI")
    values, required = _project_values(name, project.get("config") or {}, root / "Pulumi.yaml")
    config = content.get("config")
    written = {
        key if ":" in key else f"{name}:{key}": value
        for key, value in _mapping(file, {} if config is None else config, "config: ").items()
    }
    values.update(written)
    if missing := [key for key in required if key not in values]:
        raise ConfigError(
            f"{file}: missing configuration values: {', '.join(missing)} (Pulumi.yaml declares them)"
        )
    secrets: list[str] = []
    plain = {key: _without_secrets(value, key, secrets) for key, value in values.items()}
    return StackConfig(file, plain, secrets, written, ours)


def _is_ours(project: str, content: Any) -> bool:
    """Whether the file with this content has settings of Slipway's beside what other projects may say to policies.

    Other projects have other keys, and what the CLI takes from their files is right. Settings that stand beside
    `config`, or below a misspelt one, are Slipway's, too.
    """
    sections = mapping(content)
    keys = map(str, chain(sections, *map(mapping, sections.values())))
    return f"{project}:" == PREFIX or any(key.startswith(PREFIX) and key != f"{PREFIX}policies" for key in keys)


def project_name(root: Path) -> str:
    """The name of the Pulumi project at ``root``. Raises ConfigError."""
    return str(_mapping(root / "Pulumi.yaml", read_yaml(root / "Pulumi.yaml")).get("name", ""))


def stack_names(root: Path) -> list[str]:
    """The names of the stacks that have a file in the project at ``root``, sorted. Raises ConfigError."""
    return _names(_folder(_mapping(root / "Pulumi.yaml", read_yaml(root / "Pulumi.yaml")), root))


def _folder(project: Mapping[str, Any], root: Path) -> Path:
    return root / str(project.get("stackConfigDir", "."))


def _names(folder: Path) -> list[str]:
    return sorted(path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in folder.glob("Pulumi.*.yaml"))


def _find_misplaced(content: Mapping[str, Any]) -> Iterator[str]:
    """What the CLI would leave out of a stack file without a word."""
    if not content:
        yield f"the file is empty; write the settings below `config:`, as {page('your-project.md')} shows"
    for key in content:
        if key in KEYS:
            continue
        fix = did_you_mean(key, KEYS, "remove it; an anchor (`&name`) stands where its value is used first")
        if ":" in key or key in Settings.model_fields:
            fix = f"indent it below `config:`, as `{key if ':' in key else PREFIX + key}`"
        yield printable(f"{key}: no key of a stack file; {fix}")


def _without_namespace(config: Any) -> Iterator[str]:
    """Keys below ``config`` that do not say whose they are."""
    for key in cast("dict[str, Any]", config) if isinstance(config, dict) else ():
        if ":" not in key:
            near = nearest(key, Settings.model_fields)
            fix = (
                f"did you mean `{PREFIX}{near}`?"
                if near
                else f"write `{PREFIX}<key>`, or a provider's name for it"
            )
            yield f"config.{printable(key)}: the key does not say whose it is; {fix}"


def for_engine(values: Mapping[str, Any]) -> dict[str, str]:
    """``values`` as the engine hands them to a program: text as it is, everything else as JSON.

    The keys of every mapping are sorted, as the Pulumi CLI (3.260) hands them over: it loses their order.
    """
    return {
        key: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for key, value in values.items()
    }


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


def _without_secrets(value: Any, key: str, secrets: list[str]) -> Any:
    """``value`` with `MASK` for what only the stack's passphrase or key service can decrypt."""
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        if set(mapping) == {"secure"}:
            secrets.append(key)
            return MASK
        return {name: _without_secrets(item, f"{key}.{name}", secrets) for name, item in mapping.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_without_secrets(element, f"{key}[{index}]", secrets) for index, element in enumerate(items)]
    return value


def _mapping(path: Path, content: object, key: str = "") -> dict[str, Any]:
    if not isinstance(content, dict):
        kind = KINDS.get(type(content), "a number")
        raise ConfigError(f"{path}: {key}expected `key: value` lines, found {kind}")
    return cast("dict[str, Any]", content)


@dataclass(frozen=True)
class Reference:
    """A cluster of another stack, as a stack file names it: ``name`` there, and ``cluster`` in the other file.

    ``reference`` is what the file calls the stack, ``stack`` its name without organization and project.
    """

    name: str
    reference: str
    cluster: str

    @property
    def stack(self) -> str:
        """The stack's name in its project."""
        return self.reference.rpartition("/")[2]


def references(raw: Mapping[str, Any]) -> list[Reference]:
    """The clusters of other stacks in ``raw``, the plain values of a stack file, right or wrong."""
    sections = {str(name): mapping(section) for name, section in mapping(raw.get("clusters")).items()}
    return [
        Reference(name, text(cluster["stack"]), text(cluster.get("cluster")))
        for name, cluster in sections.items()
        if text(cluster.get("stack"))
    ]


def find_referring(root: Path, stacks: Collection[str]) -> list[str]:
    """The stacks of the checkout at ``root`` whose files name a cluster of one of ``stacks``."""
    try:
        names = [name for name in stack_names(root) if name not in stacks]
    except ConfigError:
        return []
    return [name for name in names if any(reference.stack in stacks for reference in _references_of(name, root))]


def _references_of(stack: str, root: Path) -> list[Reference]:
    try:
        return references(without_prefix(load_stack(stack, root).values))
    except ConfigError:
        return []
