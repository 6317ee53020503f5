"""What each resource is billed for. Spot prices are those of the table's day: Google changes them every month."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from slipway.infra.accelerators import prices_of
from slipway.infra.clouds.gcp import autopilot, nodes
from slipway.infra.clouds.gcp.autopilot import Way
from slipway.infra.clouds.gcp.catalogue import (
    CLOUD,
    MachineType,
    ephemeral_ssds,
    is_zone,
    machine_type,
    region_of,
    sidecar,
)
from slipway.infra.clouds.gcp.nodes import CLUSTER, DeclaredPool, DeclaredWay, declared_pools, declared_ways
from slipway.infra.clouds.gcp.settings import GcpCluster, GcpPool
from slipway.infra.platform import ASKED_ANNOTATION, Rate, Resources, add, largest
from slipway.infra.review.facts import Charge, Disk, Price
from slipway.infra.review.stack import (
    JOB,
    Properties,
    Resource,
    Stack,
    Unknown,
    at,
    is_true,
    items,
    mapping,
    mappings,
    strings,
    text,
    texts,
    whole,
)
from slipway.infra.review.tables import RESERVED, facts_from, price_table, priced_in, rate_of
from slipway.infra.schema.quantities import amounts

FACTS = facts_from(Path(__file__).parents[1] / "data" / "review.toml")


_TEMPLATE = ("spec", "template")

KINDS: Mapping[str, tuple[Sequence[str], str]] = {
    JOB: (_TEMPLATE, "parallelism"),
    "kubernetes:batch/v1:CronJob": (("spec", "jobTemplate", *_TEMPLATE), "parallelism"),
    "kubernetes:apps/v1:StatefulSet": (_TEMPLATE, "replicas"),
    "kubernetes:apps/v1:Deployment": (_TEMPLATE, "replicas"),
}
"""The path of the pod template in each kind, and the key beside it with the number of pods."""


@dataclass(frozen=True)
class DeclaredPod:
    """The pods of one resource, ``count`` at once, of the pod spec ``spec``.

    Each asks for ``declared``, and for ``requests`` with what a cloud adds to it and makes of that. ``of_step``
    is what its step asks for, where that is less. ``stays`` says that they run as long as the resource is there.
    ``way`` is how they ask for nodes; None for one that the stack file does not have.
    """

    resource: Resource
    cluster: Resource
    spec: Properties
    declared: Resources
    requests: Resources
    of_step: Resources | None
    count: int
    stays: bool
    way: DeclaredWay | None


def declared_pods(stack: Stack) -> Iterator[DeclaredPod]:
    """The pods on clusters on Autopilot whose requests are known."""
    ways = [*declared_ways(stack)]
    clusters = {way.cluster: way.resource for way in ways}
    for resource in stack.of_type(*KINDS):
        cluster = clusters.get(stack.cluster_of(resource))
        path, number = KINDS[resource.type]
        template = mapping(at(resource.properties, *path))
        spec = mapping(template.get("spec"))
        if cluster is None:
            continue
        try:
            declared = _requests_of(spec)
            added = sidecar(strings(mapping(template.get("metadata")).get("annotations")))
            of_step = _step(resource)
        except ValueError:
            continue
        requests = add(declared, added)
        selected = strings(spec.get("nodeSelector"))
        of_cluster = (way for way in ways if way.resource is cluster)
        way = next((other for other in of_cluster if autopilot.selector(other.way) == selected), None)
        if way:
            # A sidecar may leave a class with one ratio beside it.
            requests = autopilot.rules(way.way).admitted(requests)
        count = whole(at(resource.properties, *path[:-1], number), 1)
        stays = number == "replicas"
        yield DeclaredPod(resource, cluster, spec, declared, requests, of_step, count, stays, way)


def machine_of(pod: DeclaredPod) -> MachineType | None:
    """The machine type of the node that each of these pods has to itself; None where it shares one."""
    return autopilot.machine_for(pod.way.way, pod.requests) if pod.way and pod.way.way.has_own_node else None


def _requests_of(spec: Properties) -> Resources:
    """What one pod asks for. Raises ValueError where an amount cannot be read."""
    before = [
        amounts(strings(at(init_container, "resources", "requests")))
        for init_container in mappings(spec.get("initContainers"))
    ]
    beside = [
        amounts(strings(at(container, "resources", "requests"))) for container in mappings(spec.get("containers"))
    ]
    return largest(*before, add(*beside))


def _step(resource: Resource) -> Resources | None:
    """What the step of a Job asks for, where its pod asks for more."""
    said = strings(at(resource.properties, "metadata", "annotations")).get(ASKED_ANNOTATION)
    return amounts(strings(json.loads(said))) if said else None


TABLE = price_table(Path(__file__).parents[1] / "data" / "prices.toml", prices_of(CLOUD))

WITHOUT_SSDS = "machines_without_ssds"
"""The kind of rows that price machine types without the local SSDs which they always have."""

LOCAL_SSD_GB = 375
"""Of one local SSD. Source: https://cloud.google.com/compute/docs/disks/local-ssd, 2026-11-20."""

