"""An update that takes nodes from running Jobs says so, and is refused unless the stack file lets it."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from contextvars import copy_context
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from slipway.infra import program
from slipway.infra.api_server import UnreadableError
from slipway.infra.clouds.registry import emulators, reviews
from slipway.infra.kubernetes.labels import INSTANCE
from slipway.infra.pulumi_cli import CliError
from slipway.infra.review.stack import KUBERNETES_PROVIDER
from slipway.infra.schema.problems import PREFIX
from slipway.infra.settings.loading import load
from slipway.infra.settings.pipelines import KEY
from slipway.infra.stack.configuration import CLOUDS
from slipway.infra.stack.placed_stack import declare_platforms
from slipway.infra.stack.running_work import RefusedUpdateError, RunningWork
from tests.support.clouds.aws_values import AWS
from tests.support.recording import Recording, record
from tests.support.stack_values import GCP, changed

pytestmark = pytest.mark.slow

STACKS = {"gcp": GCP, "aws": changed(AWS, {"clusters.dev.kubernetes_version": "1.35"})}
LABELS = {"gcp": "cloud.google.com/gke-nodepool", "aws": "eks.amazonaws.com/nodegroup"}


@dataclass
class Cluster:
    """A node of each pool, with a pod of one of ``jobs`` on it, which the first ``idle_looks`` do not see.

    The arguments of their containers are ``words``.
    """

    label: str
    jobs: Mapping[str, str]
    fails: bool = False
    idle_looks: int = 0
    words: Sequence[str] = ()
    paths: list[str] = field(default_factory=list)

    def get(self, path: str, **query: str) -> Mapping[str, Any]:
        self.paths.append(path)
        if self.fails:
            raise UnreadableError("it does not answer")
        if path == "/api/v1/nodes":
            label, _, pool = query.get("labelSelector", "").partition("=")
            assert label in {"", self.label}
            return {"items": [{"metadata": {"name": name}} for name in self.jobs if pool in {"", name}]}
        if self.paths.count(path) <= self.idle_looks:
            return {"items": []}
        began = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
        return {
            "items": [
                {
                    "metadata": {"namespace": "ml", "ownerReferences": [{"kind": "Job", "name": job}]},
                    "spec": {"nodeName": node, "containers": [{"name": "step", "args": [*self.words]}]},
                    "status": {"phase": "Running", "startTime": began},
                }
                for node, job in self.jobs.items()
            ]
        }


def reaching(cluster: Cluster) -> Any:
    def connect(*_: object) -> Cluster:
        return cluster

    return connect


def declared(cloud: str, values: Mapping[str, Any], work: RunningWork | None = None) -> Recording:
    settings = load(values)
    stand_ins = emulators(settings.request)

    def program() -> None:
        if work is not None:
            pulumi.runtime.register_stack_transformation(work.apply)
        declare_platforms(settings, [CLOUDS[cloud]])
        if work is not None:
            work.check()

    config = {name: setting for emulator in stand_ins for name, setting in emulator.configuration.items()}
    return record(program, {**config, f"{PREFIX}{KEY}": {}}, preview=False, emulators=stand_ins)


def exported(recording: Recording) -> Iterator[dict[str, Any]]:
    """As Pulumi's state has it: with what providers filled in, and without what the program reads."""
    for resource in recording.resources:
        if resource.read:
            continue
        kubeconfig = {"kubeconfig": "{}"} if resource.type == KUBERNETES_PROVIDER else {}
        yield {
            "urn": resource.urn,
            "type": resource.type,
            "custom": resource.custom,
            "inputs": {**deepcopy(dict(resource.inputs)), "filledIn": 1, "__defaults": ["filledIn"], **kubeconfig},
            "parent": resource.parent,
            "provider": resource.provider and f"{resource.provider}::an-id",
            "protect": resource.protect,
            "dependencies": sorted(resource.dependencies),
            "propertyDependencies": {key: sorted(urns) for key, urns in resource.property_dependencies.items()},
        }


@pytest.fixture(scope="module")
def states() -> Mapping[str, Sequence[dict[str, Any]]]:
    extra = {"clusters.dev.pools.extra": {"machine_type": "e2-standard-4", "nodes": {"total_max": 1}}}
    return {
        "gcp": [*exported(declared("gcp", unprotected(changed(GCP, extra))))],
        "aws": [*exported(declared("aws", unprotected(STACKS["aws"])))],
    }


def unprotected(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**values, "protect": False}


EXTRA, NONE = {"extra"}, set[str]()


