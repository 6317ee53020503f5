"""What a preview says of resources on Google Cloud. None of it imports the SDK."""

import ipaddress
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from slipway.infra.clouds.gcp import nodes
from slipway.infra.clouds.gcp.autopilot import GENERAL_PURPOSE
from slipway.infra.clouds.gcp.catalogue import DRIVER, Offer, machine_type, offers, region_of
from slipway.infra.clouds.gcp.nodes import CLUSTER, declared_pools, declared_ways
from slipway.infra.clouds.gcp.review import access_policies, charges, policies
from slipway.infra.clouds.gcp.review.access_policies import GRANT, bindings
from slipway.infra.clouds.gcp.review.charges import LOCAL_SSD_GB, declared_pods, machine_of
from slipway.infra.review.contract import Review
from slipway.infra.review.facts import Grant, Holding, Identity, Quota
from slipway.infra.review.stack import (
    EVERYWHERE,
    JOB,
    NodePool,
    Properties,
    Resource,
    Stack,
    at,
    is_true,
    mappings,
    text,
    texts,
)
from slipway.infra.review.tables import computed_from, facts_from, holdings_from, in_place_from, replacing_from

FACTS = facts_from(Path(__file__).parents[1] / "data" / "review.toml")


FIREWALL = "gcp:compute/firewall:Firewall"
FILESTORE = "gcp:filestore/instance:Instance"

IN_POOL = re.compile(
    r"(?:serviceAccount:|.*/workloadIdentityPools/)([^/\[]+)\.svc\.id\.goog"
    r"(?:\[([^/\]]+)/([^/\]]+)\]|/subject/ns/([^/]+)/sa/([^/]+))$"
)
"""A Kubernetes service account as a member: the clusters' project, the namespace and the name.

Source: https://docs.cloud.google.com/kubernetes-engine/docs/how-to/workload-identity, 2026-11-24.
"""

OF_AGENTS = re.compile(
    r"serviceAccount:.*@(?:gcp-sa-[a-z-]+|[a-z-]+-robot|gs-project-accounts)\.iam\.gserviceaccount\.com$"
)
"""Google's own accounts, as which its services work for a project.

Source: https://docs.cloud.google.com/iam/docs/service-agents, 2026-11-24.
"""

SCOPES: Sequence[str] = FACTS["scopes"]


def outside_grants(stack: Stack) -> Sequence[Grant]:
    """Everything that lets somebody in, in the order of declaration."""
    grants: list[Grant] = []
    for resource in stack.resources.values():
        if resource.package != "gcp" or resource.read:
            continue
        if resource.type == CLUSTER:
            grants += _reaching(stack, resource)
        elif resource.type == FILESTORE:
            grants += _mounting(resource)
        elif resource.type == FIREWALL:
            grants += _connecting(resource)
        elif GRANT.search(resource.type):
            grants += _members(stack, resource)
    return grants


def _reaching(stack: Stack, cluster: Resource) -> Iterator[Grant]:
    may = f"reach the API server of the cluster {stack.called(cluster)}"
    endpoints = at(cluster.properties, "controlPlaneEndpointsConfig")
    if is_true(at(endpoints, "dnsEndpointConfig", "allowExternalTraffic")):
        yield Grant(cluster.urn, "whoever IAM lets in, from everywhere,", may, signs_in=True)
    if at(endpoints, "ipEndpointsConfig", "enabled") is False:
        return
    authorized = at(cluster.properties, "masterAuthorizedNetworksConfig")
    if is_true(at(authorized, "gcpPublicCidrsAccessEnabled")):
        yield Grant(cluster.urn, "every machine on Google Cloud", may)
    blocks = [text(block.get("cidrBlock")) for block in mappings(at(authorized, "cidrBlocks"))]
    if not blocks and not is_true(at(cluster.properties, "privateClusterConfig", "enablePrivateEndpoint")):
        blocks = [EVERYWHERE]
    yield from (Grant(cluster.urn, block, may) for block in blocks if block)


def _mounting(instance: Resource) -> Iterator[Grant]:
    may = f"mount the file system {instance.name}"
    exports = mappings(at(instance.properties, "fileShares", "nfsExportOptions"))
    if not exports:
        yield Grant(instance.urn, EVERYWHERE, f"{may} as root")
    for export in exports:
        root = "" if export.get("squashMode") == "ROOT_SQUASH" else " as root"
        yield from (Grant(instance.urn, block, f"{may}{root}") for block in texts(export.get("ipRanges")))


