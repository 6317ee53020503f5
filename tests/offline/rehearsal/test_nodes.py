"""Pods of one Job on several nodes: they find one another, wait for one that is lost, and share no node."""

import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pulumi_kubernetes as k8s
import pytest

from offline.rehearsal.cluster import job_controller
from offline.rehearsal.cluster.job_controller import JOB_NAME
from offline.rehearsal.output.outcome import Outcome
from offline.rehearsal.records import JobRecord, Phase
from tests.offline.rehearsal.test_interrupt import descendants, gone
from tests.offline.rehearsal.toy import (
    NAMESPACE,
    NODE,
    ROOT,
    Toys,
    hosts_of,
    ignore_disruption,
    nodes,
    on_exit_code,
    rehearse,
)

RULES = (ignore_disruption, lambda: on_exit_code("Ignore", 137, 143, 15))


def training(
    count: int = 2,
    pause: float = 0.01,
    *,
    script: str = NODE,
    hosts: list[str] | None = None,
    declare: Callable[[Toys], k8s.core.v1.Service | None] = lambda toys: toys.hosts("toy-train"),
    policies: Callable[[Toys], k8s.networking.v1.NetworkPolicy | None] = lambda _: None,
    cpu: str = "100m",
    env: Sequence[k8s.core.v1.EnvVarArgs] = (),
) -> Callable[[], None]:
    def program() -> None:
        toys = Toys()
        before = [each for each in (policies(toys), declare(toys)) if each]
        toys.job(
            "toy-train",
            script,
            "/store",
            str(pause),
            *(hosts or hosts_of("toy-train", count)),
            nodes=count,
            rules=[rule() for rule in RULES],
            deadline=60,
            cpu=cpu,
            env=env,
            after=before,
        )

    return program


def only(outcome: Outcome) -> JobRecord:
    (record,) = outcome.records
    return record


def log(folder: Path, name: str = "toy-train") -> list[str]:
    return (folder / "logs" / f"{name}.log").read_text(encoding="utf-8").splitlines()


def test_pods_reach_one_another_by_name_each_on_a_node_of_its_own(tmp_path: Path) -> None:
    outcome, printed = rehearse(training(3), tmp_path, machines=3)
    record = only(outcome)
    assert (record.phase, record.nodes, record.attempts) == (Phase.SUCCEEDED, 3, 3), printed
    assert record.node.split(", ") != []
    assert sorted(record.node.split(", ")) == ["local-cpu-0", "local-cpu-1", "local-cpu-2"]
    assert record.epochs == (12, 12)
    there = {line for line in log(tmp_path) if "there" in line}
    ports = {match[1] for line in there if (match := re.search(r"there 127\.0\.0\.1 (\d+)", line))}
    assert len(ports) == 3, there
    assert "running in 3 pods on 3 nodes of cpu" in printed
    assert "succeeded, 3 pods on 3 nodes" in printed
    assert "3 pods on 3 nodes, each with what stands here" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_names_may_stand_in_variables_that_the_kubelet_completes(tmp_path: Path) -> None:
    label = k8s.core.v1.ObjectFieldSelectorArgs(field_path=f"metadata.labels['{JOB_NAME}']")
    env = [
        k8s.core.v1.EnvVarArgs(name="JOB", value_from=k8s.core.v1.EnvVarSourceArgs(field_ref=label)),
        k8s.core.v1.EnvVarArgs(name="FIRST", value="$(JOB)-0.toy-train.toys.svc.cluster.local:2222"),
    ]
    script = NODE.replace('print("there"', 'print("env", os.environ["FIRST"], words[4]); print("there"')
    script = script.replace("words[2:]", "words[2:4]")
    hosts = [each.replace("toy-train-", "$(JOB)-") for each in hosts_of("toy-train", 2)]
    hosts.append("$(JOB)-$(JOB_COMPLETION_INDEX).toy-train:2221")
    outcome, printed = rehearse(training(script=script, hosts=hosts, env=env), tmp_path, machines=2)
    assert only(outcome).phase is Phase.SUCCEEDED, printed
    said = [line.split()[2:] for line in log(tmp_path) if " env " in line]
    ports = {line.rsplit(maxsplit=1)[1] for line in log(tmp_path) if line.startswith("[0] there")}
    assert {first for first, _ in said} == {f"127.0.0.1:{port}" for port in ports}
    assert len({own for _, own in said}) == 2


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 2])
def test_a_pod_that_is_evicted_keeps_its_address_and_the_others_wait_for_it(tmp_path: Path, index: int) -> None:
    disrupted = f"train:{index}"
    outcome, printed = rehearse(training(3, 0.05), tmp_path, disrupt=disrupted, machines=3)
    record = only(outcome)
    assert (record.phase, record.attempts) == (Phase.SUCCEEDED, 4), printed
    assert f"pod {index} evicted after epoch 4 (DisruptionTarget)" in printed
    assert f"pod {index}: container 'main' exited with 143 (Error); not counted, trying again" in printed
    there = [line.rsplit(maxsplit=1)[1] for line in log(tmp_path) if line.startswith(f"[{index}] there")]
    assert len(there) == 2
    assert len(set(there)) == 1
    starts = [int(line.rsplit(maxsplit=1)[1]) for line in log(tmp_path) if "begin after" in line]
    assert starts[0] == 0
    assert 4 <= starts[1] < 12
    assert "succeeded, 3 pods on 3 nodes, 4 pods in all" in printed


