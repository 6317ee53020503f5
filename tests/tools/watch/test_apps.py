"""Apps that wait for results: what is said of them."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from slipway.infra.kubernetes.apps.waiting import CONTAINER, Waits
from slipway.infra.kubernetes.labels import app_labels
from slipway.offline.evaluated.idle_apps import WatchedApp
from slipway.tools.watch.apps import idle_app, waiting_apps
from slipway.tools.watch.screen import Changes
from slipway.tools.watch.states import View
from slipway.workloads.runtime.apps.idle import KEY, Notes

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


NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
IDLE = WatchedApp(
    *("here", "slipway", "mnist.serving", "mnist-serving", 7200, "stop", "mnist-serving-idle"),
    holds="a node of pool t4, $0.53 an hour",
    start="scale deployment/mnist-serving --replicas=1",
)


def noted(*, stopped: bool, idle: bool = True) -> dict[str, str]:
    notes = Notes((NOW - timedelta(hours=2)).isoformat(), {}, idle=idle, stopped=stopped)
    return {"about": "…", KEY: json.dumps(asdict(notes))}


def test_a_stopped_app_is_told_with_since_when_its_money_and_how_it_starts() -> None:
    (line,) = idle_app(IDLE, noted(stopped=True), [], NOW)
    assert "mnist.serving is stopped" in line
    assert all(words in line for words in ("(2 h)", "$0.53 an hour"))
    assert line.endswith("kubectl --namespace slipway scale deployment/mnist-serving --replicas=1")


def test_an_app_that_goes_on_unused_is_told_with_its_money() -> None:
    (line,) = idle_app(IDLE, noted(stopped=False), [], NOW)
    assert "goes on" in line
    assert line.endswith("holds a node of pool t4, $0.53 an hour")


def test_an_app_that_is_used_or_started_again_is_not_told() -> None:
    again = {"metadata": {"labels": app_labels("mnist", "serving")}}
    assert not list(idle_app(IDLE, noted(stopped=True), [again], NOW))
    for notes in (noted(stopped=False, idle=False), {}, {KEY: "{"}):
        assert not list(idle_app(IDLE, notes, [], NOW))


def test_without_a_terminal_it_is_said_once() -> None:
    changes, view = Changes(), View("dev", datetime.now(UTC), waiting=["app mnist.page waits for train"])
    assert [line for line in changes.lines(view) if "mnist.page" in line]
    assert not changes.lines(view)
