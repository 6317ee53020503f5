"""Pools and clusters that Google would refuse, or bill for nothing: refused with key, reason and fix."""

from typing import Any

import pytest

from infra.settings.loading import load
from tests.support.refusals import CPU, PREDICT, SECOND, STEPS, TRAIN, Case, named, the_problem
from tests.support.stack_values import GCP, GONE, changed

T4_FIELDS = {"machine_type": "n1-standard-4", "accelerator": "nvidia-tesla-t4", "gpus": 1}

NO_ZONES = {f"{CPU}.zones": GONE}

POOLS: list[Case] = [
    ({f"{TRAIN}.machine_type": "n1-standart-4"}, f"{TRAIN}.machine_type", "catalogue", "`n1-standard-4`"),
    ({f"{TRAIN}.accelerator": "nvidia-a10g"}, f"{TRAIN}.accelerator", "does not offer", "`nvidia-"),
    ({f"{TRAIN}.machine_type": "zz"}, f"{TRAIN}.machine_type", "catalogue", "infra/clouds/gcp/data"),
    ({f"{CPU}.machine_type": "t2a-standard-4"}, f"{CPU}.machine_type", "Arm", "x86-64"),
    ({f"{TRAIN}.accelerator": "nvidia-tesla-t5"}, f"{TRAIN}.accelerator", "catalogue", "`nvidia-tesla-t4`"),
    ({f"{TRAIN}.gpus": 3}, f"{TRAIN}.gpus", "numbers of `1`, `2` or `4`", "`1`"),
    ({f"{TRAIN}.gpus": GONE}, f"{TRAIN}.gpus", "their number", "`gpus:`"),
    (
        {f"{TRAIN}.machine_type": "n1-standard-16", f"{TRAIN}.accelerator": "nvidia-tesla-v100"},
        f"{TRAIN}.gpus",
        "at most 12 vCPUs",
        "`2`, `4` or `8`",
    ),
    (
        {f"{PREDICT}.gpus": 8},
        f"{PREDICT}.gpus",
        "comes with 1",
        "`machine_type: a3-highgpu-8g`",
    ),
    ({f"{TRAIN}.accelerator": GONE}, f"{TRAIN}.gpus", "no accelerator", "accelerator: nvidia-tesla-t4"),
    ({f"{PREDICT}.accelerator": GONE}, f"{PREDICT}.accelerator", "built in", "accelerator: nvidia-h100-80gb"),
    ({f"{TRAIN}.machine_type": "n2-standard-4"}, f"{TRAIN}.accelerator", "cannot have it", "n1-standard-4"),
    ({f"{TRAIN}.accelerator": "nvidia-l4"}, f"{TRAIN}.accelerator", "cannot have it", "g2-standard-4"),
    (
        {f"{PREDICT}.accelerator": "nvidia-tesla-t4"},
        f"{PREDICT}.accelerator",
        "`nvidia-h100-80gb` and no other",
        "n1-standard-4",
    ),
    ({f"{PREDICT}.spot": False}, f"{PREDICT}.machine_type", "does not sell it on demand", "`spot: true`"),
    (
        {f"{PREDICT}.spot": False, f"{PREDICT}.preemptible": True},
        f"{PREDICT}.machine_type",
        "as preemptible",
        "`flex_start: true`",
    ),
    (
        {f"{PREDICT}.spot": False, f"{PREDICT}.reservation": "mine"},
        f"{PREDICT}.machine_type",
        "from a reservation",
        "`spot: true`",
    ),
    (
        {f"{TRAIN}.spot": True, f"{TRAIN}.preemptible": True},
        f"{TRAIN}.preemptible",
        "`spot` is set",
        "keep `spot`",
    ),
    ({f"{TRAIN}.spot": True, f"{TRAIN}.reservation": "mine"}, f"{TRAIN}.reservation", "`spot`", "remove"),
    ({f"{TRAIN}.preemptible": True, f"{TRAIN}.reservation": "m"}, f"{TRAIN}.reservation", "`preempt", "remove"),
    ({f"{TRAIN}.flex_start": True, f"{TRAIN}.reservation": "m"}, f"{TRAIN}.reservation", "`flex_start`", "remove"),
    ({f"{TRAIN}.flex_start": True, f"{TRAIN}.spot": True}, f"{TRAIN}.flex_start", "`spot` is set", "remove"),
    ({f"{CPU}.flex_start": True}, f"{CPU}.flex_start", "accelerators", "remove"),
    (
        {f"{TRAIN}.flex_start": True, f"{TRAIN}.nodes": {"count": 1}},
        f"{TRAIN}.nodes",
        "from zero",
        "total_min: 0",
    ),
    (
        {f"{TRAIN}.flex_start": True, f"{TRAIN}.nodes": {"total_min": 1, "total_max": 2}},
        f"{TRAIN}.nodes",
        "from zero",
        "total_min: 0",
    ),
    (
        {f"{TRAIN}.flex_start": True, f"{TRAIN}.max_run_duration": "8d"},
        f"{TRAIN}.max_run_duration",
        "at most 7 days",
        "`7d`",
    ),
    ({f"{TRAIN}.max_run_duration": "121d"}, f"{TRAIN}.max_run_duration", "at most 120 days", "`120d`"),
    ({f"{TRAIN}.gpu_partition": "1g.5gb"}, f"{TRAIN}.gpu_partition", "no MIG", "gpu_sharing"),
    ({f"{TRAIN}.auto_upgrade": False}, f"{TRAIN}.auto_upgrade", "channel REGULAR", "UNSPECIFIED"),
    ({f"{TRAIN}.image_type": "UBUNTU_CONTAINERD"}, f"{TRAIN}.gvnic", "the default", "gvnic: false"),
    ({f"{PREDICT}.gpu_partition": "1g.5gb"}, f"{PREDICT}.gpu_partition", "not a partition", "`1g.10gb`"),
    ({f"{CPU}.gpu_partition": "1g.5gb"}, f"{CPU}.gpu_partition", "no accelerator", "remove"),
    ({f"{CPU}.gpu_sharing": {"clients": 2}}, f"{CPU}.gpu_sharing", "no accelerator", "remove"),
    ({f"{TRAIN}.gpu_sharing": {"clients": 49}}, f"{TRAIN}.gpu_sharing.clients", "above 48", "48 or less"),
    (
        {f"{PREDICT}.gpu_partition": "1g.10gb", f"{PREDICT}.gpu_sharing": {"strategy": "MPS", "clients": 2}},
        f"{PREDICT}.gpu_sharing.strategy",
        "MIG",
        "`TIME_SHARING`",
    ),
    ({f"{PREDICT}.disk_type": "pd-standard"}, f"{PREDICT}.disk_type", "cannot boot", "`pd-ssd`"),
    ({f"{CPU}.machine_type": "n4-standard-4"}, f"{CPU}.disk_type", "the default, and", "`hyperdisk-balanced`"),
    ({f"{CPU}.local_ssd_count": 1}, f"{CPU}.local_ssd_count", "has none", "remove"),
    ({f"{TRAIN}.local_ssd_count": 9}, f"{TRAIN}.local_ssd_count", "not a number of local SSDs", "`16`"),
    ({f"{PREDICT}.local_ssd_count": 1}, f"{PREDICT}.local_ssd_count", "it has `2`", "`2`"),
    (
        {f"{TRAIN}.local_ssd_count": 8, f"{TRAIN}.local_ssd_block_count": 2},
        f"{TRAIN}.local_ssd_block_count",
        "in one way or the other",
        "keep one",
    ),
    ({f"{TRAIN}.service_account": "me@example.com"}, f"{TRAIN}.service_account", "e-mail", "gserviceaccount"),
    ({f"{TRAIN}.reservation": "My Own"}, f"{TRAIN}.reservation", "name of a reservation", "projects/"),
]