def _connecting(rule: Resource) -> Iterator[Grant]:
    if text(rule.properties.get("direction")) == "EGRESS" or not mappings(rule.properties.get("allows")):
        return
    for block in texts(rule.properties.get("sourceRanges")):
        yield Grant(rule.urn, block, f"connect to machines of the network ({rule.name})")


def _members(stack: Stack, grant: Resource) -> Iterator[Grant]:
    """The members that ``grant`` names, less pods and accounts of the stack (only an update can tell the names of
    its accounts) and Google's own accounts."""
    condition = text(at(grant.properties, "condition", "expression"))
    for role, members in bindings(grant):
        may = f"have {role} on {_scope(grant)}{f', if {condition}' if condition else ''}"
        for member in members:
            if not OF_AGENTS.match(member) and (who := _outside(stack, member)):
                yield Grant(grant.urn, who, may)


def _outside(stack: Stack, member: str) -> str:
    """The member as people call it; empty for pods of the stack's own clusters and namespaces."""
    match = IN_POOL.match(member)
    if match is None:
        return "" if member.startswith("[") or "[" in member.partition(":")[2] else member
    project, namespace, account = match[1], match[2] or match[4], match[3] or match[5]
    projects = {text(cluster.properties.get("project")) for cluster in stack.of_type(CLUSTER)}
    if project not in projects:
        return f"pods of {namespace}/{account} in the project {project}"
    return "" if namespace in stack.namespaces else f"pods of {namespace}/{account}"


def _scope(grant: Resource) -> str:
    kind = re.sub(r"(?:IAM|Iam)(?:Member|Binding|Policy)$", "", grant.type.rpartition(":")[2])
    name = next(filter(None, (text(grant.properties.get(key)) for key in SCOPES)), grant.name)
    return f"the {kind[:1].lower()}{kind[1:]} {name}" if kind else name


ACCOUNT = "gcp:serviceaccount/account:Account"
IMPERSONATION = "gcp:serviceaccount/iAMMember:IAMMember"
BUCKET_GRANTS = ("gcp:storage/bucketIAMMember:BucketIAMMember", "gcp:storage/bucketIAMBinding:BucketIAMBinding")
PROJECT_GRANTS = ("gcp:projects/iAMMember:IAMMember", "gcp:projects/iAMBinding:IAMBinding")

MEMBER = re.compile(r"\[([^/\]]+)/([^/\]]+)\]$|/subject/ns/([^/]+)/sa/([^/]+)$")
"""The Kubernetes service account in a member of a Workload Identity pool."""

STORE_ROLE = "roles/storage.objectUser"
"""What pods have on their store."""

INPUT_TITLE = "slipway-input-"
"""How the titles of conditions begin that hold for inputs."""

OBJECTS = re.compile(r'"projects/_/buckets/([^/"]+)/objects/([^"]+)/"')
"""The objects below a folder, in a condition."""

WORDS: Mapping[str, str] = FACTS["roles"]


def identities(stack: Stack) -> Sequence[Identity]:
    """The Google service accounts, and the pods that have rights under their own name."""
    pods = _mounting_pods(stack)
    accounts = [_account(stack, account, pods) for account in stack.of_type(ACCOUNT)]
    return [*_direct(stack, pods), *accounts]


def endpoints(stack: Stack) -> Mapping[str, str]:
    """From where each cluster's API can be reached."""
    return {stack.called(cluster): _endpoint(cluster) for cluster in stack.of_type(CLUSTER)}


def _direct(stack: Stack, pods: Mapping[str, Sequence[str]]) -> Iterator[Identity]:
    """Buckets' grants to members of a Workload Identity pool, whose names are unknown before the first update."""
    by_owner: dict[str, list[Resource]] = {}
    for grant in stack.of_type(*BUCKET_GRANTS):
        if _granted_to(stack, grant) is None:
            owner = _member(grant.properties.get("member")) or " and ".join(pods)
            by_owner.setdefault(owner or text(grant.properties.get("member")), []).append(grant)
    for owner, grants in by_owner.items():
        clusters = pods.get(owner) or _all(pods)
        yield Identity(owner, "pods of this service account, as themselves", _may(grants), clusters, store=True)


