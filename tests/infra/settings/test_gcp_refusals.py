"""Pools and clusters that Google would refuse, or bill for nothing: refused with key, reason and fix."""

from typing import Any

import pytest

from tests.support.refusals import CPU, PREDICT, SECOND, STEPS, TRAIN, Refusal, elsewhere, wrong
from tests.support.stack_values import GCP, GONE

T4_FIELDS = {"machine_type": "n1-standard-4", "accelerator": "nvidia-tesla-t4", "gpus": 1}

NO_ZONES = {f"{CPU}.zones": GONE}

POOLS: list[Any] = [
    wrong(f"{TRAIN}.machine_type", "n1-standart-4", "`n1-standard-4`"),
    wrong(f"{TRAIN}.accelerator", "nvidia-a10g", "`nvidia-"),
    wrong(f"{TRAIN}.machine_type", "zz", "infra/clouds/gcp/data"),
    wrong(f"{CPU}.machine_type", "t2a-standard-4", "x86-64"),
    wrong(f"{TRAIN}.accelerator", "nvidia-tesla-t5", "`nvidia-tesla-t4`"),
    wrong(f"{TRAIN}.gpus", 3, "`1`", "`2`", "`4`"),
    wrong(f"{TRAIN}.gpus", GONE, "`gpus:`"),
    elsewhere(
        {f"{TRAIN}.machine_type": "n1-standard-16", f"{TRAIN}.accelerator": "nvidia-tesla-v100"},
        f"{TRAIN}.gpus",
        "at most 12 vCPUs",
        "`2`",
        "`4`",
        "`8`",
    ),
    wrong(f"{PREDICT}.gpus", 8, "comes with 1", "`machine_type: a3-highgpu-8g`"),
    elsewhere({f"{TRAIN}.accelerator": GONE}, f"{TRAIN}.gpus", "accelerator: nvidia-tesla-t4"),
    wrong(f"{PREDICT}.accelerator", GONE, "accelerator: nvidia-h100-80gb"),
    elsewhere({f"{TRAIN}.machine_type": "n2-standard-4"}, f"{TRAIN}.accelerator", "n1-standard-4"),
    wrong(f"{TRAIN}.accelerator", "nvidia-l4", "g2-standard-4"),
    wrong(f"{PREDICT}.accelerator", "nvidia-tesla-t4", "`nvidia-h100-80gb`", "n1-standard-4"),
    elsewhere({f"{PREDICT}.spot": False}, f"{PREDICT}.machine_type", "`spot: true`"),
    elsewhere(
        {f"{PREDICT}.spot": False, f"{PREDICT}.reservation": "mine"}, f"{PREDICT}.machine_type", "`spot: true`"
    ),
    wrong(f"{TRAIN}.preemptible", True, "`spot: true`"),
    elsewhere({f"{TRAIN}.spot": True, f"{TRAIN}.reservation": "mine"}, f"{TRAIN}.reservation", "`spot`"),
    elsewhere({f"{TRAIN}.flex_start": True, f"{TRAIN}.reservation": "m"}, f"{TRAIN}.reservation", "`flex_start`"),
    elsewhere({f"{TRAIN}.flex_start": True, f"{TRAIN}.spot": True}, f"{TRAIN}.flex_start", "`spot`"),
    wrong(f"{CPU}.flex_start", True),
    elsewhere({f"{TRAIN}.flex_start": True, f"{TRAIN}.nodes": {"count": 1}}, f"{TRAIN}.nodes", "total_min: 0"),
    elsewhere(
        {f"{TRAIN}.flex_start": True, f"{TRAIN}.nodes": {"total_min": 1, "total_max": 2}},
        f"{TRAIN}.nodes",
        "total_min: 0",
    ),
    elsewhere(
        {f"{TRAIN}.flex_start": True, f"{TRAIN}.max_run_duration": "8d"},
        f"{TRAIN}.max_run_duration",
        "at most 7 days",
        "`7d`",
    ),
    wrong(f"{TRAIN}.max_run_duration", "121d", "at most 120 days", "`120d`"),
    wrong(f"{TRAIN}.gpu_partition", "1g.5gb", "no MIG", "gpu_sharing"),
    wrong(f"{PREDICT}.gpu_partition", "1g.5gb", "`1g.10gb`"),
    wrong(f"{CPU}.gpu_partition", "1g.5gb"),
    wrong(f"{CPU}.gpu_sharing", {"clients": 2}),
    elsewhere({f"{TRAIN}.gpu_sharing": {"clients": 49}}, f"{TRAIN}.gpu_sharing.clients", "above 48", "48 or less"),
    elsewhere(
        {f"{PREDICT}.gpu_partition": "1g.10gb", f"{PREDICT}.gpu_sharing": {"strategy": "MPS", "clients": 2}},
        f"{PREDICT}.gpu_sharing.strategy",
        "MIG",
        "`TIME_SHARING`",
    ),
    wrong(f"{PREDICT}.disk_type", "pd-standard", "`pd-ssd`"),
    elsewhere({f"{CPU}.machine_type": "n4-standard-4"}, f"{CPU}.disk_type", "`hyperdisk-balanced`"),
    wrong(f"{CPU}.local_ssd_count", 1),
    wrong(f"{TRAIN}.local_ssd_count", 9, "not a number of local SSDs", "`16`"),
    wrong(f"{PREDICT}.local_ssd_count", 1, "`2`"),
    wrong(f"{TRAIN}.reservation", "My Own", "projects/"),
]

