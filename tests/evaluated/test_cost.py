"""What a stack costs, by hand."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date

import pytest

from slipway.evaluated.cost import common_basis, cost, difference
from slipway.evaluated.model import Outcome, Preview, RunCost, StackPreview
from slipway.evaluated.schedule import JobDuration
from slipway.infra.review.contract import reviewed
from slipway.infra.review.facts import Charge, Source
from slipway.infra.review.stack import Resource, Stack
from slipway.preview import tables
from tests.support.costing import CLUSTER, TODAY, Pool, job, price, service, stack
from tests.support.reviewing import REVIEWS, declared, declared_stack

DISK = Charge("", "disk", price(0.1, "GiB-month"), quantity=73)
"""7.30 dollars a month: a cent an hour."""

CPU = Pool("cpu", least=1, most=2, hourly=0.2)
GPU = Pool("gpu", least=0, most=1, hourly=3.6, gpus=1, spare=(DISK,))
CONTROL_PLANE = Charge(CLUSTER.urn, "control plane", price(0.1))
STORE = Charge(CLUSTER.urn, "storage", price(0.026, "GiB-month"), metered=True)

PREPARE = job("prepare", "cpu", limit=600)
TRAIN = job("train", "gpu", PREPARE, gpus=1)


def small(*pools: Pool, charges: tuple[Charge, ...] = (CONTROL_PLANE, STORE)) -> Stack:
    return stack(pools or (CPU, GPU), PREPARE, TRAIN, charges=charges)


def test_idle_and_maximum_cost() -> None:
    found = cost(small(), today=TODAY)
    assert found.idle_hourly == pytest.approx(0.1 + 0.2)
    assert found.idle_monthly == pytest.approx(0.3 * 730)
    assert found.most_hourly == pytest.approx(0.1 + 2 * 0.2 + 3.6 + 0.01)


def run(stack: Stack, jobs: Mapping[str, Outcome] | None = None, **measured: JobDuration) -> RunCost:
    found = cost(stack, today=TODAY, jobs=jobs, measured=measured).run
    assert found is not None
    return found


def test_a_run_costs_boot_work_and_ten_idle_minutes() -> None:
    found = run(small(), train=JobDuration(1000, "rehearsed"))
    # 300 s boot, 140 s image, 1,000 s of work, 600 s until the autoscaler takes the node back; and the 600 s of
    # `prepare` on the node that is there, and paid, at all times.
    anyway = 600 / 3600 * 0.2
    assert found.dollars == pytest.approx((300 + 140 + 1000 + 600) / 3600 * 3.61 + anyway)
    assert found.paid_anyway == pytest.approx(anyway)
    assert found.most == pytest.approx((3600 + 600) / 3600 * 3.61 + anyway)
    assert found.unknown == []
    steps = {
        step.job: (step.pool, step.basis, step.seconds, step.dollars, step.paid_anyway) for step in found.steps
    }
    assert steps["prepare"] == ("cpu", "limit", 600, pytest.approx(anyway), True)
    assert steps["train"] == ("gpu", "rehearsed", 1440, pytest.approx(1440 / 3600 * 3.61), False)


def test_nodes_of_another_stack_cost_what_jobs_hold_of_them_and_nothing_else() -> None:
    own = small(charges=())
    elsewhere = replace(
        own,
        pools=[replace(pool, stack="platform") for pool in own.pools],
        charges=[],
        charges_elsewhere=[charge for charge in own.charges if charge.pool],
    )
    found = cost(elsewhere, today=TODAY)
    assert (found.idle_hourly, found.most_hourly, found.lines) == (None, None, [])
    assert (found.least_nodes, found.most_nodes) == (0, 0)
    assert run(elsewhere) == run(own).model_copy(
        update={"steps": [step.model_copy(update={"stack": "platform"}) for step in run(own).steps]}
    )
    assert run(own).dollars
    preview = StackPreview(stack="team", cost=found)
    assert tables.elsewhere_words(preview) == [
        "The Jobs of team run on nodes of platform, in whose cost these are: pools cpu, gpu."
    ]
    assert tables.cost_words(preview)[0].startswith("All Jobs once: $")
    assert tables.columns(Preview(stacks=[preview]))[tables.IDLE] == ["$0.00"]
    assert tables.elsewhere_words(StackPreview(stack="own", cost=cost(own, today=TODAY))) == []


def test_only_rerun_jobs_count_in_the_cost_of_a_change() -> None:
    found = run(small(), {TRAIN.urn: Outcome.RUNS})
    assert found.dollars == found.most == pytest.approx((3600 + 600) / 3600 * 3.61)
    assert (found.paid_anyway, [step.job for step in found.steps]) == (0, ["train"])
    assert cost(small(), today=TODAY, jobs={}).run is None


def test_a_job_that_finds_its_result_still_asks_for_its_node() -> None:
    found = run(small(), {TRAIN.urn: Outcome.RESUMES})
    assert found.dollars == found.most == pytest.approx((300 + 140 + 600) / 3600 * 3.61)
    assert found.steps[0].basis == "found"


def test_parallel_jobs_on_a_permanent_node_are_billed_once() -> None:
    one, two = (job(name, "cpu", limit=3600, cpu="1") for name in ("one", "two"))
    found = run(stack([replace(CPU, most=1)], one, two))
    assert found.dollars == found.paid_anyway == pytest.approx(0.2)


def test_a_second_node_beside_a_permanent_one_is_billed() -> None:
    one, two = job("one", "cpu", limit=3600), job("two", "cpu", limit=3600)
    found = run(stack([CPU], one, two))
    assert found.paid_anyway == pytest.approx(0.2)
    assert found.dollars == pytest.approx(0.2 + (3600 + 600) / 3600 * 0.2)


def test_all_stacks_use_one_basis_or_time_limits() -> None:
    real, here = JobDuration(1, "measured"), JobDuration(1, "rehearsed")
    assert common_basis({"a": {"x": real}, "b": {"y": real}}, {"a": ["x"], "b": ["y"]}) == "measured"
    assert common_basis({"a": {"x": here}, "b": {"y": here}}, {"a": ["x"], "b": ["y"]}) == "rehearsed"
    assert common_basis({"a": {"x": here}, "b": {"y": real}}, {"a": ["x"], "b": ["y"]}) == "limit"
    assert common_basis({"a": {"x": real}, "b": {}}, {"a": ["x"], "b": ["y"]}) == "limit"
    assert common_basis({"a": {"x": real}, "b": {}}, {"a": ["x"], "b": []}) == "measured", "nothing of b runs"
    assert common_basis({}, {}) == "limit"


def test_nodes_are_counted() -> None:
    found = cost(small(), today=TODAY)
    assert (found.least_nodes, found.most_nodes) == (1, 3)
    more = difference(found, cost(small(replace(CPU, least=3, most=3), GPU), today=TODAY))
    assert (more.least_nodes, more.most_nodes) == (2, 1)


@pytest.mark.parametrize(("amount", "written"), [(0.5, "$0.50"), (0.026, "$0.026"), (2, "$2.00")])
def test_metered_prices_show_cents(amount: float, written: str) -> None:
    metered = replace(STORE, price=price(amount, "GiB-month"))
    (line,) = [line for line in cost(small(charges=(metered,)), today=TODAY).lines if line.metered]
    assert line.metered_price == f"{written} per GiB-month"


def test_an_unknown_price_is_never_zero() -> None:
    found = cost(small(CPU, replace(GPU, hourly=None)), today=TODAY)
    assert found.unknown == ["gpu: machine"]
    assert found.most_hourly == pytest.approx(0.1 + 0.4 + 0.01)
    (line,) = [line for line in found.lines if (line.resource, line.what) == ("gpu", "machine")]
    assert (line.hourly, line.idle, line.most) == (None, None, None)


def test_a_missing_price_makes_the_sum_a_lower_bound() -> None:
    # The disk of the GPU pool has a price, its machine has none.
    found = run(small(CPU, replace(GPU, hourly=None)))
    assert found.dollars == pytest.approx((3600 + 600) / 3600 * 0.01 + 600 / 3600 * 0.2)
    assert found.unknown == ["the price of machine (pool gpu)"]
    nothing = run(small(CPU, replace(GPU, hourly=None, spare=())))
    assert nothing.dollars == pytest.approx(600 / 3600 * 0.2)
    assert nothing.unknown == ["the price of pool gpu"]
    assert {step.job: step.dollars for step in nothing.steps} == {"prepare": pytest.approx(1 / 30), "train": None}


def test_without_any_price_there_is_no_sum() -> None:
    found = cost(small(replace(CPU, hourly=None), replace(GPU, hourly=None, spare=()), charges=()), today=TODAY)
    assert (found.idle_hourly, found.idle_monthly, found.most_hourly) == (None, None, None)


def test_metered_charges_are_not_in_sums() -> None:
    unpriced = Charge(CLUSTER.urn, "samples", None, metered=True)
    found = cost(small(charges=(CONTROL_PLANE, STORE, unpriced)), today=TODAY)
    assert found.idle_hourly == pytest.approx(0.3)
    assert found.unknown == []
    assert [(line.what, line.idle, line.metered_price) for line in found.lines if line.metered] == [
        ("storage", None, "$0.026 per GiB-month"),
        ("samples", None, "unknown"),
    ]


def test_without_jobs_there_is_no_run() -> None:
    assert cost(stack([CPU]), today=TODAY).run is None


def test_the_cost_of_jobs_without_a_pool_is_unknown() -> None:
    found = run(stack([CPU], job("train", "nowhere")))
    assert (found.dollars, found.unknown) == (None, ["a pool for train"])


def test_a_job_without_a_limit_has_no_maximum_cost() -> None:
    endless = job("train", "gpu", gpus=1, limit=None)
    unknown = run(stack([GPU], endless))
    assert (unknown.most, unknown.unknown) == (None, ["a time limit of train"])
    found = run(stack([GPU], endless), train=JobDuration(3000, "measured"))
    assert found.dollars == pytest.approx(3600 / 3600 * 3.61)
    assert (found.most, found.unknown) == (None, [])
    assert found.steps[0].basis == "measured"


def test_the_cost_on_one_of_several_pools_of_a_resource_is_unknown() -> None:
    found = run(stack([GPU, GPU], job("train", "gpu", gpus=1)))
    assert (found.dollars, found.steps[0].dollars) == (None, None)


def test_the_cost_on_existing_nodes_is_unknown() -> None:
    own = Charge(CLUSTER.urn, "your own nodes, not priced", None)
    found_there = replace(
        stack([], job("work", "cpu"), charges=[own]), pools=[replace(CPU.nodes, urn="", min_nodes=2)]
    )
    found = run(found_there)
    assert (found.dollars, found.steps[0].dollars) == (None, None)


def test_reserved_nodes_are_paid_anyway() -> None:
    reserved = Charge(GPU.declared.urn, "reserved", price(9), idle=1, most=1, pool=GPU.declared.urn)
    reserving = stack([replace(GPU, bought=[reserved])], job("train", "gpu", gpus=1))
    assert cost(reserving, today=TODAY).idle_hourly == 9
    assert run(reserving).dollars == run(reserving).paid_anyway == pytest.approx((3600 + 600) / 3600 * 9)


def test_a_larger_pool_raises_the_maximum_cost_only() -> None:
    base = cost(small(), today=TODAY)
    head = cost(small(CPU, replace(GPU, most=3)), today=TODAY)
    found = difference(base, head)
    assert found.idle_hourly == pytest.approx(0)
    assert found.most_hourly == pytest.approx(2 * 3.61)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_price_known_on_one_side_only_makes_the_difference_unknown(swapped: bool) -> None:
    known, unknown = (
        cost(small(CPU, replace(GPU, hourly=hourly, least=1)), today=TODAY) for hourly in (3.6, None)
    )
    found = difference(unknown, known) if swapped else difference(known, unknown)
    assert (found.idle_hourly, found.idle_monthly, found.most_hourly) == (None, None, None)


def test_unknown_prices_on_both_sides_cancel_out() -> None:
    base, head = (
        cost(small(replace(CPU, least=least, most=3), replace(GPU, hourly=None)), today=TODAY) for least in (1, 2)
    )
    found = difference(base, head)
    assert (found.idle_hourly, found.idle_monthly) == (pytest.approx(0.2), pytest.approx(0.2 * 730))
    assert found.most_hourly == pytest.approx(0)


def test_more_units_without_a_price_make_the_difference_unknown() -> None:
    base, head = (cost(small(CPU, replace(GPU, hourly=None, most=most)), today=TODAY) for most in (1, 2))
    found = difference(base, head)
    assert found.idle_hourly == 0, "the pool is at 0 on both sides"
    assert found.most_hourly is None


def test_the_same_unpriced_charges_make_no_difference() -> None:
    unpriced = stack([replace(CPU, hourly=None)], PREPARE)
    found = difference(cost(unpriced, today=TODAY), cost(unpriced, today=TODAY))
    assert (found.idle_hourly, found.most_hourly) == (0, 0)


@pytest.mark.parametrize(("today", "stale"), [(date(2027, 1, 30), False), (date(2027, 1, 31), True)])
def test_sources_older_than_90_days_are_stale(today: date, stale: bool) -> None:
    found = cost(small(), today=today)
    assert found.stale == (["https://prices.example (2026-11-01)"] if stale else [])
    assert {line.as_of for line in found.lines} == {"2026-11-01"}


def test_a_source_without_a_date_is_stale_on_the_day_it_was_read() -> None:
    read = Source("https://quotes.example", TODAY, dated=False)
    found = cost(small(charges=(Charge(CLUSTER.urn, "quoted", replace(price(1), source=read)),)), today=TODAY)
    assert found.stale == ["https://quotes.example (undated, read 2026-11-21)"]
    assert {line.as_of for line in found.lines} == {"2026-11-01", "undated, read 2026-11-21"}


def test_unused_sources_are_not_stale() -> None:
    old = Charge(CLUSTER.urn, "old", replace(price(1), source=Source("https://old.example", date(2020, 1, 1))))
    assert cost(small(charges=(old,)), today=TODAY).stale == ["https://old.example (2020-01-01)"]
    assert cost(small(), today=TODAY).stale == []


def test_the_cheapest_stack_costs_what_a_manual_sum_says() -> None:
    """gcp-dev in us-central1, with the rows of infra/clouds/gcp/data/prices.toml."""
    e2_standard_4 = 4 * 0.021812 + 16 * 0.002924
    boot_disk = 100 * 0.1 / 730
    spot_t4_node = (4 * 0.01115 + 15 * 0.001494) + 0.175 + boot_disk
    spot_h100_node = 6.3262 + boot_disk
    nat, address, control_plane = 0.0014, 0.005, 0.1
    found = cost(declared_stack("gcp-dev"), today=TODAY)
    idle = control_plane + address + nat + e2_standard_4 + boot_disk
    assert found.idle_hourly == pytest.approx(idle)
    assert found.most_hourly == pytest.approx(
        idle + (e2_standard_4 + boot_disk) + spot_t4_node + spot_h100_node + 3 * nat
    )
    # Each GPU has two Jobs of 4 h in a row. A second CPU node has one of three packages and the preparation.
    assert found.run is not None
    added = (8 + 1 / 6) * (spot_t4_node + spot_h100_node) + (3 + 1 / 6) * (e2_standard_4 + boot_disk)
    assert found.run.dollars == found.run.most == pytest.approx(added + found.run.paid_anyway)
    assert found.run.paid_anyway == pytest.approx((0.5 + 1 + 1 + 2) * (e2_standard_4 + boot_disk))
    assert found.unknown == []


def test_an_unpriced_pool_of_a_real_stack_is_named() -> None:
    bought = declared("aws:rds/instance:Instance", "database")
    real = declared_stack("aws-dev")
    found = cost(reviewed(replace(real, resources={**real.resources, bought.urn: bought}), REVIEWS), today=TODAY)
    assert found.unknown == ["database: Instance, whose price is not recorded"]


SPARE = Pool("cpu", least=0, most=3, hourly=0.2)
QUEUE = service("queue", "cpu")


def test_a_service_keeps_a_node_of_a_pool_that_would_have_none() -> None:
    without, with_one = (cost(stack([SPARE], *each), today=TODAY) for each in ([], [QUEUE]))
    assert (without.idle_hourly, without.least_nodes) == (0, 0)
    assert (with_one.idle_hourly, with_one.least_nodes) == (pytest.approx(0.2), 1)
    assert with_one.most_hourly == without.most_hourly
    [kept] = with_one.kept
    assert (kept.pool, kept.services, kept.nodes, kept.monthly) == ("cpu", ["queue"], 1, pytest.approx(146))
    words = tables.cost_words(StackPreview(stack="it", cost=with_one))
    assert "queue stays, so the pool cpu keeps 1 node for $146.00 a month while no Job runs." in words
    assert difference(without, with_one).idle_monthly == pytest.approx(146)


def test_a_service_on_a_node_that_is_there_anyway_costs_nothing_more() -> None:
    found = cost(stack([CPU], QUEUE, service("other", "cpu")), today=TODAY)
    assert (found.idle_hourly, found.least_nodes, found.kept) == (pytest.approx(0.2), 1, [])
    two = cost(stack([CPU], service("queue", "cpu", cpu="3"), service("other", "cpu", cpu="3")), today=TODAY)
    assert [(each.services, each.nodes) for each in two.kept] == [(["queue", "other"], 1)]


def test_a_job_beside_a_service_runs_on_a_node_that_is_paid_anyway() -> None:
    days = job("days", "cpu", QUEUE, limit=3600)
    found = run(stack([SPARE], QUEUE, days))
    assert (found.dollars, found.paid_anyway) == (pytest.approx(0.2), pytest.approx(0.2))
    assert [step.paid_anyway for step in found.steps] == [True]


def test_workers_cost_the_nodes_that_they_are_on() -> None:
    days = job("days", "cpu", limit=3000, pods=3)
    found = run(stack([SPARE], days))
    assert found.dollars == pytest.approx(3 * 0.2)
    [step] = found.steps
    assert (step.nodes, step.seconds, step.dollars) == (3, 3000, pytest.approx(0.5))
    one_node = run(stack([SPARE], job("days", "cpu", limit=3000, pods=3, cpu="1")))
    assert one_node.dollars == pytest.approx(0.2)
    # Two at a time, and the third after them, as in the rehearsal.
    narrow = run(stack([Pool("cpu", 2, 2, 0.2)], days), days=JobDuration(600, "rehearsed"))
    assert narrow.dollars == pytest.approx(2 * (600 + 26) / 3600 * 0.2)


def nightly(*jobs: Resource, cron: str = "0 3 * * *") -> Resource:
    """A CronJob that runs these Jobs again."""
    spec = {"schedule": cron, "timeZone": "Europe/Berlin"}
    needed = frozenset(each.urn for each in jobs)
    return declared("kubernetes:batch/v1:CronJob", "nightly", {"spec": spec}, dependencies=needed)


def test_what_runs_by_itself_costs_its_jobs_as_often_as_it_runs() -> None:
    days = job("days", "cpu", limit=3000)
    without, found = (
        cost(stack([SPARE], days, job("other", "cpu"), *more), today=TODAY) for more in ([], [nightly(days)])
    )
    [scheduled] = found.scheduled
    assert (scheduled.name, scheduled.cron, scheduled.time_zone) == ("nightly", "0 3 * * *", "Europe/Berlin")
    assert scheduled.times == pytest.approx(365.25 / 12)
    # Fifty minutes, and ten until the node goes away.
    assert scheduled.dollars == pytest.approx(0.2)
    assert scheduled.monthly == pytest.approx(0.2 * 365.25 / 12)
    preview = StackPreview(stack="it", cost=found, difference=difference(without, found))
    assert (
        "nightly runs by itself (0 3 * * * Europe/Berlin) for $0.20 each time, its Jobs at their time limits, "
        "30.4 times a month: $6.09 a month beside that." in tables.cost_words(preview)
    )
    assert preview.difference is not None
    assert preview.difference.scheduled_monthly == pytest.approx(scheduled.monthly)


def test_what_a_scheduled_run_has_anyway_is_not_counted_again() -> None:
    prepare = job("prepare", "cpu", limit=3600)
    [scheduled] = cost(stack([CPU], prepare, nightly(prepare, cron="*/30 * * * 1-5")), today=TODAY).scheduled
    assert (scheduled.dollars, scheduled.paid_anyway) == (pytest.approx(0.2), pytest.approx(0.2))
    assert scheduled.monthly == pytest.approx(0)
    assert cost(stack([CPU], prepare, nightly()), today=TODAY).scheduled == []
    measured = {"prepare": JobDuration(360, "measured")}
    [quicker] = cost(stack([CPU], prepare, nightly(prepare)), today=TODAY, measured=measured).scheduled
    assert quicker.dollars == pytest.approx(0.02)
