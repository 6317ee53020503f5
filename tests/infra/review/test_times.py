"""How long nodes take to come up, and images to be pulled."""

from typing import Any

from slipway.infra.clouds.aws import nodes as aws_nodes
from slipway.infra.clouds.gcp import nodes as gcp_nodes
from slipway.infra.kubernetes import review as kubernetes
from slipway.infra.review.facts import Seconds
from slipway.infra.review.stack import Resource, Stack
from tests.support.reviewing import declared

NODE_POOL = "gcp:container/nodePool:NodePool"


def pool(**properties: Any) -> Resource:
    return declared(NODE_POOL, properties={"location": "us-central1-a", **properties})


def amount(given: Seconds | None) -> float | None:
    return given.amount if given else None


def test_gpus_take_longer_than_cpus() -> None:
    for nodes in (gcp_nodes, aws_nodes):
        plain, gpus = nodes.TIMES["boot", "cpu"], nodes.TIMES["boot", "gpu"]
        assert plain.amount < gpus.amount


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
