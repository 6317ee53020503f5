"""All that is declared on AWS for what a stack file may say: `declared.txt` has it, as differences."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.aws.emulator import Emulator
from slipway.infra.clouds.aws.platforms import platforms
from slipway.infra.clouds.aws.settings import AwsPool
from slipway.infra.settings.loading import load
from tests.support.clouds.aws import BASE, REGION, declare
from tests.support.clouds.stacks import WithApps
from tests.support.recording import record
from tests.support.snapshots import compare, declared, difference
from tests.support.stack_values import changed, stack_settings

FILE = Path(__file__).with_name("declared.txt")

ROLES = [f"arn:aws:iam::{'1' * 12}:role/team/ops", f"arn:aws:iam::{'1' * 12}:role/other/ops"]
KEY = f"arn:aws:kms:us-east-1:{'1' * 12}:key/{'0' * 36}"
THREE_ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]
M6I = {"instance_type": "m6i.xlarge"}
G4DN = {"instance_type": "g4dn.xlarge"}
P5 = {"instance_type": "p5.48xlarge", "zones": ["us-east-1a"]}
POOLS: Mapping[str, Mapping[str, Any]] = {
    "count": {**M6I, "nodes": {"count": 2}},
    "none": {**M6I, "nodes": {"count": 0}},
    "limits": {**M6I, "nodes": {"min": 1, "max": 3}},
    "on-demand": {**G4DN, "nodes": {"max": 2}},
    "spot": {**G4DN, "spot": True, "nodes": {"max": 2}},
    "shared": {**G4DN, "gpu_sharing": {"clients": 4}},
    "zones": {**M6I, "zones": ["us-east-1b"]},
    "block": {**P5, "capacity_block": "cr-0123456789abcdef0", "nodes": {"max": 1}},
    "reserved": {**G4DN, "zones": ["us-east-1a"], "capacity_reservation": "cr-0123456789abcdef0"},
    "older": {**M6I, "kubernetes_version": "1.35"},
    "efa": {**P5, "efa": True, "nodes": {"max": 2}},
    "wide": P5,
    "disk": {**M6I, "disk_size_gb": 321},
    "store": {**G4DN, "instance_store": True},
    "labels": {**M6I, "labels": {"role": "a"}, "tags": {"team": "vision"}, "nodes": {"max": 2}},
    "taints": {
        **G4DN,
        "taints": [{"key": "own", "value": "x", "effect": "PreferNoSchedule"}],
        "nodes": {"max": 2},
    },
}
"""Pools of one stack, each for a key of its own."""

EXISTING = {"kind": "existing-s3", "bucket": "team-data", "folder": "vision/slipway"}
CASES: Mapping[str, Mapping[str, Any]] = {
    "pools": {"clusters.dev.pools": {**BASE["clusters"]["dev"]["pools"], **POOLS}},
    "private": {"clusters.dev.control_plane": {"public_endpoint": False}},
    "logs": {"clusters.dev.control_plane.logs": ["audit"]},
    "another key": {"clusters.dev.control_plane.secrets_key": KEY},
    "admins": {"clusters.dev.admins": ROLES},
    "one admin": {"clusters.dev.admins": ROLES[:1]},
    "older": {"clusters.dev.kubernetes_version": "1.35"},
    "three zones": {"clusters.dev.zones": THREE_ZONES, "clusters.dev.network": {"vpc_cidr": "10.40.0.0/16"}},
    "a nat in each zone": {"clusters.dev.network": {"nat": "per-zone", "services_cidr": "172.21.0.0/16"}},
    "zones by their ids": {"clusters.dev.region": "us-east-2", "clusters.dev.zones": ["use2-az1", "use2-az2"]},
    "flows": {"clusters.dev.flow_logs": True, "store.access_logs": True},
    "nodes stay": {"clusters.dev.scale_down_unneeded_time": "5m"},
    "fixed": {"clusters.dev.pools": {"cpu": {**M6I, "nodes": {"count": 2}}}},
    "protected": {"protect": True},
    "protected logs": {"protect": True, "store.access_logs": True},
    "names": {"namespace": "vision", "service_account": "jobs"},
    "bucket": {"store.bucket": "my-bucket", "store.old_version_days": 3, "store.kms_key": KEY},
    "mounted": {"store": {"kind": "efs"}},
    "protected files": {"store": {"kind": "efs", "backup": True, "kms_key": KEY}, "protect": True},
    "bucket that is there": {"store": EXISTING, "teams": {"research": {"namespace": "research"}}},
    "teams": {"teams": {"research": {"namespace": "research"}}},
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_declared_as_before(case: str) -> None:
    recording = declare(load(changed(BASE, CASES[case])))
    compare(FILE, case, difference(declared(declare(load(BASE))), declared(recording)))


def test_a_small_stack_is_declared_as_before() -> None:
    compare(FILE, "a small stack", difference({}, declared(declare(load(BASE)))))


def test_a_small_stack_is_declared_as_before_with_apps_with_services_and_in_a_preview() -> None:
    base = declared(declare(load(BASE)))
    for case, store in (("apps", {}), ("apps on files", {"store": {"kind": "efs"}})):
        settings = WithApps.model_validate(load(changed(BASE, store)).model_dump())
        compare(FILE, case, difference(base, declared(declare(settings, then=lambda _: None))))
    request = replace(load(BASE).request, has_services=True)
    config = {"aws:region": REGION}
    disks = record(lambda: platforms(request), config, preview=False, emulators=[Emulator(request)])
    compare(FILE, "services", difference(base, {**declared(disks), "outputs": base["outputs"]}))
    compare(FILE, "a preview", difference(base, declared(declare(load(BASE), preview=True))))
    compare(FILE, "another name", difference(base, declared(declare(load(BASE), stack="My_Stack.1"))))
    profile = declare(load(BASE), config={"aws:profile": "research"})
    compare(FILE, "a profile", difference(base, declared(profile)))


@pytest.mark.parametrize("stack", ["aws-dev", "aws-prod"])
def test_stacks_of_this_repository_are_declared_as_before(stack: str) -> None:
    base = declared(declare(load(BASE)))
    compare(FILE, stack, difference(base, declared(declare(stack_settings(stack)))))


def test_every_key_of_a_pool_is_tried_above() -> None:
    assert {key for pool in POOLS.values() for key in pool} == set(AwsPool.model_fields)
