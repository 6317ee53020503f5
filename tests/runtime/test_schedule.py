"""A scheduled run: which Jobs it creates, in which order, and what becomes of it where one fails."""

import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from slipway.runtime.exits import BUDGET_SPENT, StepError
from slipway.runtime.schedule import run
from slipway.runtime.usage.limits import MONTH, RUN, Reached, month_of
from tests.support.json_server import serving

JOBS = "/apis/batch/v1/namespaces/slipway/jobs"
CONFIG_MAP = "/api/v1/namespaces/slipway/configmaps/churn-schedule"


class Api:
    """Kubernetes as a scheduled run sees it: Jobs by name, which end when they are looked at a second time."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.created: list[str] = []
        self.failing: set[str] = set()
        self.planned: list[dict[str, Any]] = []
        self.looked: dict[str, int] = {}
        self.pods: list[dict[str, Any]] = []
        self.asked_pods = ""
        self.limits: dict[str, Any] = {"stack": "dev", "month": 40.0, "prices": {}}
        self.down = 0
        self.refused = False

    def answer(self, method: str, path: str, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.refused:
            return 403, {"message": "jobs.batch is forbidden"}
        if self.down:
            self.down -= 1
            return 503, {"message": "the server is starting"}
        return self._create(content) if method == "POST" else self._read(path)

    def _create(self, job: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = job["metadata"]["name"]
        if name in self.jobs:
            return 409, {"message": f'jobs.batch "{name}" already exists'}
        self.jobs[name] = job
        self.created.append(name)
        return 201, job

    def _read(self, path: str) -> tuple[int, dict[str, Any]]:
        if path.endswith("/configmaps/limits"):
            return 200, {"data": {"limits.json": json.dumps(self.limits)}}
        if path == CONFIG_MAP:
            return 200, {"data": {"jobs.json": json.dumps(self.planned)}}
        if path.startswith("/api/v1/namespaces/slipway/pods?"):
            self.asked_pods = path
            return 200, {"items": self.pods}
        if path.startswith(f"{JOBS}?"):
            for job in self.jobs.values():
                self._look(job)
            return 200, {"items": list(self.jobs.values())}
        job = self.jobs[path.removeprefix(f"{JOBS}/")]
        self._look(job)
        return 200, job

    def _look(self, job: dict[str, Any]) -> None:
        name = job["metadata"]["name"]
        self.looked[name] = self.looked.get(name, 0) + 1
        if self.looked[name] >= 2 and "status" not in job:
            fails = any(name.startswith(prefix) for prefix in self.failing)
            reason = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
            condition = {"type": "Failed", **reason} if fails else {"type": "Complete"}
            job["status"] = {"conditions": [{**condition, "status": "True"}]}


@pytest.fixture
def api() -> Api:
    api = Api()
    owner = {
        "metadata": {
            "name": "churn-schedule-29384940",
            "uid": "a-uid",
            "creationTimestamp": "2026-11-22T02:00:01Z",
            "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-11-22T03:00:00+01:00"},
        },
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }
    api.jobs["churn-schedule-29384940"] = owner
    api.planned = [
        planned("churn-train", "churn/train/1a2b", after=["churn-prepare"], reads="churn/prepare/3c4d"),
        planned("churn-prepare", "churn/prepare/3c4d"),
        planned("churn-report", "churn/report/5e6f", after=["churn-train"], reads="churn/train/1a2b"),
    ]
    return api


def planned(name: str, path: str, after: list[str] | None = None, reads: str = "") -> dict[str, Any]:
    words = ["--output", f"/store/{path}", "--data", f"/store/{reads}", "--packages", "/store/packages/3c4d5"]
    containers = [{"name": "step", "args": words}]
    return {
        "name": name,
        "path": path,
        "after": after or [],
        "manifest": {
            "metadata": {"annotations": {"slipway/run": path}},
            "spec": {"template": {"spec": {"containers": containers}}},
        },
    }


@pytest.fixture
def start(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Any]:
    (tmp_path / "token").write_text("a-token", encoding="utf-8")
    monkeypatch.setenv("POD_NAME", "churn-schedule-29384940-x7x7x")
    monkeypatch.setattr(run, "PAUSE", 0.01)
    monkeypatch.setattr(run, "stop_on_sigterm", lambda _: None)
    with serving(api.answer) as server:

        def start(*more: str) -> int:
            flags = [*more, "--api", f"http://{server.address}", "--service-account", str(tmp_path)]
            return run.main([*flags, "--namespace", "slipway", "--pipeline", "churn", "--jobs", "churn-schedule"])

        yield start
    assert server.authorizations == {"Bearer a-token"}


def words(job: dict[str, Any]) -> list[str]:
    return job["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.slow
def test_jobs_run_in_their_order_with_directories_of_the_run(api: Api, start: Any) -> None:
    assert start() == 0
    assert api.created == [
        "churn-prepare-20261122-0300",
        "churn-train-20261122-0300",
        "churn-report-20261122-0300",
    ]
    train = api.jobs["churn-train-20261122-0300"]
    assert words(train) == [
        *("--output", "/store/churn/train/1a2b-20261122-0300"),
        *("--data", "/store/churn/prepare/3c4d-20261122-0300"),
        # What an update published once for all runs, whose name only begins alike.
        *("--packages", "/store/packages/3c4d5"),
    ]
    assert train["metadata"]["annotations"]["slipway/run"] == "churn/train/1a2b-20261122-0300"


@pytest.mark.slow
def test_jobs_go_with_the_run_that_created_them(api: Api, start: Any) -> None:
    start()
    (owner,) = api.jobs["churn-prepare-20261122-0300"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", "churn-schedule-29384940", "a-uid")


@pytest.mark.slow
def test_a_pod_in_place_of_an_evicted_one_goes_on_with_its_run(api: Api, start: Any) -> None:
    start()
    first = list(api.created)
    assert start() == 0
    assert api.created == first


@pytest.mark.slow
def test_a_failed_job_ends_the_run_and_what_needs_it_is_not_started(
    api: Api, start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    api.failing = {"churn-train"}
    with pytest.raises(StepError, match=r"churn-train: BackoffLimitExceeded.*not started: churn-report") as caught:
        start()
    assert caught.value.code == run.JOB_FAILED
    assert "churn-report-20261122-0300" not in api.jobs
    assert "churn-prepare: done" in capsys.readouterr().out


@pytest.mark.slow
def test_it_waits_for_an_update_that_runs_the_same_pipeline(
    api: Api, start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    api.jobs["churn-train-9z9z"] = {"metadata": {"name": "churn-train-9z9z"}}
    assert start() == 0
    assert "Waiting for churn-train-9z9z" in capsys.readouterr().out


def held(name: str, *, suspended: bool = True) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"suspend": suspended}, "status": {}}


BEHIND = ("--behind", "cluster-run", "--needs", "packages-run")


@pytest.mark.slow
def test_it_comes_after_the_run_in_the_cluster_and_not_after_steps_that_this_left(
    api: Api, start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    complete = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    # The runner gives up after a failed step, so that this one is never let run.
    api.jobs["churn-report-run"] = held("churn-report-run")
    api.jobs["packages-run"] = held("packages-run", suspended=False) | complete
    api.jobs["cluster-run"] = {"metadata": {"name": "cluster-run"}}
    api.failing = {"cluster-run"}
    assert start(*BEHIND) == 0
    assert "Waiting for cluster-run" in capsys.readouterr().out
    assert "churn-report-20261122-0300" in api.created


@pytest.mark.slow
def test_without_the_packages_of_the_run_in_the_cluster_it_fails_at_once(api: Api, start: Any) -> None:
    api.jobs["cluster-run"] = held("cluster-run")
    api.jobs["packages-run"] = held("packages-run") | {"status": {"conditions": []}}
    with pytest.raises(StepError, match=r"packages-run: it has not run; `slipway run`") as caught:
        start(*BEHIND)
    assert caught.value.code == run.JOB_FAILED
    assert not api.created


@pytest.mark.slow
def said(kind: str, exit_code: int = BUDGET_SPENT) -> dict[str, Any]:
    what = "this run" if kind == RUN else f"{month_of(time.time())[0]} so far"
    words = f"the nodes of {what} cost $40.02, until they are gone, and `slipway:budget.{kind}` is $40.00"
    ended = {"exitCode": exit_code, "reason": "Error", "message": f"epoch 3\nerror: {words} (exit code 21)\n"}
    return {"status": {"containerStatuses": [{"state": {"terminated": ended}}]}}


def test_a_run_starts_nothing_in_a_month_whose_budget_is_spent(api: Api, start: Any) -> None:
    api.planned = [planned("churn-prepare", "churn/prepare/3c4d")]
    api.pods = [said(RUN), said(MONTH)]
    with pytest.raises(StepError) as error:
        start("--limits", "limits")
    assert (error.value.code, api.created) == (BUDGET_SPENT, [])
    # The next run finds these words where the pod that said them first is gone.
    assert Reached.parse(str(error.value)) == run.reached_by([said(MONTH)])
    api.limits["month"] = 41.0
    assert start("--limits", "limits") == 0


def test_a_run_that_its_budget_ended_has_the_exit_code_of_that(api: Api, start: Any) -> None:
    api.failing, api.pods = {"churn-prepare"}, [said(RUN)]
    with pytest.raises(StepError) as error:
        start("--limits", "limits")
    assert (error.value.code, api.created) == (BUDGET_SPENT, ["churn-prepare-20261122-0300"])


def test_an_api_server_that_is_away_for_a_moment_is_asked_again(api: Api, start: Any) -> None:
    api.down = 3
    assert start() == 0


@pytest.mark.slow
def test_a_missing_right_ends_it_at_once_with_the_servers_words(api: Api, start: Any) -> None:
    api.refused = True
    with pytest.raises(StepError, match=r"jobs\.batch is forbidden") as caught:
        start()
    assert caught.value.code == run.NO_API


class Webhook:
    """What a webhook was sent. It answers with each of `answers`, and then with 200."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.answers: list[int] = []

    def take(self, _: str, __: str, content: dict[str, Any]) -> tuple[int, object]:
        self.seen.append(content)
        return self.answers.pop(0) if self.answers else 200, {}


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Generator[Webhook]:
    webhook = Webhook()
    monkeypatch.setattr(run, "WEBHOOK_PAUSES", (0.01, 0.01))
    monkeypatch.setattr(run.time, "sleep", lambda _: None)
    with serving(webhook.take) as server:
        monkeypatch.setenv(run.WEBHOOK, f"http://{server.address}/hidden")
        yield webhook


