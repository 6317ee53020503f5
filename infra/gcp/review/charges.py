"""What each resource is billed for. Spot prices are those of the table's day: Google changes them every month."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from infra.gcp.catalogue import machine_type
from infra.gcp.locations import region_of
from infra.prices import price_table
from infra.properties import at, is_true, mappings, text, texts, whole
from infra.review import Charge, Declared, NodePool, Price, Stack

TABLE = price_table(Path(__file__).parents[1] / "data" / "prices.toml")

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"

LOCAL_SSD_GB = 375
"""Of one local SSD. Source: https://cloud.google.com/compute/docs/disks/local-ssd, as documented in 2025."""

MOST_NAT_VMS = 32
"""From so many VMs on, Cloud NAT costs no more. Source: https://cloud.google.com/nat/pricing, as documented in
2025."""

FREE = (
    "gcp:projects/*",
    "gcp:serviceaccount/*",
    "gcp:iam/*",
    "gcp:*IAM*",
    "gcp:*Iam*",
    "gcp:compute/network:*",
    "gcp:compute/subnetwork:*",
    "gcp:compute/router:*",
    "gcp:compute/route:*",
    "gcp:compute/firewall:*",
    "gcp:storage/bucketObject:*",
)
"""Types that cost nothing by themselves; an object counts in its bucket."""


def charges(stack: Stack) -> Sequence[Charge]:
    """The charges of all of the stack's resources on Google Cloud.

    A node pool's are per node. Not here: the traffic between zones, regions and to the Internet, but for what goes
    through Cloud NAT; requests to a bucket; and the credit of GKE's free tier.
    """
    return [
        charge
        for resource in stack.resources.values()
        if resource.custom and not resource.read and resource.package == "gcp"
        for charge in _charges(stack, resource)
    ]


def _charges(stack: Stack, resource: Declared) -> Iterator[Charge]:
    if (known := _BILLED.get(resource.type)) is not None:
        yield from known(stack, resource)
    elif not any(fnmatchcase(resource.type, pattern) for pattern in FREE):
        yield Charge(resource.urn, f"{resource.type.rpartition(':')[2]}, whose price is not recorded", None)


def _cluster(_: Stack, resource: Declared) -> Iterator[Charge]:
    credit = TABLE.price("fixed", "gke-free-tier", "", "per_month")
    zonal = text(at(resource.properties, "location")).count("-") > 1
    free = f"; the free tier's ${credit.amount:.2f} a month is not deducted" if credit and zonal else ""
    yield Charge(
        resource.urn, f"GKE control plane{free}", TABLE.price("fixed", "gke-control-plane", "", "per_hour")
    )
    if texts(at(resource.properties, "loggingConfig", "enableComponents")):
        yield Charge(
            resource.urn, "Cloud Logging", TABLE.price("fixed", "cloud-logging", "", "per_gib"), metered=True
        )
    if is_true(at(resource.properties, "monitoringConfig", "managedPrometheus", "enabled")):
        yield Charge(resource.urn, "Managed Service for Prometheus, by sample", None, metered=True)


