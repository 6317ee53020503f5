"""How long an update takes, and what it waits for."""

from dataclasses import replace

from slipway.infra.review.stack import Resource
from slipway.offline.evaluated.timeline import JobDuration, schedule, timeline
from slipway.offline.preview import tables
from tests.support.costing import JOB, Pool, job, stack

CREATION = {"cloud:k8s:Cluster": 400, "cloud:k8s:Pool": 100}

CPU = Pool("cpu", least=1, most=1, hourly=0.2)
GPU = Pool("gpu", least=0, most=1, hourly=3.6, gpus=1)


def test_the_critical_path_lists_each_leg() -> None:
    prepare = job("prepare", "cpu", limit=600)
    train = job("train", "gpu", prepare, gpus=1)
    quick = job("quick", "cpu", prepare, limit=60)
    found = timeline(
        stack([CPU, GPU], prepare, train, quick, creation=CREATION), {"train": JobDuration(1000, "rehearsed")}
    )
    assert [(leg.name, leg.type, leg.begins, leg.seconds) for leg in found.critical] == [
        ("here", "cloud:k8s:Cluster", 0, 400),
        ("cpu", "cloud:k8s:Pool", 400, 100),
        ("prepare", JOB, 500, 600),
        ("node of gpu", "node", 1100, 300),
        ("image of train", "image", 1400, 140),
        ("train", JOB, 1540, 1000),
    ]
    assert found.seconds == 2540
    assert found.limit == 500 + 600 + 3600
    assert [leg.basis for leg in found.critical[2:6:3]] == ["limit", "rehearsed"]
    assert found.critical[0].basis == "https://prices.example (2026-11-01)"


def test_rehearsed_times_are_marked_as_cpu_times() -> None:
    found = timeline(stack([CPU], job("one", "cpu")), {"one": JobDuration(10, "rehearsed")})
    assert any("CPU" in remark for remark in found.remarks)
    real = timeline(stack([CPU], job("one", "cpu")), {"one": JobDuration(10, "measured")})
    assert not any("CPU" in remark for remark in real.remarks)


def test_jobs_that_wait_for_one_another_are_pointed_out() -> None:
    one, two = job("one", "gpu", gpus=1), job("two", "gpu", gpus=1)
    found = timeline(stack([GPU], one, two, creation=CREATION))
    assert found.seconds == 500 + 2 * 3600
    assert any("wait for one another" in remark for remark in found.remarks)
    after = job("two", "gpu", one, gpus=1)
    assert not any("wait for" in remark for remark in timeline(stack([GPU], one, after)).remarks)


def test_unknown_durations_are_named() -> None:
    found = timeline(stack([CPU], job("one", "cpu")))
    assert "Not known how long, and counted as no time, on this path: Cluster, Pool." in found.remarks


def test_without_a_limit_there_is_no_maximum() -> None:
    found = timeline(stack([CPU], job("one", "cpu", limit=None)), {"one": JobDuration(10, "measured")})
    assert (found.seconds, found.limit) == (10, None)


def test_an_empty_stack_takes_no_time() -> None:
    assert timeline(stack([])).seconds == 0


def test_the_same_stack_gives_the_same_bytes() -> None:
    jobs = [job(f"job-{number}", "gpu", gpus=1) for number in range(20)]
    assert timeline(stack([GPU], *jobs)).model_dump_json() == timeline(stack([GPU], *jobs)).model_dump_json()


def test_a_leg_says_how_many_pods_its_job_has_and_how_many_run_at_once() -> None:
    wide = Pool("cpu", least=2, most=2, hourly=0.2)
    found = timeline(stack([wide], job("days", "cpu", pods=4)), {"days": JobDuration(600, "rehearsed")})
    [leg] = [leg for leg in found.critical if leg.type == JOB]
    assert (leg.pods, leg.at_once, leg.seconds) == (4, 2, 600)
    assert "days (10 min, 4 pods, 2 at a time)" in tables.path_words(found)
    one = timeline(stack([wide], job("days", "cpu")), {"days": JobDuration(600, "rehearsed")})
    assert "days (10 min)" in tables.path_words(one)


def held(resource: Resource) -> Resource:
    """The Job, which Pulumi does not wait for."""
    metadata = {
        **resource.properties["metadata"],
        "annotations": {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"},
    }
    return replace(resource, properties={**resource.properties, "metadata": metadata})


def test_an_update_ends_before_the_jobs_that_it_does_not_wait_for() -> None:
    gate = job("gate", "cpu", limit=60)
    train = held(job("train", "gpu", gate, limit=3600, gpus=1))
    predict = held(job("predict", "cpu", train, limit=600))
    runner = held(
        job(
            "runner",
            "cpu",
            train,
            predict,
            limit=9000,
            cpu="50m",
            labels={"app.kubernetes.io/name": "cluster-run"},
        )
    )
    whole = stack([CPU, GPU], gate, train, predict, runner, creation=CREATION)
    found = timeline(whole)
    assert found.seconds == timeline(stack([CPU, GPU], gate, creation=CREATION)).seconds
    assert any("3 Jobs" in remark for remark in found.remarks)
    # What lets them run is there as long as they are, and no longer.
    work = {entry.resource.name: entry for entry in schedule(whole, {}).work}
    assert (work["runner"].begins, work["runner"].ends) == (work["train"].begins, work["predict"].ends)
