"""What the folders become that a pod of a manifest mounts: the store, the step's output, or scratch space."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from slipway.infra.pipelines.mounts import covers, path_problem
from slipway.infra.placed import SHARED_MEMORY_PLACE
from slipway.infra.review.stack import at, items, mapping, mappings
from slipway.infra.schema.problems import Problem
from slipway.tools.importing.document import Document, Place, path_text, value_at
from slipway.tools.importing.kinds import is_volcano
from slipway.tools.importing.pods import Replica

NAME_KEYS = ("bucketName", "volume", "volumeHandle")
"""Where a CSI driver has the name of what it mounts: Cloud Storage FUSE, Mountpoint for S3 the bucket, Filestore
its share, others their own handle (GoogleCloudPlatform/gcs-fuse-csi-driver, awslabs/mountpoint-s3-csi-driver and
kubernetes-sigs/gcp-filestore-csi-driver, examples of their repositories, November 2026)."""

PREFIX = re.compile(r"(?:--)?(?:prefix|only-dir)[= :]\"?([^\"]+)\"?")
"""The mount option for a folder of the bucket: ``prefix`` of Mountpoint for S3, ``only-dir`` of Cloud Storage FUSE
(awslabs/mountpoint-s3, doc/CONFIGURATION.md, and GoogleCloudPlatform/gcsfuse, docs, November 2026)."""

READ_ONLY = "ReadOnlyMany"

SCRATCH = ("emptyDir", "ephemeral")

DATA = ("persistentVolumeClaim", "csi", "nfs")

LOST: Mapping[str, str] = {
    "configMap": "write the ConfigMap, with its texts, into the manifest: its files go beside the program",
    "secret": "take the value from a variable, by `secretKeyRef`; of a cloud, remove it: pods have an identity",
}
"""What to do instead of a volume that a step has not, by its kind."""


@dataclass(frozen=True)
class Mount:
    """A folder that a container mounts. ``below`` is its path below the store, or below scratch space.
    ``bucket`` says that it is one of a CSI driver's, which may be the store itself. ``options`` are those of a
    volume with scratch space.

    ``volume`` and ``mount`` are the places of both in the manifest.
    """

    folder: str
    below: str
    scratch: bool
    reads: bool
    volume: Place
    mount: Place
    bucket: bool = False
    options: str = ""


@dataclass(frozen=True)
class Carried:
    """What a mount becomes: a ``reference`` in words of the step, or ``mounted`` at its path. ``text`` says it."""

    text: str
    reference: str | None = None
    mounted: str | Mapping[str, Any] | None = None


def mounts(replica: Replica, container: Place, beside: Sequence[Document]) -> Iterator[Mount]:
    """The folders with data or scratch space that the program's container mounts."""
    content = replica.document.content
    volumes = list(map(mapping, items(value_at(content, replica.spec).get("volumes"))))
    numbers = {str(volume.get("name")): number for number, volume in enumerate(volumes)}
    for index, mount in enumerate(_mounts(replica, container)):
        name, folder = str(mount.get("name")), str(mount.get("mountPath") or "").rstrip("/")
        if name not in numbers or not folder:
            continue
        volume, at_volume = volumes[numbers[name]], (*replica.spec, "volumes", numbers[name])
        here = (*container, "volumeMounts", index)
        path = str(mount.get("subPath") or "").strip("/")
        if folder == SHARED_MEMORY_PLACE or any(key in volume for key in SCRATCH):
            options = "".join(f", {json.dumps(volume[key])}" for key in SCRATCH if volume.get(key))
            yield Mount(folder, _joined(name, path), True, False, at_volume, here, options=options)
        elif key := next((key for key in DATA if key in volume), ""):
            source, spec = mapping(volume[key]), _persistent_volume(mapping(volume[key]), beside)
            below = _joined(_named(key, source, spec, name), _prefix(source, spec), path)
            reads = bool(mount.get("readOnly") or source.get("readOnly") or spec.get("accessModes") == [READ_ONLY])
            yield Mount(folder, below, False, reads, at_volume, here, bucket=key == "csi")
    if is_volcano(content):
        for index, volume in enumerate(mappings(at(content, "spec", "volumes"))):
            here, name = ("spec", "volumes", index), str(volume.get("volumeClaimName") or f"volume-{index}")
            if folder := str(volume.get("mountPath") or "").rstrip("/"):
                yield Mount(folder, _joined(name), scratch=False, reads=False, volume=here, mount=here)


def lost_problems(
    replica: Replica, container: Place, texts: Sequence[str], taken: Collection[str]
) -> Iterator[Problem]:
    """The mounted folders that a step has not, and that the program is told to read; but for those ``taken``."""
    volumes = map(mapping, items(value_at(replica.document.content, replica.spec).get("volumes")))
    kinds = {str(volume.get("name")): next((key for key in volume if key != "name"), "") for volume in volumes}
    for index, mount in enumerate(_mounts(replica, container)):
        if expression := mount.get("subPathExpr"):
            reason, fix = "it is a folder for each pod, and all pods of a step mount the same", "write `subPath`"
            yield Problem(path_text((*container, "volumeMounts", index)), expression, reason, fix)
        kind, folder = kinds.get(str(mount.get("name")), ""), str(mount.get("mountPath") or "").rstrip("/")
        if kind in {"", *SCRATCH, *DATA} or folder in {"", SHARED_MEMORY_PLACE, *taken}:
            continue
        if any(True for text in texts for _ in _paths(folder, text)):
            yield Problem(
                path_text((*container, "volumeMounts", index)),
                folder,
                f"the command or a variable names it, and a step has no `{kind}`",
                LOST.get(kind, "copy what it holds into the store, and mount that claim or bucket"),
            )


