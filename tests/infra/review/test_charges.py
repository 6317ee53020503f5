"""What the resources of each place to run are billed for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from slipway.infra.clouds.aws.catalogue import regions as aws_regions
from slipway.infra.clouds.aws.review.charges import TABLE
from slipway.infra.clouds.aws.review.charges import charges as aws_charges
from slipway.infra.clouds.existing.review import charges as existing_charges
from slipway.infra.clouds.gcp.catalogue import regions as gcp_regions
from slipway.infra.clouds.gcp.review.charges import charges as gcp_charges
from slipway.infra.clouds.registry import reviews
from slipway.infra.kubernetes.review import charges as kubernetes_charges
from slipway.infra.platform import Resources
from slipway.infra.review.contract import reviewed
from slipway.infra.review.facts import Charge
from slipway.infra.review.stack import KUBERNETES_PROVIDER, UNKNOWN, NodePool, Resource, Stack
from tests.support.reviewing import declared, declared_stack, stack_of

pytestmark = pytest.mark.slow

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def gke_pool(config: Mapping[str, Any], **more: Any) -> Resource:
    properties = {"location": "us-central1-a", "nodeConfig": config, "nodeCount": 2, **more}
    return declared(NODE_POOL, "pool", properties)


def eks_group(
    machines: Mapping[str, Any], least: int = 0, most: int = 2, region: str = "us-east-2", **more: Any
) -> Stack:
    template = declared(TEMPLATE, "pool", machines)
    group = declared(
        NODE_GROUP,
        "pool",
        {"region": region, "scalingConfig": {"minSize": least, "maxSize": most}, **more},
        property_dependencies={"launchTemplate": frozenset({template.urn})},
    )
    return stack_of(template, group)


def told(charges: list[Charge] | Any) -> dict[str, tuple[float | None, float, float, float]]:
    """Amount, quantity, idle and most, by what is billed."""
    return {
        charge.what: (charge.price and charge.price.amount, charge.quantity, charge.idle, charge.most)
        for charge in charges
    }


def test_a_gke_node_is_its_machine_its_gpus_and_its_disks() -> None:
    pool = gke_pool(
        {
            "machineType": "n1-standard-4",
            "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 2}],
            "diskType": "pd-ssd",
            "diskSizeGb": 300,
            "ephemeralStorageLocalSsdConfig": {"localSsdCount": 1},
        }
    )
    billed = told(gcp_charges(stack_of(pool)))
    assert billed == {
        "n1-standard-4, on demand": (pytest.approx(4 * 0.031611 + 15 * 0.004237), 1, 2, 2),
        "2 nvidia-tesla-t4, on demand": (0.35, 2, 2, 2),
        "boot disk, 300 GiB pd-ssd": (0.17, 300, 2, 2),
        "1 local SSDs": (0.08, 375, 2, 2),
    }
    assert {charge.pool for charge in gcp_charges(stack_of(pool))} == {pool.urn}


def test_gpus_and_disks_that_come_with_a_machine_are_not_billed_twice() -> None:
    pool = gke_pool(
        {
            "machineType": "a3-highgpu-8g",
            "guestAccelerators": [{"type": "nvidia-h100-80gb", "count": 8}],
            "ephemeralStorageLocalSsdConfig": {"localSsdCount": 16},
            "spot": True,
        }
    )
    assert list(told(gcp_charges(stack_of(pool)))) == ["a3-highgpu-8g, Spot", "boot disk, 100 GiB pd-balanced"]


def test_spot_nodes_have_the_spot_price() -> None:
    (machine, *_) = gcp_charges(stack_of(gke_pool({"machineType": "a3-highgpu-8g", "spot": True})))
    (full, *_) = gcp_charges(stack_of(gke_pool({"machineType": "a3-highgpu-8g"})))
    assert (machine.price and machine.price.amount, full.price and full.price.amount) == (50.6095, 88.49)


def test_a_reserved_node_is_billed_whether_it_runs_or_not() -> None:
    pool = gke_pool(
        {
            "machineType": "g2-standard-4",
            "reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION"},
            "ephemeralStorageLocalSsdConfig": {"localSsdCount": 1},
        },
        nodeCount=None,
        autoscaling={"totalMinNodeCount": 0, "totalMaxNodeCount": 3},
    )
    machine, disk, ssds = gcp_charges(stack_of(pool))
    assert "billed whether it runs or not" in machine.what
    assert (machine.idle, machine.most) == (3, 3)
    assert (disk.idle, disk.most) == (0, 3)
    assert (ssds.idle, ssds.most) == (3, 3)


@pytest.mark.parametrize(
    "config",
    [
        {"machineType": "a3-highgpu-8g", "flexStart": True},
        {"machineType": "n1-custom-4-8192"},
        {"machineType": "z9-mega-1"},
        {"machineType": UNKNOWN},
    ],
)
def test_what_the_table_does_not_price_is_unknown(config: Mapping[str, Any]) -> None:
    (machine, *_) = gcp_charges(stack_of(gke_pool(config)))
    assert machine.price is None
    assert machine.most == 2


def test_a_region_without_prices_is_unknown_and_named() -> None:
    billed = gcp_charges(stack_of(gke_pool({"machineType": "e2-standard-4"}, location="antarctica-south1-a")))
    assert [(charge.what, charge.price) for charge in billed] == [
        ("e2-standard-4, on demand in antarctica-south1", None),
        ("boot disk, 100 GiB pd-balanced in antarctica-south1", None),
    ]


def test_local_ssds_that_a_machines_price_leaves_out_are_unknown() -> None:
    billed = told(gcp_charges(stack_of(gke_pool({"machineType": "a3-ultragpu-8g", "spot": True}))))
    assert billed["a3-ultragpu-8g, Spot"][0] == 40.9943
    assert billed["32 local SSDs in us-central1"] == (None, 32 * 375, 2, 2)


def test_a_boot_disk_of_unknown_size_has_no_price() -> None:
    (_, disk) = gcp_charges(stack_of(gke_pool({"diskSizeGb": UNKNOWN})))
    assert (disk.what, disk.price) == ("boot disk, unknown GiB pd-balanced in us-central1", None)


def test_pools_that_a_cluster_declares_within_itself_are_billed() -> None:
    config = {"machineType": "e2-standard-4"}
    cluster = {"location": "us-central1", "nodePools": [{"name": "a", "nodeCount": 1, "nodeConfig": config}]}
    billed = told(gcp_charges(stack_of(declared(CLUSTER, "inline", cluster))))
    assert billed["e2-standard-4, on demand"] == (pytest.approx(4 * 0.021812 + 16 * 0.002924), 1, 3, 3)
    default = {"location": "us-central1-a", "initialNodeCount": 2, "nodeConfig": config}
    billed = told(gcp_charges(stack_of(declared(CLUSTER, "default", default))))
    assert billed["e2-standard-4, on demand"][2:] == (2, 2)
    removed = declared(CLUSTER, "removed", {**default, "removeDefaultNodePool": True})
    assert [charge for charge in gcp_charges(stack_of(removed)) if charge.pool] == []


def test_a_pool_without_a_location_is_where_its_cluster_is() -> None:
    cluster = declared(CLUSTER, "here", {"location": "us-west4", "removeDefaultNodePool": True})
    pool = declared(
        NODE_POOL,
        "pool",
        {"nodeConfig": {"machineType": "e2-standard-4"}, "nodeCount": 1},
        property_dependencies={"cluster": frozenset({cluster.urn})},
    )
    billed = told(gcp_charges(stack_of(cluster, pool)))
    assert billed["e2-standard-4, on demand"] == (pytest.approx(4 * 0.024567 + 16 * 0.003292), 1, 3, 3)


def test_pods_on_autopilot_are_not_free() -> None:
    billed = gcp_charges(stack_of(declared(CLUSTER, "here", {"location": "us-central1", "enableAutopilot": True})))
    by_time = [(charge.what, charge.price) for charge in billed[1:] if not charge.metered]
    assert by_time == [("what pods on Autopilot ask for in us-central1", None)]
    assert [charge.what for charge in billed if charge.metered] == [
        "Cloud Logging",
        "Managed Service for Prometheus, by sample",
    ]


def test_only_a_zonal_cluster_could_use_the_free_tier() -> None:
    whats = {
        location: next(iter(gcp_charges(stack_of(declared(CLUSTER, properties=at))))).what
        for location in ("us-central1", "us-central1-a")
        if (at := {"location": location})
    }
    assert "$74.40" in whats["us-central1-a"]
    assert "free tier" not in whats["us-central1"]


def test_cloud_nat_grows_with_the_nodes_behind_it_up_to_32() -> None:
    nat = declared("gcp:compute/routerNat:RouterNat", "nat", {"region": "us-central1"})
    elsewhere = replace(gke_pool({}, location="us-west4-a"), urn="urn:elsewhere")
    many = gke_pool({}, nodeCount=None, autoscaling={"totalMinNodeCount": 3, "totalMaxNodeCount": 50})
    (nodes, *_) = [charge for charge in gcp_charges(stack_of(nat, elsewhere, many)) if charge.urn == nat.urn]
    assert (nodes.idle, nodes.most) == (3, 32)


def test_an_eks_node_is_its_machine_and_its_disk() -> None:
    disk = {"ebs": {"volumeType": "gp3", "volumeSize": 300}}
    stack = eks_group({"instanceType": "g4dn.xlarge", "blockDeviceMappings": [disk]}, least=1, most=4)
    assert told(aws_charges(stack)) == {
        "g4dn.xlarge, on demand": (0.526, 1, 1, 4),
        "root disk, 300 GiB gp3": (0.08, 300, 1, 4),
    }


def test_an_eks_family_is_priced_by_its_vcpus() -> None:
    (machine, _) = aws_charges(eks_group({"instanceType": "m7i.2xlarge"}))
    assert machine.price
    assert machine.price.amount == pytest.approx(8 * 0.0504)


def test_eks_spot_is_never_priced_as_on_demand() -> None:
    (spot, _) = aws_charges(eks_group({"instanceType": "g4dn.xlarge"}, capacityType="SPOT"))
    assert (spot.what, spot.price and spot.price.amount) == ("g4dn.xlarge, Spot", 0.1915)
    (unknown, _) = aws_charges(eks_group({"instanceType": "m7i.2xlarge"}, capacityType="SPOT"))
    assert unknown.price is None


def test_a_capacity_block_is_paid_elsewhere_and_a_reservation_always() -> None:
    (block, _) = aws_charges(eks_group({"instanceType": "p5.48xlarge"}, capacityType="CAPACITY_BLOCK"))
    assert (block.price, "paid for beforehand" in block.what) == (None, True)
    reserved = {
        "instanceType": "p5.48xlarge",
        "capacityReservationSpecification": {"capacityReservationTarget": {"capacityReservationId": "cr-1"}},
    }
    (machine, _) = aws_charges(eks_group(reserved))
    assert (machine.idle, machine.most, machine.price and machine.price.amount) == (2, 2, 55.04)
    open_ = {
        "instanceType": "p5.48xlarge",
        "capacityReservationSpecification": {"capacityReservationPreference": "open"},
    }
    (machine, _) = aws_charges(eks_group(open_))
    assert (machine.what, machine.idle) == ("p5.48xlarge, on demand", 0)


@pytest.mark.parametrize(
    ("disks", "billed"),
    [
        ([{"volumeType": "gp3"}], {"root disk, 20 GiB gp3": (0.08, 20)}),
        (
            [{"volumeType": "gp3", "volumeSize": UNKNOWN}],
            {"root disk, unknown GiB gp3 in us-east-2": (None, 0)},
        ),
        (
            [{"volumeType": "gp3", "volumeSize": 50}, {"volumeType": "io2", "volumeSize": 500}],
            {"root disk, 50 GiB gp3": (0.08, 50), "disk, 500 GiB io2 in us-east-2": (None, 500)},
        ),
    ],
)
def test_every_disk_of_an_eks_node_is_billed(
    disks: list[dict[str, Any]], billed: dict[str, tuple[float | None, float]]
) -> None:
    stack = eks_group({"instanceType": "g4dn.xlarge", "blockDeviceMappings": [{"ebs": disk} for disk in disks]})
    _, *billed_ = aws_charges(stack)
    assert {what: (price, quantity) for what, (price, quantity, *_) in told(billed_).items()} == billed


def test_aws_bills_a_network_by_its_gateways_and_addresses() -> None:
    at = {"region": "us-east-2"}
    stack = stack_of(
        declared("aws:ec2/natGateway:NatGateway", properties=at),
        declared("aws:ec2/eip:Eip", properties=at),
        declared("aws:ec2/vpcEndpoint:VpcEndpoint", "s3", {**at, "vpcEndpointType": "Gateway"}),
        declared(
            "aws:ec2/vpcEndpoint:VpcEndpoint", "ecr", {**at, "vpcEndpointType": "Interface", "subnetIds": [1, 2]}
        ),
        declared("aws:kms/key:Key", properties=at),
        declared("aws:ec2/subnet:Subnet", properties=at),
    )
    assert told(charge for charge in aws_charges(stack) if not charge.metered) == {
        "NAT gateway": (0.045, 1, 1, 1),
        "public IPv4 address": (0.005, 1, 1, 1),
        "Interface endpoint in 2 zones in us-east-2": (None, 2, 1, 1),
        "KMS key": (1, 1, 1, 1),
    }


def test_machines_and_disks_of_a_program_are_priced_in_the_region_of_their_provider() -> None:
    provider = declared("pulumi:providers:aws", "north", {"region": "us-east-1"})
    stack = stack_of(
        provider,
        declared(
            "aws:ec2/instance:Instance",
            "web",
            {"instanceType": "t3.medium", "rootBlockDevice": {"volumeType": "gp3", "volumeSize": 30}},
            provider=provider.urn,
        ),
        declared("aws:ebs/volume:Volume", "data", {"type": "gp3", "size": 100}),
        declared("aws:lb/loadBalancer:LoadBalancer", "front", {}),
        declared("aws:lb/loadBalancer:LoadBalancer", "raw", {"loadBalancerType": "network"}),
        declared("aws:rds/instance:Instance", "database", {}),
    )
    billed = told(aws_charges(replace(stack, configuration={"aws:region": "us-east-1"})))
    assert {what: amount for what, (amount, *_) in billed.items()} == {
        "t3.medium, on demand": 0.0416,
        "root disk, 30 GiB gp3": 0.08,
        "disk, 100 GiB gp3": 0.08,
        "application load balancer": 0.0225,
        "capacity units that it uses": 0.008,
        "network load balancer in us-east-1": None,
        "Instance, whose price is not recorded in us-east-1": None,
    }


def test_machines_and_disks_of_a_program_are_priced_in_the_zone_of_their_provider() -> None:
    boot = {"initializeParams": {"type": "pd-ssd", "size": 50}}
    stack = stack_of(
        declared("gcp:compute/instance:Instance", "web", {"machineType": "e2-medium", "bootDisk": boot}),
        declared("gcp:compute/disk:Disk", "data", {"type": "pd-ssd", "size": 100, "zone": "us-central1-b"}),
        declared("gcp:sql/databaseInstance:DatabaseInstance", "database", {}),
    )
    billed = told(gcp_charges(replace(stack, configuration={"gcp:zone": "us-central1-a"})))
    assert {what: amount is not None for what, (amount, *_) in billed.items()} == {
        "e2-medium, on demand": True,
        "boot disk, 50 GiB pd-ssd": True,
        "disk, 100 GiB pd-ssd": True,
        "DatabaseInstance, whose price is not recorded": False,
    }


@pytest.mark.parametrize("region", sorted(aws_regions()))
def test_a_nat_gateway_and_a_disk_have_a_price_in_every_region_of_aws(region: str) -> None:
    gateway = declared("aws:ec2/natGateway:NatGateway", properties={"region": region})
    (nat,) = [charge for charge in aws_charges(stack_of(gateway)) if not charge.metered]
    assert nat.price is not None
    assert 0.045 <= nat.price.amount < 0.1
    assert TABLE.price("disks", "gp3", region, "per_gib_month") is not None


@pytest.mark.parametrize("region", sorted(gcp_regions()))
def test_cloud_nat_has_a_price_in_every_region_of_google_cloud(region: str) -> None:
    gateway = declared("gcp:compute/routerNat:RouterNat", properties={"region": region})
    assert [charge.what for charge in gcp_charges(stack_of(gateway)) if charge.price is None] == []


@pytest.mark.parametrize(
    ("charges", "type_"),
    [(gcp_charges, "gcp:sql/databaseInstance:DatabaseInstance"), (aws_charges, "aws:rds/instance:Instance")],
)
def test_a_kind_that_nobody_knows_is_unknown_and_not_free(charges: Any, type_: str) -> None:
    (billed,) = charges(stack_of(declared(type_, "database")))
    assert (billed.price, billed.metered) == (None, False)
    assert "not recorded" in billed.what


def test_what_is_only_looked_up_is_not_billed() -> None:
    assert gcp_charges(stack_of(declared("gcp:sql/databaseInstance:DatabaseInstance", read=True))) == []


@pytest.mark.parametrize("name", ["gcp-dev", "gcp-prod", "aws-dev", "aws-prod"])
def test_every_hour_of_the_repositorys_stacks_is_priced(name: str) -> None:
    stack = declared_stack(name)
    billed = stack.charges
    assert billed
    assert [charge.what for charge in billed if charge.price is None and not charge.metered] == []


def test_nodes_of_your_own_are_not_priced_and_not_free() -> None:
    nodes = NodePool("", "here", "gpu", {}, [], Resources(1000, 1000), 2, 2)
    provider = declared(KUBERNETES_PROVIDER, "here")
    (billed,) = existing_charges(stack_of(provider, pools=[nodes]))
    assert (billed.urn, billed.price, billed.most) == (provider.urn, None, 2)
    assert "your own nodes (gpu)" in billed.what


@pytest.mark.parametrize(
    ("type_", "spec", "billed"),
    [
        ("core/v1:Service", {"type": "LoadBalancer"}, True),
        ("core/v1:Service", {"type": "ClusterIP"}, False),
        ("networking.k8s.io/v1:Ingress", {}, True),
        ("core/v1:PersistentVolumeClaim", {"resources": {"requests": {"storage": "1Gi"}}}, True),
        ("core/v1:PersistentVolumeClaim", {"storageClassName": "fast"}, True),
        ("core/v1:PersistentVolumeClaim", {"storageClassName": "", "volumeName": "store"}, False),
        ("core/v1:ConfigMap", {}, False),
    ],
)
def test_what_a_cluster_makes_its_cloud_bill_is_unknown(type_: str, spec: Mapping[str, Any], billed: bool) -> None:
    billed_ = kubernetes_charges(stack_of(declared(f"kubernetes:{type_}", properties={"spec": spec})))
    assert [charge.price for charge in billed_ if not charge.metered] == [None] * billed


def volume(cluster: Resource, *classes: Resource, size: str = "10Gi", **spec: Any) -> Charge:
    """What is said of the volume of a StatefulSet of two pods on a cluster."""
    provider = declared(KUBERNETES_PROVIDER, "here", dependencies=frozenset({cluster.urn}))
    template = {"spec": {"resources": {"requests": {"storage": size}}, **spec}}
    queue = declared(
        "kubernetes:apps/v1:StatefulSet",
        "queue",
        {"spec": {"replicas": 2, "volumeClaimTemplates": [template]}},
        provider=provider.urn,
    )
    live = [cluster, provider, *(replace(class__, provider=provider.urn) for class__ in classes), queue]
    reviewed_stack = reviewed(Stack("test", {resource.urn: resource for resource in live}), reviews())
    [charge] = [resource for resource in reviewed_stack.charges if resource.urn == queue.urn]
    return charge


def class_(name: str, provisioner: str, **parameters: str) -> Resource:
    properties = {"metadata": {"name": name}, "provisioner": provisioner, "parameters": parameters}
    return declared("kubernetes:storage.k8s.io/v1:StorageClass", name, properties)


def balanced(cluster: Resource, kind: str, spec: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    """What is said of the load balancer that the object of this kind makes a cluster have."""
    provider = declared(KUBERNETES_PROVIDER, "here", dependencies=frozenset({cluster.urn}))
    door = declared(f"kubernetes:{kind}", "door", {"spec": spec}, provider=provider.urn)
    reviewed_stack = reviewed(
        Stack("test", {resource.urn: resource for resource in (cluster, provider, door)}), reviews()
    )
    charges = [charge for charge in reviewed_stack.charges if charge.urn == door.urn]
    return [(charge.what, charge.price and charge.price.amount) for charge in charges]


def test_a_load_balancer_of_which_nobody_knows_the_price_is_said_once() -> None:
    unknown = [("load balancer, whose price is not recorded", None)]
    assert balanced(EKS, "networking.k8s.io/v1:Ingress", {"ingressClassName": "alb"}) == unknown
    assert balanced(GKE, "networking.k8s.io/v1:Ingress", {}) == unknown
    assert balanced(GKE, "core/v1:Service", {"type": "LoadBalancer"}) == unknown


def test_a_controller_of_the_clusters_own_makes_no_load_balancer() -> None:
    assert balanced(GKE, "networking.k8s.io/v1:Ingress", {"ingressClassName": "traefik"}) == []


GKE = declared(CLUSTER, "here", {"location": "us-central1-a"})
EKS = declared("aws:eks/cluster:Cluster", "here", {"region": "us-east-2"})


@pytest.mark.parametrize(
    ("cluster", "classes", "name", "monthly"),
    [
        (GKE, [], None, 0.1),
        (GKE, [], "premium-rwo", 0.17),
        (GKE, [class_("mine", "pd.csi.storage.gke.io", type="pd-ssd")], "mine", 0.17),
        (GKE, [class_("mine", "pd.csi.storage.gke.io")], "mine", 0.04),
        (EKS, [class_("gp3", "ebs.csi.aws.com", type="gp3")], "gp3", 0.08),
        (EKS, [class_("mine", "ebs.csi.aws.com")], "mine", 0.08),
    ],
)
def test_the_disk_of_a_claim_has_its_clouds_price(
    cluster: Resource, classes: list[Resource], name: str | None, monthly: float
) -> None:
    result = volume(cluster, *classes, **({"storageClassName": name} if name else {}))
    assert result.price is not None
    assert (result.price.amount, result.price.unit) == (monthly, "GiB-month")
    assert (result.quantity, result.idle, result.most) == (10, 2, 2)
    assert result.what == f"volume of 10Gi, {f'class {name}' if name else 'the default class'}"


@pytest.mark.parametrize(
    ("cluster", "classes", "spec"),
    [
        (GKE, [], {"storageClassName": "fast"}),
        (GKE, [class_("fs", "filestore.csi.storage.gke.io")], {"storageClassName": "fs"}),
        (GKE, [], {"storageClassName": UNKNOWN}),
        (GKE, [], {"size": UNKNOWN}),
        (EKS, [], {}),
        (declared("azure:k8s:Cluster", "here"), [], {}),
    ],
)
def test_a_disk_that_no_cloud_knows_has_no_price(
    cluster: Resource, classes: list[Resource], spec: dict[str, Any]
) -> None:
    result = volume(cluster, *classes, **spec)
    assert result.price is None
    assert result.what.endswith(", whose price is not recorded")
