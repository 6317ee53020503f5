"""Steps that cannot be those of one pipeline, whichever way they are declared."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from infra.pipelines.contract import (
    Best,
    Command,
    Items,
    ServiceDeclaration,
    ServiceSettings,
    StepDeclaration,
    StepSettings,
    Variant,
)
from infra.pipelines.python_file import step_misfits
from infra.pipelines.results import File, Number

PLACE = StepSettings(pool="cpu")
ACCURACY = Number(name="accuracy", title="Accuracy", path="metrics.json", select="/accuracy")


def step(name: str, **reads: str) -> StepDeclaration:
    return StepDeclaration(name, None, PLACE, ["x"], inputs=reads, command=Command("workloads/churn"))


def variant(name: str, of: str = "train", **reads: str) -> StepDeclaration:
    return replace(step(name, **reads), variant=Variant(of, {"trees": 1}))


PREPARE = step("prepare")
TRAIN = [variant("train-1", prepare="prepare"), variant("train-2", prepare="prepare")]


@pytest.mark.parametrize(
    "steps",
    [
        [PREPARE, *TRAIN, step("report", train="train")],
        [PREPARE, *TRAIN, step("report", one="train-1")],
        [PREPARE, *TRAIN, replace(step("report"), after=["train"])],
        [PREPARE, replace(TRAIN[0], results=(ACCURACY,), best=Best("accuracy"))],
        [replace(PREPARE, module="workloads.churn.prepare", command=None)],
    ],
)
def test_steps_that_fit(steps: Sequence[StepDeclaration]) -> None:
    assert list(step_misfits(steps)) == []


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([PREPARE, PREPARE], "two steps are called `prepare`"),
        ([PREPARE, *TRAIN, step("train")], "two steps are called `train`"),
        ([PREPARE, *TRAIN, step("train-2")], "two steps are called `train-2`"),
        ([replace(PREPARE, command=None)], "needs either a `module` or a `command`"),
        ([replace(PREPARE, module="workloads.churn.x")], "needs either a `module` or a `command`"),
        ([step("train", data="prepare")], "`train` needs `prepare`, and there is no such step"),
        ([step("a", b="b"), step("b", a="a")], "the steps `a` and `b` wait for one another"),
        ([replace(PREPARE, after=["train"]), *TRAIN], "wait for one another"),
        ([replace(PREPARE, after=["train-1"]), *TRAIN], "wait for one another"),
        ([PREPARE, step("train", packages="prepare")], "an input `packages`"),
        ([replace(PREPARE, results=(ACCURACY.model_copy(update={"name": "runs"}),))], "a result `runs`"),
        ([replace(PREPARE, results=(ACCURACY, ACCURACY))], "2 results `accuracy`"),
        ([replace(PREPARE, arguments=["{outptu}"])], "refers to `outptu`"),
        ([replace(PREPARE, environment={"X": "{x.y}"})], "refers to `x.y`"),
        ([replace(PREPARE, arguments=["{output}", "}"])], "a brace that belongs to no reference"),
        (
            [PREPARE, *TRAIN, replace(step("x", train="train"), arguments=["{train}/m"])],
            "reads `train`, which is several",
        ),
        (
            [PREPARE, *TRAIN, replace(step("x", train="train"), environment={"MODEL": "{train}"})],
            "has `train`, which is several steps, in the variable `MODEL`",
        ),
        ([replace(PREPARE, best=Best("accuracy"))], "its best by `accuracy`, which is no `Number`"),
        (
            [replace(PREPARE, results=(File(name="model", title="M", path="m"),), best=Best("model"))],
            "its best by `model`, which is no `Number`",
        ),
    ],
)
def test_steps_that_do_not_fit_are_told_by_name(steps: Sequence[StepDeclaration], reason: str) -> None:
    (found,) = step_misfits(steps)
    assert reason in found


def test_all_reasons_are_told_at_once() -> None:
    assert len(list(step_misfits([PREPARE, PREPARE, step("x", a="b"), step("y", store="prepare")]))) == 3


QUEUE = ServiceDeclaration("queue", "valkey", ["valkey-server"], 6379, ServiceSettings(pool="cpu"))
DAYS = replace(
    step("days", prepare="prepare"),
    items=Items("{prepare}/*.csv", queue="queue"),
    connects=["queue"],
    workers=4,
)
ORDERED = Items("{prepare}/*.csv", mode="ordered")


@pytest.mark.parametrize(
    ("steps", "services"),
    [
        ([PREPARE, DAYS], [QUEUE]),
        ([PREPARE, replace(DAYS, items=Items("{prepare}/*.csv"), connects=[])], []),
        ([PREPARE, replace(DAYS, items=ORDERED, connects=[], workers=1)], []),
        ([replace(PREPARE, connects=["queue"])], [QUEUE]),
    ],
)
def test_services_and_items_that_fit(
    steps: Sequence[StepDeclaration], services: Sequence[ServiceDeclaration]
) -> None:
    assert list(step_misfits(steps, services)) == []


@pytest.mark.parametrize(
    ("steps", "services", "reason"),
    [
        ([PREPARE, DAYS], [], "step `days` connects to `queue`, and there is no such service"),
        ([PREPARE, DAYS], [QUEUE, QUEUE], "two services are called `queue`"),
        ([PREPARE, DAYS, step("queue")], [QUEUE], "a service and a step are called `queue`"),
        ([PREPARE], [QUEUE], "no step connects to the service `queue`"),
        ([PREPARE, replace(DAYS, connects=[])], [], "has the queue `queue`, and does not connect to it"),
        (
            [PREPARE, replace(DAYS, environment={"QUEUE_ADDRESS": "x"})],
            [QUEUE],
            "step `days` sets `QUEUE_ADDRESS`, in which it is told of the service `queue`",
        ),
        ([PREPARE, replace(DAYS, items=None)], [QUEUE], "has several workers and no `items`"),
        (
            [PREPARE, replace(DAYS, items=ORDERED)],
            [QUEUE],
            "step `days` has 4 workers for items that wait for one another",
        ),
        (
            [PREPARE, replace(DAYS, module="workloads.churn.days", command=None)],
            [QUEUE],
            "has `items`, and only a `command` can",
        ),
        (
            [PREPARE, replace(DAYS, inputs={"item": "prepare", "prepare": "prepare"})],
            [QUEUE],
            "has an input `item`, a name that means something else",
        ),
        (
            [PREPARE, *TRAIN, replace(DAYS, items=Items("{train}/*", queue="queue"), inputs={"train": "train"})],
            [QUEUE],
            "has items of `train`, which is several steps without a `best`",
        ),
    ],
)
def test_services_and_items_that_do_not_fit(
    steps: Sequence[StepDeclaration], services: Sequence[ServiceDeclaration], reason: str
) -> None:
    (found,) = step_misfits(steps, services)
    assert reason in found
