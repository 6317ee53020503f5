"""The page's web server: an ASGI application. It asks the model server, and nothing else, ever."""

from __future__ import annotations

import asyncio
import html
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slipway.features.page.pod.limits import Rate
from slipway.features.page.pod.model import ModelServer, shares
from slipway.features.page.pod.pixels import SIDE, Sample, of_drawing, of_sample, png
from slipway.runtime.hosts import REFUSED, configured, is_known

STATIC = Path(__file__).parent / "static"

FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The files that are sent, by their paths: no part of a path is ever taken for that of a file."""

HEALTH = "/healthz"
BODY_SECONDS = 20.0
"""How long the sending of a drawing may take."""

PROXIES = "SLIPWAY_PROXIES"
"""Where a pod that people reach from outside finds how many proxies stand before it."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass
class Options:
    """The command line: what a page shows, where it listens, and whom it asks: ``serving``, for ``model``.

    ``rate`` and ``rate_of_all`` are predictions a second, of each visitor and of all; ``proxies`` stand before it.
    """

    serving: str = ""
    model: str = ""
    host: str = "127.0.0.1"
    port: int = 8080
    title: str = "Try the model"
    labels: list[str] = field(default_factory=list[str])
    ink: Literal["light", "dark"] = "dark"
    samples: Sequence[Sample] = ()
    rate: float = 10.0
    rate_of_all: float = 200.0
    proxies: int = field(default_factory=lambda: int(os.environ.get(PROXIES, "0")))


class Page:
    """The state behind the routes, and the routes."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._server = ModelServer(options.serving, options.model, options.labels, options.ink)
        self._predictions = Rate(options.rate, options.rate_of_all)
        self._files = {path: (STATIC / name).read_bytes() for path, (name, _) in FILES.items()}
        self._files[""] = self._files[""].replace(b"{{title}}", html.escape(options.title).encode())

    def application(self) -> ASGIApp:
        """What answers."""
        routes = [
            *(Route(f"/{path}", self.file) for path in FILES),
            Route("/api/status", self.status),
            Route("/api/sample", self.sample),
            Route("/api/predict", self.predict, methods=["POST"]),
            Route(HEALTH, self.health),
        ]
        return Guarded(Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _refused}))

    async def health(self, _: Request) -> Response:
        """The page runs. It can say by itself that the model server is away."""
        return PlainTextResponse("ok\n")

    async def file(self, request: Request) -> Response:
        """One of the page's files."""
        path = request.url.path.lstrip("/")
        return Response(self._files[path], media_type=FILES[path][1], headers={"cache-control": "no-cache"})

    async def status(self, _: Request) -> Response:
        """What the page shows above everything else."""
        known, state, reason = None, "ready", ""
        try:
            known = await self._server.look()
        except HTTPException as error:
            state, reason = "away" if error.status_code == 503 else "unusable", error.detail
        labels = list(known.labels if known else self._options.labels)
        said = {"model": self._options.model, "version": known and known.version, "labels": labels}
        return JSONResponse({**said, "state": state, "reason": reason, "samples": len(self._options.samples)})

    async def sample(self, request: Request) -> Response:
        """A random test image; its label comes with the prediction."""
        count, before = len(self._options.samples), request.query_params.get("not")
        others = [str(place) for place in range(count) if count == 1 or str(place) != before]
        number = random.choice(others or ["0"])
        return JSONResponse({"sample": int(number), "png": png(self._sample(number).image)})

    async def predict(self, request: Request) -> Response:
        """What the model says of an image. No part of the request is ever taken for an address."""
        self._predictions.take(self._client(request))
        number = request.query_params.get("sample")
        sample = None if number is None else self._sample(number)
        drawing = b"" if sample else await _body(request)
        model = await self._server.look()
        image = of_sample(sample, model.form) if sample else of_drawing(drawing, model.form)
        begin = time.perf_counter()
        numbers = await self._server.predict(model, image)
        milliseconds = round((time.perf_counter() - begin) * 1000, 2)
        probabilities = [round(share, 6) for share in shares(numbers)]
        return JSONResponse(
            {
                "version": model.version,
                "labels": list(model.labels),
                "probabilities": probabilities,
                "best": probabilities.index(max(probabilities)),
                "truth": sample.truth(model.labels) if sample else None,
                "seen": {"width": image.width, "height": image.height, "png": png(image)},
                "milliseconds": milliseconds,
            }
        )

    def _sample(self, number: str) -> Sample:
        samples = self._options.samples
        if not (number.isascii() and number.isdecimal() and len(number) < 9 and int(number) < len(samples)):
            raise HTTPException(404, "This page has no such test image.")
        return samples[int(number)]

    def _client(self, request: Request) -> str:
        # Each proxy appends whom it talks to: the outermost wrote the visitor, and what stands before anybody can.
        entries = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
        if 0 < self._options.proxies <= len(entries):
            return entries[-self._options.proxies].strip()
        return request.client.host if request.client else ""


class Guarded:
    """``app``, which answers by known names alone, but for probes, and each of whose answers has `HEADERS`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._names = app, configured()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        is_web = scope["type"] == "http"
        if is_web and scope["path"] != HEALTH and not is_known(Headers(scope=scope).get("host"), self._names):
            await PlainTextResponse(REFUSED, status_code=421)(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers if is_web else send)


def _refused(_: Request, error: Exception) -> Response:
    """The answer to an error. No visitor sees where it happened."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    return JSONResponse({"error": "Something went wrong here. It has been noted."}, 500)


async def _body(request: Request) -> bytes:
    """What was sent; nothing of it is read where its header says more than a drawing has, or nothing."""
    if int(request.headers.get("content-length", SIDE * SIDE + 1)) > SIDE * SIDE:
        raise HTTPException(413, "That is more than a drawing has.")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.body()
    except (TimeoutError, ClientDisconnect):
        raise HTTPException(408, "The drawing did not arrive.") from None
