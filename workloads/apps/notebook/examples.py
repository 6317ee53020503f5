"""Files of the store as instances of a request: images, arrays and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

IMAGES = frozenset({".png", ".jpg", ".jpeg"})


def instance(path: Path, dtype: str, shape: Sequence[int]) -> Any:
    """What of a request stands for one example: lists in the model's form.

    An image is brought to the height, the width and the channels of `shape`, whose first dimension is how many
    instances there are; where the model computes with floating-point numbers they are as the file has them, from 0
    to 255. `.npy` and `.json` are taken as they are.

    Raises:
        ValueError: a file of another kind, or an image for a model that takes none.
    """
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    import numpy as np

    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False).tolist()
    if path.suffix.lower() not in IMAGES:
        raise ValueError(f"{path.name} is no image, .npy or .json")
    if len(shape) not in {3, 4}:
        raise ValueError(f"the model takes no images: an instance has the shape {tuple(shape[1:])}")
    height, width, channels = (*shape[1:], 1)[:3]
    from PIL import Image

    image = Image.open(path).convert("L" if channels == 1 else "RGB")
    if min(height, width) > 0 and image.size != (width, height):
        image = image.resize((width, height))
    pixels = np.asarray(image, dtype=np.uint8)
    if len(shape) == 4 and channels == 1:
        pixels = pixels[..., None]
    return (pixels if dtype.startswith(("DT_INT", "DT_UINT")) else pixels.astype(np.float32)).tolist()
