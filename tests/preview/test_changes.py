"""What changes when one setting, file or line of a real stack does: exactly its consequences, and nothing else."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.evaluated.model import Changes, Operation, Outcome
from slipway.infra.review.stack import Stack
from slipway.preview.differences import compare
from tests.support.checkout import ROOT
from tests.support.previewing import previewed

pytestmark = pytest.mark.slow

STEPS_ON_T4 = {"mnist-train", "resnet-measure-train"}

TRAIN = "clusters.dev.pools.train"
TAINTS = [{"key": "team", "value": "ml", "effect": "NoSchedule"}]


def stack(changes: Mapping[str, Any], name: str = "gcp-dev") -> Stack:
    return previewed(name, changes)


def base(name: str = "gcp-dev") -> Stack:
    return stack({}, name)


def change(changes: Mapping[str, Any], name: str = "gcp-dev") -> Changes:
    return compare(base(name), stack(changes, name))


def touched(found: Changes) -> dict[str, tuple[Operation, list[str]]]:
    """Operation and changed paths of all resources that are no Jobs and ship nothing to Jobs."""
    return {
        resource.name: (resource.operation, [prop.path for prop in resource.properties])
        for resource in found.resources
        if resource.type != "kubernetes:batch/v1:Job" and not resource.name.endswith("-bundle")
    }


def ran(found: Changes) -> dict[str, tuple[Outcome, str]]:
    return {run.name: (run.outcome, run.because) for run in found.runs}


def note(found: Changes, name: str) -> str:
    return next(resource.note for resource in found.resources if resource.name == name)


@pytest.mark.parametrize("name", ["aws-dev", "gcp-dev", "gcp-team", "onprem"])
def test_the_same_stack_changes_nothing(name: str) -> None:
    found = compare(base(name), previewed(name))
    assert found.resources == []
    assert found.runs == []
    assert found.remarks == []
    assert found.unchanged == sum(
        resource.custom and not resource.read for resource in base(name).resources.values()
    )


def test_a_taint_on_gke_changes_the_nodes_and_re_creates_the_jobs_that_tolerate_it() -> None:
    found = change({f"{TRAIN}.taints": TAINTS})
    assert touched(found) == {"dev-train": (Operation.UPDATE, ["nodeConfig.taints[1]"])}
    assert "in place" in note(found, "dev-train")
    assert ran(found) == dict.fromkeys(STEPS_ON_T4, (Outcome.RESUMES, "its tolerations changed"))


def test_a_taint_on_eks_changes_the_group_its_tags_and_the_device_plugin() -> None:
    found = change({f"{TRAIN}.taints": TAINTS}, "aws-dev")
    assert touched(found) == {
        "dev-train": (Operation.UPDATE, ["taints[1]"]),
        "dev-train-taint/team": (Operation.CREATE, []),
        "dev-device-plugin-train": (Operation.UPDATE, ["values.tolerations[1]"]),
    }
    assert set(ran(found)) == {*STEPS_ON_T4}


def test_a_workload_file_runs_its_step_and_those_after_it(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "workloads", tmp_path / "workloads")
    with (tmp_path / "workloads" / "mnist" / "train.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    found = compare(base(), previewed("gcp-dev", root=tmp_path))
    assert touched(found) == {}
    assert ran(found) == {
        "mnist-train": (Outcome.RUNS, "train.py changed"),
        "mnist-predict": (Outcome.RUNS, "its input mnist-train runs again"),
    }
    assert {run.name: (run.pool, run.accelerator) for run in found.runs} == {
        "mnist-train": ("train", "nvidia-tesla-t4"),
        "mnist-predict": ("predict", "nvidia-h100-80gb"),
    }
    (shipped,) = (resource for resource in found.resources if resource.name == "mnist-train-bundle")
    path, before, after = next(
        (each.path, each.before, each.after) for each in shipped.properties if each.path.startswith("data")
    )
    lines = len((ROOT / "workloads" / "mnist" / "train.py").read_text(encoding="utf-8").splitlines())
    assert path == 'data["code/train.py"]'
    assert (before, after) == (f"{lines} lines", f"{lines + 1} lines (+1 \N{MINUS SIGN}0)")


def test_a_pools_size_changes_its_limits_and_the_quota() -> None:
    found = change({f"{TRAIN}.nodes.total_max": 2})
    operation, paths = touched(found).pop("dev-train")
    assert (operation, paths) == (Operation.UPDATE, ["autoscaling.totalMaxNodeCount"])
    assert set(touched(found)) == {"dev-train", "dev-quota"}
    assert found.runs == []


def test_a_buckets_access_is_changed_in_place() -> None:
    before = base()
    (bucket,) = before.of_type("gcp:storage/bucket:Bucket")
    opened = replace(bucket, properties={**bucket.properties, "publicAccessPrevention": "inherited"})
    found = compare(before, replace(before, resources={**before.resources, bucket.urn: opened}))
    assert touched(found) == {bucket.name: (Operation.UPDATE, ["publicAccessPrevention"])}
    assert found.runs == []


def test_a_machine_type_on_gke_re_creates_nodes_in_place() -> None:
    found = change({f"{TRAIN}.machine_type": "n1-standard-8"})
    assert touched(found)["dev-train"] == (Operation.UPDATE, ["nodeConfig.machineType"])
    assert "re-creates the pool's nodes" in note(found, "dev-train")
    assert ran(found) == {}


def test_a_machine_type_on_eks_is_a_new_version_of_the_launch_template_and_new_nodes() -> None:
    found = change({f"{TRAIN}.instance_type": "g4dn.2xlarge"}, "aws-dev")
    changed = [
        (resource.type.rpartition(":")[2], resource.operation)
        for resource in found.resources
        if resource.name == "dev-train"
    ]
    assert changed == [("LaunchTemplate", Operation.UPDATE), ("NodeGroup", Operation.UPDATE)]
    group = next(resource for resource in found.resources if resource.type.endswith(":NodeGroup"))
    assert [each.path for each in group.properties] == ["launchTemplate.version"]
    assert "replaces all nodes" in group.note


def test_an_update_that_is_refused_has_no_other_effect() -> None:
    found = change({"clusters.dev.pools.cpu.nodes": {"min": 2, "max": 3}}, "aws-dev")
    group = next(each for each in found.resources if each.type.endswith(":NodeGroup"))
    assert "EKS refuses that" in group.note
    assert "takes away" not in group.note


def test_a_change_to_spot_replaces_the_pool() -> None:
    found = change({f"{TRAIN}.spot": False})
    assert touched(found) == {"dev-train": (Operation.REPLACE, ["nodeConfig.spot"])}
    # A step with checkpoints has as long to end as its node gives: its Job is made anew, and finds its result.
    assert {run.name: run.outcome for run in found.runs} == {"mnist-train": Outcome.RESUMES}


def test_another_location_replaces_the_cluster_and_its_objects_but_not_the_store() -> None:
    found = change({"clusters.dev.location": "us-central1-a"})
    assert {resource.operation for resource in found.resources} == {Operation.REPLACE}
    assert {resource.type for resource in found.resources} == {
        "gcp:container/cluster:Cluster",
        "gcp:container/nodePool:NodePool",
        "pulumi:providers:kubernetes",
        *(resource.type for resource in base().resources.values() if resource.package == "kubernetes"),
    }
    because = {resource.name: resource.because for resource in found.resources}
    assert because["dev-namespace"] == "the provider dev is replaced"
    assert ran(found)["mnist-train"] == (Outcome.RESUMES, "its cluster dev is replaced")


def test_another_image_runs_the_step_and_those_after_it() -> None:
    image = "registry.example.org/tf@sha256:" + 64 * "a"
    found = change({"pipelines.mnist.steps.train.image": image})
    outcome, because = ran(found)["mnist-train"]
    assert outcome is Outcome.RUNS
    assert "its image changed" in because
    assert ran(found)["mnist-predict"] == (Outcome.RUNS, "its input mnist-train runs again")
    assert "mnist-prepare" not in ran(found)


def test_more_memory_re_creates_a_job_that_finds_its_result() -> None:
    found = change({"pipelines.mnist.steps.train.memory": "9Gi"})
    assert touched(found) == {}
    assert ran(found) == {"mnist-train": (Outcome.RESUMES, "its memory changed")}


def test_renaming_a_pool_creates_a_new_one() -> None:
    settings = base().configuration["slipway:clusters"]["dev"]["pools"]
    pools = {{"train": "t4"}.get(name, name): each for name, each in settings.items()}
    steps = {
        "pipelines.mnist.steps.train.pool": "t4",
        "pipelines.resnet.steps.measure.matrix": {"pool": ["t4", "predict"]},
    }
    found = change({"clusters.dev.pools": pools, **steps})
    assert touched(found) == {"dev-t4": (Operation.CREATE, []), "dev-train": (Operation.DELETE, [])}
    assert ran(found)["mnist-train"] == (Outcome.RESUMES, "its node selector changed")


def test_a_protected_cluster_is_not_moved() -> None:
    safe = {"protect": True, "store.versioning": True}
    before = stack(safe)
    found = compare(before, stack({**safe, "clusters.dev.location": "us-central1-a"}))
    refused = {resource.type for resource in found.resources if resource.protected}
    assert "gcp:container/cluster:Cluster" in refused


def test_removed_protection_is_reported() -> None:
    safe = stack({"protect": True, "store.versioning": True})
    assert compare(base(), safe).remarks == []
    assert any("dev (Cluster) is no longer protected" in remark for remark in compare(safe, base()).remarks)


def test_a_kubeconfig_of_this_machine_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = base("local")
    (tmp_path / ".kube").mkdir()
    kubeconfig = "current-context: laptop\ncontexts: [{name: laptop, context: {cluster: a, user: b}}]\n"
    (tmp_path / ".kube" / "config").write_text(kubeconfig, encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compare(elsewhere, previewed("local")).resources == []
    assert caplog.messages == []


OFFICE = {"clusters.dev.control_plane.authorized_networks": {"office": "203.0.113.0/24"}}


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ({}, {"clusters.dev.zones": None}, "nodeLocations"),
        (OFFICE, {}, "masterAuthorizedNetworksConfig"),
    ],
)
def test_removing_a_property_that_google_computes_keeps_its_value(
    before: dict[str, Any], after: dict[str, Any], kept: str
) -> None:
    found = compare(stack(before), stack(after))
    assert [remark for remark in found.remarks if remark.startswith(f"dev (Cluster) keeps its {kept}: ")]
    changed = {each.path for change in found.resources if change.name == "dev" for each in change.properties}
    assert not [path for path in changed if path.startswith(kept)]


GRANT = "store-user"
IMPERSONATING = {"store.impersonation": {"projects": []}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"namespace": "vision"}),
        ({}, {"service_account": "jobs"}),
        (IMPERSONATING, {}),
        ({}, IMPERSONATING),
    ],
)
def test_another_member_of_the_bucket_replaces_the_grant(before: dict[str, Any], after: dict[str, Any]) -> None:
    found = compare(stack(before), stack(after))
    [grant] = (resource for resource in found.resources if resource.name == GRANT)
    assert grant.operation is Operation.REPLACE
    assert [each.path for each in grant.properties if each.forces] == ["member"]
    shown = [str(value) for each in grant.properties for value in (each.before, each.after)]
    assert any(value.startswith("principal://") and "[store.projectNumber]" in value for value in shown)
