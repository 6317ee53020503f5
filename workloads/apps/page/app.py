"""The page's web server: an ASGI application. It asks the model server, and nothing else, ever.

| path | what it answers |
| --- | --- |
| `/`, `/page.css`, `/page.js`, `/icon.svg` | the page |
| `/api/status` | which model answers, its labels, and whether it can be asked |
| `/api/sample` | a random held-out image, without its label |
| `/api/predict` | what the model says of the image that is sent, or of the sample that is named |
| `/healthz` | that the page runs, be the model server there or not |
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import html
import logging
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio.to_thread
from PIL import Image
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from slipway.workloads.apps.page.limits import (
    Bounds,
    BusyError,
    ConcurrencyLimit,
    Rate,
    Room,
    TooManyError,
    client_of,
)
from slipway.workloads.apps.page.middleware import KnownHosts, Measured, Metrics, SecurityHeaders
from slipway.workloads.apps.page.model import Model, Pictures, UnusableError, model
from slipway.workloads.apps.page.model_server import (
    AWAY,
    AwayError,
    GoneError,
    ModelServer,
    RefusedError,
    Status,
    Watcher,
)
from slipway.workloads.apps.page.pixels import WORKING, ImageError, data_of, decode, measure, prepare
from slipway.workloads.apps.page.samples import Sample

log = logging.getLogger("slipway.workloads.apps.page")

STATIC = Path(__file__).parent / "static"

KINDS = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

HEALTH = "/healthz"

READS = 4.0
"""Other requests that a client may make for each prediction: the page, its files, the status."""

AT_ONCE = 512 * 512
"""Pixels of an image that is decoded at once, in a few milliseconds: a thread may start later."""

BODIES, BODIES_OF_ONE = 8, 2
"""The largest bodies that are in memory at a time, of all visitors and of one. On all connections that one may
have, they would fill a pod."""

UNCOUNTED = 2**16
"""Bytes of each body that are not counted among them, so that drawings pass while others fill that."""


@dataclass(frozen=True)
class Options:
    """What a page shows, and whom it asks: ``serving`` is the address of the server, ``model`` the model's name.

    The newest version answers. ``poll`` are the seconds between two looks at which one that is.
    """

    serving: str
    model: str
    title: str = "Try the model"
    labels: Sequence[str] = ()
    pictures: Pictures = field(default_factory=Pictures)
    samples: Sequence[Sample] = ()
    bounds: Bounds = field(default_factory=Bounds)
    poll: float = 1.0


class Page:
    """The state behind the routes, and the routes."""

    def __init__(self, options: Options, metrics: Metrics) -> None:
        bounds = options.bounds
        self._options = options
        self._metrics = metrics
        self._server = ModelServer(
            options.serving,
            options.model,
            parallel=bounds.parallel,
            timeout=bounds.timeout,
        )
        self._watcher = Watcher(
            self._server,
            lambda version, signature: model(version, signature, options.pictures, options.labels),
            options.poll,
        )
        self._predictions = Rate(bounds.rate, bounds.rate_of_all)
        self._reads = Rate(bounds.rate * READS, bounds.rate_of_all * READS, burst=5.0)
        self._predicting = ConcurrencyLimit(bounds.parallel, bounds.waiting)
        # Two WebP images with transparency at a time are more than a pod has.
        self._decoding = ConcurrencyLimit(1, bounds.waiting)
        self._bodies = Room(BODIES_OF_ONE * bounds.body, BODIES * bounds.body)
        self._files = _files(options.title)
        metrics.waiting.set_function(lambda: self._predicting.waiting + self._decoding.waiting)
        metrics.clients.set_function(lambda: len(self._reads))
        metrics.up.set_function(lambda: self._watcher.status.state == "ready")
        metrics.version.set_function(self._version)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        """Watch the model server as long as the application runs."""
        watching = asyncio.create_task(self._watcher.run())
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            await self._server.close()

    def routes(self) -> list[Route]:
        """What is answered, and how."""
        return [
            Route("/", self.file),
            *(Route(f"/{name}", self.file) for name in KINDS),
            Route("/api/status", self.status),
            Route("/api/sample", self.sample),
            Route("/api/predict", self.predict, methods=["POST"]),
            Route(HEALTH, self.health),
        ]

    async def health(self, _: Request) -> Response:
        """The page runs. It can say by itself that the model server is away."""
        return PlainTextResponse("ok\n")

    async def file(self, request: Request) -> Response:
        """One of the page's files, or that the browser has it as it is."""
        self._take(self._reads, request)
        content, kind, tag = self._files[request.url.path.lstrip("/")]
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    async def status(self, request: Request) -> Response:
        """What the page shows above everything else."""
        self._take(self._reads, request)
        return JSONResponse(self._description(self._watcher.status))

    async def sample(self, request: Request) -> Response:
        """A random held-out image; its label comes with the prediction."""
        self._take(self._reads, request)
        samples = self._options.samples
        if not samples:
            raise HTTPException(404, "This page has no held-out images.")
        number = random.randrange(len(samples))
        if len(samples) > 1 and str(number) == request.query_params.get("not"):
            number = (number + 1) % len(samples)
        return JSONResponse({"sample": number, "png": base64.b64encode(samples[number].png).decode()})

    async def predict(self, request: Request) -> Response:
        """What the model says of an image. No part of the request is ever taken for an address."""
        if not _is_own(request):
            raise HTTPException(403, "Predictions are made for this page alone, not for other sites.")
        self._take(self._predictions, request)
        begin = time.perf_counter()
        sample = self._sample(request.query_params.get("sample"))
        drawn = request.query_params.get("source") == "drawing"
        chosen, image = await self._receive(request, sample, drawn=drawn)
        chosen, numbers, seconds = await self._ask(chosen, image)
        source = "sample" if sample else "drawing" if drawn else "upload"
        self._metrics.predictions.labels(source, str(chosen.version)).inc()
        try:
            shares = chosen.probabilities(numbers)
        except UnusableError:
            self._watcher.doubt()
            raise
        truth = sample.truth(chosen.labels) if sample else None
        return JSONResponse(
            {
                "model": self._options.model,
                "version": chosen.version,
                "labels": list(chosen.labels),
                "probabilities": [round(share, 6) for share in shares],
                "best": max(range(len(shares)), key=shares.__getitem__),
                "truth": truth,
                "source": source,
                "seen": {"width": image.width, "height": image.height, "png": data_of(image)},
                "milliseconds": {
                    "serving": round(seconds * 1000, 2),
                    "page": round((time.perf_counter() - begin - seconds) * 1000, 2),
                },
            }
        )

    async def _receive(self, request: Request, sample: Sample | None, *, drawn: bool) -> tuple[Model, Image.Image]:
        """The version that is to be asked, and the image. What was sent is in memory no longer than this takes."""
        with self._bodies.place(self._client(request)) as take:
            body = b"" if sample else await _body(request, self._options.bounds, take)
            status = self._watcher.status
            if status.model is None:
                raise HTTPException(503, status.reason, headers={"retry-after": "2"})
            return status.model, await self._prepare(sample, body, status.model, drawn=drawn)

    async def _prepare(self, sample: Sample | None, body: bytes, chosen: Model, *, drawn: bool) -> Image.Image:
        form = chosen.form
        if sample:
            # Held-out images are as those that the model was trained on.
            same = sample.image.size == (form.width, form.height)
            return (
                sample.image.convert("L" if form.channels == 1 else "RGB") if same else prepare(sample.image, form)
            )

        def work() -> Image.Image:
            return prepare(decode(body, max(WORKING, 2 * form.width, 2 * form.height)), form, drawn=drawn)

        if measure(body) <= AT_ONCE:
            return work()
        async with self._decoding.slot():
            return await anyio.to_thread.run_sync(work)

    async def _ask(self, chosen: Model, image: Image.Image) -> tuple[Model, list[float], float]:
        """The version that answered, its numbers, and the seconds that took.

        A version that was put in the place of the one that was asked answers in its place.
        """
        async with self._predicting.slot():
            for last in (False, True):
                instance = chosen.instance(image)
                begin = time.perf_counter()
                try:
                    numbers = await self._server.predict(chosen.version, chosen.signature, instance)
                except GoneError:
                    status = await self._watcher.refresh()
                    if last or status.model is None or status.model.form != chosen.form:
                        raise HTTPException(503, status.reason or AWAY.reason) from None
                    chosen = status.model
                    continue
                except RefusedError:
                    self._watcher.doubt()
                    raise
                seconds = time.perf_counter() - begin
                self._metrics.serving_seconds.observe(seconds)
                return chosen, numbers, seconds
        raise AssertionError

    def _sample(self, number: str | None) -> Sample | None:
        if number is None:
            return None
        samples = self._options.samples
        place = int(number) if number.isascii() and number.isdecimal() and len(number) < 9 else len(samples)
        if place >= len(samples):
            raise HTTPException(404, "This page has no such held-out image.")
        return samples[place]

    def _take(self, rate: Rate, request: Request) -> None:
        rate.take(self._client(request))

    def _client(self, request: Request) -> str:
        forwarded = request.headers.getlist("x-forwarded-for")
        return client_of(request.client.host if request.client else "", forwarded, self._options.bounds.proxies)

    def _description(self, status: Status) -> Mapping[str, Any]:
        known = status.model
        options = self._options
        return {
            "title": options.title,
            "model": options.model,
            "state": status.state,
            "reason": status.reason,
            "version": known and known.version,
            "labels": list(known.labels) if known else list(options.labels),
            "size": known and [known.form.width, known.form.height, known.form.channels],
            "samples": len(options.samples),
            "largest": options.bounds.body,
        }

    def _version(self) -> float:
        known = self._watcher.status.model
        return known.version if known else 0


