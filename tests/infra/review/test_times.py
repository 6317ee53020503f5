"""How long resources take to be created, and nodes to come up."""

from typing import Any

from slipway.infra.clouds.aws import nodes as aws_nodes
from slipway.infra.clouds.aws import review as aws
from slipway.infra.clouds.gcp import nodes as gcp_nodes
from slipway.infra.clouds.gcp import review as gcp
from slipway.infra.kubernetes import review as kubernetes
from slipway.infra.review.facts import Seconds
from slipway.infra.review.stack import Resource, Stack
from tests.support.reviewing import declared, declared_stack

NODE_POOL = "gcp:container/nodePool:NodePool"


def pool(**properties: Any) -> Resource:
    return declared(NODE_POOL, properties={"location": "us-central1-a", **properties})


def amount(given: Seconds | None) -> float | None:
    return given.amount if given else None


def test_a_pool_waits_for_the_nodes_that_it_starts_with() -> None:
    gpus = {"machineType": "n1-standard-4", "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 1}]}
    assert amount(gcp.creation(pool(nodeCount=1, nodeConfig={"machineType": "e2-standard-4"}))) == 94
    assert gcp.creation(pool(nodeCount=1, nodeConfig=gpus)) == gcp_nodes.TIMES["boot", "gpu"]
    assert gcp.creation(pool(autoscaling={"totalMinNodeCount": 0, "totalMaxNodeCount": 1})) is None


def test_a_node_group_without_nodes_is_not_known() -> None:
    group = "aws:eks/nodeGroup:NodeGroup"
    assert amount(aws.creation(declared(group, properties={"scalingConfig": {"minSize": 1}}))) == 119
    assert aws.creation(declared(group, properties={"scalingConfig": {"minSize": 0}})) is None


def test_add_ons_differ() -> None:
    addon = "aws:eks/addon:Addon"
    by_name = {
        name: amount(aws.creation(declared(addon, properties={"addonName": name}))) for name in ("vpc-cni", "x")
    }
    assert by_name == {"vpc-cni": 65, "x": 24}


def test_gpus_take_longer_than_cpus() -> None:
    for nodes in (gcp_nodes, aws_nodes):
        plain, gpus = nodes.TIMES["boot", "cpu"], nodes.TIMES["boot", "gpu"]
        assert plain.amount < gpus.amount


def test_a_job_takes_as_long_as_its_work() -> None:
    assert kubernetes.creation(declared("kubernetes:batch/v1:Job")) is None
    assert amount(kubernetes.creation(declared("kubernetes:core/v1:ConfigMap"))) == 1
    assert kubernetes.creation(declared("gcp:compute/network:Network")) is None


def test_a_password_takes_no_time() -> None:
    assert amount(kubernetes.creation(declared(kubernetes.PASSWORD))) == 0


def test_an_image_for_gpus_takes_longer_to_pull_wherever_it_runs() -> None:
    small = kubernetes.pull({"tensorflow/tensorflow:2.21.0"})
    assert (
        small.amount < kubernetes.pull({"tensorflow/tensorflow:2.21.0", "tensorflow/tensorflow:2.21.0-gpu"}).amount
    )
    assert kubernetes.pull({"gpu-tools.example/cuda/runner:1"}) == small


def test_a_node_that_streams_images_starts_those_of_its_registries_sooner() -> None:
    streaming = pool(nodeConfig={"gcfsConfig": {"enabled": True}})
    (nodes,) = gcp_nodes.pools(Stack("test", {streaming.urn: streaming}))
    image = "tensorflow/tensorflow:2.21.0-gpu"
    streamed = kubernetes.pull({image}, nodes)
    assert kubernetes.pull({f"us-docker.pkg.dev/project/mirror/{image}"}, nodes) == streamed
    assert streamed.amount < kubernetes.pull({image}).amount
    for elsewhere in (f"quay.io/{image}", f"fake-docker.pkg.dev.example/{image}", f"localhost:5000/{image}"):
        assert kubernetes.pull({elsewhere, image}, nodes) == kubernetes.pull({image})


def test_clouds_say_nothing_of_each_other() -> None:
    for resource in declared_stack("aws-dev").resources.values():
        assert gcp.creation(resource) is None
    for resource in declared_stack("gcp-dev").resources.values():
        assert aws.creation(resource) is None
