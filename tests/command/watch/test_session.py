"""A stack that is looked at again and again, over HTTP: what it remembers, what it says when it cannot read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from slipway.command.clusters import Clusters, Place
from slipway.command.watch.plan import Expected, Plan
from slipway.command.watch.screen import Changes, screen, summary
from slipway.command.watch.session import Session
from slipway.command.watch.states import NodeTime, Phase, StepState, View, add_up
from slipway.infra.kubernetes.labels import SERVICE
from tests.command.watch.cluster import (
    NOW,
    Cluster,
    before,
    condition,
    ended,
    event,
    job,
    labels,
    pod,
    running,
    serving,
    stamped,
    unschedulable,
)


def step_of(name: str, pool: str, rate: float, *after: str, gpus: int = 0, kept: float | None = None) -> Expected:
    job_name, before_it = f"mnist-{name}-1", [f"mnist-{other}" for other in after]
    place = ("mnist", name, "dev", "slipway", pool)
    return Expected(f"mnist-{name}", job_name, *place, gpus=gpus, after=before_it, rate=rate, kept=kept)


PREPARE = step_of("prepare", "cpu", 0.2)
TRAIN = step_of("train", "train", 3.6, "prepare", gpus=1, kept=600)
PREDICT = step_of("predict", "cpu", 0.2, "prepare", "train")
PODS = "/api/v1/namespaces/slipway/pods"
EPOCH = (
    "Epoch 3/12 - loss 0.1234 - accuracy 0.9612 - validation accuracy 0.97 - learning rate 0.001 - 41,210 images/s"
)


class Watched:
    """A cluster, and the session that looks at it."""

    def __init__(self, cluster: Cluster, kubeconfig: Path) -> None:
        self.cluster = cluster
        place = Place("dev", str(kubeconfig))
        plan = Plan("gcp-dev", [PREPARE, TRAIN, PREDICT], [place], {"dev": "slipway"}, instance="slipway.gcp-dev")
        self.session = Session(plan, Clusters("gcp-dev", {"dev": place}), clock=lambda: NOW)

    def look(self) -> View:
        return self.session.look()

    def step(self, name: str) -> StepState:
        return next(step for step in self.look().steps if step.name == name)

    def done(self, step: Expected, age: float = 400) -> None:
        made = job(step.job, condition("Complete"), step=f"{step.pipeline}.{step.step}", age=age)
        self.cluster.put(made, pod(made, phase="Succeeded", node="cpu-1", state=ended(0, at=100), age=age))

    def training(self) -> dict[str, Any]:
        made = job(TRAIN.job)
        there = pod(made, "b", phase="Running", node="gpu-1", state=running(), gpus=1, age=460)
        self.cluster.put(made, there)
        self.cluster.logs[there["metadata"]["name"]] = stamped("Training on 1 x T4", EPOCH)
        return made


@pytest.fixture(name="watched")
def a_watched_cluster(tmp_path: Path) -> Iterator[Watched]:
    with serving(Cluster(), tmp_path / "kubeconfig") as cluster:
        yield Watched(cluster, tmp_path / "kubeconfig")


def drawn(view: View, selected: int = 0) -> str:
    console = Console(width=150, height=40, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(screen(view, selected, 40, 150))
    return console.export_text()


def test_steps_wait_for_the_last_one_before_them(watched: Watched) -> None:
    waiting = watched.look().steps[1:]
    assert {(step.phase, step.reason.kind) for step in waiting} == {(Phase.ABSENT, "after")}
    assert ["mnist-prepare" in step.says for step in waiting] == [True, False]
    assert "mnist-train" in waiting[1].says
    watched.done(PREPARE)
    made = job(TRAIN.job, condition("Failed", reason="BackoffLimitExceeded"))
    watched.cluster.put(made, pod(made, phase="Failed", node="n", state=ended(3, "error: no (exit code 3)")))
    view = watched.look()
    assert "mnist-train failed" in view.steps[2].says
    assert view.failed
    assert not view.done


def test_a_training_is_shown_with_its_log_its_gpu_and_its_cost(watched: Watched) -> None:
    watched.done(PREPARE)
    watched.training()
    view = watched.look()
    state = view.steps[1]
    assert state.progress
    assert (state.phase, state.progress.epoch, state.progress.rate) == (Phase.RUNNING, 3, "41,210 images/s")
    assert list(state.tail) == ["Training on 1 x T4", EPOCH]
    # Its node is held since its pod was placed, 400 s ago, at 3.6 dollars an hour.
    assert state.cost.dollars == pytest.approx(0.4)
    assert view.dollars == pytest.approx(0.4 + 0.2 * 240 / 3600)
    text = drawn(view, 1)
    for words in ("1 GPU on 1 node", "$0.41", "$3.60 an hour", "Training on 1 x T4", "time limit", "0.9612"):
        assert words in text


def test_it_says_what_gpu_nodes_are_paid_for_so_far_each_once_and_of_those_that_come_and_go(
    watched: Watched,
) -> None:
    assert watched.look().node_time is None
    watched.done(PREPARE)
    watched.cluster.logs[f"{PREPARE.job}-a"] = stamped("Use: CPU 1.00 cores, node up 90000 s, program 10 s")
    watched.training()
    watched.cluster.logs[f"{TRAIN.job}-b"] = stamped(EPOCH, "Use: CPU 1.00 cores, node up 1240 s, program 590 s")
    view = watched.look()
    (of_train,) = [step.node_time for step in view.steps if step.node_time]

    assert view.node_time == of_train
    assert (of_train.paid, of_train.useful) == (1240, 590)
    assert "2.10" in drawn(view)
    assert "2.10" in summary(view)
    later = NodeTime({("dev", "gpu-1"): 1500}, 100)
    both = add_up([of_train, None, later])
    assert both is not None
    assert (both.paid, both.useful) == (1500, 690)


def test_a_log_is_read_on_and_no_line_is_counted_twice(watched: Watched) -> None:
    watched.training()
    watched.look()
    name = f"{TRAIN.job}-b"
    watched.cluster.logs[name] = stamped("Training on 1 x T4", EPOCH, EPOCH.replace("3/12", "4/12"))
    assert list(watched.step("mnist-train").tail) == ["Training on 1 x T4", EPOCH, EPOCH.replace("3/12", "4/12")]
    assert watched.step("mnist-train").progress


def test_a_pod_that_is_gone_is_remembered_as_a_retry_with_its_cost(watched: Watched) -> None:
    made = watched.training()
    watched.look()
    watched.cluster.drop("pods", f"{TRAIN.job}-b")
    watched.cluster.put(pod(made, "c", unschedulable("0/1 nodes are available: 1 Insufficient cpu."), age=10))
    state = watched.step("mnist-train")
    assert (state.phase, state.retries) == (Phase.WAITING, 1)
    assert state.cost.dollars == pytest.approx(0.4)
    assert not state.cost.hourly


def test_a_cost_whose_pods_nobody_saw_is_a_least_one(watched: Watched) -> None:
    watched.cluster.put(job(PREPARE.job, condition("Complete"), step="mnist.prepare"))
    watched.training()
    view = watched.look()
    assert view.steps[0].cost.least
    assert "at least $0.40 so far" in summary(view)


def test_a_cluster_that_refuses_keeps_what_was_seen_and_says_so(watched: Watched) -> None:
    watched.training()
    watched.look()
    watched.cluster.refused[PODS] = (403, 'pods is forbidden: User "me" cannot list resource "pods"')
    view = watched.look()
    assert view.steps[1].phase is Phase.RUNNING
    assert "this login may not read it" in view.trouble[0]
    assert "; shown is " in view.trouble[0]
    del watched.cluster.refused[PODS]
    assert not watched.look().trouble


def test_a_login_that_ended_is_told_and_taken_up_again(watched: Watched) -> None:
    watched.cluster.refused["/apis/batch/v1/namespaces/slipway/jobs"] = (401, "Unauthorized")
    view = watched.look()
    assert [step.phase for step in view.steps] == [Phase.UNKNOWN] * 3
    assert "sign in again" in view.trouble[0]
    watched.cluster.refused.clear()
    watched.training()
    assert watched.step("mnist-train").phase is Phase.RUNNING


def test_events_that_may_not_be_read_are_trouble_and_no_more(watched: Watched) -> None:
    watched.training()
    watched.cluster.refused["/api/v1/namespaces/slipway/events"] = (403, "events is forbidden")
    view = watched.look()
    assert view.steps[1].phase is Phase.RUNNING
    (trouble,) = view.trouble
    for words in ("cluster dev", "events of slipway", "events is forbidden"):
        assert words in trouble


def test_jobs_of_other_runs_are_told_apart(watched: Watched) -> None:
    stale = job("mnist-train-0", condition("Complete"))
    other = job("mnist-train-9", metadata={"creationTimestamp": "2026-11-22T11:00:00Z"})
    foreign = job("mnist-train-8", labels={"app.kubernetes.io/instance": "slipway.other"})
    watched.cluster.put(stale, other, foreign, pod(other, "x", phase="Running", node="n", state=running()))
    view = watched.look()
    assert view.earlier == 1
    assert [step.name for step in view.steps if not step.planned] == ["mnist-train-9"]
    assert view.steps[1].phase is Phase.ABSENT
    assert view.steps[-1].remark.startswith("not a Job that this checkout declares")


def test_a_run_by_the_clock_is_shown_with_its_jobs(watched: Watched) -> None:
    run = job("mnist-schedule-29", step="scheduled-run.mnist")
    own = {"metadata": {"ownerReferences": [{"uid": run["metadata"]["uid"]}]}}
    finished = job("mnist-prepare-20261122-0300", condition("Complete"), step="mnist.prepare", **own)
    watched.cluster.put(run, finished, pod(run, "r", phase="Running", node="n", state=running()))
    shown = {step.name: step for step in watched.look().steps if not step.planned}
    assert set(shown) == {"mnist-schedule-29", "mnist-prepare-20261122-0300"}
    assert {step.remark for step in shown.values()} == {"by the clock"}
    assert labels("scheduled-run", "mnist").items() <= run["metadata"]["labels"].items()


def night(number: int, *conditions: dict[str, Any], reason: str = "", age: float = 3600) -> list[dict[str, Any]]:
    """A run by the clock with its Job of the step `train`, which fails where there is a ``reason``."""
    run = job(f"mnist-schedule-{number}", *conditions, step="scheduled-run.mnist", age=age)
    own = {"metadata": {"ownerReferences": [{"uid": run["metadata"]["uid"]}], "creationTimestamp": before(age)}}
    verdict = condition("Failed", reason="BackoffLimitExceeded") if reason else condition("Complete")
    train = job(f"mnist-train-{number}", verdict, **own)
    return [run, train, *([pod(train, phase="Failed", node="n", state=ended(3, reason))] if reason else [])]


def test_a_scheduled_run_that_failed_is_told_with_its_step_and_how_many_did(watched: Watched) -> None:
    failed = condition("Failed", reason="BackoffLimitExceeded")
    watched.cluster.put(*night(1, condition("Complete"), age=9000))
    assert not watched.look().alarms
    watched.cluster.put(*night(2, failed, reason="error: old (exit code 3)", age=6000))
    watched.cluster.put(*night(3, failed, reason="error: no data (exit code 3)", age=3000))
    schedule = job("mnist-schedule", step="scheduled-run.mnist")
    watched.cluster.put({**schedule, "kind": "CronJob", "status": {"lastSuccessfulTime": before(8000)}})
    changes = Changes()
    (line,) = [line for line in changes.lines(watched.look()) if "scheduled run" in line]
    assert "train: no data (exit code 3)" in line
    assert "the last 2 in a row" in line
    assert "the last good one" in line
    assert not any("scheduled run" in line for line in changes.lines(watched.look()))
    assert "the scheduled run of mnist" in drawn(watched.look())
    # One that goes on says nothing of the last; one that is done ends it.
    watched.cluster.put(job("mnist-schedule-4", step="scheduled-run.mnist", age=60))
    assert watched.look().alarms
    watched.cluster.put(*night(4, condition("Complete"), age=60))
    assert not watched.look().alarms


def test_a_service_that_cannot_read_its_data_is_told_with_its_own_words(watched: Watched) -> None:
    of = job("mnist-queue", step="mnist.queue", labels={SERVICE: "mnist-queue"})
    words = "# Bad file format reading the append only file appendonly.aof.1.incr.aof: make a backup"
    there = pod(of, "0", condition("Ready", "False"), phase="Running", node="n1", state={"waiting": {}})
    there["status"]["containerStatuses"][0] |= {"lastState": ended(1, words), "restartCount": 3}
    watched.cluster.put(there)
    (alarm,) = watched.look().alarms
    assert "mnist.queue" in alarm
    assert "3 times" in alarm
    assert "Bad file format" in alarm
    ready = pod(of, "0", condition("Ready"), phase="Running", node="n1", state=running())
    watched.cluster.put(ready)
    assert not watched.look().alarms


def test_a_claim_without_a_volume_is_told_before_there_is_a_job(watched: Watched) -> None:
    metadata = {"name": "store", "uid": "uid-store", "creationTimestamp": before(300)}
    claim = {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}, "status": {"phase": "Pending"}}
    path = "/api/v1/namespaces/slipway/persistentvolumeclaims"
    watched.cluster.single[path] = {"kind": "List", "items": [claim]}
    view = watched.look()
    assert (view.steps[0].phase, view.steps[0].reason.kind) == (Phase.ABSENT, "no class")
    (alarm,) = view.alarms
    assert all(value in alarm for value in ("claim store", "slipway:store.storage_class"))
    claim["status"] = {"phase": "Bound"}
    assert not watched.look().alarms
    watched.cluster.refused[path] = (403, "persistentvolumeclaims is forbidden")
    assert not watched.look().trouble


def test_taints_are_read_from_the_nodes_that_a_pod_selects(watched: Watched) -> None:
    waiting = pod(
        job(PREPARE.job), "a", unschedulable("0/3 nodes are available: 3 node(s) had untolerated taint(s).")
    )
    waiting["spec"]["nodeSelector"] = {"pool": "cpu"}
    watched.cluster.put(job(PREPARE.job), waiting)
    assert watched.step("mnist-prepare").reason.kind == "taint"
    node = {"spec": {"taints": [{"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}]}}
    watched.session._clusters.clear()  # pyright: ignore[reportPrivateUsage]
    watched.cluster.single["/api/v1/nodes"] = {"kind": "List", "items": [node]}
    assert watched.step("mnist-prepare").reason.kind == "not ready"


def test_a_job_that_failed_and_was_deleted_by_hand_is_told_with_its_way_out(watched: Watched) -> None:
    watched.done(PREPARE)
    watched.session.unfinished = lambda: {("dev", "slipway", TRAIN.job)}
    steps = {step.name: step for step in watched.look().steps}
    state = steps["mnist-train"]
    assert (state.phase, state.reason.kind) == (Phase.ABSENT, "deleted")
    assert "pulumi up --refresh" in state.reason.fix
    assert steps["mnist-predict"].reason.kind == "after"
    watched.training()
    assert watched.step("mnist-train").phase is Phase.RUNNING


def test_only_what_changes_is_said_without_a_terminal(watched: Watched) -> None:
    changes = Changes()
    assert changes.lines(watched.look()) == []
    watched.done(PREPARE)
    made = job(TRAIN.job)
    waiting = pod(made, "a", unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), gpus=1)
    watched.cluster.put(made, waiting)
    prepare, train, *_ = changes.lines(watched.look())
    assert "mnist-prepare: done in 6 min, $0.01" in prepare
    assert f"mnist-train: {Phase.WAITING}" in train
    assert "Fix: " in train
    assert changes.lines(watched.look()) == []
    words = "Node scale up in zones a associated with this pod failed: GCE quota exceeded. Pod is at risk of …"
    watched.cluster.put(event(waiting, "FailedScaleUp", words))
    (line,) = changes.lines(watched.look())
    assert f"mnist-train: {Phase.WAITING}: " in line
    assert all(words in line for words in ("pool train", "quota", "Fix: "))


def test_programs_of_several_nodes_that_wait_for_each_other_do_not_run(watched: Watched) -> None:
    watched.training()
    watched.cluster.logs[f"{TRAIN.job}-b"] = stamped(
        "Generation 1: all 2 pods are here, all programs start",
        "Epoch 1/12 - loss 0.5 - accuracy 0.8",
        "Generation 1 ended: pod 1 was lost (its connection broke)",
    )
    state = watched.step("mnist-train")
    assert state.phase is Phase.MEETING
    assert "pod 1 was lost (its connection broke)" in state.says