def _node_pool(stack: Stack, resource: Declared) -> Iterator[Charge]:
    pool = _pools(stack).get(resource.urn)
    if pool is None:
        yield Charge(resource.urn, "nodes, of which nothing is known", None, pool=resource.urn)
        return
    config = at(resource.properties, "nodeConfig")
    name = pool.machine or text(at(config, "machineType"))
    region = _region(resource)
    way, column = _way(config)
    spot = column == "spot"

    def each(what: str, price: Price | None, quantity: float = 1, *, always: bool = False) -> Charge:
        return Charge(
            resource.urn,
            what,
            price,
            idle=pool.max_nodes if always else pool.min_nodes,
            most=pool.max_nodes,
            quantity=quantity,
            pool=resource.urn,
        )

    reserved = way == RESERVED
    yield each(f"{name}, {way}", _machine(name, region, column) if column else None, always=reserved)
    machine = machine_type(name)
    for gpu in mappings(at(config, "guestAccelerators")):
        if machine is None or not machine.gpus:
            kind, count = text(gpu.get("type")), whole(gpu.get("count"), 1)
            price = TABLE.price("accelerators", kind, region, column) if column else None
            yield each(f"{count} {kind}, {way}", price, count, always=reserved)
    disk, size = at(config, "diskType"), at(config, "diskSizeGb")
    kind = text(disk) or ("pd-balanced" if disk is None else "a disk of unknown type")
    gib = whole(size, 100 if size is None else 0)
    yield each(
        f"boot disk, {gib or 'unknown'} GiB {kind}",
        TABLE.price("disks", kind, region, "per_gib_month") if gib else None,
        gib,
    )
    ssds = sum(
        whole(at(config, block, "localSsdCount"))
        for block in ("ephemeralStorageLocalSsdConfig", "localNvmeSsdBlockConfig")
    )
    if ssds and (machine is None or not machine.bundled_local_ssds):
        yield each(
            f"{ssds} local SSDs",
            TABLE.price("disks", "local-ssd", region, "spot_per_gib_month" if spot else "per_gib_month"),
            ssds * LOCAL_SSD_GB,
        )


def _nat(stack: Stack, resource: Declared) -> Iterator[Charge]:
    region = text(at(resource.properties, "region"))
    behind = [
        pool
        for urn, pool in _pools(stack).items()
        if (declared := stack.resources.get(urn)) is not None and _region(declared) == region
    ]
    yield Charge(
        resource.urn,
        "Cloud NAT, for each node behind it",
        TABLE.price("fixed", "nat-gateway", region, "per_vm_hour"),
        idle=min(sum(pool.min_nodes for pool in behind), MOST_NAT_VMS),
        most=min(sum(pool.max_nodes for pool in behind), MOST_NAT_VMS),
    )
    yield Charge(resource.urn, "external address", TABLE.price("fixed", "external-ipv4", region, "per_hour"))
    yield Charge(
        resource.urn,
        "data through Cloud NAT",
        TABLE.price("fixed", "nat-gateway", region, "per_gib"),
        metered=True,
    )
    yield Charge(
        resource.urn,
        "data to the Internet",
        TABLE.price("fixed", "internet-egress", region, "per_gib"),
        metered=True,
    )


def _bucket(_: Stack, resource: Declared) -> Iterator[Charge]:
    location = text(at(resource.properties, "location")).lower()
    kind = text(at(resource.properties, "storageClass")) or "STANDARD"
    price = TABLE.price("storage", kind.lower(), location, "per_gib_month")
    yield Charge(resource.urn, f"{kind.capitalize()} storage in {location or 'unknown'}", price, metered=True)


_BILLED: Mapping[str, Callable[[Stack, Declared], Iterator[Charge]]] = {
    CLUSTER: _cluster,
    NODE_POOL: _node_pool,
    "gcp:compute/routerNat:RouterNat": _nat,
    "gcp:storage/bucket:Bucket": _bucket,
}

RESERVED = "reserved, and billed whether it runs or not"


def _way(config: object) -> tuple[str, str]:
    """How its nodes are bought, and the column of the table that prices it; empty for none."""
    if is_true(at(config, "flexStart")):
        return "flex-start", ""
    if is_true(at(config, "spot")) or is_true(at(config, "preemptible")):
        return "Spot" if is_true(at(config, "spot")) else "preemptible", "spot"
    if at(config, "reservationAffinity", "consumeReservationType") == "SPECIFIC_RESERVATION":
        return RESERVED, "on_demand"
    return "on demand", "on_demand"


def _machine(name: str, region: str, column: str) -> Price | None:
    """Of a whole machine, without GPUs that are attached to it."""
    if (price := TABLE.price("machines", name, region, column)) is not None:
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


def _region(pool: Declared) -> str:
    zones = texts(at(pool.properties, "nodeLocations"))
    return region_of(zones[0] if zones else text(at(pool.properties, "location")))


def _pools(stack: Stack) -> Mapping[str, NodePool]:
    return {pool.urn: pool for pool in stack.pools if pool.urn}
