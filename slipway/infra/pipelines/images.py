"""The container images that are run by default, by digest where `make pin-images` has written it down."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipway.infra.commands import command, uv
from slipway.infra.places import PROJECT
from slipway.infra.platform import Pool
from slipway.infra.schema.requirement_files import REQUIREMENTS

DATA = Path(__file__).parents[1] / "data" / "images.toml"

DIGESTS = PROJECT / "image-digests.toml"
"""The digests that a project has asked registries for, ``"<repository>:<tag>" = "sha256:…"``. They come before
those that the package has."""


def read(file: Path = DATA) -> Mapping[str, Mapping[str, str]]:
    """The images that ``file`` has under each name, ``<repository>:<tag>``, with their digests.

    The digest of an image that is not pinned is empty.
    """
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    return {
        name: {f"{image['repository']}:{tag}": image["digests"].get(tag, "") for tag in image["tags"]}
        for name, image in data.items()
    }


def pinned(file: Path = DIGESTS) -> Mapping[str, str]:
    """The digests in ``file`` by ``<repository>:<tag>``; none where it is not there."""
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


_PINNED = pinned()

IMAGES = {
    name: {image: _PINNED.get(image, digest) for image, digest in images.items()}
    for name, images in read().items()
}


def references(name: str) -> tuple[str, ...]:
    """The images that the data file has under ``name``, in its order: by digest, or by tag where none is known."""
    return tuple(f"{tag}@{digest}" if digest else tag for tag, digest in IMAGES[name].items())


TAGS = tuple(IMAGES["tensorflow"])
"""TensorFlow's official images by their tags alone: the one for CPU steps, and the one with CUDA."""

CPU_IMAGE, GPU_IMAGE = references("tensorflow")
"""What steps run in. The one with CUDA has from 2.18 on cuDNN 8.9 where TensorFlow loads 9, so that it finds no
GPU (github.com/tensorflow/build, issue 221, open; read 2026-11-20); ``slipway/runtime/cuda`` has what it lacks."""

(BUILDKIT_IMAGE,) = references("buildkit")
"""What builds images: BuildKit without root."""


def tensorflow_image(pool: Pool) -> str:
    """The image for steps on ``pool``: with CUDA where the pool has GPUs."""
    return GPU_IMAGE if pool.accelerator else CPU_IMAGE


def has_tensorflow(image: str) -> bool:
    """Whether ``image`` is an official one of TensorFlow, by any tag or digest."""
    return re.split("[:@]", image)[0] == re.split("[:@]", CPU_IMAGE)[0]


HASH = re.compile(r"\s--hash=[a-z0-9]+:[0-9a-f]+")
PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[^\]]*\])?\s*==\s*[A-Za-z0-9][A-Za-z0-9.!+_-]*\s*(;.*)?")


def compiling(lock: Path, root: Path) -> str:
    """The command that compiles ``lock`` of the list of packages beside it, to be run in the folder ``root``."""
    path = lock.relative_to(root) if lock.is_relative_to(root) else lock
    if path.parts[:1] == ("workloads",) and len(path.parts) == 3 and path.name == REQUIREMENTS:
        return command("lock", pipeline=path.parts[1])
    packages = path.with_suffix(".in")
    files = f"{packages} --output-file {path}"
    return uv(f"pip compile --universal --generate-hashes {files} --python-version 3.11")


def lock_problem(lock: Path) -> str | None:
    """Why ``lock`` does not say which packages are installed, by its line; None where it does.

    `slipway.runtime.steps.packages` takes the same files, in the pod. Raises OSError where it cannot be
    read.
    """
    try:
        text = lock.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    joined = re.sub(r"\\\r?\n", lambda end: " " * len(end.group()), text)
    start = 0
    for line in joined.splitlines(keepends=True):
        content = re.split(r"(?:^|\s)#", line)[0].strip()
        number = text.count("\n", 0, start) + 1
        start += len(line)
        if not content:
            continue
        if not PINNED.fullmatch(HASH.sub("", f" {content}").strip()):
            return (
                f"line {number}, `{content.split()[0][:80]}`, is not one package at one version: `name==version`"
            )
        if not HASH.search(f" {content}"):
            return f"line {number}, `{content.split()[0][:80]}`, has no hash of the package's files"
    return None


@dataclass(frozen=True)
class ImageBuild:
    """The folder whose files a Dockerfile may copy, the Dockerfile's path in it, and values of its ``ARG``.

    ``context`` is relative to the repository, or absolute. ``name`` tells the image from others of the pipeline;
    it is empty for the one that all steps have that name none.
    """

    context: str
    dockerfile: str = "Dockerfile"
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    name: str = ""
