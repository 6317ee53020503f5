"""An EKS cluster: its control plane, its add-ons and node groups in order, and the provider that reaches it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from slipway.infra.clouds.aws.catalogue import addon_version
from slipway.infra.clouds.aws.network import LOG_DAYS, Network
from slipway.infra.clouds.aws.pools import NodeGroupArgs, node_group
from slipway.infra.clouds.aws.roles import (
    Granted,
    PodIdentityArgs,
    RoleArgs,
    Statement,
    allow,
    named,
    pod_identity,
    role,
    trust,
)
from slipway.infra.clouds.aws.settings import AwsCluster
from slipway.infra.objects import cluster_provider, kubeconfig_text

SYSTEM = "kube-system"


@dataclass(frozen=True)
class AddonsArgs:
    """``cluster_name`` is the cluster's name in EKS."""

    cluster: AwsCluster
    cluster_name: str
    eks: aws.eks.Cluster


def before_nodes(name: str, args: AddonsArgs, parent: pulumi.Resource) -> list[pulumi.Resource]:
    """What a node needs to become ready: DaemonSets, which are active before there is a node.

    The network plugin has its rights through Pod Identity, not from the nodes' role, so whose pods it is on a node
    can do no more than others. It also enforces the namespace's NetworkPolicy, which it does not do by default.
    """
    agent = _addon(name, "eks-pod-identity-agent", args, parent)
    identity = pod_identity(
        f"{name}-vpc-cni",
        system_identity(args, "aws-node", ["AmazonEKS_CNI_Policy"]),
        pulumi.ResourceOptions(parent=parent),
    )
    network = _addon(
        name,
        "vpc-cni",
        args,
        parent,
        configuration={"enableNetworkPolicy": "true"},
        after=[agent, *identity.ready],
    )
    return [agent, network, _addon(name, "kube-proxy", args, parent)]


@dataclass(frozen=True)
class StorageDriver:
    """The EFS CSI driver, which mounts EFS and S3 Files, and the role of its pods that mount."""

    addon: aws.eks.Addon
    node_role: aws.iam.Role


def storage_driver(
    name: str, args: AddonsArgs, parent: pulumi.Resource, after: Sequence[pulumi.Resource]
) -> StorageDriver:
    """Declares the driver. Its controller provisions nothing here, so only the pods that mount have a role.

    What that role may mount is for the store to say. Source of the service account's name and of what it needs:
    docs/iam-policy-create.md in kubernetes-sigs/aws-efs-csi-driver, at the add-on's version.
    """
    identity = pod_identity(
        f"{name}-storage",
        system_identity(args, "efs-csi-node-sa"),
        pulumi.ResourceOptions(parent=parent),
    )
    addon = _addon(name, "aws-efs-csi-driver", args, parent, after=[*after, *identity.ready])
    return StorageDriver(addon, identity.role)


def disk_driver(
    name: str, args: AddonsArgs, parent: pulumi.Resource, after: Sequence[pulumi.Resource]
) -> aws.eks.Addon:
    """The EBS CSI driver, whose controller creates a disk for each claim and deletes it with it.

    Source of the service account's name and of the policy:
    https://docs.aws.amazon.com/eks/latest/userguide/ebs-csi.html, 2026-11-22.
    """
    identity = pod_identity(
        f"{name}-disks",
        system_identity(args, "ebs-csi-controller-sa", ["service-role/AmazonEBSCSIDriverPolicy"]),
        pulumi.ResourceOptions(parent=parent),
    )
    return _addon(name, "aws-ebs-csi-driver", args, parent, after=[*after, *identity.ready])


def system_identity(
    args: AddonsArgs, service_account: str, managed: Sequence[str] = (), statements: Sequence[Statement] = ()
) -> PodIdentityArgs:
    """What pods of the cluster's own services are allowed, as ``service_account`` of the namespace `SYSTEM`."""
    return PodIdentityArgs(
        cluster=args.eks,
        cluster_name=args.cluster_name,
        region=args.cluster.region,
        namespace=SYSTEM,
        service_account=service_account,
        managed=managed,
        statements=statements,
    )


def _addon(
    name: str,
    addon: str,
    args: AddonsArgs,
    parent: pulumi.Resource,
    *,
    configuration: Mapping[str, str] | None = None,
    after: Sequence[pulumi.Resource] = (),
) -> aws.eks.Addon:
    return aws.eks.Addon(
        f"{name}-{addon}",
        region=args.cluster.region,
        cluster_name=args.eks.name,
        addon_name=addon,
        addon_version=addon_version(args.cluster.kubernetes_version, addon),
        configuration_values=json.dumps(configuration) if configuration else None,
        # What the add-on brings is what is declared here; nobody's edits in the cluster stand against it.
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        tags=named(f"{name}-{addon}"),
        opts=pulumi.ResourceOptions(parent=parent, depends_on=after),
    )


INSTALL_HINT = (
    "Install the AWS CLI, version 2, which kubectl and Pulumi use to sign in to EKS: "
    "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html"
)