def _mounts(replica: Replica, container: Place) -> Iterator[Mapping[str, Any]]:
    yield from map(mapping, items(value_at(replica.document.content, container).get("volumeMounts")))


def carry(mount: Mount, texts: Sequence[str]) -> Carried:
    """What ``mount`` becomes, where ``texts`` are all words and values that may name it.

    A path that they name becomes a reference; one that the program has built in is mounted. A volume that may be
    written is the step's output where one path alone is named in it, else a folder of the store.
    """
    if mount.folder == SHARED_MEMORY_PLACE:
        return Carried("pods have one of their own: 1 GiB where they have several GPUs, else mostly 64 MiB")
    named = {path for text in texts for path in _paths(mount.folder, text)}
    return _scratch(mount, bool(named)) if mount.scratch else _data(mount, named, texts)


def _scratch(mount: Mount, named: bool) -> Carried:
    size = f"; its size is the step's `ephemeral_storage`, whatever it was{mount.options}" if mount.options else ""
    if covers("/tmp", mount.folder):
        return Carried(f"pods have a `/tmp` of their own; a folder in it the program has to make{size}")
    if named and path_problem(mount.folder):
        path = f"/tmp/{mount.below}"
        return Carried(f"an empty folder: `{path}`, which the program has to make{size}", path)
    return Carried(f"an empty folder, which `mounts` shows there{size}", mounted=f"{{scratch}}/{mount.below}")


def _data(mount: Mount, named: Set[str], texts: Sequence[str]) -> Carried:
    store, below = f"{{store}}/{mount.below}", f"copy its files into the store, below `{mount.below}`"
    if mount.bucket:
        below = f"{below} (a store that is this bucket: `{{store}}`), mounted as the store is"
    if mount.reads and named:
        return Carried(f"only read: {below}", store)
    if mount.reads:
        return Carried(f"only read: {below}; `mounts` shows them there", mounted=store)
    if len(named) == 1 and not _is_entered(mount.folder, texts):
        text = f"written: it is the step's `{{output}}`, which begins empty; where it is only read, `{store}`"
        return Carried(text, "{output}")
    text = (
        f"read and written: {below}; `mounts` shows them there. What the program writes there is no part of its "
        "result: write `{output}` for that"
    )
    return Carried(text, mounted={"folder": store, "write": True})


def _paths(folder: str, text: str) -> Iterator[str]:
    """The paths at or below ``folder`` in a word, a value, or the command of a shell."""
    yield from (match[0] for match in path_pattern(folder, below=True).finditer(text))


def _is_entered(folder: str, texts: Sequence[str]) -> bool:
    return any(re.search(rf"(?<![\w-])cd\s+{re.escape(folder)}(?![\w.-])", text) for text in texts)


def path_pattern(folder: str, *, below: bool = False) -> re.Pattern[str]:
    """What finds ``folder`` as a path. In the command of a shell a path ends where the shell's word does."""
    ends = r"\s\"'`;:,&|<>()"
    rest = rf"(?:/[^{ends}]*)?" if below else ""
    return re.compile(rf"(?<![\w./-]){re.escape(folder)}{rest}(?=[/{ends}]|$)")


def _joined(*parts: str) -> str:
    """A path below the store: of names that a template left open, their words."""
    return "/".join(clean for part in parts if (clean := re.sub(r"[^\w./-]+", "", part).strip("/")))


def _named(key: str, source: Mapping[str, Any], spec: Mapping[str, Any], volume: str) -> str:
    """The name of what a volume holds: the bucket's, where a claim's volume says it in the same manifest."""
    if key != "persistentVolumeClaim":
        return _source_name(source) or volume
    claim = str(source.get("claimName") or volume)
    return _source_name(mapping(spec.get("csi") or spec.get("nfs"))) or claim


def _persistent_volume(source: Mapping[str, Any], beside: Sequence[Document]) -> Mapping[str, Any]:
    """The spec of the PersistentVolume of a claim, where it is in the same manifest."""
    for document in beside:
        content = document.content
        if content.get("kind") == "PersistentVolume" and _is_for(content, str(source.get("claimName")), beside):
            return mapping(content.get("spec"))
    return {}


def _prefix(source: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """The folder of its bucket that a CSI driver mounts; empty where that is all of it."""
    options = [*items(spec.get("mountOptions"))]
    for attributes in (source.get("volumeAttributes"), at(spec, "csi", "volumeAttributes")):
        options += str(mapping(attributes).get("mountOptions") or "").split(",")
    prefixes = [match[1] for option in options if (match := PREFIX.fullmatch(str(option).strip()))]
    return prefixes[0] if prefixes else ""


def _is_for(volume: Mapping[str, Any], claim: str, beside: Sequence[Document]) -> bool:
    """Whether a PersistentVolume is the one of the claim: either of both may name the other."""
    if at(volume, "spec", "claimRef", "name") == claim:
        return True
    named = at(volume, "metadata", "name")
    return any(
        document.content.get("kind") == "PersistentVolumeClaim"
        and at(document.content, "metadata", "name") == claim
        and at(document.content, "spec", "volumeName") == named
        for document in beside
    )


def _source_name(source: Mapping[str, Any]) -> str:
    """The bucket or share of a CSI volume; the last name of the path of an NFS one."""
    attributes = mapping(source.get("volumeAttributes"))
    names = [attributes.get(key) or source.get(key) for key in NAME_KEYS]
    path = str(source.get("path") or "").strip("/").rpartition("/")[2]
    return str(next((name for name in names if name), path)).strip("/")
