"""Node groups on EKS: every key of a pool reaches its resource, and GPU pools are what their pods need."""

import base64
import email
import hashlib
from typing import Any

import pytest
import yaml

from slipway.infra.clouds.aws.nodes import node_resources
from slipway.infra.clouds.aws.pools import INSTANCE_STORE
from slipway.infra.clouds.aws.settings import AwsPool
from slipway.infra.settings.loading import load
from tests.support.clouds.aws import LAUNCH_TEMPLATE, NODE_GROUP, declare, raw, with_pool
from tests.support.recording import Recording

pytestmark = pytest.mark.slow

CPU = {"instance_type": "m6i.xlarge"}
T4 = {"instance_type": "g4dn.xlarge"}
BLOCK = {
    "instance_type": "p5.48xlarge",
    "zones": ["us-east-1a"],
    "capacity_block": "cr-0123456789abcdef0",
    "nodes": {"count": 1},
}


def inputs(recording: Recording, name: str = "dev-extra") -> dict[str, Any]:
    """What a pool's group and launch template are declared with; the latter below ``template``."""
    group, template = recording.one(NODE_GROUP, name), recording.one(LAUNCH_TEMPLATE, name)
    return {**group.inputs, "template": template.inputs}


def declared(pool: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return inputs(declare(with_pool(pool, **cluster)))


def at(given: Any, path: str) -> Any:
    """The value at a dotted path; None where any part of it is missing."""
    for key in path.split("."):
        if given is None:
            return None
        given = given[int(key)] if key.isdigit() else given.get(key)
    return given


def subnet_id(zone: str) -> str:
    return f"subnet-{hashlib.sha256(f'subnet/dev-private-{zone}'.encode()).hexdigest()[:17]}"


USER_DATA = base64.b64encode(INSTANCE_STORE.encode()).decode()
PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"
RESERVED = "template.capacityReservationSpecification.capacityReservationTarget.capacityReservationId"

KEYS = [
    ("instance_type", {"instance_type": "m6i.2xlarge"}, "template.instanceType", "m6i.2xlarge"),
    ("nodes", {**CPU, "nodes": {"count": 2}}, "scalingConfig", {"minSize": 2, "maxSize": 2, "desiredSize": 2}),
    ("zones", {**CPU, "zones": ["us-east-1b"]}, "subnetIds", [subnet_id("us-east-1b")]),
    ("spot", {**T4, "spot": True}, "capacityType", "SPOT"),
    ("capacity_block", BLOCK, RESERVED, "cr-0123456789abcdef0"),
    (
        "capacity_reservation",
        {**CPU, "capacity_reservation": "cr-0fedcba9876543210", "zones": ["us-east-1a"]},
        RESERVED,
        "cr-0fedcba9876543210",
    ),
    ("efa", {**BLOCK, "efa": True}, "template.networkInterfaces.1.interfaceType", "efa-only"),
    ("kubernetes_version", {**CPU, "kubernetes_version": "1.35"}, "version", "1.35"),
    ("disk_size_gb", {**CPU, "disk_size_gb": 321}, "template.blockDeviceMappings.0.ebs.volumeSize", 321),
    ("instance_store", {**T4, "instance_store": True}, "template.userData", USER_DATA),
    ("labels", {**CPU, "labels": {"role": "cpu"}}, "labels", {"role": "cpu"}),
    ("tags", {**CPU, "tags": {"team": "vision"}}, "template.tagSpecifications.0.tags.team", "vision"),
    (
        "taints",
        {**CPU, "taints": [{"key": "own", "value": "x", "effect": "NoExecute"}]},
        "taints",
        [{"key": "own", "value": "x", "effect": "NO_EXECUTE"}],
    ),
]

NOT_OF_EKS = {"gpu_sharing"}
"""What the device plugin does; the platform hands it on."""


def pool_for(key: str) -> str:
    return key.replace("_", "-")


@pytest.fixture(scope="module")
def one_pool_per_key() -> Recording:
    def change(values: dict[str, Any]) -> None:
        values["clusters"]["dev"]["pools"].update({pool_for(key): pool for key, pool, _, _ in KEYS})

    return declare(load(raw(change)))


@pytest.mark.parametrize(("key", "path", "expected"), [(key, *rest) for key, _, *rest in KEYS])
def test_a_key_reaches_the_node_group(one_pool_per_key: Recording, key: str, path: str, expected: Any) -> None:
    pool_ = inputs(one_pool_per_key, f"dev-{pool_for(key)}")
    if "\\" in path:
        group, _, label = path.partition(".")
        assert pool_[group][label.replace("\\", ".")] == expected
    else:
        assert at(pool_, path) == expected


def test_every_key_of_a_pool_is_tried_above() -> None:
    assert {case[0] for case in KEYS} | NOT_OF_EKS == set(AwsPool.model_fields)


def test_an_instance_store_is_the_disk_of_pods() -> None:
    made = declare(with_pool({**T4, "instance_store": True}))
    pool = made.result["dev"].pools["extra"]
    group, template = (made.one(kind, "dev-extra").inputs for kind in (NODE_GROUP, LAUNCH_TEMPLATE))
    assert node_resources(group, template) == pool.allocatable, "as a preview reads the declaration"
    assert pool.allocatable.ephemeral_storage > 100_000, "g4dn.xlarge has 125 GB beside its root disk of 50 GiB"
    assert "userData" not in declare(with_pool(T4)).one(LAUNCH_TEMPLATE, "dev-extra").inputs
    (part,) = email.message_from_bytes(base64.b64decode(template["userData"])).get_payload()
    told = yaml.safe_load(part.get_payload())
    assert (part.get_content_type(), told["kind"]) == ("application/node.eks.aws", "NodeConfig")
    assert told["spec"]["instance"]["localStorage"] == {"strategy": "RAID0"}


def test_sharing_is_handed_to_the_device_plugin() -> None:
    pool = declare(with_pool({**T4, "gpu_sharing": {"clients": 3}})).result["dev"].pools["extra"]
    assert pool.gpu_clients == 3
    assert pool.shared_gpus is True
    assert pool.allocatable.gpus == 3


NODES = [
    ({}, {"minSize": 1, "maxSize": 1, "desiredSize": 1}),
    ({"count": 0}, {"minSize": 0, "maxSize": 1, "desiredSize": 0}),
    ({"min": 1, "max": 3}, {"minSize": 1, "maxSize": 3, "desiredSize": 1}),
    ({"min": 0, "max": 4}, {"minSize": 0, "maxSize": 4, "desiredSize": 0}),
    ({"max": 4}, {"minSize": 0, "maxSize": 4, "desiredSize": 0}),
]


@pytest.mark.parametrize(("nodes", "limits"), NODES)
def test_a_pool_is_fixed_or_starts_at_its_least(nodes: dict[str, Any], limits: dict[str, int]) -> None:
    assert declared({**T4, "nodes": nodes})["scalingConfig"] == limits


def test_what_the_autoscaler_does_is_no_drift() -> None:
    recording = declare(with_pool({**CPU, "nodes": {"count": 2}}))
    scaled, fixed = recording.one(NODE_GROUP, "dev-train"), recording.one(NODE_GROUP, "dev-extra")
    assert set(scaled.ignore_changes) == {"scalingConfig.desiredSize"}
    assert set(fixed.ignore_changes) == set(), "a changed count has to be carried out"


def test_gpu_nodes_are_tainted_and_labelled_for_the_device_plugin() -> None:
    custom = {"key": "team", "value": "a", "effect": "PreferNoSchedule"}
    made = declared({**T4, "taints": [custom], "labels": {"role": "t4"}})
    assert made["taints"] == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"},
        {"key": "team", "value": "a", "effect": "PREFER_NO_SCHEDULE"},
    ]
    assert made["labels"] == {
        "nvidia.com/gpu.present": "true",
        "k8s.amazonaws.com/accelerator": "nvidia-tesla-t4",
        "role": "t4",
    }
    ordinary = declared(CPU)
    assert not ordinary.get("taints")
    assert not ordinary.get("labels")


