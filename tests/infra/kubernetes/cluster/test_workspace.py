"""The workspace: what guards the namespace, and that it is there before and gone after the right things."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest

from slipway.infra.clouds.existing.platforms import Emulator
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.labels import PART_OF, step_labels
from slipway.infra.platform import Egress, Platform
from slipway.infra.program import declare
from slipway.infra.review.stack import Resource
from slipway.infra.settings.loading import load
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stand_in import cpu_pool, gpu_pool, platform

CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"


NETWORK_POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"


def workspace(
    *,
    preview: bool = False,
    protect: bool = False,
    make: Any = platform,
    egress: Sequence[Egress] | None = (),
) -> Recording:
    def program() -> None:
        Workspace("here", WorkspaceArgs(make(), "digits", "runner", protect, egress))

    return record(program, {}, preview=preview)


def inside(recording: Recording) -> list[Resource]:
    """What is in the namespace."""
    return [resource for resource in recording.resources if resource.inputs.get("metadata", {}).get("namespace")]


@pytest.mark.parametrize("preview", [True, False])
def test_the_namespace_enforces_the_restricted_standard_of_a_fixed_version(preview: bool) -> None:
    labels = workspace(preview=preview).one("kubernetes:core/v1:Namespace").inputs["metadata"]["labels"]
    for mode in ("enforce", "warn", "audit"):
        assert labels[f"pod-security.kubernetes.io/{mode}"] == "restricted"
        assert labels[f"pod-security.kubernetes.io/{mode}-version"].startswith("v1.")


def test_nothing_may_connect_to_any_pod() -> None:
    spec = workspace().one(NETWORK_POLICY, "here-deny-ingress").inputs["spec"]
    assert spec == {"podSelector": {}, "policyTypes": ["Ingress"]}


def peers(*more: Egress) -> list[tuple[str, list[int]]]:
    """Where the policy lets pods connect to, and the ports, where the settings allow ``more``."""
    rules = workspace(egress=more).one(NETWORK_POLICY, "here-limit-egress").inputs["spec"]["egress"]
    result: list[tuple[str, list[int]]] = []
    for rule in rules:
        (peer,) = rule["to"]
        where = peer.get("ipBlock", {}).get("cidr") or next(
            iter(peer["namespaceSelector"]["matchLabels"].values())
        )
        result.append((where, sorted({port["port"] for port in rule["ports"]})))
    return result


def test_pods_may_connect_to_name_servers_public_https_and_what_is_named_and_nothing_else() -> None:
    assert peers() == [("kube-system", [53]), ("0.0.0.0/0", [443])]
    assert peers(Egress("10.20.0.0/16", (443, 8443)))[-1] == ("10.20.0.0/16", [443, 8443])


def test_public_addresses_are_no_private_ones() -> None:
    (public,) = [
        rule["to"][0]["ipBlock"]
        for rule in workspace().one(NETWORK_POLICY, "here-limit-egress").inputs["spec"]["egress"]
        if "ipBlock" in rule["to"][0]
    ]
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"} <= set(public["except"])


def test_the_limit_is_for_all_pods() -> None:
    assert workspace().one(NETWORK_POLICY, "here-limit-egress").inputs["spec"]["podSelector"] == {}


def test_nothing_is_limited_where_the_settings_say_so() -> None:
    policies = workspace(egress=None).of(NETWORK_POLICY)
    assert [policy.name for policy in policies] == ["here-deny-ingress"]


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
    assert {resource.inputs["metadata"]["namespace"] for resource in inside(recording)} == {"digits"}
    assert all(namespace.urn in recording.waits_for(entry) for entry in inside(recording))


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
    assert {resource.type.rpartition(":")[2] for resource in inside(recording)} == {
        "ServiceAccount",
        "NetworkPolicy",
        "PersistentVolumeClaim",
    }
    assert {resource.inputs["metadata"]["namespace"] for resource in inside(recording)} == {"digits"}
    assert recording.one(CLAIM).protect


def test_network_policies_hold_for_the_stacks_own_pods_alone_in_a_namespace_that_others_may_use() -> None:
    recording = workspace(make=lambda: replace(platform(), creates_namespace=False))
    policies = recording.of(NETWORK_POLICY)
    assert len(policies) == 2
    assert all(policy.inputs["spec"]["podSelector"]["matchLabels"] == PART_OF for policy in policies)
    assert PART_OF.items() <= step_labels("mnist", "train").items()


@pytest.mark.parametrize(("creates", "annotations"), [(True, None), (False, {"pulumi.com/skipAwait": "true"})])
def test_a_claim_is_not_awaited_by_whoever_may_not_read_its_class(
    creates: bool, annotations: dict[str, str] | None
) -> None:
    recording = workspace(make=lambda: replace(platform(), creates_namespace=creates))
    assert recording.one(CLAIM).inputs["metadata"].get("annotations") == annotations


@pytest.mark.parametrize(
    ("steps", "schedule", "jobs"),
    [(12, {}, 12), (100, {}, 101), (40, {"schedule": {"cron": "0 3 * * *"}}, 7 * 40)],
)
def test_the_namespace_has_room_for_all_jobs_that_are_declared(
    tmp_path: Path, steps: int, schedule: Any, jobs: int
) -> None:
    lines = [f"  s{number}: {{run: [touch, '{{output}}/x']}}" for number in range(steps)]
    (tmp_path / "pipeline.yaml").write_text("\n".join(["description: Many.", "steps:", *lines]))
    pool = {"selector": {"a": "b"}, "cpu": "8", "memory": "32Gi"}
    values = {
        "clusters": {"here": {"cloud": "existing", "kubeconfig": "/nowhere", "pools": {"cpu": pool}}},
        "store": {"kind": "pvc"},
        "pipelines": {
            "many": {"uses": str(tmp_path), "steps": {f"s{n}": {"pool": "cpu"} for n in range(steps)}, **schedule}
        },
    }
    configuration = {f"slipway:{key}": value for key, value in values.items()}
    recording = record(
        lambda: declare(ROOT), configuration, preview=False, emulators=[Emulator(load(values).request)]
    )

    room = int(recording.one("kubernetes:core/v1:ResourceQuota").inputs["spec"]["hard"]["count/jobs.batch"])

    assert room % 100 == 0
    assert room >= max(jobs, len(recording.of("kubernetes:batch/v1:Job"))) + 10
    assert room == 100 or room < 2 * jobs + 100
