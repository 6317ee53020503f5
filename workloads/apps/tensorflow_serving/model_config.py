"""`models.config`: which versions of a model TensorFlow Serving loads, and which of them a label names.

A text protobuf of the message `ModelServerConfig` (tensorflow_serving/config/model_server_config.proto of 2.21,
seen November 2026). Written and read here are the fields that a publisher needs. Standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

NAME = "models.config"
STABLE, CANARY = LABELS = ("stable", "canary")
"""The labels: what answers people, and what is tried beside it."""

_VERSIONS = re.compile(r"\bversions:\s*(\d+)")
_LABEL = re.compile(r'version_labels\s*\{\s*key:\s*"([^"\\]*)"\s*value:\s*(\d+)\s*\}')


@dataclass(frozen=True)
class Served:
    """What servers are told of one model: the versions that they load, and the version of each label."""

    versions: tuple[int, ...] = ()
    labels: Mapping[str, int] = field(default_factory=dict)

    def encode(self, model: str, base_path: str) -> bytes:
        """The bytes of `models.config` for ``model``, whose versions lie in ``base_path``."""
        versions = " ".join(f"versions: {each}" for each in sorted(self.versions))
        labels = "".join(
            f"    version_labels {{ key: {json.dumps(name)} value: {version} }}\n"
            for name, version in sorted(self.labels.items(), reverse=True)
        )
        return (
            "# Written by the step that publishes, and read again every few seconds by each server.\n"
            "model_config_list {\n"
            "  config {\n"
            f"    name: {json.dumps(model)}\n"
            f"    base_path: {json.dumps(base_path)}\n"
            '    model_platform: "tensorflow"\n'
            f"    model_version_policy {{ specific {{ {versions} }} }}\n"
            f"{labels}"
            "  }\n"
            "}\n"
        ).encode()


def decode(content: bytes) -> Served:
    """What `Served.encode` wrote; nothing where it is no such file."""
    text = content.decode(errors="replace")
    return Served(
        tuple(sorted({int(each) for each in _VERSIONS.findall(text)})),
        {name: int(version) for name, version in _LABEL.findall(text)},
    )


def transition(before: Served, after: Served) -> list[Served]:
    """What servers that go by ``before`` have to read, one after the other, to go by ``after``, the last.

    A label moves while all versions concerned are loaded: they are loaded before, and unloaded after. The first
    is ``before`` itself where it may be so new that a server has yet to read it.
    """
    if not before.labels:
        return [after]
    every = tuple(sorted({*before.versions, *after.versions}))
    loads = any(before.labels.get(label) != number for label, number in after.labels.items())
    steps = [Served(every, before.labels)] if loads else []
    if after != Served(every, before.labels):
        steps.append(Served(every, after.labels))
    if steps[-1:] != [after]:
        steps.append(after)
    return steps
