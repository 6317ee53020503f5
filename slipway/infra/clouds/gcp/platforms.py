"""Everything on Google Cloud, its registry of images too, and each of its clusters as a `Platform`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pulumi
import pulumi_gcp as gcp

from slipway.infra.clouds.gcp import autopilot
from slipway.infra.clouds.gcp.catalogue import REGION_ZONES, allocatable, region_of
from slipway.infra.clouds.gcp.cluster import GkeCluster, GkeClusterArgs, compute_classes
from slipway.infra.clouds.gcp.identity import (
    IMPERSONATION_ANNOTATION,
    STORE_KEY,
    WorkloadIdentity,
    WorkloadIdentityArgs,
    declared_keys,
    encryption_keys,
    node_identity,
    project_number,
    secrets_key,
    workload_identity,
    workload_pool,
)
from slipway.infra.clouds.gcp.network import (
    SERVICE_ACCOUNT_LIMIT,
    Network,
    NetworkArgs,
    enable_services,
    pool_name,
    resource_name,
)
from slipway.infra.clouds.gcp.nodes import POOL_LABEL
from slipway.infra.clouds.gcp.pools import QUEUED_PROVISIONING, class_labels, interconnect, tolerated
from slipway.infra.clouds.gcp.review.charges import node_rate, pod_rate
from slipway.infra.clouds.gcp.rules import no_project
from slipway.infra.clouds.gcp.settings import ExistingGcsStore, FilestoreStore, GcpCluster, GcpPool, GcsStore
from slipway.infra.clouds.gcp.store import (
    CACHE_VOLUME,
    FilestoreArgs,
    StoreBucketArgs,
    StoreFolder,
    access_logs,
    beside,
    filestore_instance,
    filestore_store,
    filestore_volume,
    gcs_store,
    input_volume,
    store_bucket,
    without_cpu_limit,
)
from slipway.infra.platform import (
    BUILDER,
    NOTICE,
    ClusterNetwork,
    Collector,
    Egress,
    Platform,
    Pool,
    Registry,
    Store,
    TeamAccess,
    TeamApp,
    dns_of,
)
from slipway.infra.schema.problems import Problem, SettingsError
from slipway.infra.schema.quantities import seconds
from slipway.infra.schema.request import Request


def project() -> str:
    """The project that everything is created in; raises SettingsError where the stack has none."""
    project = gcp.config.project
    if not project:
        raise SettingsError([no_project(pulumi.get_stack())])
    return project


def preflight_problems(_: Request | None = None) -> list[Problem]:
    """What a stack with clusters on Google Cloud lacks beside its settings."""
    return [] if gcp.config.project else [no_project(pulumi.get_stack())]


REPOSITORY_LIMIT = 63
"""Longest name of a repository (cloud.google.com/artifact-registry/docs/reference/rest/v1/projects.locations.
repositories, seen November 2026)."""

CACHE_DAYS = 14
"""Days after which a layer of the cache is deleted that no tag names any more."""

WRITER = "roles/artifactregistry.writer"
"""May push and pull, and delete nothing (cloud.google.com/artifact-registry/docs/access-control, November 2026).
"""

LOGIN, LOGIN_FILES = "slipway.runtime.image_builds.gcp.login", ("slipway/runtime/image_builds/gcp/login.sh",)
"""What makes a login of the pod's identity, and what ships beside it."""

IMAGE = "images"
"""The image in the repository whose tags all images are: Artifact Registry's repositories have a level more."""


@dataclass(frozen=True)
class ArtifactRegistryArgs:
    """``region`` is where images are built; ``namespace`` is that of the pods that may push.

    ``protect`` keeps Pulumi from deleting the images. ``after`` are the services, and the clusters: the project's
    Workload Identity pool comes with its first cluster.
    """

    project: str
    region: str
    namespace: str
    protect: bool
    after: Sequence[pulumi.Resource]