def profile_option() -> list[str]:
    """The AWS CLI's option for the profile that the stack names, where it names one."""
    return ["--profile", aws.config.profile] if aws.config.profile else []


def kubeconfig(cluster: aws.eks.Cluster, name: str, region: str) -> pulumi.Output[str]:
    """A kubeconfig as a secret output; its context is the cluster's ``name``."""
    words = ["eks", "get-token", "--cluster-name", name, "--region", region, "--output", "json", *profile_option()]
    program = {"command": "aws", "args": words, "installHint": INSTALL_HINT}
    reached = pulumi.Output.all(cluster.endpoint, cluster.certificate_authority.data).apply(
        lambda api: {"server": api[0], "certificate-authority-data": api[1]}
    )
    return pulumi.Output.secret(reached.apply(lambda api: kubeconfig_text(name, api, program)))


NODE_POLICIES = (
    # Join the cluster and ask for the credentials of Pod Identity.
    "AmazonEKSWorkerNodePolicy",
    # Pull images, from the stack's own registry too.
    "AmazonEC2ContainerRegistryPullOnly",
)
"""The least that EKS wants of a node's role.

Source: https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html, 2026-11-20.
"""

ADMIN_POLICY = "AmazonEKSClusterAdminPolicy"
"""An access policy of EKS, not of IAM. Source: https://docs.aws.amazon.com/eks/latest/userguide/access-policies.html,
2026-11-20."""

KEY_DELETION_DAYS = 7
"""How long a deleted key of Secrets can still be had back: the least that KMS allows."""


@dataclass(frozen=True)
class EksClusterArgs:
    """``eks_name`` is the cluster's name in EKS, by which its subnets are tagged.

    With ``has_services`` pods can have disks.
    """

    eks_name: str
    cluster: AwsCluster
    network: Network
    protect: bool
    has_secrets: bool = False
    has_services: bool = False


