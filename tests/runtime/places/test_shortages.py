"""What autoscalers say of pods that get no node, as the mover takes it."""

from typing import Any

import pytest

from slipway.runtime.schedule.places.shortages import shortage, shortage_of


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Node scale up in zones us-central1-a associated with this pod failed: GCE out of resources. Pod is at …",
         "GCE out of resources"),
        ("creation failed: ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED"),
        ("InsufficientInstanceCapacity: We currently do not have …", "InsufficientInstanceCapacity"),
        ("insufficient capacity, all requested instance types were unavailable during launch",
         "insufficient capacity, all requested instance types were unavailable"),
        ("Quota 'NVIDIA_T4_GPUS' exceeded. Limit: 1.0", "Quota 'NVIDIA_T4_GPUS' exceeded"),
        ("VcpuLimitExceeded - You have requested more", "VcpuLimitExceeded"),
        ("pod didn't trigger scale-up: 1 in backoff after failed scale-up, 2 node(s) had untolerated taint",
         "in backoff after failed scale-up"),
        ("pod didn't trigger scale-up: 1 max node group size reached", ""),
        ("0/3 nodes are available: 3 Insufficient cpu", ""),
    ],
)  # fmt: skip
def test_a_shortage_is_told_in_the_clouds_words(message: str, words: str) -> None:
    assert shortage(message) == words


def event(pod: str, reason: str, message: str, minute: int) -> dict[str, Any]:
    time = f"2026-11-22T12:{minute:02d}:00Z"
    return {"reason": reason, "message": message, "involvedObject": {"name": pod}, "lastTimestamp": time}


def test_only_the_newest_words_of_pods_that_are_there_count() -> None:
    pods = [{"metadata": {"name": "mnist-train-1-b"}}]
    earlier = event("mnist-train-1-a", "FailedScaleUp", "GCE out of resources", 9)
    requested, refused = (
        event("mnist-train-1-b", reason, message, minute)
        for reason, message, minute in (
            ("TriggeredScaleUp", "pod triggered scale-up", 12),
            ("FailedScaleUp", "GCE out of resources", 11),
        )
    )
    assert shortage_of(pods, [earlier]) == ""
    assert shortage_of(pods, [earlier, refused]) == "GCE out of resources"
    assert shortage_of(pods, [requested, earlier, refused]) == ""