def artifact_registry(args: ArtifactRegistryArgs) -> Registry:
    """Declares both repositories, and lets only pods of the namespace's builder push to them."""
    images = _repository("images", args, immutable=True)
    cache = _repository("image-cache", args, immutable=False)
    account = gcp.serviceaccount.Account(
        "image-builds",
        account_id=resource_name(SERVICE_ACCOUNT_LIMIT, "images"),
        project=args.project,
        display_name=f"Image builds of {pulumi.get_project()} {pulumi.get_stack()}",
        opts=pulumi.ResourceOptions(depends_on=args.after),
    )
    grants: list[pulumi.Resource] = [
        gcp.serviceaccount.IAMMember(
            "image-builds",
            service_account_id=account.name,
            role="roles/iam.workloadIdentityUser",
            member=f"serviceAccount:{workload_pool(args.project)}[{args.namespace}/{BUILDER}]",
            opts=pulumi.ResourceOptions(depends_on=args.after),
        )
    ]
    for name, repository in (("images", images), ("image-cache", cache)):
        grants.append(
            gcp.artifactregistry.RepositoryIamMember(
                f"{name}-writer",
                project=args.project,
                location=args.region,
                repository=repository.repository_id,
                role=WRITER,
                member=account.member,
            )
        )
    host = f"{args.region}-docker.pkg.dev/{args.project}"

    def digest(tag: str, after: pulumi.CustomResource) -> pulumi.Output[str]:
        image = gcp.artifactregistry.get_docker_image_output(
            project=args.project,
            location=args.region,
            repository_id=images.repository_id,
            image_name=f"{IMAGE}:{tag}",
            opts=pulumi.InvokeOutputOptions(depends_on=[after]),
        )
        # `…/images@sha256:…` (the data source's `self_link`, pulumi-gcp 9.35).
        return image.self_link.apply(lambda link: link.rpartition("@")[2])

    return Registry(
        repository=pulumi.Output.concat(host, "/", images.repository_id, f"/{IMAGE}"),
        cache=pulumi.Output.concat(host, "/", cache.repository_id, f"/{IMAGE}"),
        login=LOGIN,
        files=LOGIN_FILES,
        digest=digest,
        annotations={IMPERSONATION_ANNOTATION: account.email},
        ready=grants,
    )


def _repository(name: str, args: ArtifactRegistryArgs, *, immutable: bool) -> gcp.artifactregistry.Repository:
    unused = gcp.artifactregistry.RepositoryCleanupPolicyArgs(
        id="unused-layers",
        action="DELETE",
        condition=gcp.artifactregistry.RepositoryCleanupPolicyConditionArgs(
            tag_state="UNTAGGED", older_than=f"{CACHE_DAYS * 24 * 3600}s"
        ),
    )
    return gcp.artifactregistry.Repository(
        name,
        project=args.project,
        location=args.region,
        repository_id=resource_name(REPOSITORY_LIMIT, name),
        format="DOCKER",
        description="Images that the stack builds" if immutable else "What builds of images keep of one another",
        # A tag is a context's digest, and means one image for ever.
        docker_config=gcp.artifactregistry.RepositoryDockerConfigArgs(immutable_tags=True) if immutable else None,
        cleanup_policies=None if immutable else [unused],
        opts=pulumi.ResourceOptions(depends_on=args.after, protect=args.protect and immutable),
    )


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

COLLECTOR = Collector("monitoring.googleapis.com/v1", "gke-gmp-system", {"app.kubernetes.io/name": "collector"})
"""Google Cloud Managed Service for Prometheus, which runs on every cluster here, Autopilot's included: a DaemonSet
in a namespace that GKE manages (charts/operator/templates of GoogleCloudPlatform/prometheus-engine at commit
2ffde4ec7b7e, read on 2026-11-22; that namespace is `gmp-system` outside of GKE). It reads the exporter that GKE
runs on GPU nodes (cloud.google.com/kubernetes-engine/docs/how-to/dcgm-metrics, read on 2026-11-22)."""


