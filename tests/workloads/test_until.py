"""What is ended once the last day of a stack is over, and what is left as it is."""

import json
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slipway.workloads.runtime.exits import StepError
from slipway.workloads.runtime.kubernetes_api import Api
from slipway.workloads.schedule import run, until
from tests.workloads.json_server import serving
from tests.workloads.places.world import merge

DAY = "2026-12-24"
BEFORE, AFTER = (datetime(2026, 12, day, hour, 59, tzinfo=UTC) for day, hour in ((24, 23), (25, 0)))
JOBS = "/apis/batch/v1/namespaces/slipway/jobs"
CRON_JOBS = "/apis/batch/v1/namespaces/slipway/cronjobs"
APPS = "/apis/apps/v1/namespaces/slipway"
NOTES = "/api/v1/namespaces/slipway/configmaps/until"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/slipway/workloads"
OURS = {"app.kubernetes.io/instance": "slipway.dev"}
ENDED = {"spec": {"activeDeadlineSeconds": 1}}
HELD = {"spec": {"suspend": True}}


def job(name: str, *, labels: dict[str, str] = OURS, runs: str = "", account: str = "runner", **spec: Any) -> Any:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": {"slipway/runs": runs} if runs else {},
        },
        "spec": {"template": {"spec": {"serviceAccountName": account}}, **spec},
        "status": {"startTime": "2026-12-24T09:00:00Z"},
    }


def owned(made: Any, kind: str, name: str) -> Any:
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "uid": f"uid-{name}"}]
    return made