@pytest.mark.slow
def test_a_training_that_tells_of_no_epochs_loses_its_second_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_controller, "EVICT_NODE_AFTER", 0.5)
    quiet = NODE.replace('print(f"Epoch', 'print(f"Step')
    outcome, printed = rehearse(training(2, 0.2, script=quiet), tmp_path, disrupt="train", machines=2)
    assert (only(outcome).phase, only(outcome).attempts) == (Phase.SUCCEEDED, 3), printed
    assert "pod 1 evicted (DisruptionTarget)" in printed


@pytest.mark.slow
def test_more_pods_than_nodes_are_refused_with_the_figures(tmp_path: Path) -> None:
    outcome, printed = rehearse(training(3), tmp_path, machines=2)
    assert only(outcome).phase is Phase.FAILED
    assert only(outcome).reason == "3 pods need a node each, and 2 can take one (cpu: 2)", printed
    assert only(outcome).attempts == 0


@pytest.mark.slow
def test_a_pod_that_no_node_can_take_is_refused_with_the_reasons(tmp_path: Path) -> None:
    outcome, _ = rehearse(training(2, cpu="64"), tmp_path, machines=2)
    assert "no pool can take the pod (cpu: 2 Insufficient cpu (requested 64000m" in only(outcome).reason


@pytest.mark.slow
def test_a_pod_waits_for_a_node_that_another_job_holds(tmp_path: Path) -> None:
    """The pods that are there wait, as in a cluster."""

    def program() -> None:
        toys = Toys()
        script = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)"
        toys.job("before", script, "/store/there", cpu="1900m")
        service = toys.hosts("toy-train")
        first = NODE.replace('print("there"', 'pathlib.Path(words[0], "there").touch(); print("there"')
        arguments = ("/store", "0.01", *hosts_of("toy-train", 2))
        toys.job("toy-train", first, *arguments, nodes=2, cpu="1900m", deadline=60, after=[service])

    outcome, printed = rehearse(program, tmp_path, machines=2)
    assert {record.phase for record in outcome.records} == {Phase.SUCCEEDED}, printed
    train = next(record for record in outcome.records if record.name == "toy-train")
    assert any("Insufficient cpu" in note for note in train.notes), train.notes


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
    assert only(outcome).phase is Phase.FAILED
    assert reason in only(outcome).reason, printed


