"""The catalogue against what Google's pages and clusters show."""

import pytest

from slipway.infra.accelerators import accelerator, accelerators
from slipway.infra.clouds.gcp.catalogue import EVERY_WAY, allocatable, is_arm, machine_type, machine_types, offers
from slipway.infra.clouds.gcp.settings import GcpPool, GpuSharing
from slipway.infra.platform import Resources

# What GKE's own DaemonSets take, which a node's `allocatable` still holds.
SYSTEM_CPU, SYSTEM_MEMORY = 600, 1024


def shown(machine: str, disk: int = 100, ssds: int = 0) -> Resources:
    """Allocatable as `kubectl describe node` shows it."""
    node = allocatable(GcpPool(machine_type=machine, disk_size_gb=disk, local_ssd_count=ssds).node_shape)
    return Resources(node.cpu + SYSTEM_CPU, node.memory + SYSTEM_MEMORY, node.ephemeral_storage)


def test_the_reservations_are_those_of_the_example_on_googles_page() -> None:
    # 4 vCPUs, 16 GiB, 100 GB boot disk: 3920m, 13498416Ki, 47060071478 bytes.
    node = shown("e2-standard-4")
    assert node.cpu == 3920
    assert node.memory == pytest.approx(13498416 / 2**10, abs=8)
    assert node.ephemeral_storage == pytest.approx(47060071478 / 2**20, abs=8)


@pytest.mark.parametrize(
    ("machine", "cpu", "memory"),
    [
        ("n1-highmem-4", 3920, 23829102592),
        ("n2-highmem-4", 3920, 29783904256),
        ("n2-highmem-32", 31850, 257783492608),
    ],
)
def test_a_node_never_has_less_than_the_catalogue_says(machine: str, cpu: int, memory: int) -> None:
    # Measured by 2i2c (deployer/…/node-capacity-info.json).
    node = shown(machine)
    assert node.cpu == pytest.approx(cpu, abs=1)
    assert 0.98 <= node.memory * 2**20 / memory <= 1


def test_local_ssds_are_the_ephemeral_storage_where_they_are_used_for_it() -> None:
    # 375 GB each, 10 % kept from eviction, and 50, 75 or 100 GiB reserved.
    gib = [shown("n1-standard-4", ssds=count).ephemeral_storage / 1024 for count in (1, 2, 3, 8)]
    assert gib == pytest.approx([264.3, 553.6, 842.9, 2414.6], abs=0.1)


def test_more_than_110_pods_cost_a_node_cpu() -> None:
    few, many = (
        allocatable(GcpPool(machine_type="e2-standard-4", max_pods_per_node=n).node_shape) for n in (110, 111)
    )
    assert few.cpu - many.cpu == 400


def test_a_shared_core_leaves_less_than_one_cpu() -> None:
    assert shown("e2-medium").cpu == 940


def test_pods_see_shares_and_partitions_of_gpus() -> None:
    t4 = {"machine_type": "n1-standard-4", "accelerator": "nvidia-tesla-t4", "gpus": 2}
    h100 = {"machine_type": "a3-highgpu-2g", "accelerator": "nvidia-h100-80gb"}
    sharing = GpuSharing(clients=3)
    assert allocatable(GcpPool(**t4).node_shape).gpus == 2
    assert allocatable(GcpPool(**t4, gpu_sharing=sharing).node_shape).gpus == 6
    assert allocatable(GcpPool(**h100).node_shape).gpus == 2
    assert allocatable(GcpPool(**h100, gpu_partition="1g.10gb").node_shape).gpus == 14
    assert allocatable(GcpPool(**h100, gpu_partition="3g.40gb", gpu_sharing=sharing).node_shape).gpus == 12


