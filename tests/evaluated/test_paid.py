"""What GPU nodes are paid for beside the work, by hand."""

import pytest

from slipway.evaluated.cost import cost
from slipway.evaluated.model import Outcome, Paid, PaidUseful
from slipway.evaluated.paid import paid_words
from slipway.evaluated.schedule import JobDuration
from slipway.infra.kubernetes.labels import NAME
from slipway.infra.placed import STORE_GATE
from slipway.infra.review.stack import Resource
from tests.support.costing import TODAY, Pool, job, stack

GPU = Pool("gpu", least=0, most=2, hourly=3.6, gpus=1)
TRAIN = job("train", "gpu", gpus=1)


def paid(*jobs: Resource, pool: Pool = GPU, **measured: JobDuration) -> PaidUseful | None:
    run = cost(stack([pool], *jobs), today=TODAY, measured=measured).run
    assert run is not None
    return run.paid


def known(*jobs: Resource, pool: Pool = GPU, **measured: JobDuration) -> PaidUseful:
    of_run = paid(*jobs, pool=pool, **measured)
    assert of_run is not None
    return of_run


def causes(of: Paid) -> dict[str, float]:
    return {part.cause: round(part.seconds, 3) for part in of.parts}


def took(seconds: float, **parts: float) -> JobDuration:
    return JobDuration(seconds, "rehearsed", parts)


def test_an_hour_of_training_pays_for_boot_image_and_the_node_that_is_kept() -> None:
    run = known(TRAIN, train=took(3600))

    assert causes(run) == {"boot": 300, "image": 140, "program": 3600, "kept": 600}
    assert (run.paid, run.useful, run.at_least) == (4640, 3600, False)
    assert run.ratio == pytest.approx(4640 / 3600)
    assert (run.dollars, run.useful_dollars) == (pytest.approx(4.64), pytest.approx(3.6))
    assert all(part.source for part in run.parts if part.cause != "program")
    assert "1.29" in paid_words(run)


def test_the_parts_of_a_rehearsal_share_the_time_of_the_job() -> None:
    run = known(TRAIN, train=took(100, inputs=1, program=8, publish=1, unheard_of=5))

    assert causes(run) == {"boot": 300, "image": 140, "inputs": 10, "program": 80, "publish": 10, "kept": 600}


def test_a_gate_counts_for_its_step_and_a_node_between_two_steps_for_the_first() -> None:
    gate = job("gate", "gpu", gpus=1, labels={NAME: STORE_GATE})
    train = job("train", "gpu", gate, gpus=1)
    chart = job("chart", "cpu", train)
    report = job("report", "gpu", chart, gpus=1)
    cpu = Pool("cpu", least=1, most=1, hourly=0.2)
    times = {"gate": took(50), "train": took(1000), "chart": took(120), "report": took(30)}
    run = cost(stack([GPU, cpu], gate, train, chart, report), today=TODAY, measured=times).run

    assert run is not None
    assert run.paid is not None
    first, two = run.paid.steps
    # The image of `chart` on the other node, too.
    assert (first.job, causes(first)) == (
        "train",
        {"boot": 300, "image": 140, "gate": 50, "program": 1000, "kept": 120 + 26},
    )
    assert (two.job, causes(two)) == ("report", {"program": 30, "kept": 600})
    assert run.paid.paid == first.paid + two.paid


def test_two_nodes_that_work_together_are_paid_twice_and_pods_on_one_node_once() -> None:
    together = known(job("train", "gpu", gpus=1, pods=2, together=True), train=took(1000))
    assert causes(together) == {"boot": 600, "image": 280, "program": 2000, "kept": 1200}
    assert together.steps[0].nodes == 2

    shared = Pool("gpu", least=0, most=1, hourly=3.6, gpus=2, cpu=8000)
    one_node = known(job("train", "gpu", gpus=1, pods=2), pool=shared, train=took(1000))
    assert causes(one_node) == {"boot": 300, "image": 140, "program": 1000, "kept": 600}


def test_time_limits_say_the_least_and_a_gate_without_a_time_is_left_out() -> None:
    gate = job("gate", "gpu", gpus=1, labels={NAME: STORE_GATE})
    run = known(gate, job("train", "gpu", gate, gpus=1))

    assert run.at_least
    assert causes(run) == {"boot": 300, "image": 140, "program": 3600, "kept": 600}
    assert "≥" in paid_words(run)
    assert f"{1 + 1040 / 3600:.2f}" in paid_words(run), "if it took an hour"


def test_a_step_that_finds_its_result_pays_for_nothing_useful() -> None:
    of_run = cost(stack([GPU], TRAIN), today=TODAY, jobs={TRAIN.urn: Outcome.RESUMES}).run
    assert of_run is not None
    assert of_run.paid is not None
    assert (of_run.paid.ratio, causes(of_run.paid)) == (None, {"boot": 300, "image": 140, "kept": 600})
    assert "nothing useful" in paid_words(of_run.paid)


def test_nodes_that_are_there_anyway_and_nodes_without_gpus_are_not_counted() -> None:
    assert paid(TRAIN, pool=Pool("gpu", least=1, most=1, hourly=3.6, gpus=1), train=took(10)) is None
    assert paid(job("prepare", "cpu"), pool=Pool("cpu", least=0, most=1, hourly=0.2)) is None
    unpriced = known(TRAIN, pool=Pool("gpu", least=0, most=1, hourly=None, gpus=1), train=took(10))
    assert unpriced.dollars is None
