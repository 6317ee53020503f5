"""What a pod needs that asks the Kubernetes API: where that is, who it is itself, and what it may do."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.objects import wait_for
from slipway.infra.placed import Step
from slipway.infra.platform import Platform, Resources

KUBERNETES_API = "https://kubernetes.default.svc"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds the API server, and the folder with its token
(kubernetes.io/docs/tasks/run-application/access-api-from-pod, November 2026)."""

RUNNER = Resources(cpu=50, memory=128, ephemeral_storage=64)
"""Of a pod that does little else."""


def api_step(
    pipeline: str,
    name: str,
    module: str,
    arguments: Sequence[str],
    *,
    image: str,
    platform: Platform,
    time_limit: int,
) -> Step:
    """The step of such a pod, which does not mount the store. ``time_limit`` is in seconds."""
    return Step(
        pipeline=pipeline,
        name=name,
        module=module,
        arguments=["--api", KUBERNETES_API, "--service-account", SERVICE_ACCOUNT, *arguments],
        image=image,
        platform=platform,
        pool=platform.cheapest_pool,
        resources=RUNNER,
        time_limit=time_limit,
        uses_store=False,
        has_token=True,
    )


def identity(
    name: str,
    called: str,
    namespace: str,
    *,
    labels: Mapping[str, str],
    rules: Sequence[k8s.rbac.v1.PolicyRuleArgs],
    opts: pulumi.ResourceOptions,
    annotations: Mapping[str, pulumi.Input[str]] | None = None,
) -> pulumi.Resource:
    """Declares a service account with the right to ``rules`` in its ``namespace``; returns what gives it that.

    ``annotations`` are the account's, by which a cloud gives it rights of its own.
    """
    metadata = k8s.meta.v1.ObjectMetaArgs(name=called, namespace=namespace, labels=labels)
    account = k8s.core.v1.ServiceAccount(
        f"{name}-account",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=called, namespace=namespace, labels=labels, annotations=annotations
        ),
        automount_service_account_token=False,
        opts=opts,
    )
    role = k8s.rbac.v1.Role(f"{name}-role", metadata=metadata, rules=list(rules), opts=opts)
    return k8s.rbac.v1.RoleBinding(
        f"{name}-binding",
        metadata=metadata,
        role_ref=k8s.rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="Role", name=called),
        subjects=[k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=called, namespace=namespace)],
        opts=wait_for(opts, account, role),
    )
