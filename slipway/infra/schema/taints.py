"""Taints of node pools: that of every GPU pool, how clouds write their effects, and what is wrong with them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from slipway.infra.platform import GPU_RESOURCE, Taint, TaintEffect
from slipway.infra.schema.base import TaintSettings
from slipway.infra.schema.names import LABEL_NAME, key_problem
from slipway.infra.schema.problems import Finding, Path

GPU_TAINT = Taint(GPU_RESOURCE, "present", "NoSchedule")
"""Keeps pods without a GPU off GPU nodes.

GKE adds it by itself, but only to a GPU pool made while the cluster has a pool without GPUs. Declared everywhere,
so that state and truth agree either way. Source: https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#create,
2026-11-20.
"""

CLOUD_EFFECTS: Mapping[TaintEffect, str] = {
    "NoSchedule": "NO_SCHEDULE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
}
"""Kubernetes' effects as the APIs of GKE and EKS both spell them."""

EFFECTS: Mapping[str, TaintEffect] = {spelt: effect for effect, spelt in CLOUD_EFFECTS.items()}
"""The same by the clouds' spelling."""


def as_taints(settings: Sequence[TaintSettings]) -> list[Taint]:
    """The taints that a stack file names."""
    return [Taint(taint.key, taint.value, taint.effect) for taint in settings]


def pool_taints(settings: Sequence[TaintSettings], *, gpus: bool) -> list[Taint]:
    """All taints of a pool that the stack creates: those that its file names, after that of every GPU pool."""
    taints = as_taints(settings)
    return [GPU_TAINT, *(taint for taint in taints if taint != GPU_TAINT)] if gpus else taints


def taint_findings(place: Path, taints: Sequence[TaintSettings]) -> Iterator[Finding]:
    """What Kubernetes would not take as the taints of one node."""
    for index, taint in enumerate(taints):
        if problem := key_problem(taint.key):
            yield Finding((*place, index, "key"), taint.key, f"not a taint key: {problem}", "correct the key")
        if taint.value and not LABEL_NAME.fullmatch(taint.value):
            yield Finding(
                (*place, index, "value"),
                taint.value,
                "not a taint value: at most 63 letters, digits, `-`, `_` and `.`, a letter or digit at both ends",
                "correct the value",
            )
    for (key, effect), count in Counter((taint.key, taint.effect) for taint in taints).items():
        if count > 1:
            yield Finding(
                place,
                f"{key}:{effect}",
                f"the taint stands {count} times, and a node has one of each key and effect",
                "leave one of them",
            )


def gpu_taint_findings(place: Path, taints: Sequence[TaintSettings], read: Path) -> Iterator[Finding]:
    """The taint that every GPU pool has, said again; ``read`` is the key that makes it a GPU pool."""
    for index, taint in enumerate(taints):
        if taint.key == GPU_TAINT.key:
            yield Finding(
                (*place, index, "key"),
                taint.key,
                f"every GPU pool has the taint `{GPU_TAINT.key}={GPU_TAINT.value}:{GPU_TAINT.effect}` already",
                "remove this one",
                read=(read,),
            )
