"""Services run beside the Jobs that name them, with their data, and are gone when the rehearsal is."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pulumi
import pulumi_kubernetes as k8s
import pytest

from infra.clouds.existing.emulator import Emulator as ExistingEmulator
from offline.rehearsal.cluster import services
from offline.rehearsal.output.outcome import Outcome
from offline.rehearsal.records import Phase, ServicePhase, ServiceRecord
from offline.rehearsal.session import configure
from tests.offline.rehearsal.toy import (
    ASK,
    COUNTER,
    COUNTER_ARGUMENTS,
    NAMESPACE,
    PASSWORD,
    ROOT,
    Toys,
    address_of,
    password_of,
    rehearse,
)

ENV = (address_of("toy-queue"), password_of("toy-queue"))


def counting(ask: str = "print('count', ask('add'))", name: str = "client") -> Callable[[], None]:
    def program() -> None:
        toys = Toys()
        toys.job(name, ASK + ask, env=ENV, after=toys.service("toy-queue", COUNTER, *COUNTER_ARGUMENTS))

    return program


def only(outcome: Outcome) -> ServiceRecord:
    (record,) = outcome.services
    return record


def log(folder: Path, name: str) -> str:
    return (folder / "logs" / f"{name}.log").read_text(encoding="utf-8")


def left(folder: Path) -> list[list[str]]:
    """Command lines of services of ``folder`` that still run."""
    commands: list[list[str]] = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    return [words for words in commands if any(word.startswith(str(folder)) for word in words)]


def test_a_job_reaches_a_service_by_its_address_and_its_password(tmp_path: Path) -> None:
    outcome, printed = rehearse(counting(), tmp_path)
    assert outcome.exit_code == 0, printed
    assert "count 1\n" in log(tmp_path, "client")
    record = only(outcome)
    assert (record.phase, record.starts, record.pool) == (ServicePhase.ENDED, 1, "cpu")
    assert record.peak_memory > 0
    assert record.seconds > 0
    assert left(tmp_path) == []
    written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(PASSWORD in text for text in [printed, *written])


@pytest.mark.slow
def test_its_data_outlives_the_rehearsal_and_an_unchanged_one_starts_nothing(tmp_path: Path) -> None:
    rehearse(counting(), tmp_path)
    unchanged, _ = rehearse(counting(), tmp_path)
    assert (only(unchanged).phase, only(unchanged).starts) == (ServicePhase.UNUSED, 0)
    rehearse(counting("print('again', ask('add'))"), tmp_path)
    assert "again 2\n" in log(tmp_path, "client")
    rehearse(counting(), tmp_path, fresh=True)
    assert "count 1\n" in log(tmp_path, "client")


@pytest.mark.slow
def test_the_data_goes_with_a_service_that_is_no_longer_declared(tmp_path: Path) -> None:
    rehearse(counting(), tmp_path)
    rehearse(lambda: Toys().job("other", "pass"), tmp_path)
    rehearse(counting(), tmp_path)
    assert "count 1\n" in log(tmp_path, "client")


@pytest.mark.slow
def test_a_service_that_dies_is_started_again_with_its_data(tmp_path: Path) -> None:
    asked = "print(ask('add')); ask('die'); print('count', ask('add', tries=100))"
    outcome, printed = rehearse(counting(asked), tmp_path)
    assert outcome.exit_code == 0, printed
    assert "count 2\n" in log(tmp_path, "client")
    assert only(outcome).starts == 2
    assert "toy-queue: container 'main' exited with 7 (Error); starting again" in printed


@pytest.mark.slow
def test_only_this_machine_reaches_it(tmp_path: Path) -> None:
    listening = "{each.laddr.ip for each in psutil.net_connections() if each.laddr.port == int(port)}"
    rehearse(counting(f"import psutil; print({listening})"), tmp_path)
    assert "{'127.0.0.1'}\n" in log(tmp_path, "client")


@pytest.mark.slow
def test_a_service_of_http_is_ready_when_it_answers_and_its_url_leads_to_it(tmp_path: Path) -> None:
    serve = (
        "import http.server, sys, time; time.sleep(0.5)\n"
        "http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind=sys.argv[2])"
    )
    read = "import sys, urllib.request; print('says', urllib.request.urlopen(sys.argv[1]).status)"

    def program() -> None:
        toys = Toys()
        there = toys.service("toy-queue", serve, "6379", "0.0.0.0", http="/")
        toys.job("client", read, "http://toy-queue.toys.svc:6379/", after=there)

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 0, printed
    assert "says 200\n" in log(tmp_path, "client")


@pytest.mark.slow
def test_a_service_that_cannot_start_fails_the_job_with_its_last_lines(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        broken = toys.service("toy-queue", "print('no such option: x'); raise SystemExit(2)")
        toys.job("first", ASK, env=ENV, after=broken)
        toys.job("second", ASK, env=ENV, after=broken)
        toys.job("other", "print('needs no service')")

    outcome, printed = rehearse(program, tmp_path)
    assert {record.name: record.phase for record in outcome.records} == {
        "first": Phase.FAILED,
        "second": Phase.FAILED,
        "other": Phase.SUCCEEDED,
    }
    assert "service toy-queue is not ready: container 'main' exited with 2 (Error)" in printed
    assert "no such option: x" in printed
    assert only(outcome).starts == services.TRIES


@pytest.mark.slow
def test_a_service_whose_probe_never_succeeds_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "READY_WITHIN", 0.5)

    def program() -> None:
        toys = Toys()
        deaf = toys.service("toy-queue", "import time; print('thinking', flush=True); time.sleep(600)", "/data")
        toys.job("client", ASK, env=ENV, after=deaf)

    outcome, printed = rehearse(program, tmp_path)
    assert "its readiness probe does not succeed within 0.5 s" in printed
    assert "thinking" in printed
    assert only(outcome).phase is ServicePhase.FAILED
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_service_takes_its_place_on_a_node_for_as_long_as_the_rehearsal_runs(tmp_path: Path) -> None:
    nodes = ExistingEmulator(configure("local", ROOT).settings.request).standing_nodes()
    whole = f"{max(node.allocatable.cpu for node in nodes)}m"
    count = sum(node.count for node in nodes)

    def program() -> None:
        toys = Toys()
        there: list[pulumi.Resource] = []
        for number in range(count):
            there += toys.service(f"service-{number}", COUNTER, *COUNTER_ARGUMENTS, cpu=whole)
        toys.job("late", "pass", after=there)

    outcome, printed = rehearse(program, tmp_path)
    assert [record.phase for record in outcome.records] == [Phase.FAILED]
    assert "beside the services that run there" in printed
    assert len({service.node for service in outcome.services}) == count


@pytest.mark.slow
def test_a_service_is_held_to_its_memory_limit(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        hungry = COUNTER.replace("os._exit(7)", "globals().update(kept=b'x' * 300 * 2**20)")
        there = toys.service("toy-queue", hungry, *COUNTER_ARGUMENTS, memory="128Mi")
        toys.job("client", ASK + "ask('die'); time.sleep(1); ask('add', tries=100)", env=ENV, after=there)

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 0, printed
    assert "exited with 137 (OOMKilled); starting again" in printed
    assert only(outcome).starts == 2


def test_a_job_that_no_network_policy_lets_connect_is_refused(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        there = toys.service("toy-queue", COUNTER, *COUNTER_ARGUMENTS)
        clients = k8s.networking.v1.NetworkPolicyPeerArgs(
            pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels={"role": "client"})
        )
        policy = k8s.networking.v1.NetworkPolicy(
            "toy-queue",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="toy-queue", namespace=NAMESPACE),
            spec=k8s.networking.v1.NetworkPolicySpecArgs(
                pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels={"slipway/service": "toy-queue"}),
                policy_types=["Ingress"],
                ingress=[k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=[clients])],
            ),
            opts=toys.options([toys.namespace]),
        )
        toys.job("stranger", ASK, env=ENV, after=[*there, policy])

    outcome, printed = rehearse(program, tmp_path)
    assert "no NetworkPolicy lets its pods connect there (ingress)" in printed
    assert only(outcome).starts == 0


def test_a_schedule_is_created_and_said(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        pod = k8s.core.v1.PodTemplateSpecArgs(
            spec=k8s.core.v1.PodSpecArgs(
                restart_policy="Never",
                containers=[k8s.core.v1.ContainerArgs(name="run", image="x", command=["x"])],
            )
        )
        job = k8s.batch.v1.JobTemplateSpecArgs(spec=k8s.batch.v1.JobSpecArgs(template=pod))
        for name, schedule in (("daily", "0 3 * * *"), ("weekdays", "*/5 3 * * 1-5")):
            k8s.batch.v1.CronJob(
                name,
                metadata=k8s.meta.v1.ObjectMetaArgs(name=name, namespace=NAMESPACE),
                spec=k8s.batch.v1.CronJobSpecArgs(schedule=schedule, time_zone="Europe/Berlin", job_template=job),
                opts=toys.options([toys.namespace]),
            )

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 0
    assert "daily runs at 03:00 Europe/Berlin; a rehearsal runs its Jobs once, now" in printed
    assert "weekdays runs at `*/5 3 * * 1-5` Europe/Berlin" in printed
    assert "runs at 03:00 Europe/Berlin" in (tmp_path / "report.html").read_text(encoding="utf-8")
