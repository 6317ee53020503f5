"""`make watch` and `make logs` as somebody calls them, against a stack of this checkout."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipway.command.app import app
from slipway.command.watch import cli as watch
from slipway.command.watch import logs
from slipway.command.watch.plan import Plan, plan_of
from slipway.infra.review.stack import Stack
from tests.command.watch.cluster import TAKEN, Cluster, condition, ended, job, pod, running, serving, stamped

ROOT = Path(__file__).parents[3]


@pytest.fixture(name="local", scope="module")
def the_local_stack() -> Plan:
    stack: Stack = watch.evaluate("local", ROOT)
    return plan_of(stack)


@pytest.fixture(name="cluster")
def a_cluster(tmp_path: Path, local: Plan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(watch, "load_plan", lambda _: local)
    with serving(Cluster(), tmp_path / "kubeconfig") as cluster:
        cluster.logs["kubeconfig"] = str(tmp_path / "kubeconfig")
        for step in local.steps[:3]:
            made = job(step.job, condition("Complete"), step=f"{step.pipeline}.{step.step}")
            cluster.put(made, pod(made, phase="Succeeded", node="n1", state=ended(0)))
            cluster.logs[f"{step.job}-a"] = stamped(f"{step.name} did its work")
        yield cluster


def call(cluster: Cluster, *words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [*words, "--kubeconfig", cluster.logs["kubeconfig"]])
    return done.exit_code, done.stdout, done.stderr


def train(cluster: Cluster, local: Plan, *, code: int | None = None, pods: int = 1) -> None:
    step = next(each for each in local.steps if each.step == "train")
    failed = [condition("Failed", reason="BackoffLimitExceeded")] if code else []
    made = job(step.job, *failed, pods=pods)
    old = pod(made, "a", TAKEN, phase="Failed", node="n0", state=ended(143, at=400), index=0, age=560)
    cluster.put(made, old)
    cluster.logs[f"{step.job}-a"] = stamped(
        "Training", "error: stopped by SIGTERM: the same command goes on", age=500
    )
    for index in range(pods):
        state = ended(code, "error: no (exit code 3)") if code else running()
        suffix = "bcd"[index]
        cluster.put(pod(made, suffix, phase="Failed" if code else "Running", node="n1", state=state, index=index))
        cluster.logs[f"{step.job}-{suffix}"] = stamped(f"Resuming, pod {index}")


@pytest.mark.slow
def test_the_plan_is_what_the_program_declares(local: Plan) -> None:
    assert [step.name for step in local.steps] == [
        "store-gate-local",
        "packages-mnist",
        "mnist-prepare",
        "mnist-train",
        "mnist-predict",
    ]
    assert list(local.steps[2].after) == ["store-gate-local", "packages-mnist"]
    assert list(local.steps[3].after) == ["store-gate-local", "mnist-prepare"]
    assert local.places[0].kubeconfig == "~/.kube/config"
    assert local.instance == "slipway.local"


def test_once_prints_a_table_and_ends(cluster: Cluster, local: Plan) -> None:
    train(cluster, local)
    code, out, _ = call(cluster, "watch", "--stack", "local", "--once", "--format", "json")
    content = json.loads(out)
    phases = {step["name"]: step["phase"] for step in content["steps"]}
    assert (code, content["format"], phases["mnist-prepare"], phases["mnist-train"]) == (0, 1, "done", "running")
    code, out, _ = call(cluster, "watch", "--stack", "local", "--once")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert any(line.startswith("✔ mnist-prepare cpu done") for line in lines)
    assert any(line.startswith("▶ mnist-train cpu runs: Resuming, pod 0 (started again once)") for line in lines)
    assert any(line.startswith("· mnist-predict cpu not created: mnist-train comes before it") for line in lines)


def test_without_a_terminal_it_ends_once_a_step_failed(cluster: Cluster, local: Plan) -> None:
    train(cluster, local, code=3)
    code, out, _ = call(cluster, "watch", "--stack", "local")
    assert code == 1
    assert "mnist-train: failed: no (exit code 3)" in out
    assert "no node" in out.splitlines()[-1]


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_an_exit_code(cluster: Cluster) -> None:
    cluster.refused["/apis/batch/v1/namespaces/slipway/jobs"] = (403, "jobs.batch is forbidden")
    code, out, _ = call(cluster, "watch", "--stack", "local", "--once")
    assert code == 2
    assert "jobs.batch is forbidden" in out


@pytest.mark.slow
def test_a_stack_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["watch", "--stack", "nonsense", "--once"])
    assert done.exit_code == 2
    assert "there is no stack 'nonsense'" in done.stderr
    assert "Traceback" not in done.stderr
    assert CliRunner().invoke(app, ["watch"]).exit_code == 2


def test_who_names_no_step_is_told_the_command_for_the_stack_that_was_named() -> None:
    done = CliRunner().invoke(app, ["logs", "--stack", "gcp-dev"])
    assert done.exit_code == 2
    assert "STACK=gcp-dev STEP=" in done.stderr


def test_the_log_of_the_newest_pod_is_printed(cluster: Cluster, local: Plan) -> None:
    train(cluster, local)
    code, out, err = call(cluster, "logs", "--stack", "local", "--step", "train")
    assert (code, out) == (0, "Resuming, pod 0\n")
    assert "attempt 2 of 2, rank 0, pod" in err


def test_the_logs_of_replaced_pods_come_first(cluster: Cluster, local: Plan) -> None:
    train(cluster, local)
    code, out, err = call(cluster, "logs", "--stack", "local", "--step", "mnist.train", "--attempts")
    assert code == 0
    assert out.splitlines()[0] == "Training"
    assert out.splitlines()[-1] == "Resuming, pod 0"
    assert "attempt 1 of 2, rank 0, pod" in err
    assert "ended because its node was shut down" in err


def test_lines_of_several_pods_have_their_rank(cluster: Cluster, local: Plan) -> None:
    train(cluster, local, pods=2)
    _, out, _ = call(cluster, "logs", "--stack", "local", "--step", "mnist-train")
    assert out.splitlines() == ["0 | Resuming, pod 0", "1 | Resuming, pod 1"]


def test_following_ends_with_the_step(cluster: Cluster, local: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "STATE_PAUSE", 0.1)
    train(cluster, local, code=3)
    code, out, err = call(cluster, "logs", "--stack", "local", "--step", "train", "--follow")
    assert (code, out) == (1, "Resuming, pod 0\n")
    assert "mnist-train: failed: no (exit code 3)" in err


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("nonsense", "'nonsense'; it has store-gate-local, packages-mnist, mnist-prepare"),
        ("predict", "not created: mnist-train comes before it"),
        ("", "make logs STACK=local STEP=train"),
    ],
)
def test_a_step_without_a_log_is_one_line(cluster: Cluster, local: Plan, step: str, says: str) -> None:
    train(cluster, local)
    code, out, err = call(cluster, "logs", "--stack", "local", "--step", step)
    assert (code, out) == (2, "")
    assert says in " ".join(err.split())


def test_a_log_that_is_gone_is_told_so(cluster: Cluster, local: Plan) -> None:
    (prepare,) = [step for step in local.steps if step.step == "prepare"]
    del cluster.logs[f"{prepare.job}-a"]
    code, _, err = call(cluster, "logs", "--stack", "local", "--step", "prepare")
    assert code == 2
    assert "the cluster has no log of pod" in err
