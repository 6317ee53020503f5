"""Which names the page answers by, and the headers that keep browsers from doing what a page does not need."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workloads.runtime.hosts import REFUSED, configured, is_known

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
    """``app``, which answers by the names that `workloads.runtime.hosts` knows. Probes of its health pass."""

    def __init__(self, app: ASGIApp, health: str) -> None:
        self._app = app
        self._health = health
        self._names = configured()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and scope["path"] != self._health
        if asked and not is_known(Headers(scope=scope).get("host"), self._names):
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
