"""A step with places in a cluster: one step, at the place where it is, with what its mover says."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.command.clusters import Clusters, Place
from slipway.command.runs import Namespace
from slipway.command.watch.plan import Expected, Plan, plan_of
from slipway.command.watch.screen import Changes
from slipway.command.watch.session import Session
from slipway.command.watch.states import Phase, StepState, View
from tests.command.watch.cluster import NOW, Cluster, condition, job, pod, running, serving, unschedulable
from tests.evaluated.test_places import moved

HELD = {"annotations": {"slipway/runs": "mover"}}
NOTES = "/api/v1/namespaces/slipway/configmaps/mnist-train-mover-notes"


def expected(name: str, pool: str, rate: float, pipeline: str = "mnist", **more: Any) -> Expected:
    where = (pipeline, "train", "dev", "slipway", pool)
    return Expected(f"mnist-{name}", f"mnist-{name}-1", *where, rate=rate, **more)


SPOT, OWN = expected("train-at-spot", "spot", 1.0), expected("train-at-own", "own", 4.0)
PROBE = expected("train-probe", "spot", 1.0, "mover")
TRAIN = expected("train", "cpu", 0.2, places=[SPOT, OWN], probes=[PROBE], notes="mnist-train-mover-notes")


class Watched:
    """A cluster with such a step, and the session that looks at it."""

    def __init__(self, cluster: Cluster, kubeconfig: Path) -> None:
        self.cluster = cluster
        place = Place("dev", str(kubeconfig))
        plan = Plan("gcp-dev", [TRAIN], [place], {"dev": "slipway"}, instance="slipway.gcp-dev")
        self.session = Session(plan, Clusters("gcp-dev", {"dev": place}), clock=lambda: NOW)
        self.mover = job(TRAIN.job)
        cluster.put(self.mover, pod(self.mover, phase="Running", node="cpu-1", state=running()))
        for other in (SPOT, OWN, PROBE):
            self.suspend(other)

    def suspend(self, other: Expected, *, value: bool = True) -> dict[str, Any]:
        made = job(
            other.job, step="mover.mnist-train" if other is PROBE else "mnist.train", suspend=value, metadata=HELD
        )
        self.cluster.put(made)
        return made

    def runs_at_own(self) -> None:
        made = self.suspend(OWN, value=False)
        self.cluster.put(pod(made, "b", phase="Running", node="gpu-1", state=running()))

    def note(self, said: str, **state: Any) -> None:
        self.cluster.single[NOTES] = {"kind": "ConfigMap", "data": {"said": said, "state": json.dumps(state)}}

    def look(self) -> tuple[View, StepState]:
        view = self.session.look()
        (state,) = view.steps
        return view, state


@pytest.fixture(name="watched")
def a_watched_cluster(tmp_path: Path) -> Iterator[Watched]:
    with serving(Cluster(), tmp_path / "kubeconfig") as cluster:
        yield Watched(cluster, tmp_path / "kubeconfig")


def test_it_says_which_place_it_waits_for_and_which_is_next(watched: Watched) -> None:
    watched.cluster.put(pod(watched.suspend(SPOT, value=False), "a", unschedulable("0/1 nodes are available")))
    watched.note("3 of 15 minutes for spot (out of resources); next: own", probed=-1)
    changes = Changes()
    view, state = watched.look()
    assert (state.phase, state.pool) == (Phase.WAITING, "spot")
    assert "3 of 15 minutes for spot (out of resources); next: own" in state.says
    assert len(changes.lines(view)) == 1
    # A further minute of the same wait is no news.
    watched.note("4 of 15 minutes for spot (out of resources); next: own", probed=-1)
    assert changes.lines(watched.look()[0]) == []


def test_at_a_place_it_is_as_any_step_with_what_it_costs_there(watched: Watched) -> None:
    watched.cluster.put(
        pod(watched.suspend(OWN, value=False), "b", phase="Running", node="gpu-1", state=running())
    )
    watched.note("at own; asks for spot", probed=0)
    view, state = watched.look()
    assert (state.name, state.phase, state.pool) == ("mnist-train", Phase.RUNNING, "own")
    assert "spot" in state.remark
    assert [seen.name for seen in watched.session.pods_of(TRAIN)] == [f"{OWN.job}-b"]
    assert state.cost.hourly == pytest.approx(4.0)
    assert view.hourly == pytest.approx(4.0)


@pytest.fixture(name="far")
def another_cluster(tmp_path: Path, watched: Watched) -> Iterator[tuple[Cluster, Expected]]:
    """A second cluster, with a place of the step in between."""
    place = replace(OWN, name="mnist-train-at-far", job="mnist-train-at-far-1", cluster="far", pool="far")
    with serving(Cluster(), tmp_path / "far") as cluster:
        session = watched.session
        train = replace(TRAIN, places=[SPOT, place, OWN])
        there = Place("far", str(tmp_path / "far"))
        namespaces = {"dev": "slipway", "far": "slipway"}
        session.plan = replace(
            session.plan, steps=[train], places=[*session.plan.places, there], namespaces=namespaces
        )
        session.clusters.places["far"] = there
        yield cluster, place


def test_a_place_in_another_cluster_is_seen_there(watched: Watched, far: tuple[Cluster, Expected]) -> None:
    cluster, place = far
    made = job(place.job, step="mnist.train", metadata=HELD)
    cluster.put(made, pod(made, "c", phase="Running", node="far-1", state=running()))
    view, state = watched.look()
    assert (state.name, state.phase, state.pool, state.cluster) == ("mnist-train", Phase.RUNNING, "far", "far")
    assert view.trouble == []


def test_a_place_that_nobody_can_read_hides_no_other(watched: Watched, far: tuple[Cluster, Expected]) -> None:
    cluster, _ = far
    cluster.refused["/apis/batch/v1/namespaces/slipway/jobs"] = (503, "down")
    watched.note("at own; cluster far does not answer", probed=-1)
    watched.runs_at_own()
    view, state = watched.look()
    assert (state.phase, state.pool) == (Phase.RUNNING, "own")
    assert ["far" in line for line in view.trouble] == [True]


def test_it_is_done_when_its_mover_is(watched: Watched) -> None:
    done = condition("Complete")
    watched.cluster.put(job(OWN.job, done, metadata=HELD), job(TRAIN.job, done))
    view, state = watched.look()
    assert (state.phase, state.pool) == (Phase.DONE, "own")
    assert view.done


def test_a_mover_that_is_not_there_is_said(watched: Watched) -> None:
    watched.cluster.drop("pods", f"{TRAIN.job}-a")
    watched.cluster.put(
        pod(watched.suspend(OWN, value=False), "b", phase="Running", node="gpu-1", state=running())
    )
    _, state = watched.look()
    assert state.phase is Phase.RUNNING
    assert "mover" in state.remark


def test_what_computes_is_shown_though_its_mover_is_held(watched: Watched) -> None:
    in_cluster = {"annotations": {"slipway/runs": "cluster-run"}}
    watched.cluster.drop("pods", f"{TRAIN.job}-a")
    watched.cluster.put(job(TRAIN.job, suspend=True, metadata=in_cluster))
    _, state = watched.look()
    assert (state.phase, state.pool) == (Phase.HELD, "spot")
    watched.runs_at_own()
    view, state = watched.look()
    assert (state.phase, state.pool) == (Phase.RUNNING, "own")
    assert "mover" in state.remark
    assert view.hourly == pytest.approx(4.0)


def test_the_plan_has_it_once_behind_what_its_jobs_wait_for() -> None:
    steps = {step.name: step for step in plan_of(moved()).steps}
    assert [*steps] == ["prepare", "train", "predict"]
    assert steps["train"].after == ["prepare"]
    assert [place.pool for place in steps["train"].places] == ["spot", "flex", "own"]
    assert len(steps["train"].probes) == 2


def test_slipway_run_and_stop_leave_its_jobs_to_the_mover(watched: Watched) -> None:
    watched.cluster.put(job("cluster-run", condition("Complete"), step="cluster-run.dev"))
    watched.suspend(OWN, value=False)
    server = watched.session.clusters.server("dev")
    assert list(Namespace(server, "slipway").stop()) == ["nothing runs"]
