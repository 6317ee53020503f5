"""Files that travel to a pod in an immutable, content-addressed ConfigMap."""

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from infra.schema.names import KUBERNETES_NAME_LIMIT, fit, short_digest

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


IMAGES = (".png", ".jpg", ".jpeg")
"""Suffixes of the files that a folder of images ships."""

OTHER_IMAGES = (".avif", ".bmp", ".gif", ".heic", ".heif", ".tif", ".tiff", ".webp")
"""Suffixes of images that no step reads: somebody who puts one there expects it to be read."""

LABELS = "labels.json"
"""The file with the truth of the images beside it."""


def image_folder(folder: Path, root: Path) -> Files:
    """The PNG and JPEG files below ``folder``, and each ``labels.json`` with the truth of those beside it.

    Hidden files are left out, and so are those of `left_out`. Raises ShippingError where the folder is missing or
    has no image, is too big, or has something that cannot be shipped or leads out of the repository at ``root``.
    """
    if not folder.is_dir():
        raise ShippingError(
            str(folder),
            "there is no such folder",
            "name a folder of PNG or JPEG files, relative to the repository; or `store:<path>` in the store",
        )
    inside = root.resolve()
    if not folder.resolve().is_relative_to(inside):
        raise ShippingError(
            str(folder),
            "a link leads out of the repository",
            "copy the images into the repository; or copy them into the store and write `store:<path>`",
        )
    paths = [
        path for path in visible(folder) if path.suffix.lower() in {*IMAGES, *OTHER_IMAGES} or path.name == LABELS
    ]
    if wrong := [
        f"{path.relative_to(folder).as_posix()} {why}" for path in paths if (why := _obstacle(path, inside))
    ]:
        raise ShippingError(
            str(folder),
            "; ".join(wrong[:SHOWN]) + (f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""),
            "put PNG and JPEG files themselves there, under names that can be read; convert others, or move them "
            "out of the folder",
        )
    if not any(path.suffix.lower() in IMAGES for path in paths):
        raise ShippingError(
            str(folder), "there is no PNG or JPEG file in it", "put the images there as .png, .jpg or .jpeg files"
        )
    found = {path.relative_to(folder).as_posix(): path for path in paths}
    require_fit(
        {name: path.stat().st_size for name, path in found.items()},
        "copy the folder into the store and write `store:<path>`",
    )
    return Files({name: path.read_bytes() for name, path in found.items()})


def left_out(folder: Path) -> list[str]:
    """The names of the files below ``folder`` that `image_folder` does not ship, hidden ones aside."""
    shipped = {*IMAGES, *OTHER_IMAGES}
    return [
        path.relative_to(folder).as_posix()
        for path in visible(folder)
        if path.suffix.lower() not in shipped and path.name != LABELS
    ]


def visible(folder: Path) -> list[Path]:
    """Everything below ``folder`` that is no folder; a link to one is not followed."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if (path.is_symlink() or not path.is_dir())
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def _obstacle(path: Path, root: Path) -> str | None:
    """What keeps an image from being shipped, after its name; None where nothing does."""
    if path.name.isprintable() and path.suffix.lower() in OTHER_IMAGES:
        return "is neither PNG nor JPEG"
    return obstacle(path, root, "repository")


def obstacle(path: Path, root: Path, around: str) -> str | None:
    """What keeps a file from being shipped, after its name; None where nothing does. ``around`` is what ``root``
    is, which no link may lead out of.
    """
    if not path.name.isprintable():
        return "has characters in its name that nobody sees"
    if not Path(os.path.realpath(path)).is_relative_to(root):
        return f"is a link out of the {around}"
    if not path.is_file():
        return "is a link to no file" if path.is_symlink() else "is no file"
    return None if os.access(path, os.R_OK) else "cannot be read: permission denied"