def test_gpu_nodes_have_the_image_with_the_driver() -> None:
    images = [declared(pool)["amiType"] for pool in (CPU, T4, BLOCK)]
    assert images == ["AL2023_x86_64_STANDARD", "AL2023_x86_64_NVIDIA", "AL2023_x86_64_NVIDIA"]


def test_nobody_but_the_node_itself_reaches_its_metadata() -> None:
    recording = declare(with_pool({**BLOCK, "efa": True}))
    for template in recording.of(LAUNCH_TEMPLATE):
        assert template.inputs["metadataOptions"] == {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
        }


def test_disks_are_encrypted_and_go_with_their_node() -> None:
    for template in declare(with_pool(T4)).of(LAUNCH_TEMPLATE):
        (disk,) = template.inputs["blockDeviceMappings"]
        assert disk["deviceName"] == "/dev/xvda"
        assert disk["ebs"] == {
            "encrypted": "true",
            "volumeType": "gp3",
            "volumeSize": 100,
            "deleteOnTermination": "true",
        }


def test_instances_volumes_and_interfaces_are_tagged_for_billing() -> None:
    template = declared({**T4, "tags": {"purpose": "train"}})["template"]
    told = {
        tag_specification["resourceType"]: tag_specification["tags"]
        for tag_specification in template["tagSpecifications"]
    }
    assert set(told) == {"instance", "volume", "network-interface"}
    for tags in told.values():
        assert tags == {"purpose": "train", "Name": "dev-extra"}