def _account(stack: Stack, account: Resource, pods: Mapping[str, Sequence[str]]) -> Identity:
    grants = [grant for grant in stack.of_type(*PROJECT_GRANTS) if _granted_to(stack, grant) == account.urn]
    of_buckets = [grant for grant in stack.of_type(*BUCKET_GRANTS) if _granted_to(stack, grant) == account.urn]
    members = [grant for grant in stack.of_type(IMPERSONATION) if account.urn in grant.dependencies]
    users = list(dict.fromkeys(filter(None, (_member(member.properties.get("member")) for member in members))))
    node_pools = [pool for pool in stack.of_type(nodes.NODE_POOL) if stack.source(pool, "nodeConfig", ACCOUNT)]
    with_nodes = {
        stack.called(cluster)
        for node_pool in node_pools
        if account.urn in node_pool.property_dependencies.get("nodeConfig", ())
        and (cluster := stack.source(node_pool, "cluster", CLUSTER)) is not None
    }
    if with_nodes:
        of, clusters = "nodes", sorted(with_nodes)
    else:
        of = f"pods of {', '.join(users)}" if users else "whoever may use it"
        clusters = _all({user: pods.get(user, ()) for user in users})
    return Identity(
        text(account.properties.get("accountId")) or account.name,
        of,
        _may([*grants, *of_buckets]),
        clusters,
        store=bool(of_buckets),
    )


def _granted_to(stack: Stack, grant: Resource) -> str | None:
    """The URN of the service account that a grant is to; None where it is to anybody else."""
    for key in ("member", "members"):
        if (account := stack.source(grant, key, ACCOUNT)) is not None:
            return account.urn
    return None


def _mounting_pods(stack: Stack) -> dict[str, list[str]]:
    """The Kubernetes service accounts as which pods mount buckets, each with its clusters."""
    accounts: dict[str, dict[str, None]] = {}
    for job in stack.of_type(JOB):
        pod = at(job.properties, "spec", "template", "spec")
        drivers = [at(volume, "csi", "driver") for volume in mappings(at(pod, "volumes"))]
        if DRIVER in drivers:
            namespace = text(at(job.properties, "metadata", "namespace")) or "default"
            account = text(at(pod, "serviceAccountName")) or "default"
            accounts.setdefault(f"{namespace}/{account}", {})[stack.cluster_of(job)] = None
    return {owner: sorted(clusters) for owner, clusters in accounts.items()}


def _member(member: object) -> str:
    match = MEMBER.search(text(member))
    return "/".join(group for group in match.groups() if group) if match else ""


def _may(grants: Sequence[Resource]) -> str:
    """What all of them allow; buckets and folders of inputs, which nothing is written to, are named."""
    stores = {_bucket_of(grant) for grant in grants if text(grant.properties.get("role")) == STORE_ROLE}
    words: dict[str, None] = {}
    for grant in grants:
        role = text(grant.properties.get("role"))
        if not role:
            continue
        may = WORDS.get(role, role.removeprefix("roles/"))
        of_input = text(at(grant.properties, "condition", "title")).startswith(INPUT_TITLE)
        if stores and grant.type in BUCKET_GRANTS and (of_input or _bucket_of(grant) not in stores):
            may = may.replace("the bucket's objects", f"all objects of {_what_of(grant)}")
        words[may] = None
    return ", ".join(words) or "nothing"


def _bucket_of(grant: Resource) -> object:
    return grant.properties.get("bucket")


def _what_of(grant: Resource) -> str:
    """The bucket of a grant, or the folder of it that its condition names."""
    match = OBJECTS.search(text(at(grant.properties, "condition", "expression")))
    return f"gs://{match[1]}/{match[2]}" if match else f"gs://{text(_bucket_of(grant))}"


def _all(pods: Mapping[str, Sequence[str]]) -> list[str]:
    return sorted({cluster for clusters in pods.values() for cluster in clusters})


def _endpoint(cluster: Resource) -> str:
    config = at(cluster.properties, "controlPlaneEndpointsConfig")
    parts: list[str] = []
    if is_true(at(config, "dnsEndpointConfig", "allowExternalTraffic")):
        parts.append("DNS endpoint, for whom IAM lets in")
    with_ip = at(config, "ipEndpointsConfig", "enabled")
    if is_true(with_ip) or with_ip is None:
        blocks = mappings(at(cluster.properties, "masterAuthorizedNetworksConfig", "cidrBlocks"))
        names = [text(block.get("cidrBlock")) for block in blocks]
        parts.append(f"IP endpoint, for {', '.join(filter(None, names)) or 'every address'}")
    return "; ".join(parts) or "from the VPC alone"


QUOTA_DATA = Path(__file__).parents[1] / "data" / "quotas.toml"

