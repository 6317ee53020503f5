"""Pods of a program of anyone that mount a bucket on GKE."""

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import pytest

from slipway.infra.clouds.gcp.review import REVIEW
from slipway.infra.review.contract import reviewed
from slipway.infra.review.stack import Stack
from slipway.offline.engine.evaluate import evaluate


@pytest.mark.parametrize(
    ("annotated", "account", "driver", "lacks"),
    [
        (True, "reader", True, set[str]()),
        (False, "reader", True, {"annotation"}),
        (True, None, True, {"account"}),
        (True, "reader", False, {"driver"}),
        (False, None, None, {"annotation", "account", "driver"}),
    ],
)
def test_a_pod_with_a_bucket_has_what_cloud_storage_fuse_needs(
    annotated: bool, account: str | None, driver: bool | None, lacks: set[str]
) -> None:
    def program() -> None:
        addons = {} if driver is None else {"gcs_fuse_csi_driver_config": {"enabled": driver}}
        cluster = gcp.container.Cluster("main", location="europe-west4", addons_config=addons)
        kubernetes = k8s.Provider("main", kubeconfig=cluster.endpoint)
        volume = {"name": "data", "csi": {"driver": "gcsfuse.csi.storage.gke.io"}}
        pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}], "volumes": [volume]}
        annotations = {"gke-gcsfuse/volumes": "true"} if annotated else {}
        template = {"metadata": {"annotations": annotations}, "spec": {**pod, "serviceAccountName": account}}
        k8s.batch.v1.Job("train", spec={"template": template}, opts=pulumi.ResourceOptions(provider=kubernetes))

    stack = reviewed(
        Stack("s", evaluate(program, project="p", stack="s", config={}, preview=True).resources), [REVIEW]
    )
    [policy] = [policy for policy in REVIEW.policies if policy.id == "gcp-bucket-not-mounted"]
    said = " ".join(violation.reason for violation in policy.check(stack))
    assert {word for word in ("annotation", "account", "driver") if word in said} == lacks
