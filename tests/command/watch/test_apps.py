"""Apps that wait for results: what is said of them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from slipway.command.watch.apps import waiting_apps
from slipway.command.watch.screen import Changes
from slipway.command.watch.states import View
from slipway.infra.kubernetes.apps.waiting import CONTAINER, Waits
from slipway.infra.kubernetes.labels import app_labels

WAITS = Waits(
    results={"train": "mnist/train/5b1c"},
    steps={"publish": "mnist/publish"},
    servers={"serving": "mnist-serving:1"},
)


def pod(*, waits: bool, ready: bool = False) -> dict[str, Any]:
    state = {"running": {"startedAt": "2026-11-26T03:00:00Z"}} if waits else {"terminated": {"exitCode": 0}}
    return {
        "metadata": {"name": "mnist-page-1", "labels": app_labels("mnist", "page")},
        "spec": {"initContainers": [{"name": CONTAINER, "args": WAITS.words}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "initContainerStatuses": [{"name": CONTAINER, "state": state}],
        },
    }


def test_what_it_waits_for_is_said_and_which_of_that_failed() -> None:
    (line,) = waiting_apps([pod(waits=True)], {"mnist-train"})
    assert line.startswith("app mnist.page waits for the result of train (mnist/train/5b1c), which failed and ")
    assert all(words in line for words in ("any result of publish", "the app serving"))
    assert "meanwhile" not in line


def test_a_step_that_is_done_is_not_waited_for() -> None:
    (line,) = waiting_apps([pod(waits=True)], set(), {"mnist-train", "mnist-publish"})
    assert line == "app mnist.page waits for the app serving"


@pytest.mark.parametrize(("pods", "lines"), [([True, False], 1), ([False], 0)])
def test_earlier_pods_answer_and_one_that_is_through_says_nothing(pods: list[bool], lines: int) -> None:
    result = list(waiting_apps([pod(waits=waits, ready=not waits) for waits in pods], set()))
    assert ["its earlier pods answer meanwhile" in line for line in result] == [True] * lines


def test_without_a_terminal_it_is_said_once() -> None:
    changes, view = Changes(), View("dev", datetime.now(UTC), waiting=["app mnist.page waits for train"])
    assert [line for line in changes.lines(view) if "mnist.page" in line]
    assert not changes.lines(view)
