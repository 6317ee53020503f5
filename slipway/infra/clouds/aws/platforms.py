"""Everything on AWS, its registry of images too, and its cluster as a `Platform`.

Resources use the default AWS provider and say their region themselves. One provider per region would do too, but
would leave out without a word what a stack sets for the default one under ``aws:``: a profile, a role to assume,
the accounts that are allowed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pulumi
import pulumi_aws as aws

from slipway.infra.clouds.aws.charts import DISK_CLASS, autoscaler, disk_class, efa_plugins
from slipway.infra.clouds.aws.cluster import EksCluster, EksClusterArgs, profile_option
from slipway.infra.clouds.aws.network import FlowLogsArgs, Network, NetworkArgs, flow_logs
from slipway.infra.clouds.aws.nodes import POOL_LABEL, kept
from slipway.infra.clouds.aws.pools import interconnect, taints
from slipway.infra.clouds.aws.review.charges import node_rate
from slipway.infra.clouds.aws.roles import (
    CLUSTER_LIMIT,
    REPOSITORY_LIMIT,
    PodIdentityArgs,
    allow,
    named,
    node_group_name,
    pod_identity,
    resource_name,
)
from slipway.infra.clouds.aws.rules.clusters import no_region, only_examples
from slipway.infra.clouds.aws.settings import AwsCluster, AwsPool, EfsStore, ExistingS3Store, S3Store
from slipway.infra.clouds.aws.store import MountArgs, efs_store, s3_store
from slipway.infra.platform import (
    BUILDER,
    NOTICE,
    ClusterNetwork,
    DevicePlugin,
    Egress,
    Platform,
    Pool,
    Registry,
    Resources,
    TeamAccess,
    TeamApp,
    dns_of,
)
from slipway.infra.schema.problems import Problem
from slipway.infra.schema.request import Request


def account_id() -> pulumi.Output[str]:
    """The account that the credentials belong to."""
    return aws.get_caller_identity_output().account_id


def preflight_problems(_: Request | None = None) -> list[Problem]:
    """What a stack with clusters on AWS lacks beside its settings.

    Every regional resource says its region itself. The provider still wants one of its own, for IAM and STS.
    """
    if aws.config.region:
        return []
    return [no_region(pulumi.get_stack())]


def warn_of_example_networks(name: str, cluster: AwsCluster) -> None:
    """Warns where only example networks may reach the API of the cluster ``name``.

    No error: rehearsals and previews do not need to reach it.
    """
    if networks := only_examples(cluster):
        pulumi.log.warn(
            f"slipway:clusters.{name}.control_plane.authorized_networks: {', '.join(networks)} is "
            "set aside for examples, so nobody reaches the cluster's API, and `pulumi up` fails once there is a "
            "cluster. Put your own network in its place: https://checkip.amazonaws.com shows your address."
        )


LOGIN = "slipway.runtime.image_builds.aws.login"
"""What makes a login of the pod's identity."""

UNTAGGED_DAYS = 14
"""Days after which an image without a tag is deleted: layers of a build that went on under another name."""


@dataclass(frozen=True)
class BuildsArgs:
    """Which pods push to the registry: those of the builder in ``identity``'s namespace."""

    cluster: AwsCluster
    identity: PodIdentityArgs


def registry(images: aws.ecr.Repository, args: BuildsArgs) -> Registry:
    """``images`` for images that the stack builds, with a second repository for what builds keep of one another.

    Its tags move: a cache has one tag, which each build writes anew.
    """
    name = resource_name(REPOSITORY_LIMIT, "cache")
    cache = aws.ecr.Repository(
        "image-cache",
        region=args.cluster.region,
        name=name,
        image_tag_mutability="MUTABLE",
        encryption_configurations=[aws.ecr.RepositoryEncryptionConfigurationArgs(encryption_type="AES256")],
        force_delete=True,
        tags=named(name),
        opts=pulumi.ResourceOptions(delete_before_replace=True),
    )
    _without_untagged("image-cache", args.cluster, cache)
    statements = [
        # It has no resource
        # (docs.aws.amazon.com/service-authorization/latest/reference/list_amazonelasticcontainer registry.html,
        # seen November 2026).
        allow(["ecr:GetAuthorizationToken"], ["*"]),
        allow([f"ecr:{action}" for action in PUSHING], [images.arn, cache.arn]),
    ]
    identity = pod_identity("image-builds", replace(args.identity, service_account=BUILDER, statements=statements))

    def digest(tag: str, after: pulumi.CustomResource) -> pulumi.Output[str]:
        image = aws.ecr.get_image_output(
            repository_name=images.name,
            image_tag=tag,
            region=args.cluster.region,
            opts=pulumi.InvokeOutputOptions(depends_on=[after]),
        )
        return image.image_digest

    return Registry(
        repository=images.repository_url,
        cache=cache.repository_url,
        login=LOGIN,
        digest=digest,
        ready=identity.ready,
        region=args.cluster.region,
    )


