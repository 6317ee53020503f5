"""Services and apps run beside Jobs, have to become ready, and are gone when the rehearsal is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from slipway.infra.clouds.existing.platforms import Emulator as ExistingEmulator
from slipway.infra.kubernetes.labels import APP
from slipway.rehearse.cluster import services
from slipway.rehearse.session import configure
from slipway.rehearse.state import Phase, ServicePhase
from tests.rehearse.toy import (
    ASK,
    COUNTER,
    COUNTER_ARGUMENTS,
    PASSWORD,
    SITE,
    Toys,
    address_of,
    password_of,
    rehearse,
    variable,
)
from tests.support.checkout import ROOT
from tests.support.rehearsing import log, phases, processes_of, server_record, texts_below

ENV = (address_of("toy-queue"), password_of("toy-queue"))
READ = "import sys, urllib.request; print('read', urllib.request.urlopen('http://' + sys.argv[1]).read().decode())"


def counting(ask: str = "print('count', ask('add'))", script: str = COUNTER, **service: Any) -> Callable[[], None]:
    def program() -> None:
        toys = Toys()
        queue = toys.service("toy-queue", script, *COUNTER_ARGUMENTS, **service)
        toys.job("client", ASK + ask, env=ENV, after=queue)

    return program


def serving(script: str = SITE) -> None:
    toys = Toys()
    write = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('seven')"
    model = toys.job("train", write, "/store/model")
    toys.app("serving", script, "0.0.0.0:8000", "/store/model", after=[model])


def test_a_job_reaches_a_service_by_its_address_and_its_password(tmp_path: Path) -> None:
    listening = "{socket.laddr.ip for socket in psutil.net_connections() if socket.laddr.port == int(port)}"
    ask = f"import psutil; print('count', ask('add'), {listening})"
    outcome, printed = rehearse(counting(ask), tmp_path)
    assert outcome.exit_code == 0, printed
    assert "count 1 {'127.0.0.1'}\n" in log(tmp_path, "client"), "only this machine reaches it"
    queue = server_record(outcome)
    assert (queue.phase, queue.starts, queue.pool) == (ServicePhase.ENDED, 1, "cpu")
    assert queue.peak_memory > 0
    assert queue.seconds > 0
    assert processes_of(tmp_path) == []
    assert not any(PASSWORD in text for text in [printed, *texts_below(tmp_path)])


def test_a_volume_that_cannot_be_made_is_the_reason_why_a_service_does_not_start(tmp_path: Path) -> None:
    rehearse(lambda: Toys().job("other", "pass"), tmp_path)
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "toy-queue").write_text("in the way")
    outcome, printed = rehearse(counting(), tmp_path)
    assert server_record(outcome).phase is ServicePhase.FAILED
    assert f"{tmp_path}/services/toy-queue" in server_record(outcome).reason
    assert "did not start" not in printed


@pytest.mark.slow
def test_its_data_is_kept_while_it_is_declared_and_an_unchanged_one_starts_nothing(tmp_path: Path) -> None:
    rehearse(counting(), tmp_path)
    unchanged, _ = rehearse(counting(), tmp_path)
    assert (server_record(unchanged).phase, server_record(unchanged).starts) == (ServicePhase.UNUSED, 0)
    rehearse(counting("print('again', ask('add'))"), tmp_path)
    assert "again 2\n" in log(tmp_path, "client")
    rehearse(counting(), tmp_path, fresh=True)
    assert "count 1\n" in log(tmp_path, "client")
    rehearse(lambda: Toys().job("other", "pass"), tmp_path)
    rehearse(counting(), tmp_path)
    assert "count 1\n" in log(tmp_path, "client"), "the data went with the service that nobody declared"


@pytest.mark.slow
def test_a_service_that_dies_is_started_again_with_its_data(tmp_path: Path) -> None:
    outcome, printed = rehearse(
        counting("print(ask('add')); ask('die'); print('count', ask('add', tries=100))"), tmp_path
    )
    assert outcome.exit_code == 0, printed
    assert "count 2\n" in log(tmp_path, "client")
    assert server_record(outcome).starts == 2
    assert "toy-queue: container 'main' exited with 7 (Error); starting again" in printed


@pytest.mark.slow
def test_a_service_is_held_to_its_memory_limit(tmp_path: Path) -> None:
    hungry = COUNTER.replace("os._exit(7)", "globals().update(kept=b'x' * 300 * 2**20)")
    # A connection that stays open ends with the server, however soon another one listens there.
    until_killed = (
        "try:\n    with socket.create_connection((host, int(port))) as kept:\n"
        "        kept.sendall(f\"{os.environ['QUEUE_PASSWORD']} die\\n\".encode())\n"
        "        while kept.recv(100): pass\nexcept OSError: pass\n"
    )
    program = counting(f"{until_killed}ask('add', tries=100)", script=hungry, memory="128Mi")
    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 0, printed
    assert "exited with 137 (OOMKilled); starting again" in printed
    assert server_record(outcome).starts == 2


@pytest.mark.slow
def test_a_service_of_http_is_ready_when_it_answers_and_its_url_leads_to_it(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        site = toys.service("toy-queue", f"import time; time.sleep(0.5)\n{SITE}", "0.0.0.0:6379", http="/")
        toys.job("client", READ, "toy-queue.toys.svc:6379/", after=site)

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 0, printed
    assert "read nothing\n" in log(tmp_path, "client")


def broken(kind: str, script: str) -> Callable[[], None]:
    """A program with a service that two Jobs name, or with an app."""

    def program() -> None:
        if kind == "app":
            serving(script)
            return
        toys = Toys()
        queue = toys.service("toy-queue", script)
        for name in ("first", "second"):
            toys.job(name, ASK, env=ENV, after=queue)
        toys.job("other", "print('needs no service')")

    return program


REASONS = {"service": "service toy-queue is not ready: ", "app": "serving failed: app serving is not ready: "}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REASONS)
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("print('last words'); raise SystemExit(2)", "container 'main' exited with 2 (Error)"),
        (
            "import time; print('last words', flush=True); time.sleep(600)",
            "its readiness probe does not succeed within 0.5 s",
        ),
    ],
)
def test_what_does_not_become_ready_fails_what_needs_it_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, script: str, reason: str
) -> None:
    if "probe" in reason:
        monkeypatch.setattr(services, "READY_WITHIN", 0.5)
    outcome, printed = rehearse(broken(kind, script), tmp_path)
    assert outcome.exit_code == 1
    if kind == "service":
        assert phases(outcome) == {"first": Phase.FAILED, "second": Phase.FAILED, "other": Phase.SUCCEEDED}
    assert REASONS[kind] + reason in printed
    assert "last words" in printed
    assert server_record(outcome).phase is ServicePhase.FAILED
    assert server_record(outcome).starts == (1 if "probe" in reason else services.TRIES)
    assert processes_of(tmp_path) == []


@pytest.mark.slow
def test_a_service_takes_its_place_on_a_node_for_as_long_as_the_rehearsal_runs(tmp_path: Path) -> None:
    nodes = ExistingEmulator(configure("local", ROOT).settings.request).standing_nodes()
    whole = f"{max(node.allocatable.cpu for node in nodes)}m"
    count = sum(node.count for node in nodes)

    def program() -> None:
        toys = Toys()
        servers: list[pulumi.Resource] = []
        for number in range(count):
            servers += toys.service(f"service-{number}", COUNTER, *COUNTER_ARGUMENTS, cpu=whole)
        toys.job("late", "pass", after=servers)

    outcome, printed = rehearse(program, tmp_path)
    assert list(phases(outcome).values()) == [Phase.FAILED]
    assert "beside the services that run there" in printed
    assert len({service.node for service in outcome.services}) == count


@pytest.mark.slow
def test_pods_of_an_app_take_their_places_and_one_of_them_runs(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        toys.app("none", SITE, "0.0.0.0:8000", replicas=0)
        toys.app("few", SITE, "0.0.0.0:8000", replicas=3)
        toys.app("many", SITE, "0.0.0.0:8000", replicas=3, cpu="700m")

    outcome, printed = rehearse(program, tmp_path)
    assert "1 of 3 pods" in printed
    assert [service.name for service in outcome.services if service.starts] == ["few"]
    assert "many failed: no pool can take the pod" in printed
    assert "beside the services that run there" in printed
    assert outcome.exit_code == 1


def test_a_job_that_no_network_policy_lets_connect_is_refused(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        queue = toys.service("toy-queue", COUNTER, *COUNTER_ARGUMENTS)
        policy = toys.ingress_policy("toy-queue", {"slipway/service": "toy-queue"}, {"role": "client"})
        toys.job("stranger", ASK, env=ENV, after=[*queue, policy])

    outcome, printed = rehearse(program, tmp_path)
    assert "no NetworkPolicy lets its pods connect there (ingress)" in printed
    assert server_record(outcome).starts == 0


@pytest.mark.slow
def test_an_app_that_no_network_policy_lets_connect_is_refused(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        target = toys.app("serving", SITE, "0.0.0.0:8000")
        policy = toys.ingress_policy("serving", {APP: "serving"}, {APP: "page"})
        for name in ("page", "stranger"):
            env = [variable("SERVING_ADDRESS", "serving:8000")]
            toys.app(name, SITE, "0.0.0.0:8000", env=env, after=[*target, policy])

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 1
    assert "stranger failed: app stranger is not ready: it names the address of app serving" in printed
    assert "no NetworkPolicy lets its pods connect there (ingress); name the app in `connects`" in printed
    assert {service.name: service.phase for service in outcome.services} == {
        "serving": ServicePhase.ENDED,
        "page": ServicePhase.ENDED,
        "stranger": ServicePhase.FAILED,
    }


@pytest.mark.slow
def test_an_app_starts_after_its_job_answers_and_ends_with_the_rehearsal(tmp_path: Path) -> None:
    outcome, printed = rehearse(serving, tmp_path)
    assert outcome.exit_code == 0, printed
    assert "says seven\n" in log(tmp_path, "serving")
    app = server_record(outcome)
    assert (app.kind, app.phase, app.starts, app.pool) == ("app", ServicePhase.ENDED, 1, "cpu")
    assert "serving: ready on local-cpu-0 after" in printed
    assert "was ready, ended" in printed
    assert processes_of(tmp_path) == []
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "logs/serving.log" in report
    assert '<span class="small soft">app, ran for' in report

    outcome, printed = rehearse(serving, tmp_path)
    assert not outcome.executed
    assert server_record(outcome).starts == 1, printed


def test_an_app_whose_job_failed_is_not_started(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        toys.app("serving", SITE, "8000", after=[toys.job("train", "raise SystemExit(3)")])

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 1
    assert outcome.services == []
    assert "Not run, for they need what failed: serving\n" in printed


@pytest.mark.slow
def test_an_app_and_a_later_job_reach_another_by_its_address(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        page = "import os; address = os.environ['SERVING_ADDRESS']; print('asks', address)\n" + SITE
        target = toys.app("serving", SITE, "0.0.0.0:8000")
        env = [variable("SERVING_ADDRESS", "serving:8000")]
        toys.app("page", page, "0.0.0.0:8000", env=env, after=target)
        toys.job("client", READ, "serving:8000", after=target)

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 0, printed
    assert "read nothing\n" in log(tmp_path, "client")
    assert "asks 127.0.0.1:" in log(tmp_path, "page")


@pytest.mark.slow
def test_the_volume_of_an_app_stays_from_rehearsal_to_rehearsal(tmp_path: Path) -> None:
    script = "import pathlib, sys; n = pathlib.Path(sys.argv[3], 'n'); n.open('a').write('x')\n"
    script += "print('kept', n.read_text(), flush=True)\n"

    def program() -> None:
        Toys().app("notebook", script + SITE, "0.0.0.0:8000", "/dev/null", "/data", keeps_data=True)

    for fresh, kept in ((False, "x"), (False, "xx"), (True, "x")):
        rehearse(program, tmp_path, fresh=fresh)
        assert f"kept {kept}\n" in log(tmp_path, "notebook")


def unrehearsed() -> None:
    """An app with what a rehearsal creates and does nothing about."""
    toys = Toys()
    toys.app("page", SITE, "0.0.0.0:8000")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "page"}
    scaler = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5}
    toys.declare(k8s.autoscaling.v2.HorizontalPodAutoscaler, "page", spec=scaler)
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {APP: "page"}}}
    toys.declare(k8s.policy.v1.PodDisruptionBudget, "page", spec=budget)
    toys.declare(k8s.networking.v1.Ingress, "page-door", spec={"rules": [{"host": "digits.example.org"}]})
    pod = {"containers": [{"name": "main", "image": "example/proxy"}]}
    labels = {"a": "b"}
    proxy = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    toys.declare(k8s.apps.v1.Deployment, "proxy", spec=proxy)
    pod = {"restartPolicy": "Never", "containers": [{"name": "run", "image": "x", "command": ["x"]}]}
    for name, cron in (("daily", "0 3 * * *"), ("weekdays", "*/5 3 * * 1-5")):
        job = {"spec": {"template": {"spec": pod}}}
        spec = {"schedule": cron, "timeZone": "Europe/Berlin", "jobTemplate": job}
        toys.declare(k8s.batch.v1.CronJob, name, spec=spec)


@pytest.mark.slow
def test_what_a_rehearsal_does_nothing_about_is_said(tmp_path: Path) -> None:
    outcome, printed = rehearse(unrehearsed, tmp_path)
    assert outcome.exit_code == 0, printed
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    for remark in (
        "page has 2 to 5 pods, as they are busy; a rehearsal runs 1",
        "page: nodes are drained of at most 1 of its pods at a time; a rehearsal drains none",
        "https://digits.example.org leads people to page-door; a rehearsal opens nothing beyond this machine",
        "proxy runs in the cluster beside the apps (Deployment); a rehearsal does not run it",
        "daily runs at 03:00 Europe/Berlin; a rehearsal runs its Jobs once, now",
    ):
        assert remark in printed
        assert remark in report
    assert "weekdays runs at `*/5 3 * * 1-5` Europe/Berlin" in printed
    assert [service.name for service in outcome.services] == ["page"]
