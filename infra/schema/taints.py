"""Taints of node pools, and how clouds write their effects."""

from collections.abc import Mapping, Sequence

from infra.platform import GPU_RESOURCE, Taint, TaintEffect
from infra.schema.base import TaintSettings

GPU_TAINT = Taint(GPU_RESOURCE, "present", "NoSchedule")
"""Keeps pods without a GPU off GPU nodes.

GKE adds it by itself, but only to a GPU pool made while the cluster has a pool without GPUs. Resource everywhere,
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
"""The way back."""


def as_taints(settings: Sequence[TaintSettings]) -> list[Taint]:
    """The taints that a stack file names."""
    return [Taint(taint.key, taint.value, taint.effect) for taint in settings]


def pool_taints(settings: Sequence[TaintSettings], *, gpus: bool) -> list[Taint]:
    """All taints of a pool that the stack creates: those that its file names, after that of every GPU pool."""
    own = as_taints(settings)
    return [GPU_TAINT, *(taint for taint in own if taint != GPU_TAINT)] if gpus else own
