"""What is said of an update that deletes, moves or restarts a service."""

import copy
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from slipway.evaluated.model import Finding
from slipway.evaluated.operations import compare_resources
from slipway.infra.clouds.registry import reviews
from slipway.infra.review.contract import Review, Severity, reviewed
from slipway.infra.review.stack import NodePool, Resource, Secret, Stack
from slipway.policies.changes import Change
from slipway.policies.check import check, check_change
from tests.policies.samples import (
    OF_DAYS,
    container,
    entrance,
    job,
    let_in,
    pod,
    pool,
    resource,
    serving,
    stack,
    worker,
    workload,
)

NAMESPACE = resource("kubernetes:core/v1:Namespace", "slipway", {"metadata": {"name": "slipway"}})
REACH = "volume-out-of-reach"


def found(
    before: list[Resource], after: list[Resource], pools: tuple[NodePool, ...] = (pool("cpu"),), name: str = "test"
) -> list[Finding]:
    known = [*reviews(), Review(pools=lambda _: pools)]
    old, new = (reviewed(stack(*each, pools=(), name=name), known) for each in (before, after))
    return check_change(Change(old, new, compare_resources(old, new)), {}, date(2026, 11, 22))[0]


def changed(it: Resource, *path: str, to: object) -> Resource:
    properties: dict[str, Any] = copy.deepcopy(dict(it.properties))
    inner = properties
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return replace(it, properties=properties)


def beside(*others: Resource) -> list[Resource]:
    return [serving(), entrance(), let_in(), *others]


def test_a_queue_that_goes_is_found_again_and_whoever_works_waits() -> None:
    [finding] = found(beside(worker()), [])
    assert (finding.policy, finding.severity, finding.harm) == ("deletes-queue", Severity.WARNING, True)
    assert finding.name == "fraud-queue (StatefulSet)"
    assert "the stack no longer has it" in finding.reason
    assert "found again from the store" in finding.reason
    assert "fraud-days can go on once it is there again" in finding.reason


@pytest.mark.parametrize("size", ["512Mi", "2Gi"])
def test_another_size_of_its_volume_replaces_a_service(size: str) -> None:
    [finding] = found(beside(worker()), [serving(size=size), *beside(worker())[1:]])
    assert finding.policy == "deletes-queue"
    assert "spec.volumeClaimTemplates[0].spec.resources.requests.storage replaces it" in finding.reason


@pytest.mark.parametrize(
    "others", [[], [worker("--cache", "fraud-queue:6379")], [worker(), worker("fraud-queue:6379", name="b")]]
)
def test_what_else_is_kept_in_a_service_is_lost(others: list[Resource]) -> None:
    [finding] = found(beside(*others), others)
    assert (finding.policy, finding.severity) == ("deletes-data", Severity.ERROR)
    assert finding.reason.startswith("deletes its volume and everything on it")


def test_a_volume_that_outlives_its_service_is_not_lost() -> None:
    assert found([serving(keeps=True)], []) == []


def test_a_namespace_takes_what_is_in_it_along_but_for_queues() -> None:
    moved = changed(NAMESPACE, "metadata", "name", to="other")
    lost = [each.policy for each in found([NAMESPACE, serving()], [moved, serving()])]
    assert lost == ["deletes-data"]
    queue = found([NAMESPACE, *beside(worker())], [moved, *beside(worker())])
    assert [each.policy for each in queue] == ["deletes-namespace"]


def test_production_does_not_have_to_protect_what_goes_with_its_service() -> None:
    known = reviewed(stack(NAMESPACE, *beside(), pools=[pool("cpu")], name="prod"), reviews())
    findings, _ = check(known, {}, date(2026, 11, 22))
    assert [finding.policy for finding in findings] == []


@pytest.mark.parametrize(
    "what", [{"image": f"example.com/other@sha256:{'1' * 64}"}, {"args": ["--maxmemory", "2gb"]}]
)
def test_another_image_or_command_starts_its_pod_anew(what: dict[str, Any]) -> None:
    probe = {"tcpSocket": {"port": 6379}}
    [finding] = found(beside(), [serving(container(readinessProbe=probe, **what)), *beside()[1:]])
    assert (finding.policy, finding.severity) == ("ends-running-pods", Severity.WARNING)
    assert "its pods restart one after the other" in finding.reason
    assert "volumes stay" in finding.reason


def secret(password: str) -> Resource:
    properties = {
        "metadata": {"name": "fraud-queue", "namespace": "slipway"},
        "data": {"password": Secret(password)},
    }
    return resource("kubernetes:core/v1:Secret", "fraud-queue", properties)


