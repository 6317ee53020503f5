"""Which version of the model answers now: looked up again and again, so that a new one needs no restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from workloads.apps.page.model import Model, UnusableError
from workloads.apps.page.serving import (
    AVAILABLE,
    AwayError,
    GoneError,
    RefusedError,
    Serving,
    Signature,
    Version,
)

State = Literal["away", "waiting", "ready", "unusable"]

log = logging.getLogger("workloads.apps.page")


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
    """Looks every ``seconds`` what ``serving`` serves. ``made`` turns a version and its signature into a model."""

    def __init__(self, serving: Serving, made: Callable[[int, Signature], Model], seconds: float) -> None:
        self._serving = serving
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
            versions = await self._serving.versions()
            newest = next((version.number for version in versions if version.state == AVAILABLE), None)
            if newest is None:
                return _waiting(versions), ""
            known = self.status.model
            if known is None or known.version != newest or self._doubted:
                self._doubted = False
                known = self._made(newest, await self._serving.signature(newest))
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