def test_a_capacity_block_is_asked_for_as_ec2_demands() -> None:
    made = declared(BLOCK)
    assert made["capacityType"] == "CAPACITY_BLOCK"
    assert made["template"]["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert made["template"]["instanceType"] == "p5.48xlarge"
    assert "instanceTypes" not in made
    assert made["subnetIds"] == [subnet_id("us-east-1a")]


def test_a_capacity_reservation_is_on_demand() -> None:
    made = declared({**CPU, "capacity_reservation": "cr-0fedcba9876543210", "zones": ["us-east-1a"]})
    assert made["capacityType"] == "ON_DEMAND"
    assert "instanceMarketOptions" not in made["template"]


def test_efa_has_an_interface_on_every_network_card() -> None:
    recording = declare(with_pool({**BLOCK, "efa": True}))
    template = recording.one(LAUNCH_TEMPLATE, "dev-extra").inputs
    first, *others = template["networkInterfaces"]
    assert (first["networkCardIndex"], first["deviceIndex"], first["interfaceType"]) == (0, 0, "interface")
    assert [other["networkCardIndex"] for other in others] == list(range(32))
    assert [other["deviceIndex"] for other in others] == [1, *([0] * 31)]
    assert {other["interfaceType"] for other in others} == {"efa-only"}
    assert "vpcSecurityGroupIds" not in template, "EC2 takes groups in one place only"


def test_efa_nodes_stand_close_together() -> None:
    recording = declare(with_pool({"instance_type": "p5.48xlarge", "zones": ["us-east-1a"], "efa": True}))
    template = recording.one(LAUNCH_TEMPLATE, "dev-extra").inputs
    assert recording.one(PLACEMENT_GROUP).inputs["strategy"] == "cluster"
    assert template["placement"] == {"groupName": "slipway-test-dev-extra"}


@pytest.mark.parametrize(
    "pool",
    [
        BLOCK,
        {
            "instance_type": "p5.48xlarge",
            "zones": ["us-east-1a"],
            "capacity_reservation": "cr-0fedcba9876543210",
        },
    ],
    ids=["block", "reservation"],
)
def test_reserved_capacity_is_in_no_placement_group_in_which_it_might_not_start(pool: dict[str, Any]) -> None:
    recording = declare(with_pool({**pool, "efa": True}))
    assert recording.of(PLACEMENT_GROUP) == []
    assert "placement" not in recording.one(LAUNCH_TEMPLATE, "dev-extra").inputs


def test_efa_nodes_talk_to_one_another_and_are_of_the_cluster() -> None:
    recording = declare(with_pool({**BLOCK, "efa": True}))
    interfaces = recording.one(LAUNCH_TEMPLATE, "dev-extra").inputs["networkInterfaces"]
    (efa,) = {group for interface in interfaces[1:] for group in interface["securityGroups"]}
    cluster = {*interfaces[0]["securityGroups"]} - {efa}
    assert len(cluster) == 1
    for direction in ("Ingress", "Egress"):
        rule = recording.one(f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule", "dev-extra-efa")
        assert rule.inputs["securityGroupId"] == rule.inputs["referencedSecurityGroupId"] == efa
        assert rule.inputs["ipProtocol"] == "-1"


def test_without_efa_eks_makes_the_network_interfaces() -> None:
    template = declared(BLOCK)["template"]
    assert "networkInterfaces" not in template
    assert "placement" not in template


def test_updates_of_gpu_pools_need_no_spare_gpu() -> None:
    assert declared(T4)["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "MINIMAL"}
    assert declared(CPU)["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "DEFAULT"}


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_cpu_pools_come_before_gpu_pools(preview: bool) -> None:
    recording = declare(with_pool(BLOCK), preview=preview)
    cpu = recording.one(NODE_GROUP, "dev-cpu")
    for gpu in ("dev-train", "dev-extra"):
        assert cpu.urn in recording.waits_for(recording.one(NODE_GROUP, gpu))
    assert recording.one(NODE_GROUP, "dev-train").urn not in recording.waits_for(cpu)


def test_gpu_pools_do_not_wait_for_one_another() -> None:
    recording = declare(with_pool(BLOCK))
    train, extra = recording.one(NODE_GROUP, "dev-train"), recording.one(NODE_GROUP, "dev-extra")
    assert extra.urn not in recording.waits_for(train)
    assert train.urn not in recording.waits_for(extra)


def test_a_changed_template_rolls_through_its_group() -> None:
    recording = declare(with_pool(T4))
    group = recording.one(NODE_GROUP, "dev-extra")
    assert recording.one(LAUNCH_TEMPLATE, "dev-extra").urn in group.dependencies
    assert group.inputs["launchTemplate"]["version"] == "1", "a number: `$Latest` would hide the change from EKS"


def test_a_replaced_pool_frees_its_name_and_its_gpus_first() -> None:
    for pool in declare(with_pool(T4)).of(NODE_GROUP):
        assert pool.delete_before_replace
        assert pool.create_timeout == "45m"


def test_pods_find_their_pool_by_its_groups_name() -> None:
    recording = declare(with_pool(T4))
    for name, pool in recording.result["dev"].pools.items():
        group = recording.one(NODE_GROUP, f"dev-{name}").inputs["nodeGroupName"]
        assert dict(pool.selector) == {"eks.amazonaws.com/nodegroup": group}
        assert [resource._name for resource in pool.resources] == [f"dev-{name}"]