def with_password(**changes: Any) -> Resource:
    variable = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "fraud-queue", "key": "password"}}}
    return serving(container(env=[variable], readinessProbe={}, **changes))


def test_a_new_password_is_not_that_of_pods_that_go_on() -> None:
    [finding] = found([secret("a"), with_password()], [secret("b"), with_password()])
    assert (finding.policy, finding.severity) == ("password-out-of-step", Severity.ERROR)
    assert "fraud-queue goes on with the values" in finding.reason
    assert "kubectl rollout restart" in finding.fix
    restarted = found([secret("a"), with_password()], [secret("b"), with_password(args=["--new"])])
    assert [each.policy for each in restarted] == ["ends-running-pods"]


def test_a_service_that_moves_leaves_its_volume_behind() -> None:
    def on(name: str) -> list[Resource]:
        return [serving(nodeSelector={"pool": name})]

    pools = (
        pool("a", zones=["r-a"]),
        pool("b", zones=["r-b"]),
        pool("both", zones=["r-a", "r-b"]),
        pool("anywhere"),
    )
    [waits, restarts] = found(on("a"), on("b"), pools)
    assert (waits.policy, waits.severity) == ("volume-out-of-reach", Severity.ERROR)
    assert "`a` to `b`, whose nodes are in r-b, and its volume is in another zone (r-a)" in waits.reason
    assert restarts.policy == "ends-running-pods"
    [perhaps, _] = found(on("both"), on("b"), pools)
    assert "its volume may be in another zone" in perhaps.reason
    assert "storage" not in waits.fix
    queues = ([*on(name), *beside(worker(nodeSelector={"pool": "anywhere"}))[1:]] for name in ("a", "b"))
    assert found(*queues, pools)[0].fix.endswith("or change its storage with it, which makes its volume anew")
    for name in ("both", "anywhere"):
        assert [each.policy for each in found(on("a"), on(name), pools)] == ["ends-running-pods"]


def notebook(pool: str, kind: str = "apps/v1:StatefulSet", access: str = "ReadWriteOnce") -> list[Resource]:
    """An app with a claim of its own."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "notebook"}}
    claim = resource(
        "kubernetes:core/v1:PersistentVolumeClaim",
        "notebook-data",
        {"metadata": {"name": "notebook", "namespace": "slipway"}, "spec": {"accessModes": [access]}},
    )
    it = workload(f"kubernetes:{kind}", pod(nodeSelector={"pool": pool}, volumes=[volume]), "notebook")
    return [claim, it]


@pytest.mark.parametrize("kind", ["apps/v1:StatefulSet", "apps/v1:Deployment"])
def test_an_app_that_moves_leaves_the_volume_of_its_claim_behind(kind: str) -> None:
    pools = (pool("a", zones=["r-a"]), pool("b", zones=["r-b"]))
    waits = [each for each in found(notebook("a", kind), notebook("b", kind), pools) if each.policy == REACH]
    assert [(wait.name.partition(" ")[0], wait.severity) for wait in waits] == [("notebook", Severity.ERROR)]
    shared = found(notebook("a", kind, "ReadWriteMany"), notebook("b", kind, "ReadWriteMany"), pools)
    assert REACH not in {each.policy for each in shared}


@pytest.mark.parametrize(
    "declared", [notebook("a"), [serving(nodeSelector={"pool": "a"})]], ids=["app", "service"]
)
def test_the_nodes_of_a_pool_leave_the_volumes_of_its_pods_behind(declared: list[Resource]) -> None:
    def on(*zones: str) -> Stack:
        return reviewed(stack(*declared, pools=()), [*reviews(), Review(pools=lambda _: [pool("a", zones=zones)])])

    def reached(before: Stack, after: Stack) -> list[str]:
        change = Change(before, after, compare_resources(before, after))
        return [each.policy for each in check_change(change, {}, date(2026, 11, 22))[0]]

    assert reached(on("r-a"), on("r-b")) == [REACH]
    assert reached(on("r-a", "r-b"), on("r-b")) == [REACH]
    assert reached(on("r-a"), on("r-a", "r-b")) == []


def test_more_workers_and_another_lease_replace_the_job_and_lose_nothing() -> None:
    before, after = beside(worker(pods=2)), beside(worker(pods=4))
    assert found(before, after) == []
    assert found(beside(job(pod(), template={"metadata": {"labels": OF_DAYS}})), beside()) == []