CASES: Sequence[tuple[str, Mapping[str, Any], set[str]]] = [
    ("gcp", {}, EXTRA),
    ("gcp", {"pools.train.nodes": {"total_min": 0, "total_max": 4}}, EXTRA),
    ("gcp", {"pools.train.labels": {"a": "b"}}, EXTRA),
    ("gcp", {"pools.train.machine_type": "n1-standard-8"}, EXTRA | {"train"}),
    ("gcp", {"pools.train.spot": True}, EXTRA | {"train"}),
    ("gcp", {"pools.train.nodes": {"count": 1}}, EXTRA | {"train"}),
    ("gcp", {"zones": ["us-central1-a"]}, {"cpu", "train", "predict", "extra"}),
    ("gcp", {"location": "us-central1-a", "zones": None}, {"cpu", "train", "predict", "extra"}),
    ("aws", {}, NONE),
    ("aws", {"pools.train.nodes": {"min": 0, "max": 4}}, {"train"}),
    ("aws", {"pools.train.disk_size_gb": 300}, {"train"}),
    ("aws", {"pools.train.labels": {"a": "b"}}, NONE),
    ("aws", {"kubernetes_version": "1.36"}, {"cpu", "train", "predict"}),
    ("aws", {"kubernetes_version": "1.36", "pools.train.kubernetes_version": "1.35"}, {"cpu", "predict"}),
]


@pytest.mark.parametrize(("cloud", "changes", "ended"), CASES)
def test_the_jobs_that_lose_their_nodes_are_named(
    states: Mapping[str, Any],
    warnings: list[str],
    cloud: str,
    changes: Mapping[str, Any],
    ended: set[str],
) -> None:
    pools = ["cpu", "train", "predict", *(EXTRA if cloud == "gcp" else ())]
    cluster = Cluster(LABELS[cloud], {pool: f"job-{pool}" for pool in pools})
    values = changed(unprotected(STACKS[cloud]), {f"clusters.dev.{key}": value for key, value in changes.items()})
    work = RunningWork({}, True, lambda: states[cloud], reviews(), reaching(cluster))
    declared(cloud, values, work)
    assert {pool for pool in pools if any(f"job-{pool} " in line for line in warnings)} == ended
    assert bool(cluster.paths) == bool(ended)


SPOT = {"clusters.dev.pools.train.spot": True}
REFUSAL = r"(?s)Job fit .* pool train .*3 h 0 min.*\$.*may_end_jobs_on"


def updated(
    states: Mapping[str, Any], cluster: Cluster, *, may: Sequence[str] = (), preview: bool = False
) -> Recording:
    """An update that replaces the pool ``train``, and removes ``extra``."""
    work = RunningWork({"dev": may}, preview, lambda: states["gcp"], reviews(), reaching(cluster))
    return declared("gcp", changed(unprotected(GCP), SPOT), work)


def test_an_update_is_refused_while_jobs_run_there(states: Mapping[str, Any], warnings: list[str]) -> None:
    cluster = Cluster(LABELS["gcp"], {"train": "fit", "cpu": "aside"})
    with pytest.raises(
        pulumi.RunError, match=r"(?s)Job fit .* pool train .*3 h 0 min.*\$.*may_end_jobs_on"
    ) as told:
        updated(states, cluster)
    assert "aside" not in str(told.value)
    assert not warnings


