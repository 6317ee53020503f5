"""Which node takes a Job, and when."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from slipway.evaluated.model import Outcome
from slipway.evaluated.schedule import JobDuration, Schedule, schedule
from slipway.infra.review.stack import Resource, Stack
from tests.support.costing import Pool, job, service, stack
from tests.support.reviewing import declared

CPU = Pool("cpu", least=1, most=1, hourly=0.2)
GPU = Pool("gpu", least=0, most=1, hourly=3.6, gpus=1)

GPU_IMAGE = 140
"""Seconds that the image of a GPU pod takes on a node that does not have it."""


def times(**seconds: float) -> Mapping[str, JobDuration]:
    return {name: JobDuration(amount, "rehearsed") for name, amount in seconds.items()}


def at(found: Schedule, name: str) -> tuple[float, float]:
    (span,) = (span for span in found.spans.values() if span.resource.name == name)
    return span.begins, span.ends


def stays(found: Schedule) -> list[tuple[str, int, float, float]]:
    return [(stay.pool.name, stay.number, stay.since, stay.until) for stay in found.stays]


def run(found: Stack, **seconds: float) -> Schedule:
    return schedule(found, times(**seconds))


def test_a_pod_without_a_node_waits_for_one_and_for_its_image() -> None:
    found = run(stack([GPU], job("train", "gpu", gpus=1)), train=1000)
    assert at(found, "train") == (0, 300 + GPU_IMAGE + 1000)
    assert stays(found) == [("gpu", 0, 0, 1440)]


def test_two_jobs_on_one_gpu_never_overlap() -> None:
    found = run(stack([GPU], job("one", "gpu", gpus=1), job("two", "gpu", gpus=1)), one=1000, two=500)
    assert at(found, "one") == (0, 1440)
    assert at(found, "two") == (1440, 1940)
    assert len(found.stays) == 1


def test_a_pool_that_can_grow_runs_them_side_by_side() -> None:
    two = Pool("gpu", least=0, most=2, hourly=3.6, gpus=1)
    found = run(stack([two], job("one", "gpu", gpus=1), job("two", "gpu", gpus=1)), one=1000, two=1000)
    assert at(found, "one") == at(found, "two") == (0, 1440)
    assert [number for _, number, _, _ in stays(found)] == [0, 1]


def test_jobs_that_fit_together_share_a_node() -> None:
    found = run(stack([CPU], job("one", "cpu", cpu="2"), job("two", "cpu", cpu="2")), one=100, two=100)
    assert at(found, "one")[0] == at(found, "two")[0] == 0


def test_no_node_is_booted_if_an_existing_one_is_free_earlier() -> None:
    slow = Pool("cpu", least=1, most=2, hourly=0.2, boot=1000)
    found = run(stack([slow], job("one", "cpu"), job("two", "cpu")), one=100, two=100)
    assert {work.number for work in found.work} == {0}


@pytest.mark.parametrize(("between", "boots"), [(500, 1), (900, 2)])
def test_an_idle_node_is_kept_for_ten_minutes(between: int, boots: int) -> None:
    train = job("train", "gpu", gpus=1)
    check = job("check", "cpu", train)
    predict = job("predict", "gpu", check, gpus=1)
    cpu_image = 26
    found = run(stack([CPU, GPU], train, check, predict), train=1000, check=between - cpu_image, predict=100)
    on_gpu = [stay for stay in found.stays if stay.pool.name == "gpu"]
    assert len(on_gpu) == boots
    assert at(found, "predict")[0] == 1440 + between
    waited = 0 if boots == 1 else 300 + GPU_IMAGE
    assert at(found, "predict")[1] == 1440 + between + waited + 100


def test_limits_and_measured_times_include_the_boot() -> None:
    found = schedule(stack([GPU], job("train", "gpu", gpus=1)), {"train": JobDuration(900, "measured")})
    assert at(found, "train") == (0, 900)
    assert at(schedule(stack([GPU], job("train", "gpu", gpus=1, limit=7200)), {}), "train") == (0, 7200)


def test_a_job_without_a_time_takes_its_limit() -> None:
    found = schedule(stack([CPU], job("one", "cpu", limit=7200)), {})
    assert at(found, "one") == (0, 7200)


def test_an_update_of_some_jobs_takes_no_time_for_the_rest() -> None:
    one, two = job("one", "gpu", gpus=1), job("two", "cpu")
    found = schedule(stack([CPU, GPU], one, two), {}, {two.urn: Outcome.RUNS})
    assert at(found, "two") == (0, 3600)
    assert [each.resource.name for each in found.work] == ["two"]


def test_a_component_is_created_before_its_children_and_after_its_dependencies() -> None:
    slow = job("slow", "cpu", limit=60)
    component = declared("slipway:a:Component", "whole", custom=False, dependencies=frozenset({slow.urn}))
    child = replace(job("child", "cpu", limit=5), parent=component.urn)
    assert at(run(stack([CPU], slow, component, child)), "child") == (60, 65)


def test_a_job_that_no_pool_takes_is_named() -> None:
    assert run(stack([CPU], job("lost", "gpu", gpus=1))).homeless == ["lost"]


def test_a_job_on_a_cluster_of_unknown_pools_is_not_said_to_have_none() -> None:
    found = run(stack([], job("somewhere", "cpu")))
    assert found.homeless == []
    assert found.unplaced == ["somewhere"]


def test_a_job_that_selects_labels_of_the_kubelet_has_a_pool() -> None:
    properties = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}}}
    selecting = replace(job("any", "cpu"), properties=properties)
    assert [work.pool.name for work in run(stack([CPU], selecting)).work] == ["cpu"]


def test_what_is_not_known_takes_no_time() -> None:
    silent = Pool("gpu", least=0, most=1, hourly=1, boot=None, gpus=1)
    found = run(stack([silent], job("train", "gpu", gpus=1), job("open", "gpu", gpus=1, limit=None)), train=10)
    assert at(found, "train") == (0, GPU_IMAGE + 10)
    assert at(found, "open") == (GPU_IMAGE + 10, GPU_IMAGE + 10)


def test_a_later_job_does_not_overtake_a_waiting_one() -> None:
    large, next_, small = job("large", "cpu", cpu="4"), job("next", "cpu", cpu="2"), job("small", "cpu", cpu="2")
    found = run(stack([CPU], large, next_, small), large=1000, next=100, small=100)
    done = at(found, "large")[1]
    assert at(found, "next")[0] == at(found, "small")[0] == done


WIDE = Pool("cpu", least=0, most=4, hourly=0.2)
CPU_IMAGE = 26


def test_the_pods_of_a_job_run_side_by_side_on_as_many_nodes_as_there_are() -> None:
    found = run(stack([WIDE], job("days", "cpu", pods=4)), days=100)
    assert at(found, "days") == (0, 300 + CPU_IMAGE + 100)
    assert sorted(number for _, number, _, _ in stays(found)) == [0, 1, 2, 3]
    small = run(stack([WIDE], job("days", "cpu", pods=4, cpu="1")), days=100)
    assert [number for _, number, _, _ in stays(small)] == [0]


@pytest.mark.parametrize("pods", [4, 5, 9])
def test_pods_without_room_are_in_the_time_of_those_that_have_some(pods: int) -> None:
    """A rehearsal has the same nodes, so they waited there, too."""
    found = run(stack([WIDE], job("days", "cpu", pods=pods)), days=100)
    assert at(found, "days")[1] == 300 + CPU_IMAGE + 100
    assert sorted(work.number for work in found.work) == [0, 1, 2, 3]


def test_a_time_limit_holds_for_all_pods_together() -> None:
    found = schedule(stack([WIDE], job("days", "cpu", pods=9)), {})
    assert at(found, "days") == (0, 3600)
    measured = schedule(stack([WIDE], job("days", "cpu", pods=9)), {"days": JobDuration(900, "measured")})
    assert at(measured, "days") == (0, 900)


def test_a_service_has_a_node_boot_and_stays_there() -> None:
    queue = service("queue", "cpu")
    found = run(stack([WIDE], queue, job("days", "cpu", queue)), days=100)
    ready = 300 + CPU_IMAGE
    assert at(found, "queue") == (0, ready)
    # The Job's three CPUs are there beside the service's one, and so is the image.
    assert at(found, "days") == (ready, ready + 100)
    assert found.kept == {("here", "cpu", 0)}


def test_a_job_that_does_not_fit_beside_a_service_takes_another_node_or_none() -> None:
    queue = service("queue", "cpu", cpu="2")
    found = run(stack([WIDE], queue, job("days", "cpu", queue)), days=100)
    assert [(number, since) for _, number, since, _ in stays(found)] == [(1, 300 + CPU_IMAGE)]
    assert run(stack([CPU], queue, job("days", "cpu", queue))).homeless == ["days"]
    assert run(stack([CPU], queue, service("other", "cpu", cpu="3"))).homeless == ["other"]


def test_an_update_of_some_jobs_finds_the_services_there() -> None:
    queue = service("queue", "cpu")
    days = job("days", "cpu", queue)
    found = schedule(stack([WIDE], queue, days), times(days=100), {days.urn: Outcome.RUNS})
    assert at(found, "days") == (0, 100)
    assert [(work.number, work.kept) for work in found.work] == [(0, True)]


TWO = Pool("gpu", least=0, most=2, hourly=3.6, gpus=4)


def test_pods_that_work_together_have_a_node_each() -> None:
    found = run(stack([TWO], job("train", "gpu", gpus=1, cpu="1", pods=2, together=True)), train=1000)
    assert at(found, "train") == (0, 300 + GPU_IMAGE + 1000)
    assert sorted(stays(found)) == [("gpu", 0, 0, 1440), ("gpu", 1, 0, 1440)]
    assert [(work.number, work.pods) for work in found.work] == [(0, 1), (1, 1)]


def test_they_hold_their_nodes_until_the_last_of_them_is_there() -> None:
    one = job("one", "gpu", gpus=1)
    found = run(stack([TWO], one, job("train", "gpu", gpus=4, pods=2, together=True)), one=1000, train=500)
    # One node is free at once, the other when the Job before is through; the work begins with that.
    assert at(found, "train") == (1440, 1940)
    assert sorted(work.ends for work in found.work if work.resource.name == "train") == [1940, 1940]
    assert min(work.begins for work in found.work if work.resource.name == "train") == 0


def test_a_pool_without_a_node_for_each_never_runs_them() -> None:
    found = run(stack([GPU], job("train", "gpu", gpus=1, pods=2, together=True)), train=1000)
    assert (found.homeless, found.work) == (["train"], [])


def held(resource: Resource) -> Resource:
    """The Job, which Pulumi does not wait for."""
    metadata = {
        **resource.properties["metadata"],
        "annotations": {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"},
    }
    return replace(resource, properties={**resource.properties, "metadata": metadata})


def test_what_lets_jobs_run_is_there_as_long_as_they_are() -> None:
    train = held(job("train", "gpu", limit=3600, gpus=1))
    predict = held(job("predict", "cpu", train, limit=600))
    labels = {"app.kubernetes.io/name": "cluster-run"}
    runner = held(job("runner", "cpu", train, predict, limit=9000, cpu="50m", labels=labels))
    found = schedule(stack([CPU, GPU], train, predict, runner), {})
    work = {entry.resource.name: entry for entry in found.work}
    assert (work["runner"].begins, work["runner"].ends) == (work["train"].begins, work["predict"].ends)
