"""What visitors are told of each error, and with which status. No visitor sees where it happened."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from workloads.apps.page.limits import BusyError, TooManyError
from workloads.apps.page.metrics import Metrics
from workloads.apps.page.model import UnusableError
from workloads.apps.page.pixels import ImageError
from workloads.apps.page.serving import AwayError, RefusedError
from workloads.apps.page.watcher import AWAY

log = logging.getLogger("workloads.apps.page")


def errors(metrics: Metrics) -> Mapping[Any, Any]:
    """What answers each error, by its type: a reason, a status, and ``metrics`` that count it by a short name."""

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

    def away(_: Request, error: AwayError) -> Response:
        log.warning("the model server did not answer: %s", error)
        return answer(503, AWAY.reason, "away", 2.0)

    def refused(_: Request, error: RefusedError) -> Response:
        log.warning("the model server refused a prediction: %s", error)
        return answer(502, "The model server refused this image.", "refused by the server")

    return {
        HTTPException: http,
        TooManyError: too_many,
        AwayError: away,
        RefusedError: refused,
        BusyError: lambda *_: answer(503, "Too many people wait already. Try again.", "busy", 1.0),
        ImageError: lambda _, error: answer(422, str(error), "image"),
        UnusableError: lambda _, error: answer(502, str(error), "unusable model"),
        ClientDisconnect: lambda *_: answer(400, "The request ended early.", "ended early"),
        Exception: lambda *_: answer(500, "Something went wrong here. It has been noted.", "error"),
    }