def test_what_the_catalogue_does_not_know_is_said() -> None:
    assert accelerator("nvidia-tesla-t5") is None
    assert machine_type("n1-standard-5") is None
    assert machine_type("g5.xlarge") is None
    with pytest.raises(ValueError, match="n1-standard-5"):
        allocatable(GcpPool(machine_type="n1-standard-5").node_shape)
    with pytest.raises(ValueError, match=r"7g\.5gb"):
        allocatable(
            GcpPool(
                machine_type="a3-highgpu-1g", accelerator="nvidia-h100-80gb", gpu_partition="7g.5gb"
            ).node_shape
        )


@pytest.mark.parametrize(
    ("name", "vcpus", "gib", "gpu", "gpus"),
    [
        ("e2-standard-4", 4, 16, None, 0),
        ("n1-standard-4", 4, 15, None, 0),
        ("n1-highmem-96", 96, 624, None, 0),
        ("n2-highmem-128", 128, 864, None, 0),
        ("n2d-standard-224", 224, 896, None, 0),
        ("c3d-highcpu-360", 360, 708, None, 0),
        ("g2-standard-24", 24, 96, "nvidia-l4", 2),
        ("a2-highgpu-1g", 12, 85, "nvidia-tesla-a100", 1),
        ("a2-megagpu-16g", 96, 1360, "nvidia-tesla-a100", 16),
        ("a3-highgpu-1g", 26, 234, "nvidia-h100-80gb", 1),
        ("a3-highgpu-8g", 208, 1872, "nvidia-h100-80gb", 8),
        ("a3-ultragpu-8g", 224, 2952, "nvidia-h200-141gb", 8),
        ("a4-highgpu-8g", 224, 3968, "nvidia-b200", 8),
    ],
)
def test_machine_types_are_as_google_lists_them(
    name: str, vcpus: int, gib: float, gpu: str | None, gpus: int
) -> None:
    machine = machine_type(name)
    assert machine is not None
    assert (machine.vcpus, machine.memory, machine.accelerator, machine.gpus) == (vcpus, gib * 1024, gpu, gpus)


def test_custom_types_are_read_from_their_names() -> None:
    machine = machine_type("n2-custom-8-32768")
    assert machine is not None
    assert (machine.family, machine.vcpus, machine.memory) == ("n2", 8, 32768)
    short = machine_type("custom-4-8192")
    assert short is not None
    assert (short.family, short.vcpus, short.memory) == ("n1", 4, 8192)
    for wrong in ("n2-custom-7-32768", "n2-custom-8-1000", "c2-custom-8-32768", "t9-custom-2-2048"):
        assert machine_type(wrong) is None


def test_every_machine_type_can_boot_and_carries_a_known_gpu() -> None:
    for machine in machine_types().values():
        assert machine.disks
        assert machine.sold <= EVERY_WAY
        assert machine.accelerator is None or machine.accelerator in accelerators()
        assert bool(machine.accelerator) == bool(machine.gpus)
        assert not is_arm(machine.name)


def test_small_h100_machines_are_spot_or_flex_start() -> None:
    for gpus in (1, 2, 4):
        machine = machine_type(f"a3-highgpu-{gpus}g")
        assert machine is not None
        assert machine.sold == {"spot", "flex_start"}
    whole = machine_type("a3-highgpu-8g")
    assert whole is not None
    assert whole.sold == EVERY_WAY


def test_gpus_are_offered_where_the_stacks_ask_for_them() -> None:
    t4, h100 = offers()["nvidia-tesla-t4"], offers()["nvidia-h100-80gb"]
    assert t4.zones_in("us-central1") == ("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f")
    assert h100.zones_in("us-central1") == ("us-central1-a", "us-central1-b", "us-central1-c")
    assert h100.zones_in("us-west4") == ("us-west4-a",)
    assert h100.zones_in("europe-north2") == ()


def test_every_gpu_can_be_had_one_way() -> None:
    built_in = {machine.accelerator for machine in machine_types().values()}
    for name, offer in offers().items():
        assert (name in built_in) != bool(offer.attach), f"{name} is either built into machine types or attached"
        assert all(count <= 7 for count in accelerators()[name].partitions.values())
