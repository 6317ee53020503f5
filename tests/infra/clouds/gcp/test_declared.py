"""All that is declared on Google Cloud for what a stack file may say: `declared.txt` has it, as differences."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.gcp.emulator import Emulator
from slipway.infra.clouds.gcp.platforms import platforms
from slipway.infra.clouds.gcp.rules.clusters import ONLY
from slipway.infra.clouds.gcp.settings import GcpPool
from slipway.infra.schema.inputs import data_at
from slipway.infra.schema.request import InputAccess
from slipway.infra.settings.loading import load
from tests.support.clouds.autopilot import CLUSTER
from tests.support.clouds.gcp import BASE, CPU_POOL, PROJECT, declare
from tests.support.clouds.stacks import WithApps
from tests.support.recording import record
from tests.support.snapshots import compare, declared, difference
from tests.support.stack_values import GONE, changed, stack_settings

FILE = Path(__file__).with_name("declared.txt")

E2 = {"machine_type": "e2-standard-4"}
N1 = {"machine_type": "n1-standard-4"}
T4 = {**N1, "accelerator": "nvidia-tesla-t4", "gpus": 1}
H100 = {"machine_type": "a3-highgpu-8g", "accelerator": "nvidia-h100-80gb", "disk_type": "pd-ssd", "spot": True}
SMALL_H100 = {"machine_type": "a3-highgpu-1g", "accelerator": "nvidia-h100-80gb", "flex_start": True}
THREE_ZONES = ["us-central1-a", "us-central1-b", "us-central1-c"]
POOLS: Mapping[str, Mapping[str, Any]] = {
    "t4": T4,
    "h100": H100,
    "gpus": {**T4, "gpus": 2},
    "shared": {**T4, "gpu_sharing": {"strategy": "MPS", "clients": 4}},
    "partitioned": {**H100, "gpu_partition": "1g.10gb"},
    "count": {**E2, "nodes": {"count": 2}},
    "none": {**E2, "nodes": {"count": 0}},
    "limits": {**E2, "nodes": {"min": 2, "max": 3}},
    "gpu-limits": {**T4, "nodes": {"min": 1, "max": 3}},
    "total": {**T4, "nodes": {"total_max": 4}},
    "consolidated": {**T4, "consolidation_delay": "5m", "nodes": {"total_max": 1}, "labels": {"role": "t4"}},
    "zones": {**E2, "zones": ["us-central1-b"]},
    "roomy": {**E2, "zones": THREE_ZONES, "nodes": {"total_min": 1, "total_max": 3}},
    "tight": {**E2, "zones": THREE_ZONES, "nodes": {"total_min": 1, "total_max": 2}},
    "gpu-minimum": {**T4, "zones": THREE_ZONES, "nodes": {"total_min": 1, "total_max": 3}},
    "reserved": {**T4, "spot": False, "reservation": "mine"},
    "flex-start": {**SMALL_H100, "nodes": {"total_max": 1}},
    "queued": {**SMALL_H100, "nodes": {"total_max": 2}, "queued_provisioning": True},
    "limited": {**T4, "spot": True, "max_run_duration": "12h"},
    "disk": {**N1, "disk_type": "pd-ssd", "disk_size_gb": 321},
    "ssds": {**N1, "local_ssd_count": 2},
    "plain": {**N1, "image_streaming": False, "gvnic": False},
    "compact": {
        "machine_type": "g2-standard-4",
        "accelerator": "nvidia-l4",
        "placement": "compact",
        "zones": ["us-central1-a"],
    },
    "pods": {**N1, "max_pods_per_node": 32},
    "labels": {**N1, "labels": {"role": "t4"}, "resource_labels": {"team": "vision"}},
    "taints": {**T4, "taints": [{"key": "own", "value": "x", "effect": "PreferNoSchedule"}]},
    "a-pool-whose-name-goes-on-for-much-longer-than-gke-allows": E2,
    "network": {"machine_type": "n2-standard-4"},
}
"""Pools of one stack, each for a key of its own."""

SECOND = {
    "cloud": "gcp",
    "location": "us-west4-a",
    "network": {
        "nodes_cidr": "10.16.0.0/20",
        "pods_cidr": "10.20.0.0/14",
        "services_cidr": "10.24.0.0/20",
        "control_plane_cidr": "172.16.1.0/28",
    },
    "pools": {"second-cpu": CPU_POOL},
}
OFFICE = {"dns_endpoint": False, "authorized_networks": {"office": "198.51.100.0/24"}}
TEAM_DATA = {"kind": "existing-gcs", "bucket": "team-data", "folder": "vision/slipway"}
TWO = {"accelerator": "nvidia-tesla-t4", "spot": True, "gpus": 2}
SPOT = {"spot": True, "most_pods": 40}
FILESTORE = {"kind": "filestore", "location": "us-central1-a", "size": "2Ti"}
CASES: Mapping[str, Mapping[str, Any]] = {
    "pools": {"clusters.dev.pools": {**BASE["clusters"]["dev"]["pools"], **POOLS}, "kueue": {}},
    "zonal": {"clusters.dev.location": "us-central1-a", "clusters.dev.zones": ["us-central1-a", "us-central1-b"]},
    "address": {"clusters.dev.control_plane": OFFICE},
    "two clusters": {"clusters.second": SECOND},
    "one region": {"clusters.second": {**SECOND, "location": "us-central1-a"}},
    "protected": {"protect": True},
    "names": {"namespace": "vision", "service_account": "jobs"},
    "impersonation": {"store.impersonation": {"projects": ["other-project"]}},
    "bucket": {"store.bucket": "my-bucket", "store.versioning": True, "store.old_version_days": 3},
    "kept": {"store.soft_delete_days": 14},
    "keys": {"clusters.dev.control_plane": {"secrets_key": "own"}, "store.kms_key": "own"},
    "keys elsewhere": {
        "clusters.dev.control_plane": {"secrets_key": "own"},
        "store": {"kind": "gcs", "location": "us-east1", "kms_key": "own"},
        "protect": True,
    },
    "logs": {"clusters.dev.flow_logs": True, "store.access_logs": True},
    "filestore": {"clusters.second": SECOND | {"location": "us-central1-b"}, "store": FILESTORE},
    "protected files": {"store": {**FILESTORE, "size": GONE} | {"size": "1Ti"}, "protect": True},
    "bucket that is there": {"store": TEAM_DATA, "teams": {"research": {"namespace": "research"}}},
    "all of a bucket": {"store": {**TEAM_DATA, "folder": "/"}},
    "teams": {"teams": {"research": {"namespace": "research"}}},
    "autopilot": {"clusters": {"batch": CLUSTER, "fixed": SECOND}},
    "more pods": {"clusters": {"batch": {**CLUSTER, "pools": {"cpu": {}, "spot": SPOT, "t4": TWO}}}},
}

INPUTS = {
    "images": "gs://photos/train",
    "labels": "gs://photos/labels",
    "pictures": "gs://photos/train/",
    "all": "gs://whole",
    "part": "gs://whole/part",
    "raw": "gs://team-data/raw",
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_declared_as_before(case: str) -> None:
    recording = declare(load(changed(BASE, CASES[case])))
    compare(FILE, case, difference(declared(declare(load(BASE))), declared(recording)))


def test_a_small_stack_is_declared_as_before() -> None:
    compare(FILE, "a small stack", difference({}, declared(declare(load(BASE)))))


def test_a_small_stack_is_declared_as_before_with_apps_and_in_a_preview() -> None:
    base = declared(declare(load(BASE)))
    for case, changes in (("apps", {}), ("apps that impersonate", CASES["impersonation"])):
        settings = WithApps.model_validate(load(changed(BASE, changes)).model_dump())
        compare(FILE, case, difference(base, declared(declare(settings, then=lambda _: None))))
    read = [InputAccess(data_at(name, url), ["cpu"], ()) for name, url in INPUTS.items()]
    for case, store in (("inputs", {}), ("inputs of that bucket", {"store": {**TEAM_DATA, "impersonation": {}}})):
        request = replace(load(changed(BASE, store)).request, inputs=read)
        config = {"gcp:project": PROJECT}
        program = partial(platforms, request)
        recording = record(program, config, preview=False, emulators=[Emulator(request)])
        compare(FILE, case, difference(base, {**declared(recording), "outputs": base["outputs"]}))
    compare(FILE, "a preview", difference(base, declared(declare(load(BASE), preview=True))))
    compare(FILE, "another name", difference(base, declared(declare(load(BASE), stack="My_Stack.1"))))


@pytest.mark.parametrize("stack", ["gcp-dev", "gcp-prod"])
def test_stacks_of_this_repository_are_declared_as_before(stack: str) -> None:
    base = declared(declare(load(BASE)))
    compare(FILE, stack, difference(base, declared(declare(stack_settings(stack)))))


def test_every_key_of_a_pool_is_tried_above() -> None:
    assert {key for pool in POOLS.values() for key in pool} == set(GcpPool.model_fields) - set(ONLY)
