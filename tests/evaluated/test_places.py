"""What a step with places costs and takes: one Job, at any of them."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from slipway.evaluated.cost import cost
from slipway.evaluated.model import Operation, RunCost
from slipway.evaluated.operations import ResourceDiff
from slipway.evaluated.places import moved_steps, range_words
from slipway.evaluated.schedule import JobDuration, schedule
from slipway.infra.kubernetes.labels import MOVES_ANNOTATION
from slipway.infra.review.stack import Resource, Stack
from slipway.preview.reruns import runs
from tests.support.costing import JOB, TODAY, Pool, job, stack
from tests.support.places import with_places

CPU = Pool("cpu", least=1, most=1, hourly=0.2)
SPOT = Pool("spot", least=0, most=1, hourly=1.0, gpus=1)
FLEX = Pool("flex", least=0, most=1, hourly=None, gpus=1)
BOUGHT = Pool("own", least=0, most=1, hourly=4.0, gpus=1)
POOLS = [CPU, SPOT, FLEX, BOUGHT]


def moved(pools: list[Pool] = POOLS, **rules: Any) -> Stack:
    """A step at one of the pools with GPUs, with a Job before it and one behind it."""
    prepare = job("prepare", "cpu", limit=600)
    places = [job(f"train-at-{pool.name}", pool.name, prepare, gpus=1, limit=7200) for pool in pools[1:]]
    probes = [job(f"probe-of-{pool.name}", pool.name, gpus=1) for pool in pools[1:-1]]
    known: dict[str, Any] = {"time_limit": 7200, **rules}
    jobs = with_places(job("train", "cpu", limit=8100, cpu="50m"), places, *probes, **known)
    return stack(pools, prepare, *jobs, job("predict", "cpu", jobs[-1], limit=60))


def run_of(found: Stack, **measured: JobDuration) -> RunCost:
    run = cost(found, today=TODAY, measured=measured).run
    assert run is not None
    return run


FAR_PROVIDER = "urn:pulumi:test::test::pulumi:providers:kubernetes::far"


def test_places_in_two_clusters_are_one_step() -> None:
    far = Pool("far", least=0, most=1, hourly=9.0, gpus=1, cluster="far")
    far_cpu = Pool("far-cpu", least=0, most=1, hourly=0.5, cluster="far")
    places = [
        job("train-at-spot", "spot", gpus=1),
        replace(job("train-at-far", "far", gpus=1), provider=FAR_PROVIDER),
    ]
    agent = replace(job("agent", "far-cpu", cpu="50m"), provider=FAR_PROVIDER)
    rules: dict[str, Any] = {"time_limit": 7200, "deadline": 3600}
    jobs = with_places(job("train", "cpu", cpu="50m"), places, agents=[agent], **rules)
    both = stack([CPU, SPOT, far, far_cpu], *jobs)
    (step,) = moved_steps(both).values()
    assert step.pools(both) == ["spot", "far"]
    assert step.dearest(both).resource.name == "train-at-far"
    assert [entry.resource.name for entry in step.agents] == ["agent"]
    # Its agent needs a node as long as its mover does, and is no step of its own.
    held = {work.pool.name: work.seconds for work in schedule(both, {}).work if work.resource is step.job}
    assert held.keys() == {"cpu", "far-cpu"}
    assert held["far-cpu"] >= 3600
    assert [entry.job for entry in run_of(both).steps] == ["train"]


def test_it_costs_what_the_cheapest_place_does_to_what_the_dearest_does() -> None:
    run = run_of(moved(deadline=5400, work=1800))
    step = next(entry for entry in run.steps if entry.job == "train")
    assert [entry.job for entry in run.steps] == ["prepare", "train", "predict"]
    took = step.range
    assert took is not None
    assert (took.least_place, took.most_place, took.unpriced) == ("spot", "own", ["flex"])
    assert took.least == pytest.approx(1.0 * (300 + 140 + 1800) / 3600)
    assert took.most == pytest.approx(4.0 * 5400 / 3600)
    # The sum of all Jobs is that of the longest time at the dearest place, and says what it does not know.
    assert step.dollars == pytest.approx(8.0)
    assert run.dollars is not None
    assert run.dollars > 8.0
    assert any("flex" in entry for entry in run.unknown)
    words = range_words(step.job, took)
    assert re.search(r"\$0\.62 .*spot.* to \$6\.00 .*own.*flex", words)


def test_nothing_is_paid_above_its_max_price() -> None:
    known = [CPU, SPOT, BOUGHT]
    capped = run_of(moved(known, max_price=2.0))
    step = next(entry for entry in capped.steps if entry.job == "train")
    assert step.range is not None
    assert step.range.most == pytest.approx(2.0)
    assert step.dollars == pytest.approx(2.0)
    # Where a price is not known, nobody can count up to it.
    assert next(entry for entry in run_of(moved(max_price=2.0)).steps if entry.job == "train").dollars == 8.0


def test_a_time_from_a_run_is_the_least() -> None:
    run = run_of(moved(), train=JobDuration(720, "measured"))
    took = next(entry.range for entry in run.steps if entry.range)
    assert (took.least_seconds, took.least_basis, took.most_seconds) == (720, "measured", 7200)


def test_a_base_of_before_sure_places_were_noted_is_read() -> None:
    old = moved()
    before = {
        urn: replace(entry, properties=without_sure(entry.properties)) for urn, entry in old.resources.items()
    }
    steps = moved_steps(replace(old, resources=before))
    assert [len(step.places) for step in steps.values()] == [3]
    assert not any(step.sure for step in steps.values())


def without_sure(properties: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(properties.get("metadata", {}))
    annotations = dict(metadata.get("annotations", {}))
    if moves := annotations.get(MOVES_ANNOTATION):
        rules = json.loads(moves)
        annotations[MOVES_ANNOTATION] = json.dumps({key: rules[key] for key in rules if key != "sure"})
    return {**properties, "metadata": {**metadata, "annotations": annotations}}


def test_a_change_of_its_image_is_one_run() -> None:
    before = moved()
    after = replace(before, resources={urn: with_image(entry) for urn, entry in before.resources.items()})
    compared = [
        ResourceDiff(before.resources[urn], entry, Operation.REPLACE if entry.type == JOB else None)
        for urn, entry in after.resources.items()
    ]
    found = {run.name: run.places for run in runs(before, after, compared)}
    assert found == {"prepare": [], "train": ["spot", "flex", "own"], "predict": []}


def with_image(resource: Resource) -> Resource:
    properties: dict[str, Any] = json.loads(json.dumps(resource.properties).replace("work:1", "work:2"))
    return replace(resource, properties=properties)