ON_DEMAND, SPOT, PREEMPTIBLE, FLEX_START = "on demand", "Spot", "preemptible", "flex-start"

COLUMNS: Mapping[str, str] = {
    ON_DEMAND: "on_demand",
    SPOT: "spot",
    PREEMPTIBLE: "spot",
    RESERVED: "on_demand",
    FLEX_START: "",
}
"""The column of the table that prices nodes by how they are bought; empty for none."""


@dataclass(frozen=True)
class PricedNode:
    """What decides the price of a node. ``way`` is how it is bought, a key of `COLUMNS`; ``gpus`` are those that
    are attached to its machine, each kind with how many; ``disk_gib`` is 0 where it is not known.
    """

    machine: str
    region: str
    way: str
    gpus: Sequence[tuple[str, int]]
    disk_type: str
    disk_gib: int
    local_ssds: int


def node_charges(node: PricedNode) -> Iterator[tuple[Charge, str]]:
    """What a node is billed for, of no resource yet, each with how it is bought: empty for what lives as long as
    the node does, however that is bought.
    """
    name, region, way, column = node.machine, node.region, node.way, COLUMNS[node.way]
    price = _machine(name, region, column) if column else None
    yield Charge("", f"{name or 'a machine of unknown type'}, {way}", price), way
    machine = machine_type(name)
    for kind, count in node.gpus:
        if machine is None or not machine.gpus:
            price = TABLE.price("accelerators", kind, region, column) if column else None
            yield Charge("", f"{count} {kind}, {way}", price, quantity=count), way
    kind, gib = node.disk_type or "of unknown type", node.disk_gib
    price = TABLE.price("disks", kind, region, "per_gib_month") if gib else None
    yield Charge("", f"boot disk, {gib or 'unknown'} GiB {kind}", price, quantity=gib), ""
    alone = (WITHOUT_SSDS, name) in TABLE.rows
    if (ssds := node.local_ssds) and (alone or machine is None or not machine.bundled_local_ssds):
        monthly = "spot_per_gib_month" if column == "spot" else "per_gib_month"
        price = TABLE.price("disks", "local-ssd", region, monthly) if column and not alone else None
        yield Charge("", f"{ssds} local SSDs", price, quantity=ssds * LOCAL_SSD_GB), way


