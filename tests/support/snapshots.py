"""What a room declares, kept as text in one file beside its tests, a section a case.

`SLIPWAY_SNAPSHOTS=write pytest …` writes the sections anew; their difference is reviewed as code is.
"""

import contextlib
import dataclasses
import difflib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi

from slipway.infra.review.stack import Resource
from tests.support.recording import Recording, is_unknown, secret_inputs

Declared = Mapping[str, Mapping[str, str]]
"""By resource, a line's text by its path."""

LONGEST = 160
"""Characters of a text that is shown whole; of a longer one its beginning and a digest are."""


def compare(file: Path, case: str, lines: Sequence[str]) -> None:
    """Fails where the section of ``case`` has other lines."""
    text = file.read_text(encoding="utf-8").rstrip("\n") if file.exists() else ""
    sections = {part.partition("\n")[0]: part.partition("\n")[2] for part in f"\n{text}".split("\n## ")[1:]}
    if os.environ.get("SLIPWAY_SNAPSHOTS") == "write":
        sections[case] = "\n".join(lines)
        written = "".join(f"## {name}\n{section}\n" for name, section in sections.items())
        file.write_text(written, encoding="utf-8")
    changes = difflib.unified_diff(sections.get(case, "").split("\n"), [*lines] or [""], lineterm="", n=1)
    text = "\n".join(changes)
    assert not text, f"{file.name}, {case}:\n{text}"


def difference(before: Declared, after: Declared) -> list[str]:
    """What is gone, and what each other has otherwise than in ``before``, or than the first of its kind."""
    first = {title.partition(" ")[0]: title for title in sorted(before, reverse=True)}
    lines = [f"- {title}" for title in sorted(before) if title not in after]
    for title, now in sorted(after.items()):
        like = title if title in before else first.get(title.partition(" ")[0], "")
        was = before.get(like, {})
        changes = [f"    {path} = {now[path]}" for path in sorted(now) if was.get(path) != now[path]]
        changes += [f"    {path} is gone" for path in sorted(was) if path not in now]
        if changes or title not in before:
            lines += [title if title in before else f"+ {title}" + f" as {like}" * bool(like), *changes]
    return lines


def declared(recording: Recording) -> Declared:
    """Each resource with its options and properties, the outputs, and what each platform says."""
    titles = {resource.urn: title(resource) for resource in recording.resources}
    entries: dict[str, dict[str, str]] = {}
    for resource in recording.resources:
        options = {
            "protect": resource.protect,
            "retain": resource.retain_on_delete,
            "deleted first": resource.delete_before_replace,
            "ignores": sorted(resource.ignore_changes),
            "replaced on": sorted(resource.replace_on_changes),
            "replaced with": sorted(titles.get(urn, urn) for urn in resource.replace_with),
            "timeout": resource.create_timeout,
            "needs": sorted(titles.get(urn, urn) for urn in resource.needs),
            "parent": titles.get(resource.parent, ""),
            "aliases": sorted(resource.aliases),
            "secret": sorted(secret_inputs(resource)),
        }
        shown = {f"({name})": json.dumps(value) for name, value in options.items() if value}
        assert title(resource) not in entries
        entries[title(resource)] = {**shown, **dict(flat("", resource.inputs))}
    entries["outputs"] = dict(flat("", recording.exports)) | {"(secret)": str(sorted(recording.secret_exports))}
    for name, platform in (recording.result or {}).items():
        facts = plain(platform)
        for kind in ("pools", "teams"):
            for key, value in facts.pop(kind, {}).items():
                entries[f"{kind} {name} {key}"] = dict(flat("", value))
        entries[f"platform {name}"] = dict(flat("", facts))
    return entries


def title(resource: Resource) -> str:
    """Module, kind and name."""
    _, module, kind = f"{resource.type}::".split(":")[:3]
    return f"{module.partition('/')[0]}.{kind} {resource.name}"


def flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Path and text of each value that holds no others; JSON in texts is read."""
    if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if is_unknown(value):
        yield path, "unknown"
    elif isinstance(value, Mapping) and value:
        for key in value:
            yield from flat(f"{path}.{key}".lstrip("."), value[key])
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value):
        for number, item in enumerate(value):
            yield from flat(f"{path}[{number}]", item)
    else:
        text = json.dumps(value, default=lambda item: "unknown" if is_unknown(item) else str(item))
        if len(text) > LONGEST:
            text = f"{text[:60]}… {hashlib.sha256(text.encode()).hexdigest()[:10]}"
        yield path, re.sub(r'"[0-9a-f]{32}"', '"<random>"', re.sub(r"-[0-9a-f]{10}\b", "-<digest>", text))


def plain(value: Any) -> Any:
    """A platform as plain data; values that are outputs or functions are left out."""
    if isinstance(value, pulumi.Resource):
        return value._name
    if isinstance(value, pulumi.Output) or callable(value):
        return None
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(value, "__dict__"):
        value = vars(value)
    if isinstance(value, Mapping):
        return {key: made for key, item in value.items() if (made := plain(item)) not in (None, [], {}, "")}
    return [plain(item) for item in value] if isinstance(value, list | tuple | set | frozenset) else value
