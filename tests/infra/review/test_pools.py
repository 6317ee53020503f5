"""Node pools as a review reads them off a declaration, beside what the emulated clouds make of the same one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from slipway.infra.clouds.aws.nodes import pools as aws_pools
from slipway.infra.clouds.gcp.nodes import pools as gcp_pools
from slipway.infra.kubernetes.cluster.device_plugin import values
from slipway.infra.platform import DevicePlugin, Taint
from slipway.infra.review.stack import KUBERNETES_PROVIDER, UNKNOWN, UNLIMITED, NodePool
from tests.support.clouds import aws, gcp
from tests.support.reviewing import declared, declared_stack, stack_emulators, stack_of
from tests.support.stand_in import gpu_pool

GKE_CLUSTER = declared("gcp:container/cluster:Cluster", "gke", {"location": "us-central1"})
EKS_CLUSTER = declared("aws:eks/cluster:Cluster", "eks", {})
STACKS = ["gcp-dev", "gcp-prod", "aws-dev", "aws-prod"]


def by_name(pools: Any) -> dict[tuple[str, str], NodePool]:
    return {(pool.cluster, pool.name): pool for pool in pools}


@pytest.mark.slow
@pytest.mark.parametrize("name", STACKS)
def test_a_preview_sees_the_nodes_that_a_rehearsal_places_pods_on(name: str) -> None:
    stack = declared_stack(name)
    (emulator,) = stack_emulators(name)
    templates = {
        resource.name: emulator.outputs(resource.type, resource.name, resource.properties)
        for resource in stack.of_type(aws.LAUNCH_TEMPLATE)
    }
    expected = {}
    for resource in stack.resources.values():
        # A rehearsal knows the id of the template, which a preview does not.
        known = {"launchTemplate": templates.get(resource.name)}
        for node in emulator.nodes(resource.type, resource.name, {**resource.properties, **known}):
            expected[node.cluster, node.pool] = node
    assert expected
    pool_ = by_name(stack.pools)
    assert {key: pool.allocatable for key, pool in pool_.items()} == {
        k: n.allocatable for k, n in expected.items()
    }
    for key, pool in pool_.items():
        node = expected[key]
        assert (pool.labels, pool.taints, pool.max_nodes) == (node.labels, node.taints, node.count)
        assert (pool.accelerator, pool.allocatable) == (node.accelerator, node.allocatable)


def test_gke_pools_of_the_development_stack() -> None:
    pools = by_name(declared_stack("gcp-dev").pools)
    assert list(pools) == [("dev", "cpu"), ("dev", "predict"), ("dev", "train")]
    cpu, train = pools["dev", "cpu"], pools["dev", "train"]
    assert (cpu.min_nodes, cpu.max_nodes, cpu.spot, cpu.gpus, cpu.accelerator) == (1, 2, False, 0, None)
    assert (train.min_nodes, train.max_nodes, train.spot, train.gpus) == (0, 1, True, 1)
    assert (train.machine, train.accelerator, train.run_limit) == ("n1-standard-4", "nvidia-tesla-t4", None)
    assert train.taints == [Taint("nvidia.com/gpu", "present", "NoSchedule")]


def test_eks_pools_of_the_production_stack() -> None:
    pools = by_name(declared_stack("aws-prod").pools)
    h100 = pools["ml", "h100-standard"]
    assert (h100.machine, h100.gpus, h100.spot, h100.min_nodes, h100.max_nodes) == ("p5.48xlarge", 8, True, 1, 1)
    assert pools["ml", "cpu"].gpus == 0
    assert h100.labels["eks.amazonaws.com/capacityType"] == "SPOT"


def gke(**properties: Any) -> NodePool:
    pool = declared(
        gcp.NODE_POOL,
        "gpu",
        {"name": "gpu", "location": "us-central1-a", "cluster": UNKNOWN, **properties},
        property_dependencies={"cluster": frozenset({GKE_CLUSTER.urn})},
    )
    (pool_,) = gcp_pools(stack_of(GKE_CLUSTER, pool))
    return pool_


ZONES = ["us-central1-a", "us-central1-b"]


@pytest.mark.parametrize(
    ("properties", "fewest", "most"),
    [
        ({"nodeCount": 2}, 2, 2),
        ({"nodeCount": 2, "nodeLocations": ZONES}, 4, 4),
        ({"nodeCount": 2, "location": "us-central1"}, 6, 6),
        ({"nodeCount": 1, "location": None}, 3, 3),
        ({"autoscaling": {"minNodeCount": 1, "maxNodeCount": 4}, "nodeLocations": ZONES}, 2, 8),
        ({"autoscaling": {"totalMinNodeCount": 1, "totalMaxNodeCount": 4}, "nodeLocations": ZONES}, 1, 4),
        ({"autoscaling": {"maxNodeCount": UNKNOWN}}, 0, 0),
        ({}, 0, 0),
    ],
)
def test_gke_counts_nodes_per_zone_but_totals(properties: Mapping[str, Any], fewest: int, most: int) -> None:
    pool = gke(**properties)
    assert (pool.min_nodes, pool.max_nodes) == (fewest, most)


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ({}, None),
        ({"maxRunDuration": "3600s"}, 3600),
        ({"preemptible": True}, 86_400),
        ({"flexStart": True}, 7 * 86_400),
        ({"flexStart": True, "maxRunDuration": "7200s"}, 7200),
        ({"maxRunDuration": UNKNOWN}, None),
    ],
)
def test_how_long_a_gke_node_may_run(config: Mapping[str, Any], seconds: int | None) -> None:
    assert gke(nodeConfig=config).run_limit == seconds


def test_what_others_leave_out_has_gkes_defaults() -> None:
    pool = gke()
    assert (pool.machine, pool.spot, pool.gpus) == ("e2-medium", False, 0)
    assert 0 < pool.allocatable.cpu < 2000
    assert pool.labels["cloud.google.com/gke-boot-disk"] == "pd-balanced"


def test_a_machine_that_no_catalogue_has_takes_every_pod() -> None:
    assert gke(nodeConfig={"machineType": "z9-huge-1"}).allocatable.cpu == UNLIMITED
    assert gke(nodeConfig={"machineType": UNKNOWN}).machine == ""
    assert eks(template={"instanceType": "z9.huge"}).allocatable.gpus == UNLIMITED


def test_a_pool_is_on_the_cluster_by_the_name_of_the_provider_that_reaches_it() -> None:
    provider = declared(KUBERNETES_PROVIDER, "prod", dependencies=frozenset({GKE_CLUSTER.urn}))
    depends = {"cluster": frozenset({GKE_CLUSTER.urn})}
    pool = declared(gcp.NODE_POOL, "prod-gpu", {}, property_dependencies=depends)
    (alone,), (reached,) = gcp_pools(stack_of(GKE_CLUSTER, pool)), gcp_pools(stack_of(GKE_CLUSTER, provider, pool))
    assert (alone.cluster, alone.name) == ("gke", "prod-gpu")
    assert (reached.cluster, reached.name) == ("prod", "gpu")


def own_pools(**properties: Any) -> list[tuple[str, str, int]]:
    cluster = declared(GKE_CLUSTER.type, "gke", {"location": "us-central1-a", **properties})
    return [(pool.name, pool.machine, pool.max_nodes) for pool in gcp_pools(stack_of(cluster))]


def test_pools_that_a_cluster_declares_within_itself() -> None:
    config = {"machineType": "e2-standard-4"}
    assert own_pools(initialNodeCount=2, nodeConfig=config) == [("default-pool", "e2-standard-4", 2)]
    assert own_pools(nodePools=[{"name": "a", "nodeCount": 3, "nodeConfig": config}]) == [
        ("a", "e2-standard-4", 3)
    ]
    assert own_pools(initialNodeCount=1, removeDefaultNodePool=True) == []
    assert own_pools(initialNodeCount=1, enableAutopilot=True) == []
    # Beside its own zone.
    assert own_pools(initialNodeCount=2, nodeLocations=["us-central1-b"]) == [("default-pool", "e2-medium", 4)]


def eks(template: Mapping[str, Any] | None = None, *others: Any, **properties: Any) -> NodePool:
    machines = declared(aws.LAUNCH_TEMPLATE, "gpu", template or {})
    group = declared(
        aws.NODE_GROUP,
        "gpu",
        {"nodeGroupName": "gpu", "launchTemplate": {"id": UNKNOWN}, **properties},
        property_dependencies={
            "launchTemplate": frozenset({machines.urn}),
            "clusterName": frozenset({EKS_CLUSTER.urn}),
        },
    )
    (pool_,) = aws_pools(stack_of(EKS_CLUSTER, machines, group, *others))
    return pool_


def test_eks_takes_the_machine_from_the_template_or_the_group() -> None:
    assert eks({"instanceType": "g4dn.xlarge"}).gpus == 1
    assert eks({}, instanceTypes=["p5.48xlarge", "p5.4xlarge"]).gpus == 8
    assert eks().machine == "t3.medium"


def test_time_slices_on_eks_are_those_of_the_device_plugin_on_the_same_nodes() -> None:
    provider = f"urn:pulumi:test::slipway::{KUBERNETES_PROVIDER}::eks"

    def plugin(group: str, on: str = provider) -> Any:
        pool = replace(gpu_pool(), selector={"eks.amazonaws.com/nodegroup": group}, gpu_clients=4)
        return declared(aws.RELEASE, "plugin", {"values": values(pool, DevicePlugin())}, provider=on)

    t4 = {"instanceType": "g4dn.xlarge"}
    assert eks(t4, plugin("gpu")).allocatable.gpus == 4
    assert eks(t4, plugin("gpu")).gpus == 1
    assert eks(t4, plugin("other")).allocatable.gpus == 1
    assert eks(t4, plugin("gpu", f"{provider}-2")).allocatable.gpus == 1


def test_nodes_that_are_there_already_are_not_declared() -> None:
    assert declared_stack("local").pools == []


def test_a_pool_says_in_which_zones_its_nodes_may_be() -> None:
    gke = {pool.name: pool.zones for pool in declared_stack("gcp-dev").pools}
    assert gke["cpu"] == ["us-central1-a"]
    assert gke["train"] == ["us-central1-a", "us-central1-b", "us-central1-c"]
    eks = {pool.name: pool.zones for pool in declared_stack("aws-dev").pools}
    assert set(map(tuple, eks.values())) == {("aps1-az1", "aps1-az2")}