H100_COMPACT: dict[str, Any] = {f"{PREDICT}.placement": "compact"}

PLACEMENTS: list[Case] = [
    (
        {f"{TRAIN}.placement": "compact", f"{TRAIN}.zones": ["us-central1-a"]},
        f"{TRAIN}.placement",
        "cannot place `n1-standard-4`",
        "`A2`",
    ),
    ({**H100_COMPACT, f"{PREDICT}.zones": GONE}, f"{PREDICT}.zones", "one zone only", "name one zone"),
    (
        {**H100_COMPACT, f"{PREDICT}.zones": ["us-central1-a", "us-central1-c"]},
        f"{PREDICT}.zones",
        "one zone only",
        "`us-central1-a` or `us-central1-c`",
    ),
    (
        {
            **H100_COMPACT,
            f"{PREDICT}.zones": ["us-central1-a"],
            f"{PREDICT}.spot": False,
            f"{PREDICT}.flex_start": True,
            f"{PREDICT}.nodes": {"total_max": 2},
        },
        f"{PREDICT}.placement",
        "workload policies",
        "`flex_start`",
    ),
    (
        {
            **H100_COMPACT,
            f"{PREDICT}.zones": ["us-central1-a"],
            f"{PREDICT}.spot": False,
            f"{PREDICT}.machine_type": "a3-highgpu-8g",
            f"{PREDICT}.gpus": 8,
            f"{PREDICT}.reservation": "mine",
        },
        f"{PREDICT}.placement",
        "made with",
        "`reservation`",
    ),
]

