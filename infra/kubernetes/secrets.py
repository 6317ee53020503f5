"""Kubernetes Secrets with what the steps of a pipeline are given as environment variables."""

from collections.abc import Iterable, Mapping

import pulumi
import pulumi_kubernetes as k8s
from pydantic import SecretStr

from infra.kubernetes.labels import NAME, PART_OF
from infra.kubernetes.pod import secret_name
from infra.kubernetes.workspace import Workspace
from infra.step import Step


def declare_secrets(
    steps: Iterable[Step], workspaces: Mapping[str, Workspace], values: Mapping[str, SecretStr]
) -> dict[tuple[str, str], k8s.core.v1.Secret]:
    """Declares a Secret for each platform and pipeline with a step that is given any; ``values`` are by name.

    It has only what the pipeline's steps there are given.
    """
    used: dict[tuple[str, str], set[str]] = {}
    for step in steps:
        if step.secrets:
            used.setdefault((step.platform.name, step.pipeline), set()).update(step.secrets.values())
    made: dict[tuple[str, str], k8s.core.v1.Secret] = {}
    for (platform, pipeline), names in used.items():
        workspace = workspaces[platform]
        made[platform, pipeline] = k8s.core.v1.Secret(
            f"{platform}-{secret_name(pipeline)}",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=secret_name(pipeline),
                namespace=workspace.namespace,
                labels={**PART_OF, NAME: pipeline},
            ),
            type="Opaque",
            string_data={name: pulumi.Output.secret(values[name].get_secret_value()) for name in sorted(names)},
            opts=pulumi.ResourceOptions(
                parent=workspace, provider=workspace.platform.provider, depends_on=[*workspace.ready]
            ),
        )
    return made
