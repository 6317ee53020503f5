"""Everything on Google Cloud, and each of its clusters as a `Platform`."""

from collections.abc import Mapping
from dataclasses import replace

from infra.clouds.gcp.bucket import StoreBucketArgs, access_logs, store_bucket
from infra.clouds.gcp.catalogue import allocatable
from infra.clouds.gcp.cluster import GkeCluster, GkeClusterArgs
from infra.clouds.gcp.identity import WorkloadIdentity, WorkloadIdentityArgs, node_identity, workload_identity
from infra.clouds.gcp.keys import STORE_KEY, declared_keys, encryption_keys, secrets_key
from infra.clouds.gcp.names import pool_name
from infra.clouds.gcp.network import Network, NetworkArgs
from infra.clouds.gcp.nodes import POOL_LABEL
from infra.clouds.gcp.pools import fingerprint, max_nodes, taints
from infra.clouds.gcp.preflight import project
from infra.clouds.gcp.services import enable_services
from infra.clouds.gcp.settings import GcpCluster, GcsStore
from infra.clouds.gcp.store import gcs_store, team_store
from infra.platform import Egress, Platform, Pool, Store, TeamAccess, dns_of
from infra.schema.request import Request

EGRESS = (
    # The metadata server: the pods' identity, which Cloud Storage FUSE uses in its sidecar, and Cloud DNS. Where
    # NetworkPolicies are enforced by Dataplane V2, pods reach it at this address
    # (cloud.google.com/kubernetes-engine/docs/how-to/network-policy, "Network policy and Workload Identity
    # Federation for GKE", as cited by public policies read on 2026-11-22).
    Egress("169.254.169.254/32", (80, 8080)),
    Egress("169.254.169.254/32", (53,), ("UDP", "TCP")),
    dns_of("kube-system", 53),
)
"""What pods need beside HTTPS to public addresses."""


def platforms(request: Request) -> Mapping[str, Platform]:
    """Declares all that the stack has on Google Cloud, and returns its clusters there by name.

    Raises SettingsError where the settings cannot be declared; nothing is declared then.
    """
    ours = request.clusters_of(GcpCluster)
    if not ours or not isinstance(request.store, GcsStore):
        return {}
    project_id = project()
    services = enable_services(
        project_id,
        image_streaming=any(pool.image_streaming for cluster in ours.values() for pool in cluster.pools.values()),
        keys=bool(declared_keys(ours, request.store)),
    )
    keys = encryption_keys(project_id, ours, request.store, protect=request.protect, after=services)
    bucket = store_bucket(
        "store", StoreBucketArgs(project_id, request.store, keys.get(STORE_KEY), request.protect, services)
    )
    if request.store.access_logs:
        access_logs(project_id, services)
    network = Network("network", NetworkArgs(project_id, ours, services))
    nodes = node_identity(project_id, services)
    made = {
        name: GkeCluster(
            name,
            GkeClusterArgs(
                project=project_id,
                cluster=cluster,
                network=network.network,
                subnet=network.subnets[name],
                service_account=nodes.email,
                secrets_key=keys.get(secrets_key(name)),
                protect=request.protect,
                after=[*services, *nodes.grants, *network.nats.values()],
                has_secrets=request.has_secrets,
            ),
        )
        for name, cluster in ours.items()
    }
    own = WorkloadIdentityArgs(
        project=project_id,
        namespace=request.namespace,
        service_account=request.service_account,
        impersonation=request.store.impersonation,
        bucket=bucket,
        after=[each.cluster for each in made.values()],
    )
    identity = workload_identity(own)
    store = gcs_store(bucket)
    teams = {
        team: TeamAccess(
            team_store(bucket, team),
            workload_identity(
                replace(own, namespace=each.namespace, service_account=each.service_account, team=team)
            ).annotations,
        )
        for team, each in request.teams.items()
    }
    return {
        name: replace(
            _platform(name, ours[name], each, project_id=project_id, store=store, identity=identity), teams=teams
        )
        for name, each in made.items()
    }


def _platform(
    name: str,
    settings: GcpCluster,
    cluster: GkeCluster,
    *,
    project_id: str,
    store: Store,
    identity: WorkloadIdentity,
) -> Platform:
    endpoint = " --dns-endpoint" if settings.control_plane.dns_endpoint else ""
    return Platform(
        name=name,
        provider=cluster.provider,
        kubeconfig=cluster.kubeconfig,
        pools={
            pool: Pool(
                name=pool,
                cluster=name,
                selector={POOL_LABEL: pool_name(pool)},
                taints=taints(declared),
                allocatable=allocatable(declared.node_shape),
                max_nodes=max_nodes(settings, declared),
                accelerator=declared.accelerator,
                fingerprint=fingerprint(declared),
                resources=[cluster.pools[pool]],
                shared_gpus=bool(declared.gpu_sharing or declared.gpu_partition),
            )
            for pool, declared in settings.pools.items()
        },
        store=store,
        service_account_annotations=identity.annotations,
        ready=identity.grants,
        connect=(
            f"gcloud container clusters get-credentials {cluster.gke_name}"
            f" --location {settings.location} --project {project_id}{endpoint}"
        ),
        kubectl=f"kubectl --context {cluster.context}",
        egress=EGRESS,
        creates_namespace=settings.owns_namespace,
    )