def pod_charges(way: Way, requests: Resources, region: str) -> Iterator[Charge]:
    """What a pod on Autopilot is billed for, of no resource yet: what it asks for, or the node that it has to
    itself.
    """
    bought, column = (SPOT, "spot") if way.spot else (ON_DEMAND, "on_demand")
    if not way.has_own_node:
        vcpus, gib, scratch = requests.cpu / 1000, requests.memory / 1024, requests.ephemeral_storage / 1024
        size = f"{vcpus:.4g} vCPU, {gib:.4g} GiB"
        prefix = "spot_" if way.spot else ""
        by_vcpu, by_gib, by_scratch = (
            TABLE.price("autopilot", way.compute_class, region, column)
            for column in (f"{prefix}vcpu", f"{prefix}gib", "scratch_gib")
        )
        amount = sum(price.amount * of for price, of in ((by_vcpu, vcpus), (by_gib, gib)) if price)
        total = Price(amount, by_vcpu.unit, by_vcpu.source) if by_vcpu and by_gib else None
        yield Charge("", f"{way.compute_class} pod of {size}, {bought}", total)
        yield Charge("", f"{scratch:.4g} GiB of its scratch space", by_scratch, quantity=scratch)
        return
    machine = autopilot.machine_for(way, requests)
    name = machine.name if machine else "a machine that no catalogue has"
    yield Charge("", f"{name} for one pod, {bought}", _machine(name, region, column) if machine else None)
    if way.accelerator and machine and not machine.gpus:
        price = TABLE.price("accelerators", way.accelerator, region, column)
        yield Charge("", f"{requests.gpus} {way.accelerator}, {bought}", price, quantity=requests.gpus)
    yield Charge("", f"Autopilot's premium for {name} and its boot disk", None)


def node_rate(cluster: GcpCluster, pool: GcpPool) -> Rate | None:
    """The price of a node of ``pool``; None where a part of it is not known."""
    machine = machine_type(pool.machine_type)
    gpus = pool.gpus or (machine.gpus if machine else 0)
    ssds = ephemeral_ssds(pool.node_shape)
    node = PricedNode(
        machine=pool.machine_type,
        region=region_of(next(iter(cluster.zones_of(pool) or ()), cluster.location)),
        way=_bought(pool),
        gpus=[(pool.accelerator, gpus)] if pool.accelerator else [],
        disk_type=pool.disk_type,
        disk_gib=pool.disk_size_gb,
        local_ssds=ssds or (machine.bundled_local_ssds if machine else 0),
    )
    return rate_of(charge for charge, _ in node_charges(node))


def pod_rate(cluster: GcpCluster, pool: GcpPool, requests: Resources) -> Rate | None:
    """The price of a pod on Autopilot that asks for ``requests`` in all; None where a part of it is not known."""
    admitted = autopilot.rules(pool.way).admitted(requests)
    rate = rate_of(pod_charges(pool.way, admitted, region_of(cluster.location)))
    return None if rate is None else replace(rate, by_pod=True)


def _bought(pool: GcpPool) -> str:
    if pool.flex_start:
        return FLEX_START
    if pool.spot:
        return SPOT
    return RESERVED if pool.reservation else ON_DEMAND


def _machine(name: str, region: str, column: str) -> Price | None:
    """The price of a whole machine, without GPUs that are attached to it."""
    for kind in ("machines", WITHOUT_SSDS):
        if (price := TABLE.price(kind, name, region, column)) is not None:
            return price
    machine = machine_type(name)
    if machine is None or machine.gpus or machine.bundled_local_ssds or "custom" in name:
        return None
    prefix = "spot_" if column == "spot" else ""
    vcpu = TABLE.price("families", machine.family, region, f"{prefix}vcpu")
    gib = TABLE.price("families", machine.family, region, f"{prefix}gib")
    if vcpu is None:
        return None
    amount = vcpu.amount * machine.vcpus + (gib.amount * machine.memory / 1024 if gib else 0)
    return Price(amount, vcpu.unit, vcpu.source)


INSTANCE, DISK = "gcp:compute/instance:Instance", "gcp:compute/disk:Disk"

MOST_NAT_VMS = 32
"""From so many VMs on, Cloud NAT costs no more. Source: https://cloud.google.com/nat/pricing, as documented in
2025."""

DISK_DRIVER = "pd.csi.storage.gke.io"
DISK_OF_CLASS: Mapping[str, str] = {
    "standard-rwo": "pd-balanced",
    "premium-rwo": "pd-ssd",
    "standard": "pd-standard",
}
DEFAULT_CLASS, DEFAULT_DISK = "standard-rwo", "pd-standard"
"""The driver of persistent disks, what each class of GKE's own makes, the class of claims that name none, and what
the driver makes for a class without a type. Source:
https://cloud.google.com/kubernetes-engine/docs/concepts/persistent-volumes, read 2026-11-22."""

