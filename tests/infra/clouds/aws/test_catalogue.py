"""The catalogue of AWS against measured nodes, and against itself."""

import pytest

from slipway.infra.accelerators import accelerators
from slipway.infra.clouds.aws.catalogue import (
    addon_version,
    allocatable,
    hosts_control_plane,
    instance_type,
    instance_types,
    is_arm,
    is_zone_id,
    kubernetes_versions,
    records,
    region_of,
    regions,
)
from slipway.infra.clouds.aws.settings import AwsPool

ADDONS = ("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-efs-csi-driver")

MEASURED = {"r5.xlarge": (3920, 30635), "r5.4xlarge": (15890, 124408)}
"""Allocatable CPU and MiB of real nodes: node-capacity-info.json of 2i2c-org/infrastructure, 2026-11-20."""


def pool(name: str, **more: object) -> AwsPool:
    return AwsPool.model_validate({"instance_type": name, **more})


@pytest.mark.parametrize("name", MEASURED)
def test_a_node_leaves_a_little_less_than_was_measured(name: str) -> None:
    """Less by the DaemonSets of every node, and never so much less that a step would be refused for nothing."""
    cpu, memory = MEASURED[name]
    node = allocatable(pool(name).node_shape)
    assert cpu - 250 <= node.cpu < cpu
    assert memory * 0.97 - 256 <= node.memory < memory


@pytest.mark.parametrize(
    ("vcpus", "reserved"), [(2, 70), (4, 80), (8, 90), (16, 110), (48, 190), (96, 310), (192, 550)]
)
def test_cpu_is_reserved_as_nodeadm_does(vcpus: int, reserved: int) -> None:
    """`getCPUMillicoresToReserve` of awslabs/amazon-eks-ami, for the same numbers of cores."""
    name = next(name for name, other in instance_types().items() if other.vcpus == vcpus and not other.gpus)
    assert vcpus * 1000 - allocatable(pool(name).node_shape).cpu - 200 == reserved


def test_ephemeral_storage_is_what_a_node_with_a_disk_of_20_gib_reports() -> None:
    """18242267924 bytes, as AL2023 nodes report it."""
    assert allocatable(pool("m7i.xlarge", disk_size_gb=20).node_shape).ephemeral_storage == 18242267924 // 2**20


def test_shares_of_gpus_are_what_pods_see() -> None:
    assert allocatable(pool("g4dn.12xlarge", gpu_sharing={"clients": 4}).node_shape).gpus == 16


def test_a_node_of_an_unknown_type_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"zz\.large"):
        allocatable(pool("zz.large").node_shape)


@pytest.mark.parametrize(
    ("name", "gpus", "accelerator", "cards"),
    [
        ("g4dn.xlarge", 1, "nvidia-tesla-t4", 0),
        ("p5.4xlarge", 1, "nvidia-h100-80gb", 1),
        ("p5.48xlarge", 8, "nvidia-h100-80gb", 32),
        ("p5en.48xlarge", 8, "nvidia-h200-141gb", 16),
        ("p4d.24xlarge", 8, "nvidia-tesla-a100", 4),
    ],
)
def test_gpu_types_have_their_gpus_and_network_cards(name: str, gpus: int, accelerator: str, cards: int) -> None:
    machine = instance_type(name)
    assert machine is not None
    assert (machine.gpus, machine.accelerator, machine.network_cards) == (gpus, accelerator, cards)


def test_every_gpu_is_in_the_catalogue_of_accelerators() -> None:
    assert {
        name for name, t in instance_types().items() if t.gpus and t.accelerator not in accelerators()
    } == set()


def test_no_type_of_the_catalogue_has_arm_processors() -> None:
    assert [name for name in instance_types() if is_arm(name)] == []
    assert is_arm("m7g.large")
    assert is_arm("g5g.xlarge")
    assert is_arm("c7gn.large")


def test_every_zone_is_of_a_region_whose_zones_are_recorded() -> None:
    zones = {zone for machine in instance_types().values() for zone in machine.zones}
    assert zones
    assert all(is_zone_id(zone) for zone in zones)
    assert {region for zone in zones if not records(region := region_of(zone) or "nowhere")} == set()


def test_spot_is_quoted_only_where_the_type_is_offered() -> None:
    assert all(machine.spot_zones <= machine.zones for machine in instance_types().values())


def test_ids_and_names_of_zones_are_told_apart() -> None:
    assert (is_zone_id("use1-az1"), is_zone_id("us-east-1a")) == (True, False)
    assert region_of("use1-az1") == region_of("us-east-1a") == "us-east-1"
    assert [region_of(zone) for zone in ("use1-az9", "us-east-9a", "us-east-1", "mars")] == [None] * 4


def test_every_zone_is_of_one_region() -> None:
    zones = [zone for zones in regions().values() for zone in zones]
    assert len(set(zones)) == len(zones)
    assert all(is_zone_id(zone) for zone in zones)


@pytest.mark.parametrize("version", kubernetes_versions())
@pytest.mark.parametrize("addon", ADDONS)
def test_every_add_on_is_pinned_for_every_version(version: str, addon: str) -> None:
    assert "-eksbuild." in addon_version(version, addon)


@pytest.mark.parametrize("version", kubernetes_versions())
def test_kube_proxy_is_the_versions_own(version: str) -> None:
    assert addon_version(version, "kube-proxy").startswith(f"v{version}.")


@pytest.mark.parametrize("version", kubernetes_versions())
def test_the_storage_driver_knows_s3_files(version: str) -> None:
    """From 3.0.0 on: CHANGELOG-3.x.md of kubernetes-sigs/aws-efs-csi-driver."""
    assert int(addon_version(version, "aws-efs-csi-driver").removeprefix("v").partition(".")[0]) >= 3


def test_an_unknown_version_or_add_on_is_an_error() -> None:
    with pytest.raises(KeyError):
        addon_version("1.30", "vpc-cni")
    with pytest.raises(KeyError):
        addon_version(kubernetes_versions()[0], "none")


def test_zones_without_a_control_plane() -> None:
    assert not hosts_control_plane("use1-az3")
    assert hosts_control_plane("use1-az1")
    # A name is another zone in every account.
    assert hosts_control_plane("us-east-1c")