def platforms(request: Request) -> Mapping[str, Platform]:
    """Declares all that the stack has on Google Cloud, and returns its clusters there by name.

    Raises SettingsError where the settings cannot be declared; nothing is declared then.
    """
    ours = request.clusters_of(GcpCluster)
    stored = request.store
    if not ours or not isinstance(stored, GcsStore | ExistingGcsStore | FilestoreStore):
        return {}
    project_id = project()
    # On for all of Autopilot's nodes.
    image_streaming = any(
        cluster.autopilot or pool.image_streaming for cluster in ours.values() for pool in cluster.pools.values()
    )
    services = enable_services(
        project_id,
        image_streaming=image_streaming,
        keys=bool(declared_keys(ours, stored)),
        filestore=isinstance(stored, FilestoreStore),
    )
    keys = encryption_keys(project_id, ours, stored, protect=request.protect, after=services)
    bucket: gcp.storage.Bucket | None = None
    if isinstance(stored, GcsStore):
        bucket = store_bucket(
            "store", StoreBucketArgs(project_id, stored, keys.get(STORE_KEY), request.protect, services)
        )
        if stored.access_logs:
            access_logs(project_id, services)
    network = Network("network", NetworkArgs(project_id, ours, services))
    nodes = node_identity(project_id, services, image_streaming=image_streaming)
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
                filestore=isinstance(stored, FilestoreStore),
            ),
        )
        for name, cluster in ours.items()
    }
    if isinstance(stored, FilestoreStore):
        ranges = [cluster.network.nodes_cidr for cluster in ours.values()]
        args = FilestoreArgs(project_id, stored, network.network, ranges, request.protect, services)
        access = _file_system(args, request.namespace, made)
    elif isinstance(stored, ExistingGcsStore):
        folder = StoreFolder(stored.bucket, stored.root)
        number = project_number(project_id, services)
        access = _in_clusters(
            request, _bucket(request, stored, folder, made, project_id=project_id, number=number), made
        )
    else:
        assert bucket is not None
        # The bucket says its project's number.
        number = bucket.project_number.apply(lambda number: str(int(number)))
        folder = StoreFolder(bucket.name, created=[bucket])
        access = _in_clusters(
            request, _bucket(request, stored, folder, made, project_id=project_id, number=number), made
        )
    platforms = {
        name: replace(
            _platform(name, ours[name], cluster, project_id=project_id, access=access[name]),
            ingress_controller=ours[name].ingress_controller,
            network=ClusterNetwork(network.network.id, [network.subnets[name].id]),
        )
        for name, cluster in made.items()
    }
    if (name := request.builds_on) in platforms:
        args = ArtifactRegistryArgs(
            project_id,
            region_of(ours[name].location),
            request.builds_in,
            request.protect,
            [*services, *(cluster.cluster for cluster in made.values())],
        )
        platforms[name] = replace(platforms[name], registry=artifact_registry(args))
    return platforms


@dataclass(frozen=True)
class _Access:
    """The store as one cluster has it, and what lets its pods at it; ``apps`` by their service account."""

    store: Store
    identity: WorkloadIdentity
    teams: Mapping[str, TeamAccess]
    apps: Mapping[str, WorkloadIdentity] = field(default_factory=dict[str, WorkloadIdentity])
    volumes: Sequence[pulumi.Resource] = ()
    mounts_inputs: bool = False


def _bucket(
    request: Request,
    settings: GcsStore | ExistingGcsStore,
    folder: StoreFolder,
    clusters: Mapping[str, GkeCluster],
    *,
    project_id: str,
    number: pulumi.Output[str],
) -> _Access:
    stacks = WorkloadIdentityArgs(
        project=project_id,
        namespace=request.namespace,
        service_account=request.service_account,
        impersonation=settings.impersonation,
        bucket=folder.bucket,
        number=number,
        folder=folder.folder,
        after=[cluster.cluster for cluster in clusters.values()],
    )
    identity = workload_identity(replace(stacks, inputs=[access.data for access in request.inputs]))
    store = gcs_store(folder)
    teams = {
        team: TeamAccess(
            gcs_store(folder.below(team)),
            workload_identity(
                replace(stacks, namespace=access.namespace, service_account=access.service_account, team=team)
            ).annotations,
            {
                app.service_account: TeamApp(
                    app.folder is not None,
                    workload_identity(
                        replace(
                            stacks,
                            namespace=access.namespace,
                            service_account=app.service_account,
                            team=team,
                            app=app,
                        )
                    ).annotations,
                )
                for app in request.team_apps.get(team, ())
            },
        )
        for team, access in request.teams.items()
    }
    apps = {
        app.service_account: workload_identity(replace(stacks, service_account=app.service_account, app=app))
        for app in request.apps
    }
    return _Access(store, identity, teams, apps, mounts_inputs=True)


def _in_clusters(request: Request, access: _Access, clusters: Iterable[str]) -> dict[str, _Access]:
    """``access`` as each cluster has it: with the apps whose pods run there."""
    on = {name: {app.service_account for app in request.apps_on(name)} for name in clusters}
    return {
        name: replace(access, apps={key: app for key, app in access.apps.items() if key in accounts})
        for name, accounts in on.items()
    }


def _file_system(args: FilestoreArgs, namespace: str, clusters: Mapping[str, GkeCluster]) -> dict[str, _Access]:
    """The instance, and its volume in each cluster. Nodes mount it, so pods need no identity for it."""
    instance = filestore_instance("store", args)

    def access(name: str, cluster: GkeCluster) -> _Access:
        volume = filestore_volume(f"{name}-store-volume", args, instance, namespace, cluster.provider)
        return _Access(filestore_store(args, instance, volume), WorkloadIdentity({}, []), {}, volumes=[volume])

    return {name: access(name, cluster) for name, cluster in clusters.items()}


