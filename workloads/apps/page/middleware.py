"""What every request passes: which names the page answers by, the headers of answers, and the metrics."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slipway.workloads.runtime.hosts import REFUSED, configured, is_known

# What Prometheus is told of a page.


SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """The metrics of one page, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "slipway_page_requests", "Requests answered.", ("route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "slipway_page_request_seconds",
            "Seconds from a request's header to its answer.",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.predictions = Counter(
            "slipway_page_predictions", "Predictions shown.", ("source", "version"), registry=self.registry
        )
        self.serving_seconds = Histogram(
            "slipway_page_serving_seconds",
            "Seconds that the model server took for a prediction.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.refused = Counter(
            "slipway_page_refused", "Requests refused, by the reason.", ("reason",), registry=self.registry
        )
        self.up = Gauge("slipway_page_serving_up", "Whether predictions are to be had.", registry=self.registry)
        self.version = Gauge(
            "slipway_page_model_version", "The version that answers; 0: none.", registry=self.registry
        )
        self.waiting = Gauge(
            "slipway_page_waiting", "Predictions that wait for the model server.", registry=self.registry
        )
        self.clients = Gauge("slipway_page_clients", "Clients whose rate is remembered.", registry=self.registry)


# Which names the page answers by, and the headers that keep browsers from doing what a page does not need.


POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Scripts, styles and images come from the page's own server alone; nothing is inline, nobody frames it."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class KnownHosts:
    """``app``, which answers by the names that `slipway.workloads.runtime.hosts` knows. Probes of its health
    pass."""

    def __init__(self, app: ASGIApp, health: str) -> None:
        self._app = app
        self._health = health
        self._names = configured()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        by_name = scope["type"] == "http" and scope["path"] != self._health
        if by_name and not is_known(Headers(scope=scope).get("host"), self._names):
            await PlainTextResponse(REFUSED, status_code=421)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class SecurityHeaders:
    """``app``, each of whose answers has `HEADERS`; what is not said to be kept is not kept by any cache."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


class Measured:
    """``app``, whose requests ``metrics`` count. Paths that it does not know are one."""

    def __init__(self, app: ASGIApp, metrics: Metrics, known: frozenset[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route = scope["path"] if scope["path"] in self._known else "other"
        begin = time.perf_counter()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.requests.labels(route, str(message["status"])).inc()
                self._metrics.seconds.labels(route).observe(time.perf_counter() - begin)
            await send(message)

        await self._app(scope, receive, counted)
