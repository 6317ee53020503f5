"""Steps that cannot be those of one pipeline, whichever way they are declared."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from infra.pipelines.contract import Best, Command, StepDeclaration, StepSettings, Variant
from infra.pipelines.results import File, Number
from infra.pipelines.step_rules import misfits

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
    assert list(misfits(steps)) == []


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
        ([replace(PREPARE, best=Best("accuracy"))], "its best by `accuracy`, which is no `Number`"),
        (
            [replace(PREPARE, results=(File(name="model", title="M", path="m"),), best=Best("model"))],
            "its best by `model`, which is no `Number`",
        ),
    ],
)
def test_steps_that_do_not_fit_are_told_by_name(steps: Sequence[StepDeclaration], reason: str) -> None:
    (found,) = misfits(steps)
    assert reason in found


def test_all_reasons_are_told_at_once() -> None:
    assert len(list(misfits([PREPARE, PREPARE, step("x", a="b"), step("y", store="prepare")]))) == 3
