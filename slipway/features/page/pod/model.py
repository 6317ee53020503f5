"""The model, as TensorFlow Serving's REST API (tensorflow.org/tfx/serving/api_rest) says what it is and answers.

An answer does not say which version gave it: so that is looked up first, and then asked for by its number.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import quote

import httpx2
import numpy as np
from PIL import Image
from starlette.exceptions import HTTPException

from slipway.features.page.pod.pixels import Form

TIMEOUT, POLL = 5.0, 1.0
"""Seconds that an answer may take, and for which is true what the server said of its model."""

LARGEST_SIDE = 256
"""Pixels of a side of a small image."""

NUMBERS = ("DT_INT", "DT_UINT", "DT_FLOAT", "DT_DOUBLE", "DT_HALF", "DT_BFLOAT16")
"""What the types of numbers begin with, as TensorFlow names them."""

AWAY = "The model server cannot be reached. The page goes on trying."
WAITING = "The model server is there, and has no version of the model ready yet."


@dataclass(frozen=True)
class Model:
    """A version of the model. ``output`` is the name of what it gives, ``scale`` what it takes for a level of 1;
    ``last`` says that a pixel is a list of its channels.
    """

    version: int
    form: Form
    labels: Sequence[str]
    output: str
    scale: float
    last: bool

    def instance(self, image: Image.Image) -> Any:
        """What is sent of ``image``, which is of the model's form."""
        pixels = np.asarray(image)
        pixels = pixels if self.scale == 1 else pixels * self.scale
        return (pixels[..., None] if self.last and pixels.ndim == 2 else pixels).tolist()


def shares(numbers: Sequence[float]) -> list[float]:
    """The share of each label. Numbers that do not add up to 1 are logits."""
    if min(numbers) >= 0 and abs(sum(numbers) - 1) < 0.01:
        return list(numbers)
    powers = [math.exp(number - max(numbers)) for number in numbers]
    return [power / sum(powers) for power in powers]


class ModelServer:
    """A server at ``address``, and the ``model`` that it serves, of which the newest version answers.

    ``labels`` and ``ink`` are the page's words on the model.
    """

    def __init__(self, address: str, model: str, labels: Sequence[str], ink: Literal["light", "dark"]) -> None:
        self._labels: Sequence[str] = labels
        self._ink: Literal["light", "dark"] = ink
        self._model = f"/v1/models/{quote(model, safe='')}"
        self._looking, self._looked = asyncio.Lock(), -math.inf
        self._known: Model | HTTPException = HTTPException(503, AWAY)
        # Proxies of the environment are for the way out of the cluster. It follows no redirection.
        limits = httpx2.Limits(max_connections=16)
        self._client = httpx2.AsyncClient(base_url=address, timeout=TIMEOUT, trust_env=False, limits=limits)

    async def look(self) -> Model:
        """The version that answers now. Raises HTTPException."""
        async with self._looking:
            if time.monotonic() - self._looked > POLL:
                try:
                    self._known = self._made(await self._ask("GET", f"{self._model}/metadata"))
                except HTTPException as error:
                    self._known = error
                self._looked = time.monotonic()
            if isinstance(self._known, HTTPException):
                raise self._known
            return self._known

    async def predict(self, model: Model, image: Image.Image) -> list[float]:
        """A number for each label. Raises HTTPException."""
        body = {"instances": [model.instance(image)]}
        answer = await self._ask("POST", f"{self._model}/versions/{model.version}:predict", body)
        try:
            (row,) = answer["predictions"]
            named = cast("dict[str, Any]", row) if isinstance(row, dict) else {model.output: row}
            numbers = list(map(float, named[model.output]))
        except (KeyError, TypeError, ValueError) as error:
            raise HTTPException(502, "The model server does not answer as TensorFlow Serving does.") from error
        if len(numbers) != len(model.labels) or not all(map(math.isfinite, numbers)):
            reason = f"The model answered {len(numbers)} numbers for {len(model.labels)} labels"
            raise HTTPException(502, f"{reason}, or some that are none (NaN or infinite).")
        return numbers

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            # httpx2's own bound is for each part of an answer, however slowly they come.
            async with asyncio.timeout(TIMEOUT):
                answer = await self._client.request(method, path, json=body)
            said: Any = answer.json()
        except (httpx2.HTTPError, OSError, ValueError) as error:
            raise HTTPException(503, AWAY) from error
        if answer.status_code == 200 and isinstance(said, dict):
            return cast("dict[str, Any]", said)
        if answer.status_code == 404:
            raise HTTPException(503, WAITING)
        raise HTTPException(502, "The model server refused this image.")

    def _made(self, said: Mapping[str, Any]) -> Model:
        try:
            version = int(said["model_spec"]["version"])
            signature = said["metadata"]["signature_def"]["signature_def"]["serving_default"]
            (taken,) = signature["inputs"].values()
            dtype, shape = str(taken["dtype"]), _shape(taken)[1:]
            outputs = {name: _shape(tensor) for name, tensor in signature["outputs"].items()}
            output, (_, count) = next((name, sizes) for name, sizes in sorted(outputs.items()) if len(sizes) == 2)
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
            raise HTTPException(
                502, "The model has no signature that takes one image and gives labels."
            ) from error
        height, width, channels = shape if len(shape) == 3 else (*shape, 1) if len(shape) == 2 else (0, 0, 0)
        small = 0 < min(height, width) <= max(height, width) <= LARGEST_SIDE
        if not dtype.startswith(NUMBERS) or channels not in {1, 3} or not small:
            reason = f"The model takes {dtype} of the shape {['any', *shape]}. A page has small images of numbers"
            raise HTTPException(
                502, f"{reason}: (any, height, width) or that with 1 or 3 channels, of known size."
            )
        return Model(
            version=version,
            form=Form(width, height, "L" if channels == 1 else "RGB", self._ink),
            labels=tuple(self._labels or map(str, range(count))),
            output=output,
            scale=1 if "INT" in dtype else 1 / 255,
            last=len(shape) == 3,
        )


def _shape(tensor: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(dimension["size"]) for dimension in tensor["tensor_shape"].get("dim", ()))
