"""How long a step's program has when its pod has to end, and what its runner is told of its checkpoints."""

import json
from collections.abc import Sequence

from slipway.infra.placed import Step

GRACE_PERIOD = 25
"""Seconds between SIGTERM and SIGKILL. A Spot VM is gone 30 s after its notice, of which GKE's kubelet leaves pods
about 15 (cloud.google.com/kubernetes-engine/docs/concepts/spot-vms, seen November 2026)."""

CHECKPOINT_FLAG = "--checkpoints"


def grace_period(step: Step) -> int:
    """Seconds between SIGTERM and SIGKILL: with checkpoints as many as the pool gives, for the last one."""
    return step.pool.notice if step.checkpoints else GRACE_PERIOD


def checkpoint_flags(step: Step) -> list[str]:
    """What the runner of a command has to know of its checkpoints; empty where it has none."""
    checkpoints = step.checkpoints
    if checkpoints is None:
        return []
    settings = {
        "every": checkpoints.every,
        "bandwidth": checkpoints.bandwidth << 20,
        "signal": f"SIG{checkpoints.signal}",
        "grace": grace_period(step),
        "parts": checkpoints.all_pods,
    }
    return [CHECKPOINT_FLAG, json.dumps({name: value for name, value in settings.items() if value})]


def checkpoint_interval(words: Sequence[str]) -> int | None:
    """The seconds that ``words`` of a container have with `checkpoint_flags` at least between two checkpoints that
    are copied: 0 where each one is; None where none is.
    """
    try:
        return int(json.loads(words[words.index(CHECKPOINT_FLAG) + 1]).get("every", 0))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
