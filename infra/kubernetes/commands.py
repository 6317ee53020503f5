"""Shell commands that a person uses to look into a workspace; the stack's outputs show them."""

import json
import shlex
from typing import Any

import pulumi

from infra.kubernetes.pod import STORE
from infra.kubernetes.run import Run
from infra.kubernetes.workspace import Workspace
from infra.platform import POD_USER

COPIER = "copy-from-store"
"""Name of the pod through which files of a claim are copied."""


def kubectl(workspace: Workspace, arguments: str) -> pulumi.Output[str]:
    """``kubectl`` on the workspace's cluster and namespace."""
    return pulumi.Output.concat(workspace.platform.kubectl, f" --namespace {workspace.namespace} {arguments}")


def log(workspace: Workspace, run: Run) -> pulumi.Output[str]:
    """Shows what the run printed."""
    return kubectl(workspace, f"logs job/{run.job_name} --container {run.step.name}")


def tensorboard(workspace: Workspace, run: Run, folder: str) -> pulumi.Output[str]:
    """Shows the training curves in ``folder`` of the run's results.

    TensorBoard reads a store that has a URL by itself; files of a claim are copied here through a short-lived pod.
    """
    place = f"{run.path}/{folder}"
    store = workspace.platform.store
    if store.claim is None:
        return pulumi.Output.concat("tensorboard --logdir ", store.url, f"/{place}")
    overrides = shlex.quote(json.dumps({"spec": _copier(run, store.claim.name)}, separators=(",", ":")))
    return pulumi.Output.concat(
        kubectl(workspace, f"run {COPIER} --image {run.step.image} --overrides {overrides}"),
        " && ",
        kubectl(workspace, f"wait pod/{COPIER} --for condition=Ready"),
        " && ",
        kubectl(workspace, f"exec {COPIER} -- tar -C {STORE} -c {place} | tar -x; "),
        kubectl(workspace, f"delete pod {COPIER} --now; "),
        f"tensorboard --logdir {place}",
    )


def _copier(run: Run, claim: str) -> dict[str, Any]:
    """A pod like those of the steps, on the same nodes, that does nothing for an hour."""
    return {
        "automountServiceAccountToken": False,
        "nodeSelector": dict(run.step.pool.selector),
        "tolerations": [
            {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
            for taint in run.step.pool.taints
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": POD_USER,
            "runAsGroup": POD_USER,
            "fsGroup": POD_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": COPIER,
                "image": run.step.image,
                "command": ["sleep", "3600"],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "64Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "store", "mountPath": STORE, "readOnly": True}],
            }
        ],
        "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": claim}}],
    }
