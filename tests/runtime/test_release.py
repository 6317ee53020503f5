"""What lets suspended Jobs run: in which order, what a lost pod loses, and what becomes of a step that fails."""

import copy
import json
import random
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from slipway.runtime.exits import BUDGET_SPENT, StepError
from slipway.runtime.schedule import release, run
from slipway.runtime.usage.limits import MONTH, RUN, Reached, month_of
from tests.support.json_server import serving

JOBS = "/apis/batch/v1/namespaces/slipway/jobs/"
PODS = "/api/v1/namespaces/slipway/pods"
MAPS = "/api/v1/namespaces/slipway/configmaps/"
COMPLETE, FAILED = (
    {"status": {"conditions": [{"type": kind, "status": "True"}]}} for kind in ("Complete", "Failed")
)

AFTER = {
    "prepare": [],
    "train-a": ["prepare"],
    "train-b": ["prepare"],
    "predict": ["train-a", "train-b"],
    "other": [],
}


class LostError(Exception):
    """The runner's pod is gone."""


class Api:
    """Kubernetes as the runner sees it: a Job that was let run ends when it is looked at once more."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {name: {"spec": {"suspend": True}, "status": {}} for name in AFTER}
        self.attempts: dict[str, str] = {"about": "x"}
        self.planned = dict.fromkeys(AFTER, 1)
        self.released: list[str] = []
        self.failing: set[str] = set()
        self.early: list[str] = []
        self.code, self.words = BUDGET_SPENT, ""
        self.limits: dict[str, Any] = {
            "stack": "dev",
            "run": 40.0,
            "month": 900.0,
            "runs": ["p/s/0"],
            "prices": {},
        }

    def answer(self, method: str, path: str, content: Any) -> tuple[int, dict[str, Any]]:
        if path == f"{MAPS}attempts":
            if method == "PATCH":
                merged = {**self.attempts, **content["data"]}
                self.attempts = {name: value for name, value in merged.items() if value is not None}
            return 200, {"data": self.attempts}
        if path == f"{MAPS}limits":
            return 200, {"data": {"limits.json": json.dumps(self.limits)}}
        if path == f"{MAPS}jobs":
            listed = [
                {"step": f"churn-{name}", "name": name, "uid": "u", "attempt": self.planned[name], "after": after}
                for name, after in AFTER.items()
            ]
            return 200, {"data": {"jobs.json": json.dumps(listed)}}
        if path.startswith(PODS):
            ended = {"exitCode": self.code, "reason": "Error", "message": self.words}
            return 200, {"items": [{"status": {"containerStatuses": [{"state": {"terminated": ended}}]}}]}
        job = self.jobs[path.removeprefix(JOBS)]
        if method == "PATCH":
            assert content == {"spec": {"suspend": False}}
            self._release(path.removeprefix(JOBS), job)
        shown = copy.deepcopy(job)
        if not job["spec"]["suspend"] and not job["status"]:
            job |= FAILED if path.removeprefix(JOBS) in self.failing else COMPLETE
        return 200, shown

    def _release(self, name: str, job: dict[str, Any]) -> None:
        if any(self.jobs[before]["status"] != COMPLETE["status"] for before in AFTER[name]):
            self.early.append(name)
        job["spec"]["suspend"] = False
        self.released.append(name)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def start(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Any]:
    (tmp_path / "token").write_text("a-token", encoding="utf-8")
    monkeypatch.setattr(release, "PAUSE", 0)
    monkeypatch.setattr(run, "PAUSE", 0)
    monkeypatch.setattr(release, "stop_on_sigterm", lambda _: None)
    with serving(api.answer) as server:

        def start(*more: str) -> int:
            flags = ["--api", f"http://{server.address}", "--service-account", str(tmp_path), *more]
            return release.main([*flags, "--namespace", "slipway", "--jobs", "jobs", "--attempts", "attempts"])

        yield start


def test_each_job_runs_once_those_before_it_are_complete(api: Api, start: Any) -> None:
    assert start() == 0
    assert sorted(api.released) == sorted(AFTER)
    assert api.early == []
    assert api.attempts == {"about": "x"}


def test_a_runner_that_is_lost_at_any_moment_loses_nothing_and_runs_nothing_twice(
    api: Api, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)
    send = release.HeldJobs.job

    def job(cluster: release.HeldJobs, name: str) -> dict[str, Any]:
        if chance.random() < 0.3:
            raise LostError
        return send(cluster, name)

    monkeypatch.setattr(release.HeldJobs, "job", job)
    for _ in range(100):
        try:
            assert start() == 0
            break
        except LostError:
            continue
    assert sorted(api.released) == sorted(AFTER)
    assert api.early == []


def test_what_needs_a_failed_job_does_not_run_and_the_rest_does(api: Api, start: Any) -> None:
    api.failing = {"train-a"}
    with pytest.raises(StepError, match="churn-train-a") as error:
        start()
    assert error.value.code == run.JOB_FAILED
    assert "churn-predict" in str(error.value)
    assert sorted(api.released) == ["other", "prepare", "train-a", "train-b"]
    # By it the next `up` makes the Job anew, and only that one.
    assert api.attempts == {"about": "x", "train-a": "2"}
    # Another pod ends alike, and lets nothing run again.
    with pytest.raises(StepError):
        start()
    assert len(api.released) == 4
    assert api.attempts["train-a"] == "2"


def spent(kind: str) -> str:
    what = "this run" if kind == RUN else f"{month_of(time.time())[0]} so far"
    return (
        f"was ended: the nodes of {what} cost $40.02, until they are gone, and `slipway:budget.{kind}` is $40.00"
    )


@pytest.mark.parametrize("kind", [RUN, MONTH])
def test_once_the_budget_is_spent_no_other_job_starts_until_it_is_raised(api: Api, start: Any, kind: str) -> None:
    limited = ("--limits", "limits")
    api.failing, api.words, api.limits[kind] = {"prepare"}, spent(kind), 40.0
    api.jobs["prepare"]["spec"]["suspend"] = False
    api.jobs["prepare"] |= FAILED
    with pytest.raises(StepError, match="other") as error:
        start(*limited)
    assert error.value.code == BUDGET_SPENT
    assert f"slipway:budget.{kind}" in str(error.value)
    assert api.released == []
    assert api.attempts["prepare"] == "2"
    # The next update makes the failed Job anew, which deletes its pods; those of a month may be of any Job.
    api.jobs["prepare"] = {"spec": {"suspend": True}, "status": {}}
    api.words = "" if kind == RUN else api.words
    with pytest.raises(StepError) as error:
        start(*limited)
    assert (error.value.code, api.released) == (BUDGET_SPENT, [])
    # Else the list of the runner would stay the same, and the next update would leave it as it ended.
    assert (api.attempts["prepare"], api.attempts["other"], "predict" in api.attempts) == ("2", "2", False)
    api.limits[kind] = 41.0
    api.failing = set()
    assert start(*limited) == 0
    assert sorted(api.released) == sorted(AFTER)


def test_what_another_run_has_spent_holds_nothing_back(api: Api, start: Any) -> None:
    noted = {"runs": "of another digest", **Reached(RUN, "", 40.02, 40.0).record()}
    api.attempts["spent"] = json.dumps(noted)
    assert start("--limits", "limits") == 0


def test_a_failed_job_that_was_made_anew_runs_and_is_due_as_before(api: Api, start: Any) -> None:
    api.jobs["prepare"] |= COMPLETE
    api.jobs["prepare"]["spec"]["suspend"] = False
    api.attempts = {"train-a": "2", "of-another-digest": "4"}
    assert start() == 0
    assert "prepare" not in api.released
    assert api.attempts == {"of-another-digest": "4"}
