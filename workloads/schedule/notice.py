"""Tells a webhook that a run by the clock failed, or that one is good again. Standard library only."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

ANSWER = 10.0
"""Seconds that the webhook has for one answer."""

PAUSES = (5.0, 30.0)
"""Seconds before it is asked a second and a third time."""

FAILED, RECOVERED = "failed", "recovered"

LONGEST = 500
"""Characters of a reason: it ends with the last line of a log."""


@dataclass(frozen=True)
class ClockRun:
    """A run of a pipeline by the clock: `run` is the time for which it was scheduled."""

    pipeline: str
    run: str
    namespace: str


@dataclass(frozen=True)
class Notice(ClockRun):
    """What is posted, as a JSON object. `text` says it in a sentence, which chat services show."""

    text: str
    outcome: str
    step: str = ""
    reason: str = ""
    exit_code: int | None = None


def failed(of: ClockRun, step: str, reason: str, exit_code: int | None) -> Notice:
    """The run failed; `step` is empty where that was before any."""
    reason = reason[:LONGEST]
    at = f" at the step {step}" if step else ""
    code = f" with exit code {exit_code}" if exit_code is not None else ""
    text = f"{of.pipeline}: the run {of.run} failed{at}{code}: {reason}"
    return Notice(of.pipeline, of.run, of.namespace, text, FAILED, step, reason, exit_code)


def recovered(of: ClockRun) -> Notice:
    """The run is good, and the one before it failed."""
    text = f"{of.pipeline}: the run {of.run} is good; the one before it failed"
    return Notice(of.pipeline, of.run, of.namespace, text, RECOVERED)


def post(url: str, notice: Notice, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Post `notice`; whether it was taken. What fails is said in the log, without the address."""
    body = json.dumps(asdict(notice)).encode()
    for pause in (*PAUSES, None):
        why = _send(url, body)
        if not why:
            print(f"Told the webhook: {notice.outcome}", flush=True)
            return True
        print(f"warning: the webhook was not told: {why}", flush=True)
        if pause is not None:
            sleep(pause)
    return False


def _send(url: str, body: bytes) -> str:
    """Why the webhook did not take it; empty where it did."""
    if not url.startswith(("https://", "http://")):
        return "its address does not begin with https://"
    headers = {"Content-Type": "application/json", "User-Agent": "slipway"}
    try:
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=ANSWER):
            return ""
    except urllib.error.HTTPError as error:
        return f"it answered {error.code}"
    except urllib.error.URLError as error:
        return type(error.reason).__name__ if isinstance(error.reason, Exception) else "no answer"
    except Exception as error:
        # Whatever it is, the run ended as it ended; its words may hold the address.
        return type(error).__name__


def of_pods(pods: list[dict[str, Any]]) -> tuple[int | None, str]:
    """The exit code and the last line of the first container that failed; None and empty where none is known."""
    for pod in pods:
        status = pod.get("status", {})
        for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
            ended = container.get("state", {}).get("terminated")
            if ended and ended.get("exitCode"):
                lines = str(ended.get("message", "")).strip().splitlines()
                words = [str(ended.get("reason", "Error")), *lines[-1:]]
                return int(ended["exitCode"]), ": ".join(words)
    return None, ""
