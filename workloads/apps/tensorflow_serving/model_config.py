"""The files that TensorFlow Serving reads beside the versions of a model, and which versions they name.

`models.config` is a text protobuf of the message `ModelServerConfig`
(tensorflow_serving/config/model_server_config.proto of 2.21, seen November 2026). Written and read here are the
fields that a publisher needs. Standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway.workloads.runtime.exits import BAD_INPUT, StepError
from slipway.workloads.runtime.store import store_errors, write_atomically

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
        versions = " ".join(f"versions: {number}" for number in sorted(self.versions))
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
        tuple(sorted({int(number) for number in _VERSIONS.findall(text)})),
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


# What a server reads once when it starts, beside the versions of its model.


MONITORING = "monitoring.config"


def write_server_files(folder: Path, largest: int | None, wait: int, queued: int) -> None:
    """Write the file that lets Prometheus read servers and, with ``largest``, the one about batches.

    Text protobufs of the messages `MonitoringConfig` and `BatchingParameters` (TensorFlow Serving 2.21). ``wait``
    is in microseconds. An unchanged file is left alone. Raises StoreError.
    """
    files = {MONITORING: 'prometheus_config { enable: true path: "/monitoring/prometheus/metrics" }\n'}
    if largest is not None:
        files[f"batching-{largest}-{wait}-{queued}.config"] = (
            f"max_batch_size {{ value: {largest} }}\n"
            f"batch_timeout_micros {{ value: {wait} }}\n"
            f"max_enqueued_batches {{ value: {queued} }}\n"
        )
    with store_errors(folder):
        for name, content in files.items():
            path = folder / name
            if not (path.is_file() and path.read_bytes() == content.encode()):
                write_atomically(path, content.encode())


# Which versions of a model answer, and which may go.


@dataclass(frozen=True)
class Choice:
    """What is asked for: ``serve`` and ``canary`` are `latest`, `previous` or a number, ``keep`` how many stay."""

    serve: str = "latest"
    canary: str | None = None
    keep: int = 5


def choose_versions(choice: Choice, numbers: Sequence[int]) -> dict[str, int]:
    """The version of each label, of the published ``numbers``.

    Raises:
        StepError: BAD_INPUT where one is not published, which names those that are.
    """
    words = {STABLE: choice.serve, **({CANARY: choice.canary} if choice.canary else {})}
    return {label: _number(label, word, sorted(numbers)) for label, word in words.items()}


def versions_to_remove(numbers: Sequence[int], needed: Collection[int], keep: int) -> list[int]:
    """The published ``numbers`` that go: all but the newest ``keep`` and those that are ``needed``."""
    newest = sorted(numbers)[-keep:]
    return [number for number in sorted(numbers) if number not in newest and number not in needed]


def _number(label: str, word: str, numbers: Sequence[int]) -> int:
    published = ", ".join(map(str, numbers)) or "none"
    if word == "latest" and numbers:
        return numbers[-1]
    if word == "previous":
        if len(numbers) > 1:
            return numbers[-2]
        raise StepError(
            BAD_INPUT, f"{label} is to be the previous version, and there is none; published: {published}"
        )
    if word.isdigit() and int(word) in numbers:
        return int(word)
    raise StepError(BAD_INPUT, f"{label} is to be version {word}, which is not there; published: {published}")
