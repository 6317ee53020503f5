"""The workspace: what guards the namespace, and that it is there before and gone after the right things."""

from dataclasses import replace
from typing import Any

import pulumi
import pytest

from infra.kubernetes.workspace import Workspace, WorkspaceArgs
from infra.platform import Platform
from tests.support.recording import Recorded, Recording, record
from tests.support.stand_in import cpu_pool, gpu_pool, platform

CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"


def workspace(*, preview: bool = False, protect: bool = False, make: Any = platform) -> Recording:
    def program() -> None:
        Workspace("here", WorkspaceArgs(make(), "digits", "runner", protect=protect))

    return record(program, {}, preview=preview)


def inside(recording: Recording) -> list[Recorded]:
    """What is in the namespace."""
    return [each for each in recording.resources if each.inputs.get("metadata", {}).get("namespace")]


@pytest.mark.parametrize("preview", [True, False])
def test_the_namespace_enforces_the_restricted_standard_of_a_fixed_version(preview: bool) -> None:
    labels = workspace(preview=preview).one("kubernetes:core/v1:Namespace").inputs["metadata"]["labels"]
    for mode in ("enforce", "warn", "audit"):
        assert labels[f"pod-security.kubernetes.io/{mode}"] == "restricted"
        assert labels[f"pod-security.kubernetes.io/{mode}-version"].startswith("v1.")


def test_nothing_may_connect_to_any_pod() -> None:
    spec = workspace().one("kubernetes:networking.k8s.io/v1:NetworkPolicy").inputs["spec"]
    assert spec == {"podSelector": {}, "policyTypes": ["Ingress"]}


def test_the_service_account_has_the_identity_and_hands_out_no_token() -> None:
    account = workspace().one("kubernetes:core/v1:ServiceAccount", "here-service-account").inputs
    assert account["automountServiceAccountToken"] is False
    assert account["metadata"]["name"] == "runner"
    assert account["metadata"]["annotations"] == {"identity.example/account": "runner@example"}


def test_the_quota_is_what_all_nodes_of_all_pools_hold() -> None:
    hard = workspace(make=lambda: platform(cpu_pool(max_nodes=2), gpu_pool(gpus=4)))
    hard = hard.one("kubernetes:core/v1:ResourceQuota").inputs["spec"]["hard"]
    assert hard["requests.cpu"] == f"{2 * 3900 + 3900}m"
    assert hard["requests.memory"] == f"{3 * 13000}Mi"
    assert hard["requests.ephemeral-storage"] == f"{3 * 40000}Mi"
    assert hard["requests.nvidia.com/gpu"] == "4"
    assert not [key for key in hard if key.startswith("limits.")]


def test_everything_is_in_the_namespace_and_comes_after_it() -> None:
    recording = workspace()
    namespace = recording.one("kubernetes:core/v1:Namespace")
    assert {each.inputs["metadata"]["namespace"] for each in inside(recording)} == {"digits"}
    assert all(namespace.urn in recording.waits_for(each) for each in inside(recording))


def test_the_store_is_claimed_where_the_platform_asks_for_it() -> None:
    spec = workspace().one(CLAIM).inputs["spec"]
    assert spec["accessModes"] == ["ReadWriteOnce"]
    assert spec["resources"] == {"requests": {"storage": "1Gi"}}
    assert "storageClassName" not in spec

    def unclaimed() -> Platform:
        made = platform()
        return replace(made, store=replace(made.store, claim=None))

    assert workspace(make=unclaimed).of(CLAIM) == []


@pytest.mark.parametrize("protect", [True, False])
def test_protection_covers_the_claim_and_the_namespace_it_would_go_with(protect: bool) -> None:
    recording = workspace(protect=protect)
    assert recording.one(CLAIM).protect is protect
    assert recording.one("kubernetes:core/v1:Namespace").protect is protect


def test_the_namespace_goes_before_the_nodes_of_the_clusters_own_services() -> None:
    """Its deletion would otherwise wait for an API that has lost its node."""

    def with_pools() -> Platform:
        gpu = pulumi.CustomResource("test:index:NodePool", "gpu")
        cpu = pulumi.CustomResource("test:index:NodePool", "cpu")
        return platform(replace(cpu_pool(), resources=[cpu]), gpu_pool(resources=[gpu]))

    recording = workspace(make=with_pools)
    waits = recording.waits_for(recording.one("kubernetes:core/v1:Namespace"))
    assert recording.one("test:index:NodePool", "cpu").urn in waits
    assert recording.one("test:index:NodePool", "gpu").urn not in waits


def test_a_namespace_that_is_there_keeps_its_labels_and_quotas() -> None:
    """The role `admin` of a namespace may write neither."""
    recording = workspace(make=lambda: replace(platform(), creates_namespace=False), protect=True)
    assert recording.of("kubernetes:core/v1:Namespace") == []
    assert recording.of("kubernetes:core/v1:ResourceQuota") == []
    assert {each.token.rpartition(":")[2] for each in inside(recording)} == {
        "ServiceAccount",
        "NetworkPolicy",
        "PersistentVolumeClaim",
    }
    assert {each.inputs["metadata"]["namespace"] for each in inside(recording)} == {"digits"}
    assert recording.one(CLAIM).protect


@pytest.mark.parametrize(("creates", "annotations"), [(True, None), (False, {"pulumi.com/skipAwait": "true"})])
def test_a_claim_is_not_awaited_by_whoever_may_not_read_its_class(
    creates: bool, annotations: dict[str, str] | None
) -> None:
    recording = workspace(make=lambda: replace(platform(), creates_namespace=creates))
    assert recording.one(CLAIM).inputs["metadata"].get("annotations") == annotations
