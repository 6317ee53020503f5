"""Shell commands that a person uses to look into a workspace; the stack's outputs show them."""

import pulumi

from infra.kubernetes.pod import STORE
from infra.kubernetes.run import Run
from infra.kubernetes.workspace import Workspace

COPIER = "copy-from-store"
"""Name of the pod through which files of a claim are copied."""

COPIER_SECONDS = 3600


def kubectl(workspace: Workspace, arguments: str) -> pulumi.Output[str]:
    """``kubectl`` on the workspace's cluster and namespace."""
    return pulumi.Output.concat(workspace.platform.kubectl, f" --namespace {workspace.namespace} {arguments}")


def log(workspace: Workspace, run: Run) -> pulumi.Output[str]:
    """Shows what the run printed."""
    return kubectl(workspace, f"logs job/{run.job_name} --container {run.step.name}")


def copy(workspace: Workspace, through: Run, path: str) -> pulumi.Output[str]:
    """Copies the folder ``path`` of the store's claim here, through a short-lived twin of the pod of ``through``.

    Only a pod can see into a claim, and one that is done cannot be asked. A twin has everything that the workspace
    demands of pods already.
    """
    find = kubectl(workspace, f"get pod --selector batch.kubernetes.io/job-name={through.job_name} --output name")
    twin = f"--copy-to {COPIER} --container {through.step.name} --profile restricted --share-processes=false"
    return pulumi.Output.concat(
        kubectl(workspace, "debug $("),
        find,
        f") {twin} -- sleep {COPIER_SECONDS} && ",
        kubectl(workspace, f"wait pod/{COPIER} --for condition=Ready && "),
        kubectl(workspace, f"exec {COPIER} -- tar -C {STORE} -c {path} | tar -x; "),
        kubectl(workspace, f"delete pod {COPIER} --now"),
    )


def tensorboard(path: str, root: pulumi.Input[str] | None = None) -> pulumi.Output[str]:
    """Shows the training curves in the folder ``path`` below ``root``, a URL, or below the current directory."""
    return pulumi.Output.concat("tensorboard --logdir ", *([root, "/"] if root else []), path)
