"""Steps, services and apps that cannot be those of one pipeline, whichever way they are declared."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from slipway.infra.pipelines.apps import AppDeclaration, AppSettings, Metrics
from slipway.infra.pipelines.contract import (
    Best,
    Command,
    Items,
    ServiceDeclaration,
    ServiceSettings,
    StepDeclaration,
    StepSettings,
    Variant,
)
from slipway.infra.pipelines.python_file import app_misfits, step_misfits
from slipway.infra.pipelines.results import File, Number

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
    ("steps", "names"),
    [
        ([PREPARE, PREPARE], ["`prepare`"]),
        ([PREPARE, *TRAIN, step("train")], ["`train`"]),
        ([PREPARE, *TRAIN, step("train-2")], ["`train-2`"]),
        ([replace(PREPARE, command=None)], ["`module`", "`command`"]),
        ([replace(PREPARE, module="workloads.churn.x")], ["`module`", "`command`"]),
        ([step("train", data="prepare")], ["`train`", "`prepare`"]),
        ([step("a", b="b"), step("b", a="a")], ["`a`", "`b`"]),
        ([replace(PREPARE, after=["train"]), *TRAIN], []),
        ([replace(PREPARE, after=["train-1"]), *TRAIN], []),
        ([PREPARE, step("train", packages="prepare")], ["`packages`"]),
        ([replace(PREPARE, results=(ACCURACY.model_copy(update={"name": "runs"}),))], ["`runs`"]),
        ([replace(PREPARE, results=(ACCURACY, ACCURACY))], ["`accuracy`"]),
        ([replace(PREPARE, arguments=["{outptu}"])], ["`outptu`"]),
        ([replace(PREPARE, environment={"X": "{x.y}"})], ["`x.y`"]),
        ([replace(PREPARE, arguments=["{output}", "}"])], []),
        ([PREPARE, *TRAIN, replace(step("x", train="train"), arguments=["{train}/m"])], ["`train`"]),
        (
            [PREPARE, *TRAIN, replace(step("x", train="train"), environment={"MODEL": "{train}"})],
            ["`train`", "`MODEL`"],
        ),
        ([replace(PREPARE, best=Best("accuracy"))], ["`accuracy`", "`Number`"]),
        (
            [replace(PREPARE, results=(File(name="model", title="M", path="m"),), best=Best("model"))],
            ["`model`", "`Number`"],
        ),
    ],
)
def test_steps_that_do_not_fit_are_told_by_name(steps: Sequence[StepDeclaration], names: list[str]) -> None:
    (reason,) = step_misfits(steps)
    assert [name for name in names if name not in reason] == []


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
    ("steps", "services", "names"),
    [
        ([PREPARE, DAYS], [], ["`days`", "`queue`"]),
        ([PREPARE, DAYS], [QUEUE, QUEUE], ["`queue`"]),
        ([PREPARE, DAYS, step("queue")], [QUEUE], ["`queue`"]),
        ([PREPARE], [QUEUE], ["`queue`"]),
        ([PREPARE, replace(DAYS, connects=[])], [], ["`queue`"]),
        (
            [PREPARE, replace(DAYS, environment={"QUEUE_ADDRESS": "x"})],
            [QUEUE],
            ["`days`", "`QUEUE_ADDRESS`", "`queue`"],
        ),
        ([PREPARE, replace(DAYS, items=None)], [QUEUE], ["`items`"]),
        ([PREPARE, replace(DAYS, items=ORDERED)], [QUEUE], ["`days`"]),
        ([PREPARE, replace(DAYS, module="workloads.churn.days", command=None)], [QUEUE], ["`items`", "`command`"]),
        ([PREPARE, replace(DAYS, inputs={"item": "prepare", "prepare": "prepare"})], [QUEUE], ["`item`"]),
        (
            [PREPARE, *TRAIN, replace(DAYS, items=Items("{train}/*", queue="queue"), inputs={"train": "train"})],
            [QUEUE],
            ["`train`", "`best`"],
        ),
    ],
)
def test_services_and_items_that_do_not_fit(
    steps: Sequence[StepDeclaration], services: Sequence[ServiceDeclaration], names: list[str]
) -> None:
    (reason,) = step_misfits(steps, services)
    assert [name for name in names if name not in reason] == []


SHOP = AppDeclaration("shop", "The shop", AppSettings(pool="cpu"), 8080, ["serve", "--port", "{port}"])
PAGE = replace(SHOP, name="page", connects=["shop"], inputs={"train": "train"}, after=["prepare"])


def test_apps_that_fit() -> None:
    assert list(app_misfits([SHOP, PAGE], [PREPARE, step("train")], [QUEUE])) == []


@pytest.mark.parametrize(
    ("apps", "names"),
    [
        ([SHOP, SHOP], ["two apps", "`shop`"]),
        ([replace(SHOP, name="prepare")], ["a step", "`prepare`"]),
        ([replace(SHOP, name="train")], ["a step", "`train`"]),
        ([replace(SHOP, name="queue")], ["a service", "`queue`"]),
        ([replace(SHOP, arguments=[])], ["`module`"]),
        ([replace(SHOP, keeps_data=True)], ["`KeptAppSettings`"]),
        ([replace(SHOP, arguments=["{prt}"])], ["`prt`"]),
        ([replace(SHOP, arguments=["{token}"])], ["`token`"]),
        ([replace(SHOP, inputs={"port": "prepare"})], ["`port`"]),
        ([replace(SHOP, environment={"KEY": "x"}, secrets={"KEY": "key"})], ["`KEY`"]),
        ([replace(SHOP, ports={"http": 8081})], ["`http`"]),
        ([replace(SHOP, ports={"grpc": 8080})], ["8080"]),
        ([replace(SHOP, port=80)], ["port 80"]),
        ([replace(SHOP, metrics=Metrics(port="numbers"))], ["`numbers`"]),
        ([replace(SHOP, after=["publish"])], ["`publish`"]),
        ([replace(SHOP, inputs={"train": "train"}, arguments=["--model={train}"])], ["`train`"]),
        ([replace(SHOP, connects=["shop"])], ["itself"]),
        ([SHOP, replace(PAGE, environment={"SHOP_ADDRESS": "x"})], ["`SHOP_ADDRESS`"]),
        ([replace(SHOP, connects=["page"]), replace(PAGE, inputs={})], ["`shop` and `page`"]),
    ],
)
def test_apps_that_do_not_fit_are_told_by_name(apps: Sequence[AppDeclaration], names: list[str]) -> None:
    (reason,) = app_misfits(apps, [PREPARE, *TRAIN], [QUEUE])
    assert [name for name in names if name not in reason] == []
