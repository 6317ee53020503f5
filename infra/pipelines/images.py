"""The container images that are run by default, by digest where `make pin-images` has written it down."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from infra.platform import Pool

DATA = Path(__file__).parents[1] / "data" / "images.toml"


def read(file: Path = DATA) -> Mapping[str, Mapping[str, str]]:
    """The images that ``file`` has under each name, ``<repository>:<tag>``, with their digests.

    The digest of an image that is not pinned is empty.
    """
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    return {
        name: {f"{each['repository']}:{tag}": each["digests"].get(tag, "") for tag in each["tags"]}
        for name, each in data.items()
    }


IMAGES = read()


def references(name: str) -> tuple[str, ...]:
    """The images that the data file has under ``name``, in its order: by digest, or by tag where none is known."""
    return tuple(f"{tag}@{digest}" if digest else tag for tag, digest in IMAGES[name].items())


TAGS = tuple(IMAGES["tensorflow"])
"""TensorFlow's official images by their tags alone: the one for CPU steps, and the one with CUDA."""

CPU_IMAGE, GPU_IMAGE = references("tensorflow")
"""What steps run in. The one with CUDA has from 2.18 on cuDNN 8.9 where TensorFlow loads 9, so that it finds no
GPU (github.com/tensorflow/build, issue 221, open; read 2026-11-20); ``workloads/cuda`` has what it lacks."""

(BUILDKIT_IMAGE,) = references("buildkit")
"""What builds images: BuildKit without root."""


def tensorflow_image(pool: Pool) -> str:
    """The image for steps on ``pool``: with CUDA where the pool has GPUs."""
    return GPU_IMAGE if pool.accelerator else CPU_IMAGE


def has_tensorflow(image: str) -> bool:
    """Whether ``image`` is an official one of TensorFlow, by any tag or digest."""
    return re.split("[:@]", image)[0] == re.split("[:@]", CPU_IMAGE)[0]