NODES: list[Case] = [
    ({f"{TRAIN}.nodes": {"min": 3, "max": 1}}, f"{TRAIN}.nodes.min", "more than `max`", "`min: 1`"),
    (
        {f"{TRAIN}.nodes": {"total_min": 3, "total_max": 1}},
        f"{TRAIN}.nodes.total_min",
        "more than",
        "total_min: 1",
    ),
    ({f"{TRAIN}.nodes": {"count": 1, "max": 2}}, f"{TRAIN}.nodes.count", "fixed number", "keep `count`"),
    (
        {f"{TRAIN}.nodes": {"min": 0, "max": 1, "total_max": 2}},
        f"{TRAIN}.nodes.total_max",
        "per zone",
        "total_min",
    ),
    ({f"{TRAIN}.nodes": {"min": 1}}, f"{TRAIN}.nodes.min", "needs `max`", "`count: 1`"),
    ({f"{TRAIN}.nodes": {"total_max": 0}}, f"{TRAIN}.nodes.total_max", "never have a node", "`total_max: 1`"),
    ({f"{TRAIN}.nodes": {"count": 0}}, f"{STEPS}.train.pool", "can have no node", "a node"),
    (
        {f"{TRAIN}.nodes": {"count": 1, "location_policy": "ANY"}},
        f"{TRAIN}.nodes.location_policy",
        "autoscaler",
        "remove",
    ),
    (
        {"clusters.dev.location": "europe-west-4", "clusters.dev.zones": GONE, **NO_ZONES},
        "clusters.dev.location",
        "catalogue",
        "`europe-west4`",
    ),
    (
        {"clusters.dev.location": "us-central1-d", "clusters.dev.zones": GONE},
        "clusters.dev.location",
        "not a zone of `us-central1`",
        "`us-central1-",
    ),
    (
        {"clusters.dev.zones": ["us-central1-a", "us-central1-e"]},
        "clusters.dev.zones[1]",
        "not a zone of `us-central1`",
        "`us-central1-",
    ),
    ({"store.location": "us-central-1"}, "store.location", "not a region", "`us-central1`"),
    (
        {f"{CPU}.machine_type": GONE, f"{CPU}.instance_type": "e2-standard-4"},
        f"{CPU}.instance_type",
        "no such key",
        "`machine_type`",
    ),
    ({"store.location": "US"}, "store.location", "not a region", "the pool that trains"),
    *(
        (
            {f"clusters.dev.network.{key}": block},
            f"clusters.dev.network.{key}",
            reason,
            "`10.0.0.0/8`",
        )
        for key, block, reason in (
            ("nodes_cidr", "127.0.0.0/20", "loopback"),
            ("nodes_cidr", "169.254.0.0/20", "link-local"),
            ("services_cidr", "224.0.0.0/20", "multicast"),
            ("pods_cidr", "8.0.0.0/14", "the Internet"),
        )
    ),
    ({"clusters.dev.location": "Iowa"}, "clusters.dev.location", "neither a region nor a zone", "us-central1"),
    ({f"{TRAIN}.zones": ["us-east1-b"]}, f"{TRAIN}.zones[0]", "not a zone of `us-central1`", "us-central1-a"),
    ({"clusters.dev.zones": ["us-central1"]}, "clusters.dev.zones[0]", "not a zone", "us-central1-a"),
    ({f"{CPU}.zones": []}, f"{CPU}.zones", "empty", "at least one"),
    ({f"{CPU}.zones": ["us-central1-a"] * 2}, f"{CPU}.zones[1]", "twice", "remove"),
    ({f"{PREDICT}.zones": ["us-central1-f"]}, f"{PREDICT}.zones[0]", "is not offered", "`us-central1-a`"),
    (
        {"clusters.dev.zones": ["us-central1-a", "us-central1-f"]},
        f"{PREDICT}.accelerator",
        "`us-central1-f`",
        "gcloud compute accelerator-types list",
    ),
    (
        {"clusters.dev.location": "us-east1", "clusters.dev.zones": GONE},
        f"{PREDICT}.accelerator",
        "`us-east1`",
        "us-east4",
    ),
    (
        {"clusters.dev.location": "us-central1-f", "clusters.dev.zones": GONE},
        f"{PREDICT}.accelerator",
        "`us-central1-f`",
        "`us-central1-a`",
    ),
]