class EksCluster(pulumi.ComponentResource):
    """The cluster ``cluster`` (named ``eks_name`` in EKS), its ``pools`` by name and its ``provider``.

    ``security_group`` is that of the control plane and of every node. ``ready`` is what system services need
    before anything else runs. ``disks`` is what creates disks for services of pipelines, where there are any.
    """

    eks_name: str
    cluster: aws.eks.Cluster
    addons: AddonsArgs
    pools: Mapping[str, aws.eks.NodeGroup]
    storage: StorageDriver
    disks: Sequence[aws.eks.Addon]
    security_group: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    provider: k8s.Provider
    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: EksClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:aws:EksCluster", name, None, opts)
        self.eks_name = args.eks_name
        self._region = args.cluster.region
        self.cluster = self._control_plane(name, args)
        self.security_group = self.cluster.vpc_config.cluster_security_group_id
        self._admins(name, args.cluster)
        self.addons = addons = AddonsArgs(args.cluster, self.eks_name, self.cluster)
        base = [*args.network.ready, *before_nodes(name, addons, self)]
        self.pools = self._pools(name, args, base)
        service_nodes = [
            self.pools[pool] for pool, settings in args.cluster.pools.items() if not settings.has_gpus
        ]
        # A Deployment, which needs nodes without a GPU's taint.
        dns = _addon(name, "coredns", addons, self, after=service_nodes)
        self.storage = storage_driver(name, addons, self, [*service_nodes, dns])
        self.disks = [disk_driver(name, addons, self, [*service_nodes, dns])] if args.has_services else []
        self.ready = [dns, *service_nodes]
        self.kubeconfig = kubeconfig(self.cluster, self.eks_name, self._region)
        self.provider = cluster_provider(
            name,
            self.kubeconfig,
            self,
            has_secrets=args.has_secrets,
            # Unlike its name and its ARN, the endpoint of a cluster is never another's: what is on a cluster goes
            # with it.
            cluster_identifier=self.cluster.endpoint,
        )
        self.register_outputs({"name": self.cluster.name})

    def _pools(
        self, name: str, args: EksClusterArgs, base: Sequence[pulumi.Resource]
    ) -> Mapping[str, aws.eks.NodeGroup]:
        """CPU pools first: system pods need a node without the GPU taint."""
        nodes = self._node_role(name)
        pools = args.cluster.pools
        made: dict[str, aws.eks.NodeGroup] = {}
        for pool in sorted(pools, key=lambda other: pools[other].has_gpus):
            ordinary = [made[other] for other in made if pools[pool].has_gpus and not pools[other].has_gpus]
            made[pool] = node_group(
                f"{name}-{pool}",
                pool,
                NodeGroupArgs(
                    cluster=args.cluster,
                    pool=pools[pool],
                    eks=self.cluster,
                    subnets=args.network.private,
                    role=nodes.role,
                    protect=args.protect,
                    after=[*base, *nodes.grants, *ordinary],
                ),
                self,
            )
        return made

    def _node_role(self, name: str) -> Granted:
        return role(
            f"{name}-nodes",
            RoleArgs(
                description=f"Nodes of {self.eks_name}",
                trust=trust("ec2.amazonaws.com"),
                managed=NODE_POLICIES,
            ),
            pulumi.ResourceOptions(parent=self),
        )

    def _admins(self, name: str, cluster: AwsCluster) -> None:
        """Access entries: who administers the cluster is known to EKS, and no ConfigMap inside it can lock out."""
        for principal in cluster.admins:
            account, who = principal.split(":", 5)[4:]
            admin = f"{name}-{account}-{who}"
            # Their earlier name, which roles of one name in two accounts would share.
            alike = [other for other in cluster.admins if other.endswith(f":{who}")]
            earlier = pulumi.ResourceOptions(
                parent=self, aliases=[pulumi.Alias(name=f"{name}-{who}")] if len(alike) == 1 else None
            )
            entry = aws.eks.AccessEntry(
                admin,
                region=self._region,
                cluster_name=self.cluster.name,
                principal_arn=principal,
                tags=named(name),
                opts=earlier,
            )
            aws.eks.AccessPolicyAssociation(
                admin,
                region=self._region,
                cluster_name=self.cluster.name,
                principal_arn=entry.principal_arn,
                policy_arn=f"arn:aws:eks::aws:cluster-access-policy/{ADMIN_POLICY}",
                access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
                opts=earlier,
            )

    def _control_plane(self, name: str, args: EksClusterArgs) -> aws.eks.Cluster:
        cluster = args.cluster
        keys = self._secrets_keys(name, args)
        control_plane = self._control_plane_role(name, keys)
        log_group = aws.cloudwatch.LogGroup(
            name,
            region=self._region,
            # The name that EKS writes to. Made here, so that it has a retention and goes with the cluster.
            name=f"/aws/eks/{self.eks_name}/cluster",
            retention_in_days=LOG_DAYS,
            tags=named(self.eks_name),
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        return aws.eks.Cluster(
            name,
            region=self._region,
            name=self.eks_name,
            version=cluster.kubernetes_version,
            role_arn=control_plane.role.arn,
            deletion_protection=args.protect,
            access_config=aws.eks.ClusterAccessConfigArgs(
                authentication_mode="API", bootstrap_cluster_creator_admin_permissions=True
            ),
            vpc_config=_vpc_config(args),
            kubernetes_network_config=aws.eks.ClusterKubernetesNetworkConfigArgs(
                ip_family="ipv4", service_ipv4_cidr=cluster.network.services_cidr
            ),
            enabled_cluster_log_types=list(cluster.control_plane.logs),
            encryption_config=aws.eks.ClusterEncryptionConfigArgs(
                provider=aws.eks.ClusterEncryptionConfigProviderArgs(key_arn=keys[0]), resources=["secrets"]
            ),
            upgrade_policy=aws.eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
            # Every add-on is declared, at a version; EKS would otherwise install its own, of none.
            bootstrap_self_managed_addons=False,
            tags=named(self.eks_name),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=args.protect,
                depends_on=[*control_plane.grants, log_group],
                # The name is taken until the old cluster is gone.
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create="45m", update="90m", delete="45m"),
            ),
        )

    def _secrets_keys(self, name: str, args: EksClusterArgs) -> list[pulumi.Input[str]]:
        """The ARNs of the keys that may encrypt the cluster's Secrets: first the one that a new cluster gets.

        EKS keeps the key with which a cluster was created, whatever its configuration says later. So the stack's
        own key stays where another one is named: deleted, it would take all Secrets with it.
        """
        key = aws.kms.Key(
            name,
            region=self._region,
            description=f"Secrets of the EKS cluster {self.eks_name}",
            enable_key_rotation=True,
            deletion_window_in_days=KEY_DELETION_DAYS,
            tags=named(self.eks_name),
            # Without the key, the Secrets of a cluster are lost for good.
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect),
        ).arn
        chosen = args.cluster.control_plane.secrets_key
        return [chosen, key] if chosen else [key]

    def _control_plane_role(self, name: str, keys: Sequence[pulumi.Input[str]]) -> Granted:
        return role(
            f"{name}-control-plane",
            RoleArgs(
                description=f"Control plane of {self.eks_name}",
                trust=trust("eks.amazonaws.com"),
                managed=["AmazonEKSClusterPolicy"],
                statements=[allow(["kms:DescribeKey", "kms:Encrypt", "kms:Decrypt", "kms:ListGrants"], keys)],
            ),
            pulumi.ResourceOptions(parent=self),
        )


def _vpc_config(args: EksClusterArgs) -> aws.eks.ClusterVpcConfigArgs:
    control_plane = args.cluster.control_plane
    networks = sorted(set(control_plane.authorized_networks.values()))
    # EKS takes an empty list for the whole Internet.
    public = control_plane.public_endpoint and bool(networks)
    return aws.eks.ClusterVpcConfigArgs(
        subnet_ids=[subnet.id for subnet in args.network.private.values()],
        endpoint_private_access=True,
        endpoint_public_access=public,
        public_access_cidrs=networks if public else None,
    )
