"""Pods of one Job on several nodes: they find one another, wait for one that is lost, and share no node."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pulumi
import pytest

from slipway.rehearse.cluster import job_controller
from slipway.rehearse.cluster.job_controller import JOB_NAME
from slipway.rehearse.state import Phase
from tests.rehearse.toy import NODE, Toys, hosts_of, ignore_disruption, on_exit_code, rehearse, variable
from tests.support import rehearsing
from tests.support.rehearsing import phases, record

RULES = (ignore_disruption(), on_exit_code("Ignore", 137, 143, 15))


def training(
    count: int = 2,
    pause: float = 0.01,
    *,
    script: str = NODE,
    hosts: list[str] | None = None,
    declare: Callable[[Toys], pulumi.Resource | None] = lambda toys: toys.hosts("toy-train"),
    policies: Callable[[Toys], pulumi.Resource | None] = lambda _: None,
    cpu: str = "100m",
    env: Sequence[dict[str, Any]] = (),
) -> Callable[[], None]:
    def program() -> None:
        toys = Toys()
        before = [resource for resource in (policies(toys), declare(toys)) if resource]
        toys.job(
            "toy-train",
            script,
            "/store",
            str(pause),
            *(hosts or hosts_of("toy-train", count)),
            nodes=count,
            rules=RULES,
            deadline=60,
            cpu=cpu,
            env=env,
            after=before,
        )

    return program


def log(folder: Path) -> list[str]:
    return rehearsing.log(folder, "toy-train").splitlines()


def test_pods_reach_one_another_by_name_each_on_a_node_of_its_own(tmp_path: Path) -> None:
    outcome, printed = rehearse(training(3), tmp_path, machines=3)
    train = record(outcome)
    assert (train.phase, train.nodes, train.attempts) == (Phase.SUCCEEDED, 3, 3), printed
    assert sorted(train.node.split(", ")) == ["local-cpu-0", "local-cpu-1", "local-cpu-2"]
    assert train.epochs == (12, 12)
    assert len(set(re.findall(r"listens 127\.0\.0\.1 (\d+)", "\n".join(log(tmp_path))))) == 3
    assert "running on cpu, 3 nodes" in printed
    assert "succeeded, 3 pods on 3 nodes" in printed
    assert "3 pods on 3 nodes, each with what stands here" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_names_may_stand_in_variables_that_the_kubelet_completes(tmp_path: Path) -> None:
    env = [
        variable("JOB", field=f"metadata.labels['{JOB_NAME}']"),
        variable("FIRST", "$(JOB)-0.toy-train.toys.svc.cluster.local:2222"),
    ]
    script = NODE.replace('print("listens"', 'print("env", os.environ["FIRST"], words[4]); print("listens"')
    script = script.replace("words[2:]", "words[2:4]")
    hosts = [host.replace("toy-train-", "$(JOB)-") for host in hosts_of("toy-train", 2)]
    hosts.append("$(JOB)-$(JOB_COMPLETION_INDEX).toy-train:2221")
    outcome, printed = rehearse(training(script=script, hosts=hosts, env=env), tmp_path, machines=2)
    assert record(outcome).phase is Phase.SUCCEEDED, printed
    printed_hosts = [line.split()[2:] for line in log(tmp_path) if " env " in line]
    ports = {line.rsplit(maxsplit=1)[1] for line in log(tmp_path) if line.startswith("[0] listens")}
    assert {first for first, _ in printed_hosts} == {f"127.0.0.1:{port}" for port in ports}
    assert len({last for _, last in printed_hosts}) == 2


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 2])
def test_a_pod_that_is_evicted_keeps_its_address_and_the_others_wait_for_it(tmp_path: Path, index: int) -> None:
    disrupted = f"train:{index}"
    outcome, printed = rehearse(training(3, 0.05), tmp_path, disrupt=disrupted, machines=3)
    assert (record(outcome).phase, record(outcome).attempts) == (Phase.SUCCEEDED, 4), printed
    assert f"pod {index} evicted after epoch 4 (DisruptionTarget)" in printed
    assert f"pod {index}: container 'main' exited with 143 (Error); not counted, trying again" in printed
    ports = [line.rsplit(maxsplit=1)[1] for line in log(tmp_path) if line.startswith(f"[{index}] listens")]
    assert len(ports) == 2
    assert len(set(ports)) == 1
    starts = [int(line.rsplit(maxsplit=1)[1]) for line in log(tmp_path) if "begin after" in line]
    assert starts[0] == 0
    assert 4 <= starts[1] < 12
    assert "succeeded, 3 pods on 3 nodes, 4 pods in all" in printed


@pytest.mark.slow
def test_a_training_that_tells_of_no_epochs_loses_its_second_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_controller, "EVICT_NODE_AFTER", 0.5)
    quiet = NODE.replace('print(f"Epoch', 'print(f"Round')
    outcome, printed = rehearse(training(2, 0.2, script=quiet), tmp_path, disrupt="train", machines=2)
    assert (record(outcome).phase, record(outcome).attempts) == (Phase.SUCCEEDED, 3), printed
    assert "pod 1 evicted (DisruptionTarget)" in printed


@pytest.mark.slow
def test_more_pods_than_nodes_are_refused_with_the_figures(tmp_path: Path) -> None:
    outcome, printed = rehearse(training(3), tmp_path, machines=2)
    assert record(outcome).phase is Phase.FAILED
    assert record(outcome).reason == "3 pods need a node each, and 2 can take one (cpu: 2)", printed
    assert record(outcome).attempts == 0


@pytest.mark.slow
def test_a_pod_that_no_node_can_take_is_refused_with_the_reasons(tmp_path: Path) -> None:
    outcome, _ = rehearse(training(2, cpu="64"), tmp_path, machines=2)
    assert "no pool can take the pod (cpu: 2 Insufficient cpu (requested 64000m" in record(outcome).reason


@pytest.mark.slow
def test_a_pod_waits_for_a_node_that_another_job_holds(tmp_path: Path) -> None:
    """The pods that are there wait, as in a cluster."""

    def program() -> None:
        toys = Toys()
        script = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)"
        toys.job("before", script, "/store/listens", cpu="1900m")
        service = toys.hosts("toy-train")
        first = NODE.replace('print("listens"', 'pathlib.Path(words[0], "listens").touch(); print("listens"')
        arguments = ("/store", "0.01", *hosts_of("toy-train", 2))
        toys.job("toy-train", first, *arguments, nodes=2, cpu="1900m", deadline=60, after=[service])

    outcome, printed = rehearse(program, tmp_path, machines=2)
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}, printed
    notes = record(outcome, "toy-train").notes
    assert any("Insufficient cpu" in note for note in notes), notes


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (training(declare=lambda _: None), "there is no Service toy-train in toys"),
        (training(declare=lambda toys: toys.hosts("toy-train", ip="10.0.0.1")), "it is not headless"),
        (training(declare=lambda toys: toys.hosts("toy-train", {"toy": "other"})), "toy-train selects other pods"),
        (training(hosts=hosts_of("toy-train", 3)), "the host toy-train-2, and its pods have the indexes 0 to 1"),
    ],
)
def test_names_that_lead_to_no_pod_are_refused(tmp_path: Path, program: Callable[[], None], reason: str) -> None:
    outcome, printed = rehearse(program, tmp_path, machines=2)
    assert record(outcome).phase is Phase.FAILED
    assert reason in record(outcome).reason, printed


@pytest.mark.slow
def test_pods_that_no_policy_lets_connect_are_refused(tmp_path: Path) -> None:
    outcome, _ = rehearse(training(policies=lambda toys: toys.ingress_policy("deny", {})), tmp_path, machines=2)
    assert "port 2222 of one another, and no NetworkPolicy lets them connect (ingress)" in record(outcome).reason
    one_another = training(policies=lambda toys: toys.ingress_policy("allow", {}, {"toy": "toy-train"}))
    assert rehearse(one_another, tmp_path, machines=2)[0].exit_code == 0


def test_the_first_to_fail_fails_the_job_with_its_own_words(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "if os.environ['JOB_COMPLETION_INDEX'] == '1': sys.exit(print('no such digit') or 3)\n"
        "time.sleep(0.3); print('a neighbour failed', flush=True); sys.exit(15)\n"
    )
    outcome, printed = rehearse(training(script=script), tmp_path, machines=2)
    train = record(outcome)
    assert (train.phase, train.exit_code, train.index) == (Phase.FAILED, 3, 1), printed
    assert train.reason == "pod 1: container 'main' failed; its last line: no such digit (exit code 3)"
    assert train.message == "no such digit\n"
    shown = [line for line in printed.splitlines() if "│" in line]
    assert any("no such digit" in line for line in shown)
    assert not any("neighbour" in line for line in shown)


@pytest.mark.slow
def test_a_machine_that_runs_fewer_pods_at_a_time_runs_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipway.rehearse.engine.PODS", 1)
    outcome, printed = rehearse(training(4), tmp_path, machines=4)
    assert record(outcome).phase is Phase.SUCCEEDED, printed
