"""Nodes that come and go during a rehearsal: a trace of how many each pool can have, on a fast clock.

The file is JSON, as of public traces of Spot availability: ``gap_seconds`` is the length of a tick, and ``pools``
has a list of `[nodes, ticks]` for each pool that is not always there. After its end the last number stays.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slipway.infra.schema.problems import Problem, did_you_mean, key_of, listed

KEY = ("rehearsal", "capacity")

SPEED = 300.0
"""Seconds of a trace that pass in one second of a rehearsal: a quarter of an hour is over after three."""


class Trace(BaseModel):
    """A trace, as its file has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gap_seconds: float = Field(gt=0)
    pools: dict[
        str, Annotated[list[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]], Field(min_length=1)]
    ]
    speed: float = Field(default=SPEED, gt=0)
    source: str = ""

    def nodes(self, pool: str, at: float) -> int | None:
        """How many nodes the pool can have so many seconds after the beginning; None: as many as it declares."""
        runs = self.pools.get(pool)
        if runs is None:
            return None
        tick = at / self.gap_seconds
        for nodes, ticks in runs:
            tick -= ticks
            if tick < 0:
                return nodes
        return runs[-1][0]


@dataclass
class Clock:
    """Seconds that pass ``speed`` times as fast as they do, from when it is started."""

    speed: float = 1.0
    began: float | None = None

    def start(self) -> None:
        """Starts it, unless it was started."""
        if self.began is None:
            self.began = time.monotonic()

    def now(self) -> float:
        """Seconds since it was started; none before."""
        return 0.0 if self.began is None else (time.monotonic() - self.began) * self.speed


@dataclass
class Capacity:
    """A trace and its clock, which the first step with places starts: what comes before it takes as long as it
    takes. ``take_back`` evicts the pods on nodes that can no longer be there.
    """

    trace: Trace
    clock: Clock
    take_back: Callable[[], None] = lambda: None

    def nodes(self, pool: str) -> int | None:
        """How many nodes the pool can have now; None: as many as it declares."""
        return self.trace.nodes(pool, self.clock.now())


def read(file: Path, pools: Sequence[str]) -> Trace | Problem:
    """The trace in ``file`` about some of ``pools``, those of the stack, or what is wrong with it."""
    place = key_of(KEY)
    try:
        trace = Trace.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        return Problem(place, str(file), error.strerror or str(error), "name a file of this machine")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        fix = '`{"gap_seconds": 300, "pools": {"h100-spot": [[0, 4], [1, 20]]}}`: nodes, and for how many ticks'
        return Problem(place, str(file), f"{where}: {first['msg']}", f"write it as {fix}")
    except ValueError as error:
        return Problem(place, str(file), f"no JSON: {error}", "correct the file")
    unknown = next((pool for pool in trace.pools if pool not in pools), None)
    if unknown is not None:
        fix = did_you_mean(unknown, pools, f"write {listed(pools)}")
        return Problem(place, str(file), f"no cluster of the stack has a pool `{unknown}`", fix)
    return trace
