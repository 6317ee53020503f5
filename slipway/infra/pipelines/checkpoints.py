"""The key `checkpoints` of a step: what its program renames into `{checkpoint}` is copied beside it."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from slipway.infra.schema.base import Duration, Model, Size
from slipway.infra.schema.problems import Finding, Path
from slipway.infra.schema.quantities import mebibytes, seconds

CHECKPOINT = "checkpoint"
"""The reference to the folder on the node's disk."""

CHECKPOINTS = "checkpoints"
"""The key."""

FOLDER_VARIABLE = "SLIPWAY_CHECKPOINT"
"""The environment variable that names the same folder."""

LAUNCHER = re.compile(
    r"(?:^|[\s/;&|(])(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate\s+launch)(?:\s|$)"
)
"""What starts a program as workers, and is ended by SIGUSR1 and SIGUSR2 while these go on and hear nothing. It
passes on SIGTERM, SIGINT and SIGHUP, all as SIGTERM (torch 2.15, November 2026)."""


@dataclass(frozen=True)
class Checkpoints:
    """How checkpoints of a step are copied: so that the newest in the store is no older than ``every`` seconds, 0
    for each one, with at most ``bandwidth`` MiB a second, 0 for any. ``signal`` is the one by which the program
    wants to be told that its pod has to end. With ``all_pods`` each pod of a step on several nodes writes a part,
    else the first one all of it.
    """

    every: int = 0
    bandwidth: int = 0
    signal: str = "TERM"
    all_pods: bool = False


class StepCheckpoints(Model):
    """Checkpoints that are copied beside the program: it renames them, when they are whole, into `{checkpoint}`,
    which is also `SLIPWAY_CHECKPOINT`, a folder on the disk of its node, within `ephemeral_storage`. The newest is
    there again at the next attempt. The page checkpoints.md says all of it.
    """

    every: Duration | None = Field(
        default=None,
        description="How old the newest one in the store may become: the next is copied in time for that. The "
        "program is to save as often as `SLIPWAY_CHECKPOINT_EVERY` says: half of it, in seconds. Default: each "
        "one is copied, but for those that a newer one overtakes.",
    )
    bandwidth: Size | None = Field(
        default=None, description="At most so much is copied in a second: `50Mi`; default: as fast as it goes."
    )
    signal: Literal["TERM", "INT", "HUP", "USR1", "USR2"] = Field(
        default="TERM",
        description="What the program gets when its pod has to end. `SLIPWAY_NOTICE` then names a file with the "
        "seconds that it has. Workers of torchrun get no `USR1` and `USR2`.",
    )
    all_pods: bool = Field(
        default=False,
        description="With `nodes`: every pod writes a part of each checkpoint, under one name that is used once; "
        "default: the first pod writes all of it.",
    )

    def declare(self) -> Checkpoints:
        """As a declaration has it."""
        return Checkpoints(
            every=seconds(self.every) if self.every else 0,
            bandwidth=mebibytes(self.bandwidth) if self.bandwidth else 0,
            signal=self.signal,
            all_pods=self.all_pods,
        )

    def findings(
        self, at: Path, words: Sequence[str], *, nodes: bool, others: Collection[Path]
    ) -> Iterator[Finding]:
        """Findings about this section at ``at`` of a step that runs ``words`` and may have ``nodes``.

        ``others`` are places of what has the name of the reference.
        """
        if self.signal.startswith("USR") and LAUNCHER.search(" ".join(words)):
            reason = "it ends torchrun alone, whose workers go on and never hear of it"
            fix = "write `TERM`, which torchrun passes on, or remove the key"
            yield Finding((*at, "signal"), self.signal, reason, fix, read=((*at[:-1], "run"),))
        if self.all_pods and not nodes:
            reason = "the step has one pod"
            fix = "remove it, or add `nodes`"
            yield Finding((*at, "all_pods"), self.all_pods, reason, fix, read=((*at[:-1], "nodes"),))
        for place in others:
            reason = f"`{{{CHECKPOINT}}}` means the folder of a step with `{CHECKPOINTS}`"
            yield Finding(place, place[-1], reason, "choose another name", read=(at,))
