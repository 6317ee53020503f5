"""Apps start after the Jobs that they need, have to become ready, and are gone when the rehearsal is."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pulumi
import pulumi_kubernetes as k8s
import pytest

from infra.kubernetes.labels import APP
from offline.rehearsal.cluster import services
from offline.rehearsal.output.outcome import Outcome
from offline.rehearsal.records import ServicePhase, ServiceRecord
from tests.offline.rehearsal.toy import NAMESPACE, SITE, Toys, rehearse

WRITE = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('seven')"
READ = "import sys, urllib.request; print('read', urllib.request.urlopen('http://' + sys.argv[1]).read().decode())"


def serving(*arguments: str, script: str = SITE) -> Callable[[], None]:
    def program() -> None:
        toys = Toys()
        model = toys.job("train", WRITE, "/store/model")
        toys.app("serving", script, *(arguments or ("0.0.0.0:8000", "/store/model")), after=[model])

    return program


def only(outcome: Outcome) -> ServiceRecord:
    (record,) = outcome.services
    return record


def log(folder: Path, name: str) -> str:
    return (folder / "logs" / f"{name}.log").read_text(encoding="utf-8")


def left(folder: Path) -> list[list[str]]:
    """Command lines of programs that read what is in ``folder`` and still run."""
    commands: list[list[str]] = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    return [words for words in commands if any(word.startswith(str(folder)) for word in words)]


@pytest.mark.slow
def test_an_app_starts_after_its_job_answers_and_ends_with_the_rehearsal(tmp_path: Path) -> None:
    outcome, printed = rehearse(serving(), tmp_path)
    assert outcome.exit_code == 0, printed
    assert "says seven\n" in log(tmp_path, "serving")
    record = only(outcome)
    assert (record.kind, record.phase, record.starts, record.pool) == ("app", ServicePhase.ENDED, 1, "cpu")
    assert "serving: ready on local-cpu-0 after" in printed
    assert "was ready, ended" in printed
    assert left(tmp_path) == []
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "logs/serving.log" in report
    assert '<span class="small soft">app, ran for' in report


@pytest.mark.slow
def test_an_unchanged_job_does_not_run_again_and_its_app_starts_all_the_same(tmp_path: Path) -> None:
    rehearse(serving(), tmp_path)
    outcome, printed = rehearse(serving(), tmp_path)
    assert not outcome.executed
    assert only(outcome).starts == 1, printed


def test_an_app_whose_job_failed_is_not_started(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        model = toys.job("train", "raise SystemExit(3)")
        toys.app("serving", SITE, "8000", after=[model])

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 1
    assert outcome.services == []
    assert "Not run, for they need what failed: serving\n" in printed


@pytest.mark.slow
def test_an_app_that_cannot_start_fails_the_rehearsal_with_its_last_lines(tmp_path: Path) -> None:
    outcome, printed = rehearse(serving(script="print('no such option: x'); raise SystemExit(2)"), tmp_path)
    assert outcome.exit_code == 1
    assert "serving failed: app serving is not ready: container 'main' exited with 2 (Error)" in printed
    assert "no such option: x" in printed
    assert only(outcome).starts == services.TRIES


@pytest.mark.slow
def test_an_app_whose_probe_never_succeeds_fails_the_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "READY_WITHIN", 0.5)
    outcome, printed = rehearse(
        serving(script="import time; print('thinking', flush=True); time.sleep(600)"), tmp_path
    )
    assert outcome.exit_code == 1
    assert "its readiness probe does not succeed within 0.5 s" in printed
    assert "thinking" in printed
    assert left(tmp_path) == []


@pytest.mark.slow
def test_an_app_and_a_later_job_reach_another_by_its_address(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        address = k8s.core.v1.EnvVarArgs(name="SERVING_ADDRESS", value="serving:8000")
        page = "import os; address = os.environ['SERVING_ADDRESS']; print('asks', address)\n" + SITE
        serving = toys.app("serving", SITE, "0.0.0.0:8000")
        toys.app("page", page, "0.0.0.0:8000", env=[address], after=serving)
        toys.job("client", READ, "serving:8000", after=serving)

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 0, printed
    assert "read nothing\n" in log(tmp_path, "client")
    assert "asks 127.0.0.1:" in log(tmp_path, "page")


@pytest.mark.slow
def test_an_app_that_no_network_policy_lets_connect_is_refused(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        serving = toys.app("serving", SITE, "0.0.0.0:8000")
        clients = k8s.networking.v1.NetworkPolicyPeerArgs(
            pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels={APP: "page"})
        )
        policy = k8s.networking.v1.NetworkPolicy(
            "serving",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="serving", namespace=NAMESPACE),
            spec=k8s.networking.v1.NetworkPolicySpecArgs(
                pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels={APP: "serving"}),
                policy_types=["Ingress"],
                ingress=[k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=[clients])],
            ),
            opts=toys.options([toys.namespace]),
        )
        env = [k8s.core.v1.EnvVarArgs(name="SERVING_ADDRESS", value="serving:8000")]
        after: list[pulumi.Resource] = [*serving, policy]
        toys.app("page", SITE, "0.0.0.0:8000", env=env, after=after)
        toys.app("stranger", SITE, "0.0.0.0:8000", env=env, after=after)

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 1
    assert "stranger failed: app stranger is not ready: it names the address of app serving" in printed
    assert (
        "no NetworkPolicy lets its pods connect there (ingress); name the app in `connects` of the app" in printed
    )
    assert {service.name: service.phase for service in outcome.services} == {
        "serving": ServicePhase.ENDED,
        "page": ServicePhase.ENDED,
        "stranger": ServicePhase.FAILED,
    }


@pytest.mark.slow
def test_pods_of_an_app_take_their_places_and_one_of_them_runs(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        toys.app("few", SITE, "0.0.0.0:8000", replicas=3)
        toys.app("many", SITE, "0.0.0.0:8000", replicas=3, cpu="700m")

    outcome, printed = rehearse(program, tmp_path)
    assert "1 of 3 pods" in printed
    assert "many failed: no pool can take the pod" in printed
    assert "beside the services that run there" in printed
    assert outcome.exit_code == 1


@pytest.mark.slow
def test_the_volume_of_an_app_stays_from_rehearsal_to_rehearsal(tmp_path: Path) -> None:
    script = "import pathlib, sys; n = pathlib.Path(sys.argv[3], 'n'); n.open('a').write('x')\n"
    script += "print('kept', n.read_text(), flush=True)\n"

    def program() -> None:
        Toys().app("notebook", script + SITE, "0.0.0.0:8000", "/dev/null", "/data", keeps_data=True)

    rehearse(program, tmp_path)
    assert "kept x\n" in log(tmp_path, "notebook")
    rehearse(program, tmp_path)
    assert "kept xx\n" in log(tmp_path, "notebook")
    rehearse(program, tmp_path, fresh=True)
    assert "kept x\n" in log(tmp_path, "notebook")


@pytest.mark.slow
def test_what_a_rehearsal_does_nothing_about_is_said(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        toys.app("page", SITE, "0.0.0.0:8000")
        options = toys.options([toys.namespace])
        labels = k8s.meta.v1.LabelSelectorArgs(match_labels={APP: "page"})

        def metadata(name: str) -> k8s.meta.v1.ObjectMetaArgs:
            return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=NAMESPACE)

        k8s.autoscaling.v2.HorizontalPodAutoscaler(
            "page",
            metadata=metadata("page"),
            spec=k8s.autoscaling.v2.HorizontalPodAutoscalerSpecArgs(
                scale_target_ref=k8s.autoscaling.v2.CrossVersionObjectReferenceArgs(
                    api_version="apps/v1", kind="Deployment", name="page"
                ),
                min_replicas=2,
                max_replicas=5,
            ),
            opts=options,
        )
        k8s.policy.v1.PodDisruptionBudget(
            "page",
            metadata=metadata("page"),
            spec=k8s.policy.v1.PodDisruptionBudgetSpecArgs(max_unavailable=1, selector=labels),
            opts=options,
        )
        rule = k8s.networking.v1.IngressRuleArgs(host="digits.example.org")
        k8s.networking.v1.Ingress(
            "page-door",
            metadata=metadata("page"),
            spec=k8s.networking.v1.IngressSpecArgs(rules=[rule]),
            opts=options,
        )
        container = k8s.core.v1.ContainerArgs(name="main", image="example/proxy")
        k8s.apps.v1.Deployment(
            "proxy",
            metadata=metadata("proxy"),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels={"a": "b"}),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels={"a": "b"}),
                    spec=k8s.core.v1.PodSpecArgs(containers=[container]),
                ),
            ),
            opts=options,
        )

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 0, printed
    said = [
        "page has 2 to 5 pods, as they are busy; a rehearsal runs 1",
        "page: nodes are drained of at most 1 of its pods at a time; a rehearsal drains none",
        "https://digits.example.org leads people to page-door; a rehearsal opens nothing beyond this machine",
        "proxy runs in the cluster beside the apps (Deployment); a rehearsal does not run it",
    ]
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    for each in said:
        assert each in printed
        assert each in report
    assert [service.name for service in outcome.services] == ["page"]