def earlier_run(api: Api, condition: str) -> None:
    api.jobs["churn-schedule-29383500"] = {
        "metadata": {"name": "churn-schedule-29383500", "creationTimestamp": "2026-11-21T02:00:01Z"},
        "status": {"conditions": [{"type": condition, "status": "True"}]},
    }


@pytest.mark.slow
def test_a_webhook_is_told_of_a_failed_step_with_its_exit_code(api: Api, start: Any, webhook: Webhook) -> None:
    api.failing = {"churn-train"}
    ended = {"exitCode": 3, "reason": "Error", "message": "epoch 1\nerror: 0.91 is below 0.97\n"}
    api.pods = [{"status": {"containerStatuses": [{"state": {"terminated": ended}}]}}]
    with pytest.raises(StepError):
        start()
    (seen,) = webhook.seen
    assert (seen["outcome"], seen["pipeline"], seen["run"]) == ("failed", "churn", "20261122-0300")
    assert (seen["step"], seen["exit_code"], seen["namespace"]) == ("train", 3, "slipway")
    assert seen["reason"] == "Error: error: 0.91 is below 0.97"
    assert "failed at the step train with exit code 3" in seen["text"]
    assert "job-name%3Dchurn-train-20261122-0300" in api.asked_pods


@pytest.mark.slow
def test_a_webhook_is_told_where_the_run_could_not_begin(api: Api, start: Any, webhook: Webhook) -> None:
    api.refused = True
    with pytest.raises(StepError):
        start()
    assert (webhook.seen[0]["outcome"], webhook.seen[0]["exit_code"]) == ("failed", run.NO_API)


@pytest.mark.slow
@pytest.mark.parametrize(("condition", "told"), [("Failed", ["recovered"]), ("Complete", [])])
def test_a_webhook_is_told_of_a_good_run_after_a_failed_one_alone(
    api: Api, start: Any, webhook: Webhook, condition: str, told: list[str]
) -> None:
    earlier_run(api, condition)
    assert start() == 0
    assert [notice["outcome"] for notice in webhook.seen] == told


@pytest.mark.slow
def test_a_webhook_that_fails_is_asked_again_and_never_fails_the_run(
    api: Api, start: Any, webhook: Webhook, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier_run(api, "Failed")
    webhook.answers = [503, 404, 500]
    assert start() == 0
    assert len(webhook.seen) == 3
    printed = capsys.readouterr().out
    assert "the webhook was not told: it answered 500" in printed
    assert "hidden" not in printed


@pytest.mark.slow
def test_an_address_without_anybody_fails_no_run_and_stands_in_no_log(
    api: Api, start: Any, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier_run(api, "Failed")
    monkeypatch.setenv(run.WEBHOOK, "https://no-such-host.invalid/hidden")
    assert start() == 0
    assert "hidden" not in capsys.readouterr().out
    assert webhook.seen == []
