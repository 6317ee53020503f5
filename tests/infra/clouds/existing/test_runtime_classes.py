"""The RuntimeClass that a pool names: all pods have it that the stack declares there, and no others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.evaluated.workloads import workloads
from slipway.infra.review.stack import Stack
from slipway.rehearse.cluster.pods import pod_spec
from tests.support.previewing import previewed
from tests.support.tree import write_tree

pytestmark = pytest.mark.slow

JOB = "kubernetes:batch/v1:Job"
RELEASE = "kubernetes:helm.sh/v3:Release"
POOLS = "clusters.batch.pools"
IMAGE = "description: Has an image.\nbuild: docker\nsteps: {say: {run: [say, '{output}']}}\n"
SMALL = {"pool": "cpu", "cpu": "100m", "memory": "256Mi"}
OIDC = {"issuer": "https://a.example.org", "client_id": "a", "client_secret": "login", "email_domains": ["a.org"]}


def batch(folder: Path, changes: Mapping[str, Any]) -> Stack:
    """A stack with a pod of each kind: an image's build, a step with places and what asks for their nodes, items,
    a service, a schedule, and an app behind a login."""
    write_tree(folder, {"pipeline.yaml": IMAGE, "docker/Dockerfile": f"FROM a@sha256:{'1' * 64}\n"})
    page = {**SMALL, "ingress": {"host": "a.example.org", "tls": {"issuer": "le"}, "login": {"oidc": OIDC}}}
    train = {"cpu": "1", "memory": "2Gi", "places": ["cpu", "spare"]}
    return previewed(
        "onprem-batch",
        {
            **{f"{POOLS}.{pool}.memory": "99Gi" for pool in ("cpu", "spare")},
            "clusters.batch.ingress": {"class_name": "traefik", "namespace": "traefik"},
            "secrets.login": "[secret]",
            "registry": {**SMALL, "repository": "registry.example.org/a/b", "ephemeral_storage": "4Gi"},
            "pipelines.said": {"uses": str(folder), "steps": {"say": SMALL}},
            "pipelines.mnist": {
                "steps": {"prepare": SMALL, "train": train, "predict": SMALL},
                "apps": {"serving": SMALL, "page": page},
            },
            **changes,
        },
    )


def classes(stack: Stack) -> dict[str, Any]:
    return {workload.resource.name: workload.spec.get("runtimeClassName") for workload in workloads(stack)}


def test_all_pods_of_a_pool_have_it_and_no_step_has_another_result(tmp_path: Path) -> None:
    named = {f"{POOLS}.{pool}.runtime_class": "kata" for pool in ("cpu", "spare")}
    before, after = batch(tmp_path / "said", {}), batch(tmp_path / "said", named)
    names = classes(before)
    assert names.keys() > {
        *("mnist-predict", "fraud-days", "mnist-train-at-spare", "mnist-train-at-cpu-probe", "image-build-said"),
        *("fraud-queue", "fraud-schedule", "store-gate-batch"),
        *("mnist-page", "mnist-page-ingress-login"),
    }
    assert {*names.values()} == {None}
    assert classes(after) == dict.fromkeys(names, "kata")
    jobs, same = ({job.name: job.metadata["name"] for job in stack.of_type(JOB)} for stack in (before, after))
    assert jobs == same


def test_pods_of_other_pools_have_none(tmp_path: Path) -> None:
    declared_classes = classes(batch(tmp_path / "said", {f"{POOLS}.spare.runtime_class": "kata"}))
    assert declared_classes["fraud-days"] == declared_classes["mnist-train-at-spare"] == "kata"
    assert (
        declared_classes["mnist-predict"]
        is declared_classes["fraud-queue"]
        is declared_classes["mnist-train-at-cpu"]
        is None
    )


def test_on_gpus_nvidias_own_pods_have_it_and_a_rehearsal_runs_those_of_steps() -> None:
    pools = {f"clusters.onprem.pools.{pool}.runtime_class": "nvidia" for pool in ("train", "predict")}
    stack = previewed("onprem", pools)
    releases = {resource.name: resource.properties for resource in stack.of_type(RELEASE)}
    declared_classes = {name: release["values"].get("runtimeClassName") for name, release in releases.items()}
    assert {declared_classes[f"onprem-device-plugin-{pool}"] for pool in ("train", "predict")} == {"nvidia"}
    jobs = {workload.resource.name: workload for workload in workloads(stack, JOB)}
    assert jobs["mnist-train"].spec["runtimeClassName"] == "nvidia"
    assert pod_spec(jobs["mnist-train"].template).selector == {"slipway/pool": "train"}