FREE: Sequence[str] = FACTS["free"]


@dataclass(frozen=True)
class Declared:
    """What brings nodes to the stack's clusters."""

    pools: Sequence[DeclaredPool]
    ways: Sequence[DeclaredWay]


def charges(stack: Stack) -> Sequence[Charge]:
    """The charges of all of the stack's resources on Google Cloud.

    A node pool's are per node, those of Autopilot per pod. Not here: the traffic between zones, regions and to the
    Internet, but for what goes through Cloud NAT; external addresses of nodes; requests to a bucket; and the
    credit of GKE's free tier.
    """
    declared = Declared(declared_pools(stack), [*declared_ways(stack)])
    of_resources = [
        priced_in(charge, _region(resource.properties))
        for resource in (_in_region(stack, declared_resource) for declared_resource in stack.resources.values())
        if resource.custom and not resource.read and resource.package == "gcp"
        for charge in _charges(declared, resource)
    ]
    of_pods = [
        priced_in(charge, region)
        for pod in declared_pods(stack)
        for region in [_region(pod.cluster.properties)]
        for charge in _pod(pod, region)
    ]
    return [*of_resources, *of_pods]


def _in_region(stack: Stack, resource: Resource) -> Resource:
    """A resource of `_PLACED` with the place of its provider, where a program sets none of its own."""
    if resource.type not in _PLACED or any(resource.properties.get(key) is not None for key in ("zone", "region")):
        return resource
    provider = stack.resources.get(resource.provider)
    zone, region = (
        at(provider.properties, key) if provider is not None else stack.configuration.get(f"gcp:{key}")
        for key in ("zone", "region")
    )
    return replace(resource, properties={**resource.properties, "zone": zone, "region": region})


def disk_price(disk: Disk, stack: Stack) -> Price | None:
    """The price of a GiB of a persistent disk that a cluster of GKE makes for a claim."""
    cluster = stack.cluster_called(disk.cluster, CLUSTER)
    if cluster is None or disk.provisioner not in {"", DISK_DRIVER}:
        return None
    kind = disk.kind or DISK_OF_CLASS.get(DEFAULT_CLASS if disk.storage_class is None else disk.storage_class, "")
    if disk.provisioner:
        kind = disk.kind or DEFAULT_DISK
    return TABLE.price("disks", kind, _region(cluster.properties), "per_gib_month")


def _charges(declared: Declared, resource: Resource) -> Iterator[Charge]:
    if (known := _BILLED.get(resource.type)) is not None:
        yield from known(declared, resource)
    elif resource.type != nodes.NODE_POOL and not any(fnmatchcase(resource.type, pattern) for pattern in FREE):
        yield Charge(resource.urn, f"{resource.type.rpartition(':')[2]}, whose price is not recorded", None)
    for pool in declared.pools:
        if pool.resource is resource:
            yield from _nodes(pool)


def _cluster(declared: Declared, resource: Resource) -> Iterator[Charge]:
    credit = TABLE.price("fixed", "gke-free-tier", "", "per_month")
    autopilot = is_true(at(resource.properties, "enableAutopilot"))
    zonal = is_zone(text(at(resource.properties, "location")))
    free = (
        f"; the free tier's ${credit.amount:.2f} a month is not deducted"
        if credit and (zonal or autopilot)
        else ""
    )
    price = TABLE.price("fixed", "gke-control-plane", "", "per_hour")
    yield Charge(resource.urn, f"GKE control plane{free}", price)
    if autopilot and not any(way.resource is resource for way in declared.ways):
        yield Charge(resource.urn, "what pods on Autopilot ask for", None)
    # Autopilot has both on.
    if autopilot or texts(at(resource.properties, "loggingConfig", "enableComponents")):
        logging = TABLE.price("fixed", "cloud-logging", "", "per_gib")
        yield Charge(resource.urn, "Cloud Logging", logging, metered=True)
    if autopilot or is_true(at(resource.properties, "monitoringConfig", "managedPrometheus", "enabled")):
        yield Charge(resource.urn, "Managed Service for Prometheus, by sample", None, metered=True)