def _platform(
    name: str, settings: GcpCluster, cluster: GkeCluster, *, project_id: str, access: _Access
) -> Platform:
    endpoint = " --dns-endpoint" if settings.control_plane.dns_endpoint else ""
    store = access.store if settings.autopilot else without_cpu_limit(access.store)
    return Platform(
        name=name,
        provider=cluster.provider,
        kubeconfig=cluster.kubeconfig,
        pools={
            pool: _way(name, pool, declared, settings, cluster)
            if settings.autopilot
            else _pool(name, pool, declared, settings, cluster)
            for pool, declared in settings.pools.items()
        },
        store=store,
        service_account_annotations=access.identity.annotations,
        identity=access.identity.member,
        ready=[
            *access.identity.grants,
            *access.volumes,
            *compute_classes(name, settings, cluster),
            *(grant for app in access.apps.values() for grant in app.grants),
        ],
        connect=(
            f"gcloud container clusters get-credentials {cluster.gke_name}"
            f" --location {settings.location} --project {project_id}{endpoint}"
        ),
        kubectl=f"kubectl --context {cluster.context}",
        egress=EGRESS,
        creates_namespace=settings.owns_namespace,
        teams=access.teams,
        app_annotations={name: app.annotations for name, app in access.apps.items() if app.annotations},
        collector=COLLECTOR,
        input_volume=input_volume if access.mounts_inputs else None,
        bucket_cache=CACHE_VOLUME,
        store_beside=partial(beside, store=store) if access.mounts_inputs else None,
    )


SPOT_NOTICE = 15
"""Seconds that the kubelet of a Spot VM leaves a pod by default: the other 15 of its 30 are for the system's pods
(docs.cloud.google.com/kubernetes-engine/docs/concepts/spot-vms, seen November 2026)."""


def _pool(cluster: str, name: str, pool: GcpPool, settings: GcpCluster, gke: GkeCluster) -> Pool:
    called = pool_name(name)
    return Pool(
        name=name,
        cluster=cluster,
        selector=class_labels(called, pool) or {POOL_LABEL: called},
        taints=tolerated(called, pool),
        allocatable=allocatable(pool.node_shape),
        max_nodes=settings.most_nodes_of(pool) or 0,
        min_nodes=_least_nodes(pool, settings),
        accelerator=pool.accelerator,
        resources=[gke.pools[name]],
        shared_gpus=bool(pool.gpu_sharing or pool.gpu_partition),
        interconnect=interconnect(pool),
        provisioning=QUEUED_PROVISIONING if pool.queued_provisioning else "",
        sale=pool.sale,
        notice=SPOT_NOTICE if pool.sale == "spot" else NOTICE,
        kept=float(seconds(pool.consolidation_delay)) if pool.consolidation_delay else None,
        rate=lambda _: node_rate(settings, pool),
    )


def _least_nodes(pool: GcpPool, settings: GcpCluster) -> int:
    """The nodes that are there at all times, over all zones of the pool."""
    nodes = pool.nodes
    if nodes.total_min is not None or nodes.total_max is not None:
        return nodes.total_min or 0
    in_each = nodes.min or 0 if nodes.max is not None else 1 if nodes.count is None else nodes.count
    return in_each * len(settings.zones_of(pool) or range(REGION_ZONES))


def _way(cluster: str, name: str, pool: GcpPool, settings: GcpCluster, gke: GkeCluster) -> Pool:
    """A way to ask Autopilot for nodes, as a pool whose nodes come with its pods."""
    largest = autopilot.most(pool.way)
    if largest is None:
        raise ValueError(f"{pool.way} has no machine type in the catalogue")
    return Pool(
        name=name,
        cluster=cluster,
        selector=autopilot.selector(pool.way),
        taints=autopilot.taints(pool.way),
        allocatable=largest,
        max_nodes=pool.pods_at_once,
        accelerator=pool.accelerator,
        resources=[gke.cluster],
        requests=autopilot.rules(pool.way),
        # A Spot pod cannot ask to be left alone; another one can, for up to seven days
        # (https://cloud.google.com/kubernetes-engine/docs/how-to/extended-duration-pods, read on 2026-11-22).
        movable=pool.spot,
        sale=pool.sale,
        notice=SPOT_NOTICE if pool.sale == "spot" else NOTICE,
        rate=partial(pod_rate, settings, pool),
    )
