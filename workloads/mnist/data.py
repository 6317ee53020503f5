"""The prepared data set as `prepare` writes it and `train` reads it. numpy only.

One file for each split, `train.npz` and `test.npz`, with `images` (count, 28, 28) uint8, white on black, and
`labels` (count,) uint8. Two files, because a mounted bucket answers per request and reads best from front to end;
compressed, because 60,000 images are then 10 MB instead of 47, read twice (to verify, to load), and unpacking them
takes 0.03 s (docs/performance.md).
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads.runtime.exits import BAD_INPUT, StepError

Split = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Images (count, 28, 28) and labels (count,)."""


def save(path: Path, split: Split) -> None:
    """Write one split; equal content gives equal bytes."""
    images, labels = split
    np.savez_compressed(path, images=images, labels=labels)


def load(path: Path) -> Split:
    """Read one split.

    Raises:
        StepError: with BAD_INPUT where the file is not such a split.
        OSError: it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            images, labels = archive["images"], archive["labels"]
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise StepError(BAD_INPUT, f"{path} is not a prepared data set: {error}") from error
    right = images.dtype == labels.dtype == np.uint8 and images.shape == (len(labels), 28, 28) and len(labels)
    if not right:
        shapes = f"images {images.dtype}{images.shape}, labels {labels.dtype}{labels.shape}"
        raise StepError(BAD_INPUT, f"{path} is not a prepared data set: {shapes}")
    return images, labels
