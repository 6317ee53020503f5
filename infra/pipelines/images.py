"""TensorFlow's official container images, by digest where `make pin-images` has written it down."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from infra.platform import Pool

DATA = Path(__file__).parents[1] / "data" / "images.toml"


def _images(file: Path) -> tuple[str, Mapping[str, str]]:
    """The repository, and the digest of each tag that steps use; empty where it is not pinned."""
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    version: str = data["version"]
    return data["repository"], {tag: data["digests"].get(tag, "") for tag in (version, f"{version}-gpu")}


REPOSITORY, DIGESTS = _images(DATA)

TAGS = tuple(f"{REPOSITORY}:{tag}" for tag in DIGESTS)
"""The images by their tags alone: the one for CPU steps, and the one with CUDA."""

CPU_IMAGE, GPU_IMAGE = (
    f"{tag}@{digest}" if digest else tag for tag, digest in zip(TAGS, DIGESTS.values(), strict=True)
)
"""What steps run in. The one with CUDA has from 2.18 on cuDNN 8.9 where TensorFlow loads 9, so that it finds no
GPU (github.com/tensorflow/build, issue 221, open; read 2026-11-20); ``workloads/cuda`` has what it lacks."""


_BUILDKIT = tomllib.loads(DATA.read_text(encoding="utf-8"))["buildkit"]

BUILDKIT_IMAGE: str = f"{_BUILDKIT['repository']}:{_BUILDKIT['version']}@{_BUILDKIT['index']}"
"""What builds images: BuildKit without root."""


def tensorflow_image(pool: Pool) -> str:
    """The image for steps on ``pool``: with CUDA where the pool has GPUs."""
    return GPU_IMAGE if pool.accelerator else CPU_IMAGE


def has_tensorflow(image: str) -> bool:
    """Whether ``image`` is an official one of TensorFlow, by any tag or digest."""
    return re.split("[:@]", image)[0] == REPOSITORY
