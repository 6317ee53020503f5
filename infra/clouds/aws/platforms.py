"""Everything on AWS, and its cluster as a `Platform`.

Resources use the default AWS provider and say their region themselves. One provider per region would do too, but
would leave out without a word what a stack sets for the default one under ``aws:``: a profile, a role to assume,
the accounts that are allowed.
"""

from collections.abc import Mapping
from dataclasses import replace

from infra.clouds.aws.charts import AutoscalerArgs, LoadBalancersArgs, autoscaler, efa_plugins, load_balancers
from infra.clouds.aws.cluster import EksCluster, EksClusterArgs, profile_option
from infra.clouds.aws.disks import NAME as DISK_CLASS
from infra.clouds.aws.disks import disk_class
from infra.clouds.aws.image_repository import BuildsArgs, image_repository, registry
from infra.clouds.aws.network import FlowLogsArgs, Network, NetworkArgs, flow_logs
from infra.clouds.aws.nodes import POOL_LABEL
from infra.clouds.aws.pools import fingerprint, interconnect, taints
from infra.clouds.aws.preflight import account_id, warn_of_example_networks
from infra.clouds.aws.roles import CLUSTER_LIMIT, PodIdentityArgs, node_group_name, pod_identity, resource_name
from infra.clouds.aws.settings import AwsCluster, EfsStore, S3Store
from infra.clouds.aws.store import MountArgs, efs_store, s3_store
from infra.platform import DevicePlugin, Egress, Platform, Pool, Resources, TeamAccess, TeamApp, dns_of
from infra.schema.request import Request

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
    if not ours or not isinstance(request.store, S3Store | EfsStore):
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
    if isinstance(request.store, S3Store):
        store = s3_store("store", request.store, request.namespace, mount)
    else:
        store = efs_store("store", request.store, request.namespace, mount)
    ready = [
        *store.ready,
        *disks,
        *autoscaler(name, AutoscalerArgs(declared, cluster, account)),
        *efa_plugins(name, declared, cluster),
    ]
    own = PodIdentityArgs(
        cluster=cluster.cluster,
        cluster_name=eks_name,
        region=declared.region,
        namespace=request.namespace,
        service_account=request.service_account,
        tags=declared.tags,
        statements=store.statements,
    )
    if store.statements:
        ready.extend(pod_identity("run", own).ready)
    for team, each in request.teams.items():
        if statements := store.teams[team].statements:
            theirs = replace(
                own, namespace=each.namespace, service_account=each.service_account, statements=statements
            )
            pod_identity(f"run-{team}", theirs)
        for app in request.team_apps.get(team, ()):
            if statements := store.teams[team].app(app.folder):
                theirs = replace(
                    own, namespace=each.namespace, service_account=app.service_account, statements=statements
                )
                pod_identity(f"app-{app.name}", theirs)
    for app in request.apps:
        if statements := store.app(app.folder):
            theirs = replace(own, service_account=app.service_account, statements=statements)
            ready.extend(pod_identity(f"app-{app.name}", theirs).ready)
    builds = request.builds_on == name
    images = image_repository("images", declared, request.protect) if declared.registry or builds else None
    pushed = replace(own, namespace=request.builds_in)
    entrance = None
    if exposed := request.exposed_on(name):
        entrance = load_balancers(name, LoadBalancersArgs(declared, cluster, network, exposed))
    profile = "".join(f" {each}" for each in profile_option())
    return {
        name: Platform(
            name=name,
            provider=cluster.provider,
            kubeconfig=cluster.kubeconfig,
            pools=_pools(name, declared, cluster),
            store=store.store,
            service_account_annotations={},
            ready=ready,
            registry=registry(images, BuildsArgs(declared, pushed)) if images and builds else None,
            connect=(
                f"aws eks update-kubeconfig --name {eks_name} --region {declared.region}"
                f" --alias {eks_name}{profile}"
            ),
            kubectl=f"kubectl --context {eks_name}",
            egress=EGRESS,
            device_plugin=DevicePlugin(declared.charts.device_plugin.chart, declared.charts.device_plugin.version),
            creates_namespace=declared.owns_namespace,
            teams={
                team: TeamAccess(each.store, apps=_team_apps(request, team)) for team, each in store.teams.items()
            },
            volume_class=DISK_CLASS if disks else None,
            entrance=entrance,
        )
    }


def _team_apps(request: Request, team: str) -> dict[str, TeamApp]:
    """The apps of a team's stack, none of which needs annotations, by their service accounts."""
    return {each.service_account: TeamApp(each.folder is not None) for each in request.team_apps.get(team, ())}


def _pools(name: str, settings: AwsCluster, cluster: EksCluster) -> dict[str, Pool]:
    return {
        pool: Pool(
            name=pool,
            cluster=name,
            selector={POOL_LABEL: node_group_name(pool)},
            taints=taints(declared),
            allocatable=declared.node() or Resources(cpu=0, memory=0),
            max_nodes=declared.most_nodes,
            accelerator=declared.gpu_type,
            fingerprint=fingerprint(declared),
            resources=[cluster.pools[pool]],
            shared_gpus=declared.shares_gpus,
            min_nodes=declared.least_nodes,
            gpu_clients=declared.gpu_sharing.clients if declared.gpu_sharing else 1,
            interconnect=interconnect(declared),
        )
        for pool, declared in settings.pools.items()
    }