ALL_REGIONS = "all regions"

SPOT_CPUS = "PREEMPTIBLE_CPUS"

PER_GPU_FAMILY = "GPUS-PER-GPU-FAMILY-per-project-region"
PER_VM_FAMILY = "CPUS-PER-VM-FAMILY-per-project-region"
"""Ids of quotas that have a dimension, which is written after them."""

NAT = "gcp:compute/routerNat:RouterNat"
ADDRESS = "gcp:compute/address:Address"
NETWORK = "gcp:compute/network:Network"

GENERAL_PURPOSE_FAMILY = "e2"
"""The family of Autopilot's general-purpose nodes
(https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-compute-classes, as documented in 2025)."""

Need = tuple[str, str, str]
"""Where, metric and unit."""

COMPUTING = ("vCPUs", "GPUs")
"""Units of what a node computes with."""

UNKNOWN = "GPUs "
"""What the metric begins with of a GPU whose quota is in no source."""


def quotas(stack: Stack) -> Sequence[Quota]:
    """What the stack needs of each quota, by region, and then in the whole project."""
    needed: Counter[Need] = Counter()
    for pool in declared_pools(stack):
        count = nodes.most_nodes(pool.inputs)
        for need, amount in _of_node(pool.inputs):
            needed[need] += amount * count
    for need, amount in _of_autopilot(stack):
        needed[need] += amount
    for need, amount in _of_network(stack):
        needed[need] += amount
    project = _project(stack)
    ordered = sorted(needed, key=lambda need: (need[0] == ALL_REGIONS, need))
    return [_quota(need, needed[need], project) for need in ordered if needed[need]]


def pools(stack: Stack) -> Sequence[NodePool]:
    """The node pools, each with what one node needs of the quotas of its region."""
    project = _project(stack)
    quotas = {
        (pool.resource.urn, pool.name): [
            _quota(need, amount, project)
            for need, amount in _of_node(pool.inputs)
            if need[0] != ALL_REGIONS and need[2] in COMPUTING
        ]
        for pool in declared_pools(stack)
    }
    return [replace(pool, quotas=quotas.get((pool.urn, pool.name), ())) for pool in nodes.pools(stack)]


def _project(stack: Stack) -> str:
    return text(stack.configuration.get("gcp:project")) or "<project>"


def _quota(need: Need, amount: int, project: str) -> Quota:
    where, metric, unit = need
    name, _, family = metric.partition(", ")
    how = "dimension" if family else "project" if where == ALL_REGIONS else "region"
    see: str = _data()["see"][how]
    return Quota(
        metric=metric,
        where=where,
        needed=amount,
        unit=unit,
        see=see.format(region=where, project=project, metric=name),
        ordinary=_data()["ordinary"].get(family or name),
        known=not metric.startswith(UNKNOWN),
    )


def _of_node(pool: Properties) -> Iterator[tuple[Need, int]]:
    """What one node needs."""
    region = region_of(text(pool.get("location"))) or "<region>"
    spot = nodes.is_spot(pool) or is_true(at(pool, "nodeConfig", "flexStart"))
    machine = machine_type(nodes.machine_of(pool))
    if machine is not None:
        yield (ALL_REGIONS, "CPUS_ALL_REGIONS", "vCPUs"), machine.vcpus
        if metric := _vcpus(machine.family, spot=spot):
            yield (region, metric, "vCPUs"), machine.vcpus
    gpus = nodes.gpus_of(pool)
    if gpus:
        yield (ALL_REGIONS, "GPUS_ALL_REGIONS", "GPUs"), gpus
        yield (region, _gpus(nodes.accelerator_of(pool), spot=spot), "GPUs"), gpus
    if metric := _data()["disks"].get(nodes.disk_type(pool)):
        yield (region, metric, "GB"), nodes.disk_size(pool)
    if ssds := nodes.local_ssds(pool):
        yield (region, "PREEMPTIBLE_LOCAL_SSD_GB" if spot else "LOCAL_SSD_TOTAL_GB", "GB"), ssds * LOCAL_SSD_GB
    if at(pool, "networkConfig", "enablePrivateNodes") is False:
        yield (region, "IN_USE_ADDRESSES", "addresses"), 1


