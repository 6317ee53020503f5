"""Policies, previews, diagrams and rehearsals agree on where a pod can go."""

from dataclasses import replace
from datetime import date

from slipway.evaluated.diagram import NOWHERE, diagram
from slipway.evaluated.schedule import schedule
from slipway.evaluated.scheduling import PodRequest, obstacles, suitable
from slipway.evaluated.workloads import workload_of
from slipway.infra.platform import Node, Resources
from slipway.policies.check import check
from tests.support.costing import Pool, job, stack


def test_every_placement_refuses_a_job_of_640_cpus() -> None:
    large = job("large", "cpu", cpu="640")
    found = stack([Pool("cpu", least=1, most=1, hourly=None)], large)
    assert workload_of(large, found).pool(found) is None
    assert "unschedulable-pod" in {each.policy for each in check(found, {}, date(2026, 11, 22))[0]}
    assert schedule(found, {}).homeless == ["large"]
    assert NOWHERE in diagram(found)
    (pool,) = found.pools
    node = Node(pool.cluster, pool.name, pool.labels, pool.taints, pool.allocatable, count=1)
    request = workload_of(large, found).request
    assert request is not None
    assert "Insufficient cpu (requested 640000m" in obstacles(request, [node])["cpu"]


def test_a_pod_that_could_use_either_pool_goes_to_the_one_without_gpus() -> None:
    pools = [Pool("gpu", least=0, most=1, hourly=None, gpus=1), Pool("cpu", least=0, most=1, hourly=None)]
    pod = PodRequest("here", {}, [], Resources(cpu=1000, memory=1024))
    assert [each.name for each in suitable(pod, [pool.nodes for pool in pools])] == ["cpu", "gpu"]


def test_a_pod_goes_to_the_pool_that_is_known_to_have_the_labels_that_it_selects() -> None:
    """Of nodes that exist already, the stack file names some labels: those of another pool may have these, too."""
    linux = replace(
        Pool("linux", least=1, most=1, hourly=None).nodes, urn="", labels={"kubernetes.io/os": "linux"}
    )
    spare = replace(Pool("spare", least=1, most=1, hourly=None).nodes, urn="")
    pod = PodRequest("here", {"pool": "spare"}, [], Resources(cpu=1000, memory=1024))
    assert [pool.name for pool in suitable(pod, [linux, spare])] == ["spare", "linux"]