def _nodes(pool: DeclaredPool) -> Iterator[Charge]:
    least, most = nodes.fewest_nodes(pool.inputs), nodes.most_nodes(pool.inputs)
    way = _way(at(pool.inputs, "nodeConfig"))
    guests = mappings(at(pool.inputs, "nodeConfig", "guestAccelerators"))
    size = at(pool.inputs, "nodeConfig", "diskSizeGb")
    node = PricedNode(
        machine=nodes.machine_of(pool.inputs),
        region=_region(pool.inputs),
        way=way,
        gpus=[(text(guest.get("type")), whole(guest.get("count"), 1)) for guest in guests],
        disk_type=nodes.disk_type(pool.inputs),
        disk_gib=0 if isinstance(size, Unknown) else nodes.disk_size(pool.inputs),
        local_ssds=nodes.local_ssds(pool.inputs),
    )
    for charge, paid in node_charges(node):
        urn, idle = pool.resource.urn, most if paid == RESERVED else least
        yield replace(charge, urn=urn, idle=idle, most=most, pool=urn)


def _instance(_: Declared, resource: Resource) -> Iterator[Charge]:
    """A boot disk without a size has that of its image, which only Google Cloud knows."""
    machine = resource.properties
    boot = mapping(at(machine, "bootDisk", "initializeParams"))
    scheduling = mapping(machine.get("scheduling"))
    spot = text(scheduling.get("provisioningModel")) == "SPOT"
    preemptible = is_true(scheduling.get("preemptible"))
    guests = mappings(machine.get("guestAccelerators"))
    node = PricedNode(
        machine=text(machine.get("machineType")),
        region=_region(machine),
        way=SPOT if spot else PREEMPTIBLE if preemptible else ON_DEMAND,
        gpus=[(text(guest.get("type")), whole(guest.get("count"), 1)) for guest in guests],
        disk_type=text(boot.get("type")) or DEFAULT_DISK,
        disk_gib=whole(boot.get("size")),
        local_ssds=len(items(machine.get("scratchDisks"))),
    )
    yield from (replace(charge, urn=resource.urn) for charge, _ in node_charges(node))


def _disk(_: Declared, resource: Resource) -> Iterator[Charge]:
    kind, gib = text(resource.properties.get("type")) or DEFAULT_DISK, whole(resource.properties.get("size"))
    price = TABLE.price("disks", kind, _region(resource.properties), "per_gib_month") if gib else None
    yield Charge(resource.urn, f"disk, {gib or 'unknown'} GiB {kind}", price, quantity=gib or 1)


def _pod(pod: DeclaredPod, region: str) -> Iterator[Charge]:
    """What pods on Autopilot cost while they run."""
    billed = [Charge("", "a pod on Autopilot that the stack file has no pool for", None)]
    for charge in pod_charges(pod.way.way, pod.requests, region) if pod.way else billed:
        yield replace(charge, urn=pod.resource.urn, idle=pod.count if pod.stays else 0, most=pod.count)


def _nat(declared: Declared, resource: Resource) -> Iterator[Charge]:
    region = _region(resource.properties)
    behind = [pool.inputs for pool in declared.pools if _region(pool.inputs) == region]
    # On Autopilot as many at most as there are pods.
    pods_ = sum(way.most_pods for way in declared.ways if _region(way.resource.properties) == region)
    yield Charge(
        resource.urn,
        "Cloud NAT, for each node behind it",
        TABLE.price("fixed", "nat-gateway", region, "per_vm_hour"),
        idle=min(sum(map(nodes.fewest_nodes, behind)), MOST_NAT_VMS),
        most=min(sum(map(nodes.most_nodes, behind)) + pods_, MOST_NAT_VMS),
    )
    yield Charge(resource.urn, "external address", TABLE.price("fixed", "external-ipv4", region, "per_hour"))
    through = TABLE.price("fixed", "nat-gateway", region, "per_gib")
    yield Charge(resource.urn, "data through Cloud NAT", through, metered=True)
    egress = TABLE.price("fixed", "internet-egress", region, "per_gib")
    yield Charge(resource.urn, "data to the Internet", egress, metered=True)