def _of_autopilot(stack: Stack) -> Iterator[tuple[Need, int]]:
    """For each way to ask Autopilot for nodes: as many of its largest pod as there may be at once."""
    pods = [*declared_pods(stack)]
    for way in declared_ways(stack):
        of_way = [pod for pod in pods if pod.way == way]
        if not of_way:
            continue
        region = region_of(text(way.resource.properties.get("location"))) or "<region>"
        largest = max(of_way, key=lambda pod: (pod.requests.gpus, pod.requests.cpu))
        machine, gpus = machine_of(largest), largest.requests.gpus
        vcpus = machine.vcpus if machine else math.ceil(largest.requests.cpu / 1000)
        yield (ALL_REGIONS, "CPUS_ALL_REGIONS", "vCPUs"), vcpus * way.most_pods
        family = machine.family if machine else GENERAL_PURPOSE_FAMILY
        shared = way.way.compute_class == GENERAL_PURPOSE
        if (machine or shared) and (metric := _vcpus(family, spot=way.way.spot)):
            yield (region, metric, "vCPUs"), vcpus * way.most_pods
        if gpus:
            yield (ALL_REGIONS, "GPUS_ALL_REGIONS", "GPUs"), gpus * way.most_pods
            yield (region, _gpus(way.way.accelerator, spot=way.way.spot), "GPUs"), gpus * way.most_pods


def _vcpus(family: str, *, spot: bool) -> str | None:
    rules = _data()["vcpus"]
    if family in rules["dimension"]:
        return f"{PER_VM_FAMILY}, {family.upper()}"
    metric: str | None = rules["families"].get(family)
    return SPOT_CPUS if metric and spot else metric


def _gpus(accelerator: str | None, *, spot: bool) -> str:
    rule = offers().get(accelerator or "", Offer()).quota
    if not spot and "family" in rule:
        return f"{PER_GPU_FAMILY}, {rule['family']}"
    unknown = f"{UNKNOWN}{accelerator or 'of any kind'}{' as Spot' if spot else ''}"
    return rule.get("spot" if spot else "on_demand", unknown)


def _of_network(stack: Stack) -> Iterator[tuple[Need, int]]:
    for gateway in stack.of_type(NAT):
        # One at least; more from about a thousand nodes on.
        if gateway.properties.get("natIpAllocateOption") == "AUTO_ONLY":
            yield (_region(gateway), "IN_USE_ADDRESSES", "addresses"), 1
            yield (_region(gateway), "STATIC_ADDRESSES", "addresses"), 1
    for address in stack.of_type(ADDRESS):
        if address.properties.get("addressType", "EXTERNAL") == "EXTERNAL":
            yield (_region(address), "STATIC_ADDRESSES", "addresses"), 1
    yield (ALL_REGIONS, "NETWORKS", "networks"), len(stack.of_type(NETWORK))


def _region(resource: Resource) -> str:
    return text(resource.properties.get("region")) or "<region>"


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(QUOTA_DATA.read_text(encoding="utf-8"))


DATA = Path(__file__).parents[1] / "data"

HOLDINGS = holdings_from(DATA / "holdings.toml")


def _does_not_only_grow(before: object, after: object) -> bool:
    if not isinstance(before, str) or not isinstance(after, str):
        return True
    try:
        return not ipaddress.ip_network(before).subnet_of(ipaddress.ip_network(after))  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return True


SOMETIMES: Mapping[str, Mapping[str, Callable[[object, object], bool]]] = {
    "gcp:compute/subnetwork:Subnetwork": {"ipCidrRange": _does_not_only_grow}
}
"""What the provider's own code decides, so that the schema does not have it. Source: `IsShrinkageIpCidr`,
https://github.com/hashicorp/terraform-provider-google/blob/main/google/services/compute/resource_compute_subnetwork.go,
2026-08-28; previews of November 2026 agree."""


def holding(resource: Resource, _: Stack) -> Holding | None:
    """What goes with this one; None for a type that holds nothing of users'."""
    row = HOLDINGS.get(resource.type)
    return row.of(resource) if row else None


REVIEW = Review(
    pools=pools,
    charges=charges.charges,
    disk_price=charges.disk_price,
    quotas=quotas,
    policies=(*access_policies.POLICIES, *policies.PLACE_POLICIES, *policies.POLICIES),
    replacing=partial(replacing_from, DATA / "replacing.json"),
    computed=partial(computed_from, DATA / "replacing.json"),
    holding=holding,
    in_place=partial(in_place_from, DATA / "in_place.toml"),
    sometimes=SOMETIMES,
    identities=identities,
    grants=outside_grants,
    endpoints=endpoints,
    node_labels={nodes.NODE_POOL: nodes.POOL_LABEL, nodes.CLUSTER: ""},
)