class Cluster:
    """The objects of a namespace by their paths, changed by merge patches; ``late`` comes with the first look."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {
            f"{APPS}/deployments/shop-model/scale": {"spec": {"replicas": 3}},
            f"{APPS}/statefulsets/shop-notebook/scale": {"spec": {"replicas": 0}},
            f"{CRON_JOBS}/shop-schedule": {"spec": {}},
            NOTES: {"data": {"about": "x"}},
        }
        self.changes: list[tuple[str, Any]] = []
        self.late: list[Any] = []

    def add(self, *jobs: Any) -> None:
        self.objects |= {f"{JOBS}/{made['metadata']['name']}": made for made in jobs}

    def answer(self, method: str, path: str, content: Any) -> tuple[int, Any]:
        path = path.partition("?")[0]
        if method == "GET" and path in (JOBS, WORKLOADS):
            items = [made for name, made in self.objects.items() if name.startswith(f"{path}/")]
            self.add(*self.late)
            self.late = []
            return 200, {"items": items}
        wanted = path.removesuffix("/status")
        if wanted not in self.objects:
            return 404, {"message": "not found"}
        if method == "PATCH":
            self.changes.append((path, content))
            merge(self.objects[wanted], content)
        return 200, self.objects[wanted]

    @property
    def of_jobs(self) -> dict[str, Any]:
        """The changes of Jobs, by their names and parts."""
        return {path.removeprefix(f"{JOBS}/"): content for path, content in self.changes if path.startswith(JOBS)}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def end(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Any]:
    (tmp_path / "token").write_text("a-token", encoding="utf-8")
    monkeypatch.setattr(run, "PAUSE", 0)
    with serving(cluster.answer) as server:

        def end(now: datetime = AFTER, day: str = DAY) -> Any:
            ending = until.Ending(
                Api(f"http://{server.address}", tmp_path),
                "slipway",
                "slipway.dev",
                ["shop-model", "gone"],
                ["shop-notebook"],
                ["shop-schedule"],
                sleep=lambda _: None,
            )
            return until.end(ending, day, "until", now)

        yield end


def noted(cluster: Cluster) -> Any:
    return json.loads(cluster.objects[NOTES]["data"]["ended"])


def test_until_its_last_second_nothing_of_the_day_is_ended(cluster: Cluster, end: Any) -> None:
    cluster.add(job("train"))
    assert end(BEFORE) == {}
    assert cluster.changes == []


def test_apps_schedules_and_jobs_end_and_nothing_else_does(cluster: Cluster, end: Any) -> None:
    done = job("done") | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    cluster.add(
        job("train"),
        done,
        job("of-another-stack", labels={"app.kubernetes.io/instance": "slipway.prod"}),
        job("of-nobody", labels={}),
        job("held-by-somebody", suspend=True),
        job("itself", labels={**OURS, "app.kubernetes.io/name": "until"}),
        owned(job("shop-schedule-1", labels={}), "CronJob", "shop-schedule"),
        owned(job("shop-fit-20261224-2300", labels={}), "Job", "shop-schedule-1"),
        owned(job("other-schedule-1", labels={}), "CronJob", "other-schedule"),
    )
    end()
    assert cluster.of_jobs == dict.fromkeys(("train", "shop-schedule-1", "shop-fit-20261224-2300"), ENDED)
    assert cluster.objects[f"{APPS}/deployments/shop-model/scale"]["spec"]["replicas"] == 0
    assert cluster.objects[f"{CRON_JOBS}/shop-schedule"]["spec"] == {"suspend": True}
    assert noted(cluster) == {
        "until": DAY,
        "at": "2026-12-25T00:59:00Z",
        "apps": ["shop-model"],
        "schedules": ["shop-schedule"],
        "jobs": ["shop-fit-20261224-2300", "shop-schedule-1", "train"],
    }


def test_what_somebody_lets_run_is_held_and_its_time_limit_counts_anew(cluster: Cluster, end: Any) -> None:
    runner = job("cluster-run", labels={**OURS, "app.kubernetes.io/name": "cluster-run"})
    cluster.add(job("fit", runs="cluster-run", suspend=False), runner)
    end()
    # What lets Jobs run ends before them.
    assert [path for path, _ in cluster.changes if path.startswith(JOBS)][:2] == [
        f"{JOBS}/cluster-run",
        f"{JOBS}/fit",
    ]
    starts = {"status": {"startTime": None}}
    assert cluster.of_jobs == {
        "cluster-run": HELD,
        "cluster-run/status": starts,
        "fit": HELD,
        "fit/status": starts,
    }


def test_a_mover_loses_its_jobs_and_its_agent_ends(cluster: Cluster, end: Any) -> None:
    cluster.add(job("at-spot", runs="mover", suspend=False), job("agent", runs="mover", account="agent"))
    end()
    stopped = {"metadata": {"annotations": {"slipway/holder": ""}}}
    assert cluster.of_jobs["at-spot"] == {**stopped, **HELD}
    assert cluster.of_jobs["agent"] == ENDED


def test_kueue_itself_takes_back_what_it_lets_run(cluster: Cluster, end: Any) -> None:
    queued = {**OURS, "kueue.x-k8s.io/queue-name": "slipway"}
    cluster.add(
        job("at-spot", labels=queued, runs="mover", suspend=False), job("waits", labels=queued, suspend=True)
    )
    workload = {"metadata": {"name": "job-at-spot", "ownerReferences": [{"uid": "uid-at-spot"}]}, "spec": {}}
    cluster.objects[f"{WORKLOADS}/job-at-spot"] = workload
    end()
    assert workload["spec"] == {"active": False}
    assert "suspend" not in cluster.of_jobs["at-spot"].get("spec", {})
    # It ends as soon as its queue lets it run.
    assert cluster.of_jobs["waits"] == ENDED


def test_a_job_that_was_let_run_meanwhile_ends_too(cluster: Cluster, end: Any) -> None:
    cluster.late = [job("late")]
    end()
    assert cluster.of_jobs == {"late": ENDED}
    assert noted(cluster)["jobs"] == ["late"]


def test_a_second_pod_ends_nothing_twice_and_keeps_the_notes(cluster: Cluster, end: Any) -> None:
    cluster.add(job("train"))
    end()
    first = noted(cluster)
    cluster.changes.clear()
    assert end(datetime(2026, 12, 25, 6, tzinfo=UTC)) == {}
    assert cluster.changes == []
    cluster.add(job("again"))
    end(datetime(2026, 12, 25, 12, tzinfo=UTC))
    assert noted(cluster) == {**first, "jobs": ["again", "train"]}


def test_a_later_day_has_notes_of_its_own(cluster: Cluster, end: Any) -> None:
    end()
    end(datetime(2027, 1, 3, tzinfo=UTC), "2027-01-02")
    assert noted(cluster) == {"until": "2027-01-02", "at": "2027-01-03T00:00:00Z"}


def test_an_api_that_refuses_ends_the_pod_with_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token", encoding="utf-8")

    def refuse(method: str, path: str, content: Any) -> tuple[int, Any]:
        return 403, {"message": "no"}

    with serving(refuse) as server:
        flags = ["--api", f"http://{server.address}", "--service-account", str(tmp_path), "--until", "2020-01-01"]
        with pytest.raises(StepError) as raised:
            until.main(
                [*flags, "--namespace", "slipway", "--instance", "x", "--notes", "until", "--cron-job", "c"]
            )
    assert raised.value.code == run.NO_API


def test_the_program_shares_its_words_with_what_declares_it() -> None:
    from slipway.infra.kubernetes import labels
    from slipway.infra.placed import CLUSTER_RUN, MOVER, SCHEDULED_RUN, UNTIL

    assert (until.NAME, until.INSTANCE) == (labels.NAME, labels.INSTANCE)
    assert (until.RUNS_ANNOTATION, until.MOVES_ANNOTATION) == (labels.RUNS_ANNOTATION, labels.MOVES_ANNOTATION)
    assert set(until.RUNNERS) == {CLUSTER_RUN, SCHEDULED_RUN, MOVER}
    assert (until.RELEASED_BY_RUNNER, until.RELEASED_BY_MOVER, until.ITSELF) == (CLUSTER_RUN, MOVER, UNTIL)