def application(options: Options, metrics: Metrics | None = None) -> ASGIApp:
    """The page as an ASGI application, with its own watcher of the model server."""
    metrics = metrics or Metrics()
    page = Page(options, metrics)
    routes = page.routes()
    starlette = Starlette(
        debug=False,
        routes=routes,
        exception_handlers=errors(metrics),
        lifespan=page.lifespan,
    )
    answering = KnownHosts(starlette, HEALTH)
    return Measured(SecurityHeaders(answering), metrics, frozenset(route.path for route in routes))


def errors(metrics: Metrics) -> Mapping[Any, Any]:
    """What answers an error, by its type: a reason, a status, and ``metrics`` that count it by a short name.

    No visitor sees where it happened.
    """

    def answer(status: int, reason: str, counted: str, seconds: float | None = None) -> Response:
        metrics.refused.labels(counted).inc()
        headers = {} if seconds is None else {"retry-after": str(max(1, math.ceil(seconds)))}
        return JSONResponse({"error": reason}, status, headers)

    def http(_: Request, error: HTTPException) -> Response:
        known = {413: "size", 403: "other site", 503: "no model", 408: "slow"}
        seconds = 2.0 if error.status_code == 503 else None
        answered = answer(error.status_code, error.detail, known.get(error.status_code, "other"), seconds)
        if error.headers:
            answered.headers.update(error.headers)
        return answered

    def too_many(_: Request, error: TooManyError) -> Response:
        who = "Too many people are here at the moment." if error.everyone else "That was too fast."
        return answer(429, f"{who} Wait a moment.", "rate of all" if error.everyone else "rate", error.seconds)

    def unreached(_: Request, error: AwayError) -> Response:
        log.warning("the model server did not answer: %s", error)
        return answer(503, AWAY.reason, "away", 2.0)

    def refused(_: Request, error: RefusedError) -> Response:
        log.warning("the model server refused a prediction: %s", error)
        return answer(502, "The model server refused this image.", "refused by the server")

    return {
        HTTPException: http,
        TooManyError: too_many,
        AwayError: unreached,
        RefusedError: refused,
        BusyError: lambda *_: answer(503, "Too many people wait already. Try again.", "busy", 1.0),
        ImageError: lambda _, error: answer(422, str(error), "image"),
        UnusableError: lambda _, error: answer(502, str(error), "unusable model"),
        ClientDisconnect: lambda *_: answer(400, "The request ended early.", "ended early"),
        Exception: lambda *_: answer(500, "Something went wrong here. It has been noted.", "error"),
    }