PUSHING = (
    "BatchCheckLayerAvailability",
    "BatchGetImage",
    "CompleteLayerUpload",
    "GetDownloadUrlForLayer",
    "InitiateLayerUpload",
    "PutImage",
    "UploadLayerPart",
)
"""What pushes to a repository and pulls from it
(docs.aws.amazon.com/AmazonECR/latest/userguide/image-push-iam.html, seen November 2026), and deletes nothing."""


def image_repository(name: str, cluster: AwsCluster, protect: bool) -> aws.ecr.Repository:
    """A repository whose tags never move, and whose images are scanned when they are pushed."""
    repository = aws.ecr.Repository(
        name,
        region=cluster.region,
        name=resource_name(REPOSITORY_LIMIT),
        image_tag_mutability="IMMUTABLE",
        image_scanning_configuration=aws.ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
        encryption_configurations=[aws.ecr.RepositoryEncryptionConfigurationArgs(encryption_type="AES256")],
        force_delete=not protect,
        tags=named(resource_name(REPOSITORY_LIMIT)),
        opts=pulumi.ResourceOptions(protect=protect, delete_before_replace=True),
    )
    _without_untagged(name, cluster, repository)
    return repository


def _without_untagged(name: str, cluster: AwsCluster, repository: aws.ecr.Repository) -> None:
    aws.ecr.LifecyclePolicy(
        name,
        region=cluster.region,
        repository=repository.name,
        policy=json.dumps(
            {
                "rules": [
                    {
                        "rulePriority": 1,
                        "description": "Untagged images",
                        "selection": {
                            "tagStatus": "untagged",
                            "countType": "sinceImagePushed",
                            "countUnit": "days",
                            "countNumber": UNTAGGED_DAYS,
                        },
                        "action": {"type": "expire"},
                    }
                ]
            }
        ),
        opts=pulumi.ResourceOptions(parent=repository),
    )


EGRESS = (
    # EKS Pod Identity's agent on the node, which gives pods their credentials
    # (docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html, seen November 2026).
    Egress("169.254.170.23/32", (80,)),
    dns_of("kube-system", 53),
)
"""What pods need beside HTTPS to public addresses. Volumes are mounted by the node."""


