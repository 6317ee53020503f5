"""The identity of the one kind of pod that reads a cluster's nodes: the devices gate."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.kubernetes.labels import PART_OF
from infra.platform import Platform
from infra.schema.names import KUBERNETES_NAME_LIMIT, fit

NAME = "node-reader"
"""Name of the service account in its namespace."""


@dataclass(frozen=True)
class NodeReaderArgs:
    """``after`` is the namespace, where the stack creates it."""

    platform: Platform
    namespace: str
    after: tuple[pulumi.Resource, ...] = ()


class NodeReader(pulumi.ComponentResource):
    """A service account that may get and list nodes, and nothing else. ``ready`` are the resources behind it.

    On a cluster of another stack, that stack gives it the right.
    """

    def __init__(self, name: str, args: NodeReaderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:NodeReader", name, {}, opts)
        on_cluster = pulumi.ResourceOptions(parent=self, provider=args.platform.provider)
        account = k8s.core.v1.ServiceAccount(
            f"{name}-account",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=NAME, namespace=args.namespace, labels=PART_OF),
            automount_service_account_token=False,
            opts=pulumi.ResourceOptions.merge(on_cluster, pulumi.ResourceOptions(depends_on=list(args.after))),
        )
        self.ready: tuple[pulumi.Resource, ...] = (account,)
        if args.platform.owned:
            self.ready = (account, *grant(name, args.namespace, on_cluster, account))
        self.register_outputs({"serviceAccount": NAME})


class TeamNodeReader(pulumi.ComponentResource):
    """The right to read nodes for the service account `NAME` of another team's namespace, there or not yet."""

    def __init__(self, name: str, args: NodeReaderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:TeamNodeReader", name, {}, opts)
        on_cluster = pulumi.ResourceOptions(parent=self, provider=args.platform.provider)
        grant(name, args.namespace, on_cluster)
        self.register_outputs({"namespace": args.namespace})


def grant(
    name: str, namespace: str, opts: pulumi.ResourceOptions, *accounts: pulumi.Resource
) -> tuple[pulumi.Resource, pulumi.Resource]:
    """Lets the service account `NAME` of ``namespace`` get and list nodes; ``accounts`` are there before."""
    # Nodes are in no namespace, and so is the right to read them: its name tells the cluster's stacks apart.
    cluster_wide = fit(f"{namespace}-{NAME}", KUBERNETES_NAME_LIMIT)
    role = k8s.rbac.v1.ClusterRole(
        f"{name}-role",
        metadata=k8s.meta.v1.ObjectMetaArgs(name=cluster_wide, labels=PART_OF),
        rules=[k8s.rbac.v1.PolicyRuleArgs(api_groups=[""], resources=["nodes"], verbs=["get", "list"])],
        opts=opts,
    )
    binding = k8s.rbac.v1.ClusterRoleBinding(
        f"{name}-binding",
        metadata=k8s.meta.v1.ObjectMetaArgs(name=cluster_wide, labels=PART_OF),
        role_ref=k8s.rbac.v1.RoleRefArgs(
            api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=cluster_wide
        ),
        subjects=[k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=namespace)],
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[*accounts, role])),
    )
    return role, binding