H100_COMPACT: dict[str, Any] = {f"{PREDICT}.placement": "compact"}

PLACEMENTS: list[Any] = [
    elsewhere(
        {f"{TRAIN}.placement": "compact", f"{TRAIN}.zones": ["us-central1-a"]},
        f"{TRAIN}.placement",
        "`n1-standard-4`",
        "`A2`",
    ),
    elsewhere({**H100_COMPACT, f"{PREDICT}.zones": GONE}, f"{PREDICT}.zones"),
    elsewhere(
        {**H100_COMPACT, f"{PREDICT}.zones": ["us-central1-a", "us-central1-c"]},
        f"{PREDICT}.zones",
        "`us-central1-a`",
        "`us-central1-c`",
    ),
    elsewhere(
        {
            **H100_COMPACT,
            f"{PREDICT}.zones": ["us-central1-a"],
            f"{PREDICT}.spot": False,
            f"{PREDICT}.flex_start": True,
            f"{PREDICT}.nodes": {"total_max": 2},
        },
        f"{PREDICT}.placement",
        "`flex_start`",
    ),
    elsewhere(
        {
            **H100_COMPACT,
            f"{PREDICT}.zones": ["us-central1-a"],
            f"{PREDICT}.spot": False,
            f"{PREDICT}.machine_type": "a3-highgpu-8g",
            f"{PREDICT}.gpus": 8,
            f"{PREDICT}.reservation": "mine",
        },
        f"{PREDICT}.placement",
        "`reservation`",
    ),
]

