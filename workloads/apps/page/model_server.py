"""The REST API of TensorFlow Serving, as far as a page asks it: which version answers, what it takes and gives.

Documented at tensorflow.org/tfx/serving/api_rest (seen November 2026). An answer to a request for a prediction
does not say which version gave it: so the version is looked up first, and then asked for by its number.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import httpx2

from slipway.workloads.apps.page.model import Model, Signature, UnusableError

LARGEST_ANSWER = 4 * 2**20
"""Bytes of an answer that are read: a million numbers."""

AVAILABLE = "AVAILABLE"
"""The state of a version that answers."""

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
class Version:
    """A version of the model, and how it is loaded: `AVAILABLE`, `LOADING` and so on."""

    number: int
    state: str
    problem: str = ""


class ModelServer:
    """A server at ``address``, such as `http://127.0.0.1:8501`, and the ``model`` that it serves.

    At most ``parallel`` connections are open, and no request takes longer than ``timeout`` seconds. Proxies of the
    environment are not used, and redirections not followed.
    """

    def __init__(self, address: str, model: str, *, parallel: int, timeout: float) -> None:
        self._timeout = timeout
        self._of_model = f"/v1/models/{quote(model, safe='')}"
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
        """The versions that it knows, the newest first.

        Raises:
            AwayError, GoneError, RefusedError: see there.
        """
        answer = await self._ask("GET", self._of_model)
        try:
            versions = [_version(status) for status in answer["model_version_status"]]
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedError(f"the status of the model is not as documented: {error!r}") from error
        return sorted(versions, key=lambda version: version.number, reverse=True)

    async def signature(self, version: int) -> Signature:
        """What ``version`` takes and gives.

        Raises:
            AwayError, GoneError, RefusedError: see there; RefusedError too for a model that takes anything else
                than one tensor.
        """
        answer = await self._ask("GET", f"{self._of_model}/versions/{version}/metadata")
        try:
            return _signature(answer["metadata"]["signature_def"]["signature_def"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RefusedError(f"the metadata of the model are not as documented: {error!r}") from error

    async def predict(self, version: int, signature: Signature, instance: Any) -> list[float]:
        """What ``version`` says of one ``instance``: a number for each class.

        Raises:
            AwayError, GoneError, RefusedError: see there.
        """
        request = {"signature_name": signature.name, "instances": [instance]}
        answer = await self._ask("POST", f"{self._of_model}/versions/{version}:predict", request)
        try:
            (row,) = answer["predictions"]
            row = row[signature.output] if isinstance(row, dict) else row
            return [float(number) for number in (row if isinstance(row, list) else [row])]
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
            text = await _read_bounded(answer)
        return _check_answer(answer.status_code, text)


async def _read_bounded(answer: httpx2.Response) -> bytes:
    parts = bytearray()
    async for part in answer.aiter_bytes():
        parts += part
        if len(parts) > LARGEST_ANSWER:
            raise RefusedError(f"the answer has more than {LARGEST_ANSWER:,} bytes")
    return bytes(parts)


def _check_answer(status: int, text: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    reason = answer.get("error") if isinstance(answer, dict) else None
    if status == 404:
        raise GoneError(str(reason or "not found")[:500])
    # What stands in front of a server answers like this while it is away.
    if status in {502, 503, 504}:
        raise AwayError(f"HTTP {status}: {str(reason or '')[:500]}")
    if status != 200 or not isinstance(answer, dict):
        raise RefusedError(f"HTTP {status}: {str(reason or text[:200])[:500]}")
    return answer


def _version(status: Mapping[str, Any]) -> Version:
    return Version(
        number=int(status["version"]),
        state=str(status["state"]),
        problem=str(status.get("status", {}).get("error_message", ""))[:500],
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
    output = min(outputs, key=lambda name: (_rank(outputs[name]) != 2, name))
    given = _shape(outputs[output])
    classes = given[-1] if len(given) == 2 and given[-1] > 0 else None
    return Signature(name, output, str(taken["dtype"]), _shape(taken)[1:], classes)


def _rank(tensor: Mapping[str, Any]) -> int:
    return len(_shape(tensor))


def _shape(tensor: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(dimension["size"]) for dimension in tensor["tensor_shape"].get("dim", ()))


# Which version of the model answers now: looked up again and again, so that a new one needs no restart.


State = Literal["away", "waiting", "ready", "unusable"]

log = logging.getLogger("slipway.workloads.apps.page")


@dataclass(frozen=True)
class Status:
    """Whether predictions are to be had. ``reason`` is for visitors, and empty where there are."""

    state: State
    model: Model | None = None
    reason: str = ""


STARTING = Status("waiting", reason="The page has just started and looks for the model server.")
AWAY = Status("away", reason="The model server cannot be reached. The page goes on trying.")


WAITING = Status("waiting", reason="The model server is there, and has no version of the model ready yet.")
REFUSED = Status("unusable", reason="The model server does not answer as TensorFlow Serving does.")


class Watcher:
    """Looks every ``seconds`` what ``server`` serves. ``made`` turns a version and its signature into a model."""

    def __init__(
        self,
        server: ModelServer,
        made: Callable[[int, Signature], Model],
        seconds: float,
    ) -> None:
        self._server = server
        self._made = made
        self._seconds = seconds
        self._looking = asyncio.Lock()
        self._looks = 0
        self._doubted = False
        self.status = STARTING

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.refresh()
            except Exception:
                # Whatever comes, the next look may find the server well.
                log.exception("the server could not be asked")
                self._take(AWAY, "")
            await asyncio.sleep(self._seconds)

    def doubt(self) -> None:
        """What is known of the version may be wrong: its server may be another one by now. Read it anew."""
        self._doubted = True

    async def refresh(self) -> Status:
        """Look now; those who ask meanwhile have the same answer."""
        looks = self._looks
        async with self._looking:
            if self._looks == looks:
                self._take(*await self._look())
                self._looks += 1
        return self.status

    def _take(self, status: Status, details: str) -> None:
        before, self.status = self.status, status
        if (before.state, before.reason) != (status.state, status.reason):
            log.info("%s: %s %s", status.state, status.reason or "predictions are to be had", details)
        if status.model and (before.model is None or before.model.version != status.model.version):
            log.info("version %d of the model answers from now on", status.model.version)

    async def _look(self) -> tuple[Status, str]:
        try:
            versions = await self._server.versions()
            newest = next((version.number for version in versions if version.state == AVAILABLE), None)
            if newest is None:
                return _waiting(versions), ""
            known = self.status.model
            if known is None or known.version != newest or self._doubted:
                self._doubted = False
                known = self._made(newest, await self._server.signature(newest))
            return Status("ready", known), ""
        except AwayError as error:
            return AWAY, f"({error})"
        except GoneError as error:
            return WAITING, f"({error})"
        except RefusedError as error:
            return REFUSED, f"({error})"
        except UnusableError as error:
            return Status("unusable", reason=str(error)), ""


def _waiting(versions: Sequence[Version]) -> Status:
    for version in versions:
        if version.state == "LOADING":
            return Status("waiting", reason=f"The model server loads version {version.number}.")
        if version.problem:
            return Status("waiting", reason=f"The model server could not load version {version.number}.")
    return WAITING
