"""Files that travel to a pod in an immutable, content-addressed ConfigMap."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from infra.names import KUBERNETES_NAME_LIMIT, fit, short_digest

LIMIT = 1024 * 1024
"""Most bytes that the values of one ConfigMap may have together ("cannot exceed 1 MiB",
kubernetes.io/docs/concepts/configuration/configmap, seen November 2026)."""

SHOWN = 5
"""How many of the biggest files an error about the limit names."""

_NOT_IN_KEYS = re.compile(r"[^-._a-zA-Z0-9]")


class ShippingError(Exception):
    """Files that cannot be shipped: ``value`` is what there is, ``reason`` why not, ``fix`` what to do."""

    def __init__(self, value: object, reason: str, fix: str) -> None:
        self.value = value
        self.reason = reason
        self.fix = fix
        super().__init__(f"{value}: {reason}; {fix}")


@dataclass(frozen=True)
class Files:
    """Contents by path, as they will stand below the folder where they are mounted. Paths use ``/`` everywhere."""

    contents: Mapping[str, bytes]

    @cached_property
    def digest(self) -> str:
        """SHA-256 over paths and contents, in hexadecimal; the same whatever machine and order they come from."""
        total = hashlib.sha256()
        for path, content in sorted(self.contents.items()):
            total.update(f"{len(path.encode())}:{path}{len(content)}:".encode())
            total.update(content)
        return total.hexdigest()

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by path. Kubernetes counts their sum; keys do not count."""
        return {path: len(content) for path, content in self.contents.items()}


def require_fit(sizes: Mapping[str, int], alternative: str) -> None:
    """Raises ShippingError, which names the biggest files, where they are more than one ConfigMap holds.

    ``sizes`` are in bytes, ``alternative`` is what to do with bigger ones.
    """
    total = sum(sizes.values())
    if total <= LIMIT:
        return
    biggest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]
    names = ", ".join(f"{path} ({size} bytes)" for path, size in biggest)
    raise ShippingError(
        f"{total} bytes",
        f"a ConfigMap holds at most {LIMIT} bytes; the biggest files are {names}",
        f"make them smaller, or {alternative}",
    )


def keys(paths: Iterable[str]) -> dict[str, str]:
    """A ConfigMap key for each path: the path with dots for slashes, or a hash and its end where that is no key.

    Keys may only have letters, digits, ``-``, ``_`` and ``.``, at most 253 of them.
    """
    result: dict[str, str] = {}
    taken: set[str] = set()
    for path in sorted(paths):
        key = _NOT_IN_KEYS.sub("_", path.replace("/", "."))
        if key in taken or key != path.replace("/", ".") or len(key) > KUBERNETES_NAME_LIMIT:
            key = f"{short_digest(hashlib.sha256(path.encode()).hexdigest())}-{key[-40:]}"
        taken.add(key)
        result[path] = key
    return result


def config_map(
    name: str, files: Files, namespace: str, labels: Mapping[str, str], opts: pulumi.ResourceOptions
) -> k8s.core.v1.ConfigMap:
    """Declares the ConfigMap that holds ``files``.

    Its name ends in their digest, so that other files are another ConfigMap: one that is mounted never changes.
    """
    by_key = {key: files.contents[path] for path, key in keys(files.contents).items()}
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for key, content in by_key.items():
        try:
            text[key] = content.decode()
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(content).decode()
    return k8s.core.v1.ConfigMap(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=config_map_name(name, files), namespace=namespace, labels=dict(labels)
        ),
        data=text or None,
        binary_data=binary or None,
        immutable=True,
        opts=opts,
    )


def config_map_name(name: str, files: Files) -> str:
    """The Kubernetes name of the ConfigMap that is declared as ``name``."""
    return fit(f"{name}-{short_digest(files.digest)}", KUBERNETES_NAME_LIMIT)


def volume(volume_name: str, map_name: str, files: Files) -> k8s.core.v1.VolumeArgs:
    """The pod volume in which the files have their paths again."""
    return k8s.core.v1.VolumeArgs(
        name=volume_name,
        config_map=k8s.core.v1.ConfigMapVolumeSourceArgs(
            name=map_name,
            default_mode=0o444,
            items=[k8s.core.v1.KeyToPathArgs(key=key, path=path) for path, key in keys(files.contents).items()],
        ),
    )


def image_folder(folder: Path) -> Files:
    """The PNG files below ``folder``, and each ``labels.json`` with the truth of those beside it.

    Hidden files are left out. Raises ShippingError where the folder is missing, has no PNG, or is too big.
    """
    if not folder.is_dir():
        raise ShippingError(
            str(folder),
            "there is no such folder",
            "name a folder of PNG files, relative to the repository; or `store:<path>` for one in the store",
        )
    found = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and (path.suffix.lower() == ".png" or path.name == "labels.json")
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }
    if not any(name.lower().endswith(".png") for name in found):
        raise ShippingError(str(folder), "there is no PNG file in it", "put the images there as .png files")
    sizes = {name: path.stat().st_size for name, path in found.items()}
    require_fit(sizes, "copy the folder into the store and write `store:<path>`")
    return Files({name: path.read_bytes() for name, path in found.items()})