def policy(
    name: str, toys: Toys, rules: list[k8s.networking.v1.NetworkPolicyIngressRuleArgs]
) -> k8s.networking.v1.NetworkPolicy:
    return k8s.networking.v1.NetworkPolicy(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(name=name, namespace=NAMESPACE),
        spec=k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=k8s.meta.v1.LabelSelectorArgs(), policy_types=["Ingress"], ingress=rules
        ),
        opts=toys.options([toys.namespace]),
    )


@pytest.mark.slow
def test_pods_that_no_policy_lets_connect_are_refused(tmp_path: Path) -> None:
    program = training(policies=lambda toys: policy("deny", toys, []))
    outcome, _ = rehearse(program, tmp_path, machines=2)
    assert "port 2222 of one another, and no NetworkPolicy lets them connect (ingress)" in only(outcome).reason

    def own(toys: Toys) -> k8s.networking.v1.NetworkPolicy:
        pods = k8s.meta.v1.LabelSelectorArgs(match_labels={"toy": "toy-train"})
        peer = k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=pods)
        return policy("own", toys, [k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=[peer])])

    assert rehearse(training(policies=own), tmp_path, machines=2)[0].exit_code == 0


def test_the_first_to_fail_fails_the_job_with_its_own_words(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "if os.environ['JOB_COMPLETION_INDEX'] == '1': sys.exit(print('no such digit') or 3)\n"
        "time.sleep(0.3); print('a neighbour failed', flush=True); sys.exit(15)\n"
    )
    outcome, printed = rehearse(training(script=script), tmp_path, machines=2)
    record = only(outcome)
    assert (record.phase, record.exit_code, record.index) == (Phase.FAILED, 3, 1), printed
    assert record.reason == "BackoffLimitExceeded: pod 1: container 'main' exited with 3 (Error)"
    assert record.message == "no such digit\n"
    shown = [line for line in printed.splitlines() if "│" in line]
    assert any("no such digit" in line for line in shown)
    assert not any("neighbour" in line for line in shown)


@pytest.mark.slow
def test_a_machine_that_runs_fewer_pods_at_a_time_runs_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offline.rehearsal.engine.PODS", 1)
    outcome, printed = rehearse(training(4), tmp_path, machines=4)
    assert only(outcome).phase is Phase.SUCCEEDED, printed


def processes(folder: Path) -> list[psutil.Process]:
    """Those of pods of ``folder``."""
    found: list[psutil.Process] = []
    for each in psutil.process_iter(["cmdline"]):
        words: list[str] = each.info["cmdline"] or []
        if "-c" in words and any(word.startswith(str(folder)) for word in words):
            found.append(each)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_whichever_pod_is_killed_the_training_ends_the_same(tmp_path: Path, seed: int) -> None:
    chance, over = random.Random(seed), threading.Event()

    def kill() -> None:
        killed = 0
        while killed < 3 and not over.wait(chance.uniform(0.1, 0.6)):
            if there := processes(tmp_path):
                chance.choice(there).kill()
                killed += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        outcome, printed = rehearse(training(3, 0.1), tmp_path, machines=3)
    finally:
        over.set()
        killer.join()
    record = only(outcome)
    assert (record.phase, record.epochs) == (Phase.SUCCEEDED, (12, 12)), printed
    assert 3 < record.attempts <= 6
    assert (tmp_path / "store" / "epochs").read_text() == "12"
    assert processes(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_pod_outlives_a_rehearsal(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.offline.rehearsal.toy", str(tmp_path), nodes.__name__, "3"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline, file = time.monotonic() + 30, tmp_path / "store" / "epochs"
    while not file.exists():
        assert time.monotonic() < deadline, "the training did not begin"
        time.sleep(0.05)
    children = descendants(process)
    assert len(children) >= 4, "the reaper and the pods"
    process.send_signal(number)
    process.communicate(timeout=30)
    assert gone(children)
    outcome, printed = rehearse(nodes, tmp_path, machines=3)
    assert only(outcome).phase is Phase.SUCCEEDED, printed
