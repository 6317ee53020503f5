"""A manifest of a training: its objects, and which of them has the pods."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from slipway.infra.review.stack import mapping
from slipway.tools.importing.document import Document, refusal
from slipway.tools.importing.kinds import Kind, is_runtime, kind_of, kinds, refusal_of
from slipway.tools.importing.pods import Replica, replicas

PLACEHOLDER = re.compile(r"(?<=: )(%[A-Za-z]\w*%)(?=\s*$)", re.MULTILINE)
"""What ksonnet and the examples of kubeflow/examples put where a value belongs. YAML allows no `%` there."""


@dataclass(frozen=True)
class Manifest:
    """A training as a manifest has it. ``replicas`` are in the order of ranks.

    ``variables`` are what its controller sets for the program, in words of those of a step with ``nodes``.
    ``beside`` are objects that are no training.
    """

    kind: Kind
    name: str
    documents: Sequence[Document]
    replicas: Sequence[Replica]
    variables: Mapping[str, str]
    beside: Sequence[Document] = ()


def read(path: Path) -> Manifest:
    """The training in the file or folder ``path``. Raises RefusedError."""
    documents = list(_documents(path))
    trainings = [(document, kind) for document in documents if (kind := kind_of(document.content))]
    if not trainings:
        raise _unknown(documents, path)
    if len({(kind.described, _name(document)) for document, kind in trainings}) > 1:
        listed = ", ".join(f"{kind.kind} {_name(document)} ({document.file.name})" for document, kind in trainings)
        raise refusal(str(path), f"it has several trainings: {listed}", "name the file of one of them")
    known, kind = [document for document, _ in trainings], trainings[0][1]
    for document in known:
        document.read_identity()
    runtimes = [document for document in documents if is_runtime(document.content)]
    roles = list(replicas(kind, known, runtimes, path))
    made = [replica.document for replica in roles if not any(replica.document is document for document in known)]
    variables = {name: text for replica in roles for name, text in replica.variables.items()}
    used = {id(document) for document in known} | {id(document.origin) for document in made}
    beside = [document for document in documents if id(document) not in used]
    return Manifest(kind, _name(known[0]), [*known, *made], roles, {**kind.variables, **variables}, beside)


def _unknown(documents: Sequence[Document], path: Path) -> Exception:
    """The error of a manifest without a training: what to do instead, where the kind is known."""
    for document in documents:
        if refused := refusal_of(document.content):
            return refusal(str(path), f"{_described(document)}: {refused.why}", refused.fix)
    listed = ", ".join(sorted({_described(document) for document in documents})) or "nothing"
    known = ", ".join(kind.described for kind in kinds())
    return refusal(str(path), f"it has {listed}, and none of {known}", "name the manifest of one training")


def _documents(path: Path) -> Iterator[Document]:
    if not path.exists():
        raise refusal(str(path), "there is no such file", "name the YAML file of a TFJob or a Job")
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in {".yaml", ".yml"})
    for file in files:
        try:
            text = PLACEHOLDER.sub(r'"\1"', file.read_text(encoding="utf-8"))
            objects = list(yaml.safe_load_all(text))
        except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
            reason = f"it cannot be read as YAML: {' '.join(str(error).split())[:200]}"
            raise refusal(
                str(file), reason, "render templates first: `kustomize build`, `helm template`, `envsubst`"
            ) from None
        for item in objects:
            if isinstance(item, dict):
                yield Document(file, cast("dict[str, Any]", item))


def _described(document: Document) -> str:
    """Kind and group of an object: Volcano's ``Job`` is none of ``batch/v1``."""
    kind, version = (" ".join(str(document.content.get(key) or "").split()) for key in ("kind", "apiVersion"))
    return f"{kind or 'no kind'} of {version or 'no apiVersion'}"


def _name(document: Document) -> str:
    """The training's name on one line, as its other uses need it: a manifest may have any text there."""
    metadata = mapping(document.content.get("metadata"))
    return " ".join(str(metadata.get("name") or str(metadata.get("generateName") or "").strip("-")).split())
