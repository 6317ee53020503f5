"""A pod's volumes as folders of this machine."""

import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from infra.review.properties import Properties, mapping, mappings
from offline.files import change_mode
from offline.rehearsal.cluster_objects import Namespace, RefusedError, contents
from offline.rehearsal.pods import Container, PodSpec, UnsupportedError

PROJECTED = {"configMap": ("ConfigMap", "name"), "secret": ("Secret", "secretName")}
"""Volume sources whose files come from an object: its kind, and the field that names it."""


@dataclass(frozen=True)
class Volumes:
    """The folders of one pod's volumes, by volume name. ``shared`` are those that outlive the pod."""

    folders: Mapping[str, Path]
    shared: frozenset[str]

    def mounts(self, container: Container) -> dict[str, Path]:
        """Where each mount path of ``container`` is here. Raises RefusedError where a volume is not declared."""
        found: dict[str, Path] = {}
        for mount in container.mounts:
            if mount.volume not in self.folders:
                raise RefusedError(f'spec.containers.volumeMounts.name: Not found: "{mount.volume}"')
            found[mount.path] = self.folders[mount.volume] / mount.sub_path
        return found

    def protect(self, container: Container) -> None:
        """Takes write permission from what ``container`` mounts read-only; the store's is left as it is."""
        for mount in container.mounts:
            if mount.read_only and mount.volume not in self.shared:
                change_mode(self.folders[mount.volume], writable=False)

    def unprotect(self) -> None:
        """Restores the write permissions."""
        for name, folder in self.folders.items():
            if name not in self.shared:
                change_mode(folder, writable=True)


def prepare(
    pod: PodSpec,
    namespace: Namespace,
    folder: Path,
    store: Path,
    drivers: Collection[str],
    *,
    kept: Mapping[str, Path] = MappingProxyType({}),
) -> Volumes:
    """Makes the pod's volumes below ``folder``; the store, which the CSI ``drivers`` mount, is at ``store``.

    ``kept`` are folders that outlive the pod, by the names of the volumes that they stand for. Raises RefusedError
    where an object that a volume names is missing, as the kubelet would say it, and UnsupportedError for a kind of
    volume that a rehearsal cannot stand in for.
    """
    folders = dict(kept)
    shared = set(kept)
    for name, volume in pod.volumes.items():
        kind = next((key for key in volume if key != "name"), "emptyDir")
        source = mapping(volume.get(kind))
        if kind in {"persistentVolumeClaim", "csi"}:
            _check_shared(kind, source, namespace, drivers)
            folders[name] = kept.get(name, store)
            shared.add(name)
            continue
        folders[name] = folder / name
        folders[name].mkdir(parents=True)
        if kind in PROJECTED:
            _project(name, kind, source, namespace, folders[name])
        elif kind != "emptyDir":
            raise UnsupportedError(f"volume {name!r}: a rehearsal has nothing to stand in for {kind}")
    return Volumes(folders, frozenset(shared))


def _check_shared(kind: str, source: Properties, namespace: Namespace, drivers: Collection[str]) -> None:
    if kind == "csi" and source.get("driver") not in drivers:
        raise UnsupportedError(
            f"CSI driver {source.get('driver')!r}: a rehearsal knows {', '.join(drivers) or 'none'}"
        )
    claim = str(source.get("claimName"))
    if kind == "persistentVolumeClaim" and not namespace.find("PersistentVolumeClaim", claim):
        raise RefusedError(f'persistentvolumeclaim "{claim}" not found')


def _project(volume: str, source_kind: str, source: Properties, namespace: Namespace, folder: Path) -> None:
    kind, name_key = PROJECTED[source_kind]
    name = str(source[name_key])
    found = namespace.find(kind, name)
    failed = f'MountVolume.SetUp failed for volume "{volume}"'
    if found is None:
        if source.get("optional"):
            return
        raise RefusedError(f'{failed}: {kind.lower()} "{name}" not found')
    values = contents(found)
    for item in mappings(source.get("items")) or [{"key": key, "path": key} for key in values]:
        key, path = str(item["key"]), str(item["path"])
        if key not in values:
            raise RefusedError(f"{failed}: {kind.lower()} references non-existent config key: {key}")
        if path.startswith("/") or ".." in path.split("/"):
            raise RefusedError(f"{failed}: invalid path {path!r}")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(values[key])
        target.chmod(int(item.get("mode") or source.get("defaultMode") or 0o644) | stat.S_IWUSR)