def _bucket(_: Declared, resource: Resource) -> Iterator[Charge]:
    location = text(at(resource.properties, "location")).lower()
    kind = text(at(resource.properties, "storageClass")) or "STANDARD"
    price = TABLE.price("storage", kind.lower(), location, "per_gib_month")
    yield Charge(resource.urn, f"{kind.capitalize()} storage in {location or 'unknown'}", price, metered=True)


def _images(_: Declared, resource: Resource) -> Iterator[Charge]:
    price = TABLE.price("storage", "artifact-registry", "", "per_gib_month")
    yield Charge(resource.urn, "images kept in Artifact Registry", price, metered=True)


def _filestore(_: Declared, resource: Resource) -> Iterator[Charge]:
    tier = text(at(resource.properties, "tier")) or "of unknown tier"
    gib = whole(at(resource.properties, "fileShares", "capacityGb"))
    price = TABLE.price(
        "storage", f"filestore-{tier.lower().replace('_', '-')}", _region(resource.properties), "per_gib_month"
    )
    yield Charge(
        resource.urn,
        f"Filestore {tier}, {gib or 'unknown'} GiB, used or not",
        price if gib else None,
        quantity=gib,
    )


def _subnet(_: Declared, resource: Resource) -> Iterator[Charge]:
    if at(resource.properties, "logConfig") is not None:
        price = TABLE.price("fixed", "cloud-logging", "", "per_gib")
        yield Charge(resource.urn, "flow logs in Cloud Logging", price, metered=True)


def _audit_logs(_: Declared, resource: Resource) -> Iterator[Charge]:
    service = text(at(resource.properties, "service"))
    price = TABLE.price("fixed", "cloud-logging", "", "per_gib")
    yield Charge(resource.urn, f"audit logs of {service} in Cloud Logging", price, metered=True)


def _key(_: Declared, resource: Resource) -> Iterator[Charge]:
    more = "; each rotation adds one" if text(at(resource.properties, "rotationPeriod")) else ""
    price = TABLE.price("fixed", "kms-key-version", "", "per_month")
    yield Charge(resource.urn, f"version of a KMS key{more}", price)


_BILLED: Mapping[str, Callable[[Declared, Resource], Iterator[Charge]]] = {
    CLUSTER: _cluster,
    "gcp:compute/routerNat:RouterNat": _nat,
    "gcp:compute/subnetwork:Subnetwork": _subnet,
    INSTANCE: _instance,
    DISK: _disk,
    "gcp:kms/cryptoKey:CryptoKey": _key,
    "gcp:projects/iAMAuditConfig:IAMAuditConfig": _audit_logs,
    "gcp:filestore/instance:Instance": _filestore,
    "gcp:artifactregistry/repository:Repository": _images,
    "gcp:storage/bucket:Bucket": _bucket,
}


_PLACED = frozenset({INSTANCE, DISK, "gcp:compute/routerNat:RouterNat"})
"""Types that a program may declare without a place."""


def _way(config: object) -> str:
    """How its nodes are bought."""
    if is_true(at(config, "flexStart")):
        return FLEX_START
    if is_true(at(config, "spot")) or is_true(at(config, "preemptible")):
        return SPOT if is_true(at(config, "spot")) else PREEMPTIBLE
    if at(config, "reservationAffinity", "consumeReservationType") == "SPECIFIC_RESERVATION":
        return RESERVED
    return ON_DEMAND


def _region(inputs: Properties) -> str:
    zones = texts(inputs.get("nodeLocations"))
    places = (*zones[:1], *(text(inputs.get(key)) for key in ("location", "zone", "region")))
    return region_of(next(filter(None, places), ""))
