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
    """A service account that may get and list nodes, and nothing else. ``ready`` are the resources behind it."""

    def __init__(self, name: str, args: NodeReaderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:NodeReader", name, {}, opts)
        on_cluster = pulumi.ResourceOptions(parent=self, provider=args.platform.provider)
        # Nodes are in no namespace, and so is the right to read them: its name tells the cluster's stacks apart.
        cluster_wide = fit(f"{args.namespace}-{NAME}", KUBERNETES_NAME_LIMIT)
        account = k8s.core.v1.ServiceAccount(
            f"{name}-account",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=NAME, namespace=args.namespace, labels=PART_OF),
            automount_service_account_token=False,
            opts=pulumi.ResourceOptions.merge(on_cluster, pulumi.ResourceOptions(depends_on=list(args.after))),
        )
        role = k8s.rbac.v1.ClusterRole(
            f"{name}-role",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=cluster_wide, labels=PART_OF),
            rules=[k8s.rbac.v1.PolicyRuleArgs(api_groups=[""], resources=["nodes"], verbs=["get", "list"])],
            opts=on_cluster,
        )
        binding = k8s.rbac.v1.ClusterRoleBinding(
            f"{name}-binding",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=cluster_wide, labels=PART_OF),
            role_ref=k8s.rbac.v1.RoleRefArgs(
                api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=cluster_wide
            ),
            subjects=[k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=args.namespace)],
            opts=pulumi.ResourceOptions.merge(on_cluster, pulumi.ResourceOptions(depends_on=[account, role])),
        )
        self.ready: tuple[pulumi.Resource, ...] = (account, role, binding)
        self.register_outputs({"serviceAccount": NAME})
