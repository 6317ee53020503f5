"""scikit-learn's handwritten digits as a TensorFlow data set: 1,797 real scans, no download needed.

The scans are the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998, UCI
Machine Learning Repository, CC BY 4.0; archive.ics.uci.edu/dataset/80), 8 x 8 pixels with values 0 to 16,
shipped inside scikit-learn. Here they are brought to MNIST's form: 20 x 20 in the centre of 28 x 28, white on
black, 0 to 255.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from numpy.typing import NDArray
from PIL import Image

SIZE = 28
"""Pixels along each side of an image."""
_INNER = 20


def enlarge(scan: NDArray[np.floating]) -> NDArray[np.uint8]:
    """One 8 x 8 scan with values 0 to 16 as a 28 x 28 image with values 0 to 255."""
    levels = np.round(np.clip(scan, 0, 16) * (255 / 16)).astype(np.uint8)
    inner = Image.fromarray(levels).resize((_INNER, _INNER), Image.Resampling.LANCZOS)
    image = np.zeros((SIZE, SIZE), np.uint8)
    edge = (SIZE - _INNER) // 2
    image[edge : edge + _INNER, edge : edge + _INNER] = np.asarray(inner)
    return image


class Digits(tfds.core.GeneratorBasedBuilder):
    """The 1,797 scans in one split, `train`; features `image` (28, 28, 1) uint8 and `label` 0 to 9."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "All scans, enlarged to 28 x 28."}

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=__doc__,
            homepage="https://archive.ics.uci.edu/dataset/80",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(SIZE, SIZE, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:  # noqa: ARG002
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        from sklearn.datasets import load_digits

        scans = load_digits()
        for index, (scan, label) in enumerate(zip(scans.images, scans.target, strict=True)):
            # An encoded file instead of an array: TFDS would import TensorFlow, 4 s of CPU, to encode arrays.
            encoded = io.BytesIO()
            Image.fromarray(enlarge(scan)).save(encoded, "PNG")
            encoded.seek(0)
            yield index, {"image": encoded, "label": int(label)}
