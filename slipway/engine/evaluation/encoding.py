"""The format in which a revision prints what its stacks declare.

Previews of other revisions read it (`slipway.engine.evaluation.decoding`). Give `FORMAT` the next number whenever
a line changes its meaning or loses a part. This module imports nothing of the project, because it encodes older
revisions, too.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

FORMAT = 1
"""The number that every line has as ``format``."""

MARK = "$slipway"
"""The key of a mapping that stands for a value that JSON cannot express: an unknown value or a secret."""

UNKNOWN = {MARK: "unknown"}
UNKNOWN_IN_JSON = ("<<unknown:", json.dumps(UNKNOWN)[1:-1])
"""What is in the JSON of a partly unknown value: the mark in a text (see `unknown_outputs`), or `UNKNOWN`."""

SECRET = "[secret]"
"""What the engine shows in place of a secret."""

PLAIN = ("urn", "name", "custom", "parent", "provider", "protect", "delete_before_replace", "read")
LISTS = ("ignore_changes", "replace_on_changes", "aliases")
SETS = ("dependencies", "replace_with")
"""The attributes of a resource that are written as they are."""

BLOCK = 1 << 20  # Bytes of a file that are read at once.

SHORTEST = 4  # Characters of a secret that messages are searched for; a shorter text is part of many words.


class Secrets:
    """Digests of secrets under one key, and the texts that no message may contain."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._texts: set[str] = set()
        self._public: set[str] = set()

    def digest(self, value: Any) -> dict[str, Any]:
        """The mapping that stands for the secret ``value``, which consists of JSON's types."""
        text = json.dumps(value, sort_keys=True)
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()[:32]
        partial = {"partial": True} if any(mark in text for mark in UNKNOWN_IN_JSON) else {}
        return {MARK: "secret", "digest": digest, **partial}

    def remember(self, value: Any, masked: Any) -> None:
        """Hides all texts of ``value`` that are `SECRET` in ``masked``."""
        if _is_secret(masked):
            self.hide(value)
        for key, inner in _items(masked):
            self.remember(value[key], inner)

    def hide(self, value: Any) -> None:
        """Hides all texts of ``value``."""
        self._texts.update(text for text in _texts(value) if len(text) >= SHORTEST)

    def publish(self, value: Any) -> None:
        """Allows the texts of ``value`` in messages: plain values of a stack file, such as a kubeconfig's path."""
        self._public.update(_texts(value))

    def without_secrets(self, text: str) -> str:
        """``text`` with `SECRET` in place of each secret."""
        for secret in sorted(self._texts - self._public, key=len, reverse=True):
            text = text.replace(secret, SECRET)
        return text


def _is_secret(masked: Any) -> bool:
    return not isinstance(masked, Mapping | list) and str(cast("object", masked)) == SECRET


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for _, item in _items(value):
        yield from _texts(item)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """The keys and values of a mapping, the indices and items of a list, nothing of any other value."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).items()
    return enumerate(cast("list[Any]", value)) if isinstance(value, list) else ()


class Encoder:
    """Encodes the resources of a stack of ``tree``, a folder, with digests by ``secrets``."""

    def __init__(self, secrets: Secrets, tree: Path) -> None:
        # The process that reads the format has no use for Pulumi.
        from pulumi.output import Unknown  # noqa: PLC0415

        self._unknown = Unknown
        self._secrets = secrets
        self._tree = str(tree)

    def resource(self, resource: Any) -> dict[str, Any]:
        """One of the engine's resources."""
        return {
            **{key: getattr(resource, key) for key in PLAIN},
            **{key: list(getattr(resource, key)) for key in LISTS},
            **{key: sorted(getattr(resource, key)) for key in SETS},
            # Revisions from before November 2026 do not have it.
            "retain_on_delete": getattr(resource, "retain_on_delete", False),
            "place": getattr(resource, "place", "").replace(f"{self._tree}{os.sep}", ""),
            "type": resource.type,
            "properties": self._value(resource.inputs, resource.properties),
            "property_dependencies": {key: sorted(urns) for key, urns in resource.property_dependencies.items()},
        }

    def _value(self, value: Any, masked: Any) -> Any:
        if isinstance(value, self._unknown):
            name: str | None = getattr(value, "name", None)
            return UNKNOWN if name is None else {**UNKNOWN, "of": name}
        if _is_secret(masked):
            return self._secrets.digest(SECRET if value == SECRET else self._value(value, value))
        if isinstance(value, Mapping):
            mapping = cast("Mapping[str, Any]", value)
            made = {str(key): self._value(item, masked[key]) for key, item in mapping.items()}
            return {MARK: "mapping", "value": made} if MARK in made else made
        if isinstance(value, list):
            return [self._value(element, masked[index]) for index, element in enumerate(cast("list[Any]", value))]
        return self._single(value)

    def _single(self, value: Any) -> Any:
        if isinstance(value, str):
            # The trees that are compared are in different folders.
            return value.replace(self._tree, ".")
        if value is None or isinstance(value, bool | int | float):
            return value
        kind = type(value).__name__
        if hasattr(value, "assets"):
            return {f"{kind}({name})": self._single(asset) for name, asset in value.assets.items()}
        if hasattr(value, "path"):
            return f"{kind}({self._single(value.path)}, {_digest(Path(value.path))})"
        return f"{kind}({next((getattr(value, key) for key in ('text', 'uri') if hasattr(value, key)), '')})"


def _digest(path: Path) -> str:
    """Of the file at ``path``, or of the files below it with their names: an update uploads another content."""
    if not path.exists():
        return "missing"
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as content:
                while block := content.read(BLOCK):
                    digest.update(block)
    return digest.hexdigest()[:12]


def node(node: Any) -> dict[str, Any]:
    """The nodes of one pool of an existing cluster (`slipway.infra.platform.Node`)."""
    amounts = ("cpu", "memory", "ephemeral_storage", "gpus")
    return {
        **{key: getattr(node, key) for key in ("cluster", "pool", "count", "accelerator")},
        "labels": dict(node.labels),
        "taints": [{key: getattr(taint, key) for key in ("key", "value", "effect")} for taint in node.taints],
        "allocatable": {key: getattr(node.allocatable, key) for key in amounts},
    }


def outputs(stack_outputs: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each of a stack's outputs is secret; those in a mapping by their path (``mnist.predictions``)."""
    made: dict[str, bool] = {}
    for name, output in stack_outputs.items():
        below = cast(
            "Mapping[str, Any]", {} if output.secret or not isinstance(output.value, Mapping) else output.value
        )
        made.update({f"{name}.{key}": False for key in below} or {name: output.secret})
    return made


def configuration(values: Any, written: Any, secrets: Secrets) -> Any:
    """A stack's configuration ``values``, with digests of those that are encrypted in ``written``, its file."""
    if isinstance(values, Mapping):
        below = cast("Mapping[Any, Any]", written if isinstance(written, Mapping) else {})
        mapping = cast("Mapping[Any, Any]", values)
        return {str(key): configuration(item, below.get(key), secrets) for key, item in mapping.items()}
    if isinstance(values, list):
        items = cast("list[Any]", values)
        beside: Sequence[Any] = cast("list[Any]", written) if isinstance(written, list) else [None] * len(items)
        return [configuration(element, beside[index], secrets) for index, element in enumerate(items)]
    return secrets.digest(written["secure"]) if isinstance(written, Mapping) else values