CLUSTERS: list[Case] = [
    (
        {"clusters.dev.control_plane": {"dns_endpoint": False}},
        "clusters.dev.control_plane.dns_endpoint",
        "nobody could reach",
        "authorized_networks",
    ),
    (
        {"clusters.dev.control_plane": {"authorized_networks": {"a": "0.0.0.0/1", "b": "128.0.0.0/1"}}},
        "clusters.dev.control_plane.authorized_networks",
        "whole Internet",
        "DNS endpoint",
    ),
    (
        {"clusters.dev.control_plane": {"authorized_networks": {"all": "0.0.0.0/0"}}},
        "clusters.dev.control_plane.authorized_networks.all",
        "whole Internet",
        "DNS endpoint",
    ),
    (
        {"clusters.dev.network.services_cidr": "10.4.0.0/20"},
        "clusters.dev.network.services_cidr",
        "overlaps `pods_cidr`",
        "free",
    ),
    (
        {"clusters.dev.network.control_plane_cidr": "172.16.0.0/24"},
        "clusters.dev.network.control_plane_cidr",
        "16 addresses",
        "/28",
    ),
    (
        {"clusters.dev.network.pods_cidr": "10.4.0.0/24"},
        "clusters.dev.network.pods_cidr",
        "256 addresses",
        "larger",
    ),
    (
        {"clusters.dev.network.nodes_cidr": "10.0.0.0/29", f"{CPU}.nodes": {"total_max": 10}},
        "clusters.dev.network.nodes_cidr",
        "room for 4 nodes",
        "larger",
    ),
    ({"clusters.west": dict(SECOND)}, "clusters.west.network", "cluster `dev`", "other blocks"),
    (
        {"clusters.dev.maintenance.end": "2026-01-03T05:00:00Z"},
        "clusters.dev.maintenance.end",
        "4 hours",
        "4 hours",
    ),
    (
        {"clusters.dev.maintenance.end": "2026-01-01T05:00:00Z"},
        "clusters.dev.maintenance.end",
        "before",
        "after the start",
    ),
    *(
        (
            {"clusters.dev.maintenance.recurrence": rule},
            "clusters.dev.maintenance.recurrence",
            reason,
            "FREQ=WEEKLY",
        )
        for rule, reason in (
            ("weekends", "RFC 5545"),
            ("FREQ=HOURLY", "RFC 5545"),
            ("FREQ=WEEKLY;INTERVAL=0", "INTERVAL"),
            ("FREQ=WEEKLY;INTERVAL=-1", "INTERVAL"),
            ("FREQ=WEEKLY;BYDAY=XX", "BYDAY"),
            ("FREQ=MONTHLY;BYDAY=99MO", "BYDAY"),
            ("FREQ=DAILY;FREQ=WEEKLY", "twice"),
            ("FREQ=DAILY;EVERY=2", "EVERY"),
            ("FREQ=DAILY;UNTIL=20270101", "UNTIL"),
            ("FREQ=DAILY;BYHOUR=25", "hour"),
            # 8 hours each time, and GKE wants 48 in any 32 days.
            ("FREQ=WEEKLY;BYDAY=SA", "only 32 hours"),
            ("FREQ=MONTHLY", "only 8 hours"),
            ("FREQ=MONTHLY;BYDAY=1SA,-1SU", "only 8 hours"),
            ("FREQ=MONTHLY;BYMONTHDAY=31", "only 0 hours"),
            ("FREQ=WEEKLY;INTERVAL=2;BYDAY=SA,SU", "only 32 hours"),
            ("FREQ=DAILY;COUNT=30", "only 0 hours"),
        )
    ),
    (
        {"clusters.dev.maintenance.end": "9999-12-30T10:00:00Z"},
        "clusters.dev.maintenance.recurrence",
        "out of range",
        "FREQ=WEEKLY",
    ),
    (
        {CPU: {**T4_FIELDS}, f"{STEPS}.prepare.gpus": 1},
        "clusters.dev.pools",
        "without GPUs",
        "e2-standard-4",
    ),
    ({f"{CPU}.taints": [{"key": "only"}]}, f"{CPU}.taints", "do not tolerate", "without GPUs and taints"),
]


@pytest.mark.parametrize(("changes", "key", "reason", "fix"), named([*POOLS, *PLACEMENTS, *NODES, *CLUSTERS]))
def test_is_refused_once_with_its_key_reason_and_fix(
    changes: dict[str, Any], key: str, reason: str, fix: str
) -> None:
    problem = the_problem(changed(GCP, changes))
    assert problem.key == f"slipway:{key}"
    assert reason in problem.reason
    assert fix in problem.fix


@pytest.mark.parametrize(
    ("end", "rule"),
    [
        ("10", "FREQ=WEEKLY;BYDAY=SA,SU"),
        ("06", "FREQ=DAILY"),
        ("14", "FREQ=WEEKLY"),
        ("06", "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;WKST=MO"),
        ("10", "FREQ=DAILY;INTERVAL=5"),
    ],
)
def test_a_maintenance_window_of_48_hours_in_any_32_days_is_taken(end: str, rule: str) -> None:
    window = {"start": "2026-01-03T02:00:00Z", "end": f"2026-01-03T{end}:00:00Z", "recurrence": rule}
    load(changed(GCP, {"clusters.dev.maintenance": window}))