def platforms(request: Request) -> Mapping[str, Platform]:
    """Declares all that the stack has on AWS, and returns its cluster there by name.

    One cluster at most: its VPC is where the store's mount targets are.
    """
    ours = request.clusters_of(AwsCluster)
    if not ours or not isinstance(request.store, S3Store | ExistingS3Store | EfsStore):
        return {}
    ((name, declared),) = ours.items()
    warn_of_example_networks(name, declared)
    account = account_id()
    eks_name = resource_name(CLUSTER_LIMIT, name)
    network = Network(name, NetworkArgs(declared, eks_name))
    if declared.flow_logs:
        flow_logs(name, FlowLogsArgs(network.vpc, declared, account, request.protect), network)
    cluster = EksCluster(
        name,
        EksClusterArgs(eks_name, declared, network, request.protect, request.has_secrets, request.has_services),
    )
    disks = disk_class(name, cluster, request.python_image) if request.has_services else []
    mount = MountArgs(declared, cluster, network, account, request.protect, request.teams)
    if isinstance(request.store, S3Store | ExistingS3Store):
        store = s3_store("store", request.store, request.namespace, mount)
    else:
        store = efs_store("store", request.store, request.namespace, mount)
    ready = [
        *store.ready,
        *disks,
        *autoscaler(name, declared, cluster, account),
        *efa_plugins(name, declared, cluster),
    ]
    stacks = PodIdentityArgs(
        cluster=cluster.cluster,
        cluster_name=eks_name,
        region=declared.region,
        namespace=request.namespace,
        service_account=request.service_account,
        statements=store.statements,
    )
    run = pod_identity("run", stacks) if store.statements else None
    ready.extend(run.ready if run else ())
    for team, access in request.teams.items():
        if statements := store.teams[team].statements:
            theirs = replace(
                stacks, namespace=access.namespace, service_account=access.service_account, statements=statements
            )
            pod_identity(f"run-{team}", theirs)
        for app in request.team_apps.get(team, ()):
            if statements := store.teams[team].app(app.folder):
                theirs = replace(
                    stacks, namespace=access.namespace, service_account=app.service_account, statements=statements
                )
                pod_identity(f"app-{app.name}", theirs)
    for app in request.apps:
        if statements := store.app(app.folder):
            theirs = replace(stacks, service_account=app.service_account, statements=statements)
            ready.extend(pod_identity(f"app-{app.name}", theirs).ready)
    builds = request.builds_on == name
    images = image_repository("images", declared, request.protect)
    pushed = replace(stacks, namespace=request.builds_in)
    profile = "".join(f" {option}" for option in profile_option())
    return {
        name: Platform(
            name=name,
            provider=cluster.provider,
            kubeconfig=cluster.kubeconfig,
            pools=_pools(name, declared, cluster),
            store=store.store,
            service_account_annotations={},
            identity=run.role.arn if run else None,
            ready=ready,
            registry=registry(images, BuildsArgs(declared, pushed)) if builds else None,
            connect=(
                f"aws eks update-kubeconfig --name {eks_name} --region {declared.region}"
                f" --alias {eks_name}{profile}"
            ),
            kubectl=f"kubectl --context {eks_name}",
            egress=EGRESS,
            device_plugin=DevicePlugin(),
            creates_namespace=declared.owns_namespace,
            teams={
                team: TeamAccess(access.store, apps=_team_apps(request, team))
                for team, access in store.teams.items()
            },
            volume_class=DISK_CLASS if disks else None,
            ingress_controller=declared.ingress_controller,
            network=ClusterNetwork(network.vpc.id, [subnet.id for subnet in network.private.values()]),
        )
    }


def _team_apps(request: Request, team: str) -> dict[str, TeamApp]:
    """The apps of a team's stack, none of which needs annotations, by their service accounts."""
    return {app.service_account: TeamApp(app.folder is not None) for app in request.team_apps.get(team, ())}


def _pools(name: str, settings: AwsCluster, cluster: EksCluster) -> dict[str, Pool]:
    return {key: _pool(name, key, declared, settings, cluster) for key, declared in settings.pools.items()}


SPOT_NOTICE = 100
"""Seconds of the two minutes between EC2's notice and the end of a Spot instance in which its pods end: a managed
node group drains the node as soon as it knows (docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html,
seen November 2026), for which 20 s are taken off."""


def _pool(cluster: str, name: str, pool: AwsPool, settings: AwsCluster, eks: EksCluster) -> Pool:
    return Pool(
        name=name,
        cluster=cluster,
        selector={POOL_LABEL: node_group_name(name)},
        taints=taints(pool),
        allocatable=pool.node() or Resources(cpu=0, memory=0),
        max_nodes=pool.most_nodes,
        accelerator=pool.gpu_type,
        resources=[eks.pools[name]],
        shared_gpus=pool.shares_gpus,
        min_nodes=pool.least_nodes,
        gpu_clients=pool.gpu_sharing.clients if pool.gpu_sharing else 1,
        interconnect=interconnect(pool),
        sale=pool.sale,
        notice=SPOT_NOTICE if pool.sale == "spot" else NOTICE,
        kept=kept(settings),
        rate=lambda _: node_rate(settings, pool),
    )
