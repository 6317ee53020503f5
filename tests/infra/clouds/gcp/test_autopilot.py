"""Clusters on GKE Autopilot: what Pulumi is told of them, and what their pods are sent to."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.infra.clouds.gcp import autopilot
from slipway.infra.clouds.gcp.autopilot import Way
from slipway.infra.clouds.gcp.catalogue import machine_types
from slipway.infra.clouds.gcp.settings import GCS_FUSE_SIDECAR
from slipway.infra.platform import Pool, Resources
from slipway.infra.settings.loading import load
from tests.support.clouds.autopilot import STACK
from tests.support.clouds.emulation import nodes_of
from tests.support.clouds.gcp import declare
from tests.support.recording import Recording


@pytest.fixture(scope="module")
def recording() -> Recording:
    return declare(load(STACK))


def pools(recording: Recording) -> Mapping[str, Pool]:
    pool_: Mapping[str, Pool] = recording.result["batch"].pools
    return pool_


SELECTORS = {
    "cpu": {},
    "spot": {"cloud.google.com/gke-spot": "true"},
    "scale-out": {"cloud.google.com/compute-class": "Scale-Out"},
    "n2": {"cloud.google.com/compute-class": "Performance", "cloud.google.com/machine-family": "n2"},
    "t4": {
        "cloud.google.com/gke-accelerator": "nvidia-tesla-t4",
        "cloud.google.com/gke-gpu-driver-version": "latest",
        "cloud.google.com/gke-spot": "true",
    },
}


def test_nodes_come_as_pods_ask_for_them(recording: Recording) -> None:
    nodes = nodes_of(recording)
    assert nodes.keys() == SELECTORS.keys()
    for name, pool in pools(recording).items():
        assert pool.selector.items() <= nodes[name].labels.items()
        assert list(nodes[name].taints) == list(pool.taints)
        assert nodes[name].allocatable == pool.allocatable
        assert nodes[name].count == pool.max_nodes
        assert nodes[name].accelerator == pool.accelerator
        untainted = {other for other, node in nodes.items() if not node.taints}
        pool_ = {other for other, node in nodes.items() if pool.selector.items() <= node.labels.items()}
        # Pods of no class are on nodes without a taint alone, since they tolerate none.
        assert (pool_ if pool.selector else pool_ & untainted) == ({name} if name != "spot" else {"spot", "t4"})


WAYS = st.builds(
    Way,
    compute_class=st.sampled_from(["general-purpose", "Balanced", "Scale-Out"]),
    spot=st.booleans(),
)

STEPS = st.builds(
    Resources,
    cpu=st.integers(1, 20_000),
    memory=st.integers(1, 80_000),
    ephemeral_storage=st.integers(0, 5 * 1024),
)


@given(WAYS, STEPS)
def test_what_is_declared_is_nothing_that_autopilot_would_change(way: Way, wanted: Resources) -> None:
    rules = autopilot.rules(way)
    live = rules.admitted(wanted)
    assert rules.admitted(live) == live
    assert live.cpu >= wanted.cpu
    assert live.memory >= wanted.memory
    assert rules.ratio
    low, high = rules.ratio
    assert low - 0.01 <= live.memory / 1024 / (live.cpu / 1000) <= high + 0.01


@given(WAYS, STEPS)
def test_cloud_storages_sidecar_changes_nothing_where_memory_may_vary(way: Way, wanted: Resources) -> None:
    rules = autopilot.rules(way)
    live, beside = rules.admitted(wanted), GCS_FUSE_SIDECAR
    both = Resources(live.cpu + beside.cpu, live.memory + beside.memory)
    assert (rules.admitted(both) == both) is (way.compute_class != "Scale-Out")


@pytest.mark.parametrize("accelerator", autopilot.accelerators())
def test_every_accelerator_has_machines_for_each_number_of_it(accelerator: str) -> None:
    assert autopilot.counts(accelerator)
    for count in autopilot.counts(accelerator):
        way = Way(accelerator=accelerator, gpus=count)
        most = autopilot.most(way)
        assert most
        assert most.gpus == count
        assert autopilot.machine_for(way, Resources(1000, 2048, gpus=count))


@pytest.mark.parametrize("family", autopilot.families())
def test_every_family_of_performance_is_in_the_catalogue(family: str) -> None:
    way = Way(compute_class="Performance", machine_family=family)
    small, most = autopilot.machine_for(way, Resources(1000, 1024)), autopilot.most(way)
    assert small
    assert most
    assert small.vcpus < most.cpu / 1000
    assert {machine_types()[machine.name].family for machine in autopilot.machines(way)} == {family}


def test_a_pod_that_no_machine_has_room_for_has_none() -> None:
    way = Way(accelerator="nvidia-tesla-t4", gpus=1)
    assert autopilot.machine_for(way, Resources(500_000, 1024, gpus=1)) is None


def test_a_mount_of_cloud_storage_takes_half_the_scratch_space() -> None:
    most = autopilot.most(Way())
    assert most
    assert most.ephemeral_storage - GCS_FUSE_SIDECAR.ephemeral_storage == 5 * 1024
