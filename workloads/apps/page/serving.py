"""The REST API of TensorFlow Serving, as far as a page asks it: which version answers, what it takes and gives.

Documented at tensorflow.org/tfx/serving/api_rest (seen November 2026). An answer to a request for a prediction
does not say which version gave it: so the version is looked up first, and then asked for by its number.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

LARGEST_ANSWER = 4 * 2**20
"""Bytes of an answer that are read: a million numbers."""

AVAILABLE = "AVAILABLE"
"""The state of a version that answers."""

NO_LABEL = "Unrecognized servable version label"
"""What the server says of a label that it does not know."""

ATTEMPTS = 2
"""How often a request is made whose connection is cut before the answer is there. A request changes nothing on the
server. When one pod of it ends, its open connections are cut, and new ones lead to another: TensorFlow Serving
2.21 has no handler of SIGTERM, so that it answers until SIGKILL (model_servers/main.cc, read November 2026)."""

SIGNATURE = "serving_default"
"""The signature that is asked where a model has several."""


class AwayError(Exception):
    """The server cannot be reached, or does not answer in time."""


class GoneError(Exception):
    """The server is there, and does not have the model or the version."""


class RefusedError(Exception):
    """The server refused a request, or answered something else than is documented; the text is for the log."""


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives. ``shape`` is its input's, with -1 for what may be any, the batch left out.

    ``dtype`` is the input's as TensorFlow names it: `DT_UINT8`. ``classes`` is how many numbers it gives; None
    where that is not said.
    """

    name: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    classes: int | None


@dataclass(frozen=True)
class Version:
    """A version of the model, and how it is loaded: `AVAILABLE`, `LOADING` and so on."""

    number: int
    state: str
    problem: str = ""


class Serving:
    """A server at ``address``, such as `http://127.0.0.1:8501`, and the ``model`` that it serves.

    With ``label`` only the version counts that has it. At most ``parallel`` connections are open, and no request
    takes longer than ``timeout`` seconds. Proxies of the environment are not used, and redirections not followed.
    """

    def __init__(self, address: str, model: str, label: str | None, *, parallel: int, timeout: float) -> None:
        self._timeout = timeout
        self._of_model = f"/v1/models/{quote(model, safe='')}"
        self._label = f"/labels/{quote(label, safe='')}" if label else ""
        # Beside the predictions there is the question which version is served.
        limits = httpx2.Limits(max_connections=parallel + 2, max_keepalive_connections=parallel + 2)
        self._client = httpx2.AsyncClient(
            base_url=address,
            limits=limits,
            timeout=httpx2.Timeout(timeout),
            trust_env=False,
            follow_redirects=False,
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def versions(self) -> Sequence[Version]:
        """The versions that it knows, the newest first; with a label, of those that answer the one that has it.

        Raises:
            AwayError, GoneError, RefusedError: see there.
        """
        found = await self._ask("GET", self._of_model)
        try:
            versions = [_version(each) for each in found["model_version_status"]]
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedError(f"the status of the model is not as documented: {error!r}") from error
        versions.sort(key=lambda each: each.number, reverse=True)
        if not self._label:
            return versions
        labelled = await self._labelled()
        return [version for version in versions if version.number == labelled or version.state != AVAILABLE]

    async def _labelled(self) -> int | None:
        """The version that has the label; None while it is not loaded.

        The metadata say it. The status does not: it is that of all versions, with a label too
        (model_servers/get_model_status_impl.cc of TensorFlow Serving 2.21).
        """
        try:
            found = await self._ask("GET", f"{self._of_model}{self._label}/metadata")
            return int(found["model_spec"]["version"])
        except GoneError:
            return None
        except RefusedError as error:
            if NO_LABEL in str(error):
                return None
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedError(f"the metadata of the model are not as documented: {error!r}") from error

    async def signature(self, version: int) -> Signature:
        """What ``version`` takes and gives.

        Raises:
            AwayError, GoneError, RefusedError: see there; RefusedError too for a model that takes anything else
                than one tensor.
        """
        found = await self._ask("GET", f"{self._of_model}/versions/{version}/metadata")
        try:
            return _signature(found["metadata"]["signature_def"]["signature_def"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RefusedError(f"the metadata of the model are not as documented: {error!r}") from error

    async def predict(self, version: int, signature: Signature, instance: Any) -> list[float]:
        """What ``version`` says of one ``instance``: a number for each class.

        Raises:
            AwayError, GoneError, RefusedError: see there.
        """
        asked = {"signature_name": signature.name, "instances": [instance]}
        found = await self._ask("POST", f"{self._of_model}/versions/{version}:predict", asked)
        try:
            (row,) = found["predictions"]
            row = row[signature.output] if isinstance(row, dict) else row
            return [float(each) for each in (row if isinstance(row, list) else [row])]
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedError(f"the prediction is not as documented: {error!r}") from error

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            # httpx2's own bound is for each part of an answer, however slowly they come.
            async with asyncio.timeout(self._timeout):
                for _ in range(ATTEMPTS - 1):
                    with contextlib.suppress(httpx2.NetworkError, httpx2.RemoteProtocolError):
                        return await self._exchange(method, path, content, headers)
                return await self._exchange(method, path, content, headers)
        except (httpx2.HTTPError, OSError) as error:
            raise AwayError(f"{type(error).__name__}: {error}") from error

    async def _exchange(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]
    ) -> Mapping[str, Any]:
        async with self._client.stream(method, path, content=content, headers=headers) as answer:
            text = await _bounded(answer)
        return _checked(answer.status_code, text)


async def _bounded(answer: httpx2.Response) -> bytes:
    parts = bytearray()
    async for part in answer.aiter_bytes():
        parts += part
        if len(parts) > LARGEST_ANSWER:
            raise RefusedError(f"the answer has more than {LARGEST_ANSWER:,} bytes")
    return bytes(parts)


def _checked(status: int, text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    said = found.get("error") if isinstance(found, dict) else None
    if status == 404:
        raise GoneError(str(said or "not found")[:500])
    # What stands in front of a server answers like this while it is away.
    if status in {502, 503, 504}:
        raise AwayError(f"HTTP {status}: {str(said or '')[:500]}")
    if status != 200 or not isinstance(found, dict):
        raise RefusedError(f"HTTP {status}: {str(said or text[:200])[:500]}")
    return found


def _version(found: Mapping[str, Any]) -> Version:
    return Version(
        number=int(found["version"]),
        state=str(found["state"]),
        problem=str(found.get("status", {}).get("error_message", ""))[:500],
    )


def _signature(signatures: Mapping[str, Any]) -> Signature:
    known = [name for name in signatures if not name.startswith("__")]
    name = SIGNATURE if SIGNATURE in known else known[0] if known else ""
    if not name:
        raise RefusedError("the model has no signature to ask")
    inputs, outputs = signatures[name]["inputs"], signatures[name]["outputs"]
    if len(inputs) != 1:
        raise RefusedError(f"the signature {name} takes {len(inputs)} tensors, and a page has one image")
    (taken,) = inputs.values()
    output = min(outputs, key=lambda each: (_rank(outputs[each]) != 2, each))
    given = _shape(outputs[output])
    classes = given[-1] if len(given) == 2 and given[-1] > 0 else None
    return Signature(name, output, str(taken["dtype"]), _shape(taken)[1:], classes)


def _rank(tensor: Mapping[str, Any]) -> int:
    return len(_shape(tensor))


def _shape(tensor: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(each["size"]) for each in tensor["tensor_shape"].get("dim", ()))