def _is_own(request: Request) -> bool:
    """Whether the request comes from this page, or from no site at all."""
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return False
    origin = request.headers.get("origin")
    # A proxy in front of the page ends TLS, so that only the host can be compared.
    return origin is None or origin.rpartition("://")[2].lower() == request.headers.get("host", "").lower()


async def _body(request: Request, bounds: Bounds, take: Callable[[int], None]) -> bytes:
    """What was sent; nothing of it is read where its header says that it is too much. ``take`` makes room."""
    too_large = HTTPException(413, f"The file is too large: {bounds.body / 2**20:.3g} MiB are taken.")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 15 or int(length) > bounds.body):
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(bounds.body_seconds):
            async for part in request.stream():
                counted = max(len(body) - UNCOUNTED, 0)
                body += part
                if len(body) > bounds.body:
                    raise too_large
                take(max(len(body) - UNCOUNTED, 0) - counted)
    except TimeoutError:
        raise HTTPException(408, "The file took too long to arrive.") from None
    return bytes(body)


def _files(title: str) -> Mapping[str, tuple[bytes, str, str]]:
    """The content, the type and the tag of each file, by its name; the page's own is empty."""
    files: dict[str, tuple[bytes, str, str]] = {}
    for name in ("index.html", *KINDS):
        content = (STATIC / name).read_bytes()
        if name == "index.html":
            content = content.replace(b"{{title}}", html.escape(title).encode())
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        files["" if name == "index.html" else name] = (content, KINDS.get(name, "text/html; charset=utf-8"), tag)
    return files