NODES: list[Any] = [
    elsewhere({f"{TRAIN}.nodes": {"min": 3, "max": 1}}, f"{TRAIN}.nodes.min", "`max`", "`min: 1`"),
    elsewhere({f"{TRAIN}.nodes": {"total_min": 3, "total_max": 1}}, f"{TRAIN}.nodes.total_min", "total_min: 1"),
    elsewhere({f"{TRAIN}.nodes": {"count": 1, "max": 2}}, f"{TRAIN}.nodes.count", "`count`"),
    elsewhere({f"{TRAIN}.nodes": {"min": 0, "max": 1, "total_max": 2}}, f"{TRAIN}.nodes.total_max", "total_min"),
    elsewhere({f"{TRAIN}.nodes": {"min": 1}}, f"{TRAIN}.nodes.min", "`max`", "`count: 1`"),
    elsewhere({f"{TRAIN}.nodes": {"total_max": 0}}, f"{TRAIN}.nodes.total_max", "`total_max: 1`"),
    elsewhere({f"{TRAIN}.nodes": {"count": 0}}, f"{STEPS}.train.pool"),
    elsewhere(
        {"clusters.dev.location": "europe-west-4", "clusters.dev.zones": GONE, **NO_ZONES},
        "clusters.dev.location",
        "`europe-west4`",
    ),
    elsewhere(
        {"clusters.dev.location": "us-central1-d", "clusters.dev.zones": GONE},
        "clusters.dev.location",
        "`us-central1`",
        "`us-central1-",
    ),
    elsewhere(
        {"clusters.dev.zones": ["us-central1-a", "us-central1-e"]},
        "clusters.dev.zones[1]",
        "`us-central1`",
        "`us-central1-",
    ),
    wrong("store.location", "us-central-1", "`us-central1`"),
    elsewhere(
        {f"{CPU}.machine_type": GONE, f"{CPU}.instance_type": "e2-standard-4"},
        f"{CPU}.instance_type",
        "`machine_type`",
    ),
    wrong("store.location", "US"),
    *(
        wrong(f"clusters.dev.network.{key}", block, reason, "`10.0.0.0/8`")
        for key, block, reason in (
            ("nodes_cidr", "127.0.0.0/20", "loopback"),
            ("nodes_cidr", "169.254.0.0/20", "link-local"),
            ("services_cidr", "224.0.0.0/20", "multicast"),
            ("pods_cidr", "8.0.0.0/14", "the Internet"),
        )
    ),
    wrong("clusters.dev.location", "Iowa", "us-central1"),
    elsewhere({f"{TRAIN}.zones": ["us-east1-b"]}, f"{TRAIN}.zones[0]", "`us-central1`", "us-central1-a"),
    elsewhere({"clusters.dev.zones": ["us-central1"]}, "clusters.dev.zones[0]", "us-central1-a"),
    wrong(f"{CPU}.zones", []),
    elsewhere({f"{CPU}.zones": ["us-central1-a"] * 2}, f"{CPU}.zones[1]"),
    elsewhere({f"{PREDICT}.zones": ["us-central1-f"]}, f"{PREDICT}.zones[0]", "`us-central1-a`"),
    elsewhere(
        {"clusters.dev.zones": ["us-central1-a", "us-central1-f"]}, f"{PREDICT}.accelerator", "`us-central1-f`"
    ),
    elsewhere(
        {"clusters.dev.location": "us-east1", "clusters.dev.zones": GONE},
        f"{PREDICT}.accelerator",
        "`us-east1`",
        "us-east4",
    ),
    elsewhere(
        {"clusters.dev.location": "us-central1-f", "clusters.dev.zones": GONE},
        f"{PREDICT}.accelerator",
        "`us-central1-f`",
        "`us-central1-a`",
    ),
]

CLUSTERS: list[Any] = [
    elsewhere(
        {"clusters.dev.control_plane": {"dns_endpoint": False}},
        "clusters.dev.control_plane.dns_endpoint",
        "authorized_networks",
    ),
    elsewhere(
        {"clusters.dev.control_plane": {"authorized_networks": {"a": "0.0.0.0/1", "b": "128.0.0.0/1"}}},
        "clusters.dev.control_plane.authorized_networks",
        "DNS endpoint",
    ),
    elsewhere(
        {"clusters.dev.control_plane": {"authorized_networks": {"all": "0.0.0.0/0"}}},
        "clusters.dev.control_plane.authorized_networks.all",
        "DNS endpoint",
    ),
    wrong("clusters.dev.network.services_cidr", "10.4.0.0/20", "`pods_cidr`"),
    wrong("clusters.dev.network.control_plane_cidr", "172.16.0.0/24", "16 addresses", "/28"),
    wrong("clusters.dev.network.pods_cidr", "10.4.0.0/24", "256 addresses"),
    elsewhere(
        {"clusters.dev.network.nodes_cidr": "10.0.0.0/29", f"{CPU}.nodes": {"total_max": 10}},
        "clusters.dev.network.nodes_cidr",
        "room for 4 nodes",
    ),
    elsewhere({"clusters.west": dict(SECOND)}, "clusters.west.network", "`dev`"),
    elsewhere(
        {CPU: {**T4_FIELDS}, f"{STEPS}.prepare.gpus": 1}, "clusters.dev.pools", "without GPUs", "e2-standard-4"
    ),
    wrong(f"{CPU}.taints", [{"key": "only"}], "without GPUs and taints"),
]


@pytest.mark.parametrize("refusal", [*POOLS, *PLACEMENTS, *NODES, *CLUSTERS])
def test_is_refused_once_with_its_key_reason_and_fix(refusal: Refusal) -> None:
    refusal.check(GCP)