def test_of_a_refused_update_nothing_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK would register what is declared after a failure, too: the program ends before that."""

    def refuse(_: object) -> None:
        raise RefusedUpdateError("This update ends 1 running Job")

    said: list[str] = []
    monkeypatch.setattr("pulumi.log.error", said.append)
    monkeypatch.setattr(program, "declare", refuse)
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit) as end:
        copy_context().run(program.run)
    assert end.value.code == program.SHOWN
    assert said == ["This update ends 1 running Job"]


def test_an_update_that_may_end_them_says_so(states: Mapping[str, Any], warnings: list[str]) -> None:
    cluster = Cluster(LABELS["gcp"], {"train": "fit"})
    assert updated(states, cluster, may=["train"]).of("gcp:container/nodePool:NodePool")
    assert len(warnings) == 1
    assert "Job fit " in warnings[0]


@pytest.mark.parametrize(
    ("flags", "lost"),
    [
        ([], "what its program saves itself"),
        (["--checkpoints", "{}"], "after its last checkpoint\n"),
        (["--checkpoints", '{"every": 600}'], "at most 10 min"),
        (["--checkpoints", '{"every": 86400}'], "after its last checkpoint\n"),
        (["--checkpoints"], "what its program saves itself"),
        (["--checkpoints", "here"], "what its program saves itself"),
    ],
)
def test_what_a_job_loses_is_said(states: Mapping[str, Any], flags: list[str], lost: str) -> None:
    cluster = Cluster(LABELS["gcp"], {"train": "fit"}, words=["-m", "train", *flags])
    with pytest.raises(pulumi.RunError) as told:
        updated(states, cluster)
    assert lost in str(told.value)


@pytest.mark.parametrize(("may", "refused"), [(["train"], True), (["cpu", "train", "predict", "extra"], False)])
def test_all_nodes_of_a_cluster_end_where_each_of_its_pools_is_named(
    states: Mapping[str, Any], warnings: list[str], may: Sequence[str], refused: bool
) -> None:
    work = RunningWork(
        {"dev": may}, False, lambda: states["gcp"], reviews(), reaching(Cluster(LABELS["gcp"], {"train": "fit"}))
    )
    values = changed(unprotected(GCP), {"clusters.dev.zones": ["us-central1-a"]})
    with pytest.raises(RefusedUpdateError, match="Job fit ") if refused else nullcontext():
        declared("gcp", values, work)
    assert any("Job fit " in line for line in warnings) is not refused


def test_a_pool_that_goes_is_refused_as_well(states: Mapping[str, Any]) -> None:
    with pytest.raises(pulumi.RunError, match="Job last "):
        updated(states, Cluster(LABELS["gcp"], {"extra": "last"}), may=["train"])


def test_a_pool_that_the_program_declares_beside_slipway_is_left_alone(
    states: Mapping[str, Any], warnings: list[str]
) -> None:
    """It may declare it after `slipway.run()`."""
    state = [
        {**resource, "urn": resource["urn"].replace("slipway:gcp:GkeCluster$", "")}
        if resource["urn"].endswith("::dev-extra")
        else resource
        for resource in states["gcp"]
    ]
    assert state != states["gcp"]
    cluster = Cluster(LABELS["gcp"], {"extra": "last"})
    work = RunningWork({}, False, lambda: state, reviews(), reaching(cluster))
    assert declared("gcp", unprotected(GCP), work).of("gcp:container/nodePool:NodePool")
    assert not warnings


def test_where_nothing_runs_an_update_goes_on(states: Mapping[str, Any], warnings: list[str]) -> None:
    cluster = Cluster(LABELS["gcp"], {"cpu": "aside"})
    assert updated(states, cluster).of("gcp:container/nodePool:NodePool")
    assert cluster.paths
    assert not warnings


def test_a_state_backend_that_does_not_answer_is_waited_for_once(warnings: list[str]) -> None:
    exports: list[int] = []

    def export() -> Sequence[Mapping[str, Any]]:
        exports.append(1)
        raise CliError("no answer within 60 s")

    work = RunningWork({}, preview=False, exported=export, reviews=reviews())
    record(work.check, {}, preview=False)
    with pytest.raises(CliError):
        work.state()
    assert (len(exports), len(warnings)) == (1, 1)


def test_a_job_that_begins_meanwhile_is_seen(states: Mapping[str, Any]) -> None:
    """Those of ``extra`` are looked at first, then those of ``train``; nobody is on either of them yet."""
    cluster = Cluster(LABELS["gcp"], {"train": "fit", "extra": "none"}, idle_looks=2)
    with pytest.raises(pulumi.RunError, match="Job fit "):
        updated(states, cluster)


def test_a_cluster_that_cannot_be_asked_stops_an_update_and_no_preview(
    states: Mapping[str, Any], warnings: list[str]
) -> None:
    cluster = Cluster(LABELS["gcp"], {}, fails=True)
    with pytest.raises(pulumi.RunError, match="it does not answer"):
        updated(states, cluster)
    updated(states, cluster, preview=True)
    assert "it does not answer" in warnings[0]


@pytest.mark.parametrize(
    ("image", "errors", "named"), [("a", [], False), ("b", [], True), ("a", ["timeout"], True)]
)
def test_a_running_job_that_is_made_anew_is_named(
    warnings: list[str], image: str, errors: list[str], named: bool
) -> None:
    """Whoever changed a step means it, so it is not refused."""

    def program(work: RunningWork | None, image: str) -> None:
        if work is not None:
            pulumi.runtime.register_stack_transformation(work.apply)
        provider = k8s.Provider("dev", kubeconfig="{}")
        container = k8s.core.v1.ContainerArgs(name="fit", image=image, env=[])
        pod = k8s.core.v1.PodSpecArgs(containers=[container], node_name=provider.id.apply(str))
        k8s.batch.v1.Job(
            "fit",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="fit-1", namespace="ml"),
            spec=k8s.batch.v1.JobSpecArgs(template=k8s.core.v1.PodTemplateSpecArgs(spec=pod)),
            opts=pulumi.ResourceOptions(provider=provider),
        )
        if work is not None:
            work.check()

    class Running(Cluster):
        def get(self, path: str, **_: str) -> Mapping[str, Any]:
            assert path == "/apis/batch/v1/namespaces/ml/jobs"
            return {
                "items": [{"metadata": {"name": name}, "status": {"active": 1}} for name in ("fit-1", "aside")]
            }

    recording = record(lambda: program(None, "a"), {}, preview=False)
    state = [{**resource, "initErrors": errors} for resource in exported(recording)]
    work = RunningWork({}, False, lambda: state, reviews(), reaching(Running("", {})))
    record(lambda: program(work, image), {}, preview=False)
    assert any("Job fit-1 " in line and "aside" not in line for line in warnings) is named


STEP, OWN = (
    "urn:pulumi:test::slipway::slipway:kubernetes:StepJob$kubernetes:batch/v1:Job::fit",
    {INSTANCE: "slipway.test"},
)


@pytest.mark.parametrize("preview", [True, False])
@pytest.mark.parametrize(
    ("left", "live", "declared_name", "ended"),
    [
        ({}, OWN, "fit-2", True),
        ({}, OWN, "fit-1", False),
        ({}, {INSTANCE: "slipway.other"}, "fit-2", False),
        ({"kind": "Namespace", "type": "kubernetes:core/v1:Namespace"}, OWN, "fit-2", False),
    ],
)
def test_what_a_killed_update_left_running_is_ended(
    warnings: list[str], left: dict[str, str], live: dict[str, str], declared_name: str, ended: bool, preview: bool
) -> None:
    class Left(Cluster):
        def find(self, *wanted: str) -> Mapping[str, Any]:
            return {"metadata": {"name": wanted[2], "labels": live}}

        def delete(self, *wanted: str) -> None:
            self.paths.append("/".join(wanted))

    type_, kind = left.get("type", "kubernetes:batch/v1:Job"), left.get("kind", "Job")
    metadata = {"namespace": "ml", "name": "fit-1", "labels": OWN}
    inputs = {"apiVersion": "batch/v1", "kind": kind, "metadata": metadata}
    pending = {"urn": STEP, "type": type_, "provider": f"{KUBERNETES_PROVIDER}::dev::id", "inputs": inputs}
    cluster_state = {"type": KUBERNETES_PROVIDER, "urn": "a::dev", "inputs": {"kubeconfig": "{}"}}
    cluster = Left("", {})
    work = RunningWork({}, preview, lambda: [cluster_state], reviews(), reaching(cluster), lambda: [pending])

    def program() -> None:
        pulumi.runtime.register_stack_transformation(work.apply)
        job("fit", declared_name, k8s.Provider("dev", kubeconfig="{}"))
        work.end_left()

    record(program, {}, preview=preview)

    assert cluster.paths == (["batch/v1/Job/fit-1/ml"] if ended and not preview else [])
    assert any('Job "fit-1"' in line for line in warnings) is ended


@pytest.mark.parametrize(("name", "kept"), [("fit-1", True), ("fit-2", False)])
def test_a_job_keeps_the_failure_policy_that_it_was_created_with(name: str, kept: bool) -> None:
    inputs = {"metadata": {"namespace": "ml", "name": "fit-1"}, "spec": {"podFailurePolicy": {"rules": []}}}
    state = [{"urn": STEP, "type": "kubernetes:batch/v1:Job", "custom": True, "inputs": inputs}]
    work = RunningWork({}, False, lambda: state, reviews(), reaching(Cluster("", {})))

    def program() -> None:
        pulumi.runtime.register_stack_transformation(work.apply)
        job("fit", name, k8s.Provider("dev", kubeconfig="{}"))

    (declared_job,) = record(program, {}, preview=False).of("kubernetes:batch/v1:Job")
    for refused in ("spec.podFailurePolicy", "spec.backoffLimitPerIndex"):
        assert (refused in declared_job.ignore_changes) is kept


def job(resource: str, name: str, provider: k8s.Provider) -> k8s.batch.v1.Job:
    container = k8s.core.v1.ContainerArgs(name="fit", image="a")
    pod = k8s.core.v1.PodTemplateSpecArgs(spec=k8s.core.v1.PodSpecArgs(containers=[container]))
    return k8s.batch.v1.Job(
        resource,
        metadata=k8s.meta.v1.ObjectMetaArgs(name=name, namespace="ml"),
        spec=k8s.batch.v1.JobSpecArgs(template=pod),
        opts=pulumi.ResourceOptions(provider=provider),
    )
