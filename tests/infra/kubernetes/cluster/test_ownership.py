"""Objects that are in the cluster already: the stack's own are taken over, all others refused and left alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
from pulumi.output import UNKNOWN

from slipway.infra.api_server import ApiServer
from slipway.infra.kubernetes.cluster import ownership
from slipway.infra.kubernetes.labels import INSTANCE, PART_OF, QUEUE_ANNOTATION, QUEUE_LABEL, instance
from tests.support.recording import Recording, record
from tests.support.servers.api_server import serving

pytestmark = pytest.mark.slow

OURS = {**PART_OF, INSTANCE: "slipway.test"}
THEIRS = {**PART_OF, INSTANCE: "slipway.other"}
NAMESPACE = "kubernetes:core/v1:Namespace"


def live_object(
    kind: str, name: str, labels: Mapping[str, str] | None = None, namespace: str = ""
) -> dict[str, Any]:
    metadata = {"name": name, "labels": dict(labels or {}), **({"namespace": namespace} if namespace else {})}
    return {"kind": kind, "metadata": metadata}


def declared(kubeconfig: str, *, preview: bool = False) -> Recording:
    """A namespace, an account in it, a role of the whole cluster, and a patch of a node."""

    def program() -> None:
        ownership.enforce("mine", preview=preview)
        provider = k8s.Provider("here", kubeconfig=kubeconfig, upsert_existing_objects=True)
        on_cluster = pulumi.ResourceOptions(provider=provider)
        namespace = k8s.core.v1.Namespace(
            "namespace", metadata=k8s.meta.v1.ObjectMetaArgs(name="mine", labels={"a": "b"}), opts=on_cluster
        )
        k8s.core.v1.ServiceAccount(
            "account",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="runner", namespace="mine"),
            opts=pulumi.ResourceOptions(provider=provider, depends_on=[namespace]),
        )
        k8s.rbac.v1.ClusterRole(
            "role", metadata=k8s.meta.v1.ObjectMetaArgs(name="mine-node-reader"), opts=on_cluster
        )
        k8s.core.v1.NodePatch(
            "patch", metadata=k8s.meta.v1.ObjectMetaPatchArgs(name="node", labels={"a": "b"}), opts=on_cluster
        )

    return record(program, {}, preview=preview, run_hooks=True)


def test_every_object_says_which_stack_it_is_of(kubeconfig: Path) -> None:
    with serving(kubeconfig):
        recording = declared(str(kubeconfig))
    assert recording.one(NAMESPACE).inputs["metadata"]["labels"] == {**OURS, "a": "b"}
    assert recording.one("kubernetes:core/v1:ServiceAccount").inputs["metadata"]["labels"] == OURS
    assert recording.one("kubernetes:core/v1:NodePatch").inputs["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize("preview", [True, False])
@pytest.mark.parametrize(
    ("live", "words"),
    [
        (
            live_object("Namespace", "mine"),
            ['Namespace "mine" is there already', "nobody's", INSTANCE, "creates_namespace: false"],
        ),
        (
            live_object("Namespace", "mine", THEIRS),
            ['Namespace "mine" is there already', "Slipway stack slipway.other", "slipway:namespace"],
        ),
        (
            live_object("Namespace", "mine", {INSTANCE: "slipway.test"}),
            ["the application slipway.test", "creates_namespace: false"],
        ),
        (
            live_object("Namespace", "mine", {"app.kubernetes.io/managed-by": "Helm"}),
            ["Helm manages it", "creates_namespace: false"],
        ),
        (
            live_object("ServiceAccount", "runner", THEIRS, "mine"),
            ['ServiceAccount "runner" in namespace "mine" is there already', "slipway.other"],
        ),
        (
            live_object("ClusterRole", "mine-node-reader"),
            ['ClusterRole "mine-node-reader" is there already', "nobody's"],
        ),
    ],
)
def test_what_is_not_the_stacks_is_refused(
    kubeconfig: Path, live: dict[str, Any], words: list[str], preview: bool
) -> None:
    with serving(kubeconfig, [live]), pytest.raises(Exception, match="is there already") as raised:
        declared(str(kubeconfig), preview=preview)
    assert [word for word in [*words, "stack slipway.test"] if word not in str(raised.value)] == []
    if "slipway:namespace" in words:
        # In the namespace of another stack the two would have objects of the same names.
        assert "creates_namespace" not in str(raised.value)


@pytest.mark.parametrize("preview", [True, False])
def test_what_a_killed_up_of_the_stack_left_is_taken_over(kubeconfig: Path, preview: bool) -> None:
    left = [live_object("Namespace", "mine", OURS), live_object("ServiceAccount", "runner", OURS, "mine")]
    others = [
        live_object("ServiceAccount", "runner", THEIRS, "other"),
        live_object("Namespace", "other"),
        live_object("Node", "node"),
    ]
    with serving(kubeconfig, [*left, *others]) as cluster:
        assert declared(str(kubeconfig), preview=preview).one(NAMESPACE)
    assert "/api/v1/namespaces/mine" in cluster.asked
    assert "/api/v1/nodes/node" not in cluster.asked


def test_an_object_of_an_earlier_slipway_stops_no_preview_of_its_replacement(kubeconfig: Path) -> None:
    with serving(kubeconfig, [live_object("ServiceAccount", "runner", PART_OF, "mine")]):
        declared(str(kubeconfig), preview=True)
        with pytest.raises(Exception, match="an earlier version of Slipway") as raised:
            declared(str(kubeconfig))
    assert f"kubectl label serviceaccount runner -n mine {INSTANCE}=slipway.test" in str(raised.value)


def test_a_kubeconfig_may_be_its_text(kubeconfig: Path) -> None:
    with (
        serving(kubeconfig, [live_object("Namespace", "mine")]),
        pytest.raises(Exception, match="creates_namespace: false"),
    ):
        declared(kubeconfig.read_text(encoding="utf-8"))


def test_a_cluster_that_cannot_be_reached_stops_up_and_no_preview(tmp_path: Path, warnings: list[str]) -> None:
    missing = str(tmp_path / "kubeconfig")
    declared(missing, preview=True)
    assert len(warnings) == 1
    assert "Cluster here: " in warnings[0]
    assert "cannot be read: Invalid kube-config file" in warnings[0]
    with pytest.raises(Exception, match="may be there already, and cannot be read"):
        declared(missing)


def test_an_object_that_may_not_be_read_is_not_taken_over(kubeconfig: Path, warnings: list[str]) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/mine-node-reader"
    with serving(kubeconfig, refused=(path,)):
        declared(str(kubeconfig), preview=True)
        with pytest.raises(Exception, match='ClusterRole "mine-node-reader" may be there already') as raised:
            declared(str(kubeconfig))
    assert 'User "me" cannot get path' in str(raised.value)
    assert len(warnings) == 1


def test_a_cluster_that_is_still_to_be_made_is_not_asked(warnings: list[str]) -> None:
    def program() -> None:
        ownership.enforce("mine", preview=True)
        provider = k8s.Provider("here", kubeconfig=pulumi.Output.from_input(UNKNOWN))
        k8s.core.v1.Namespace(
            "namespace",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="mine"),
            opts=pulumi.ResourceOptions(provider=provider),
        )

    assert record(program, {}, preview=True, run_hooks=True).one(NAMESPACE)
    assert warnings == []


def test_no_two_stacks_have_the_same_label() -> None:
    stacks = [
        ("organization", "slipway", "gcp-dev"),
        ("acme", "slipway", "gcp-dev"),
        ("organization", "a", "b.c"),
        ("organization", "a.b", "c"),
        ("organization", "slipway", "dev-"),
        ("organization", "slipway", "dev"),
        ("organization", "slipway", "x" * 90),
        ("organization", "slipway", "x" * 91),
    ]
    values = [instance(*stack) for stack in stacks]
    assert len(set(values)) == len(stacks)
    assert values[:2] == ["slipway.gcp-dev", "acme.slipway.gcp-dev"]
    assert all(len(value) <= 63 and value[-1].isalnum() for value in values)


def queued(kubeconfig: str, *, held: bool, preview: bool = False) -> Recording:
    """A Job in the queue ``q``; one that is ``held`` enters it once somebody lets it run."""
    metadata = {"annotations": {QUEUE_ANNOTATION: "q"}} if held else {"labels": {QUEUE_LABEL: "q"}}

    def program() -> None:
        ownership.enforce("mine", preview=preview)
        provider = k8s.Provider("here", kubeconfig=kubeconfig, upsert_existing_objects=True)
        k8s.batch.v1.Job(
            "train",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="train", namespace="mine", **metadata),
            opts=pulumi.ResourceOptions(provider=provider),
        )

    return record(program, {}, preview=preview, run_hooks=True)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(
    ("queue", "suspends", "refused"), [("q", True, ""), ("other", True, "LocalQueue `q`"), ("q", False, "Kueue")]
)
def test_a_job_that_would_not_wait_in_its_queue_is_not_created(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, queue: str, suspends: bool, refused: str, held: bool
) -> None:
    def find(_: ApiServer, version: str, kind: str, name: str, namespace: str = "") -> Any:
        assert namespace == "mine"
        return {} if (kind, name) == ("LocalQueue", queue) else None

    tried: list[Any] = []
    monkeypatch.setattr(ApiServer, "find", find)
    monkeypatch.setattr(
        ApiServer, "try_out", lambda _, job: tried.append(job) or {"spec": {"suspend": suspends or None}}
    )
    if not refused:
        queued("{}", held=held)
        assert tried[0]["metadata"]["labels"] == {QUEUE_LABEL: "q"}
        return
    with pytest.raises(Exception, match="is not created") as raised:
        queued("{}", held=held)
    assert refused in str(raised.value)
    queued("{}", held=held, preview=True)
