"""ConfigMaps of a manifest: files that a container mounts go beside the program, values into its environment."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.infra.review.stack import at, items, mapping, mappings, strings
from slipway.infra.schema.problems import Problem
from slipway.tools.importing.document import Document, Place, path_text, value_at
from slipway.tools.importing.pods import Replica

TAKEN = frozenset({"pipeline.yaml", "start.py"})
"""Names of files that the import writes itself."""


@dataclass(frozen=True)
class ConfigFolder:
    """What a container mounts of a ConfigMap. ``folder`` is the path in the pod, ``files`` are the texts by their
    path in the pipeline's folder. ``single`` says that ``folder`` is the path of the one file.

    ``volume`` and ``mount`` are the places of both in the manifest.
    """

    folder: str
    files: Mapping[str, str]
    single: bool
    name: str
    volume: Place
    mount: Place

    def replace(self, text: str) -> str:
        """A word or value with the files' paths from the program's folder, where it starts."""
        path = rf"(?<![\w./-]){re.escape(self.folder)}"
        if self.single:
            return re.sub(rf"{path}(?![\w./-])", lambda _: next(iter(self.files)), text)
        return re.sub(rf"{path}(?![\w./-])", ".", re.sub(rf"{path}/+(?=[\w.])", "", text))

    def problems(self, others: Mapping[str, str]) -> Iterator[Problem]:
        """Files that cannot stand beside ``others``, those of the pipeline by their paths."""
        for path, text in self.files.items():
            if path in TAKEN or others.get(path, text) != text:
                reason = f"the pipeline's folder has another {path}"
                yield Problem(path_text(self.mount), path, reason, "give the file another name in the manifest")


def folders(replica: Replica, container: Place, beside: Sequence[Document]) -> Iterator[ConfigFolder]:
    """The folders that the program's container mounts of ConfigMaps of the same manifest."""
    content = replica.document.content
    volumes = list(map(mapping, items(value_at(content, replica.spec).get("volumes"))))
    numbers = {str(volume.get("name")): number for number, volume in enumerate(volumes)}
    for index, mount in enumerate(map(mapping, items(value_at(content, container).get("volumeMounts")))):
        number = numbers.get(str(mount.get("name")), -1)
        source = mapping(volumes[number].get("configMap") if number >= 0 else None)
        document = _config_map(str(source.get("name")), beside)
        folder = str(mount.get("mountPath") or "").rstrip("/")
        if document is None or not folder or mount.get("subPathExpr") or document.content.get("binaryData"):
            continue
        texts = strings(document.content.get("data"))
        paths = {str(item.get("key")): str(item.get("path")) for item in mappings(source.get("items"))}
        paths = paths or {key: key for key in texts}
        files = {posixpath.normpath(path): texts[key] for key, path in paths.items() if key in texts}
        below = str(mount.get("subPath") or "").strip("/")
        single = below in files
        if single:
            files = {posixpath.basename(folder): files[below]}
        elif below:
            files = {
                path.removeprefix(f"{below}/"): text
                for path, text in files.items()
                if path.startswith(f"{below}/")
            }
        if files:
            here = (*container, "volumeMounts", index)
            yield ConfigFolder(
                folder, files, single, str(source["name"]), (*replica.spec, "volumes", number), here
            )


def values(source: object, beside: Sequence[Document]) -> Mapping[str, str] | None:
    """The values of the ConfigMap that ``source`` names, a `configMapRef` or `configMapKeyRef`.

    None where it is not in the manifest.
    """
    document = _config_map(str(mapping(source).get("name")), beside)
    return None if document is None else strings(document.content.get("data"))


def environment_of(
    container: Mapping[str, Any], beside: Sequence[Document]
) -> Iterator[tuple[int, str, Mapping[str, str]]]:
    """Of each entry of ``envFrom`` that names a ConfigMap of the manifest: index, name, and the variables."""
    for index, source in enumerate(mappings(container.get("envFrom"))):
        reference = mapping(source.get("configMapRef"))
        taken = values(reference, beside)
        if taken is not None:
            prefix = source.get("prefix") or ""
            yield index, str(reference["name"]), {f"{prefix}{key}": value for key, value in taken.items()}


def _config_map(name: str, beside: Sequence[Document]) -> Document | None:
    for document in beside:
        if document.content.get("kind") == "ConfigMap" and at(document.content, "metadata", "name") == name:
            return document
    return None
