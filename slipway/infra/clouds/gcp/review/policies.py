"""Policies about resources of Google Cloud."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from slipway.infra.clouds.gcp import autopilot, nodes
from slipway.infra.clouds.gcp.catalogue import is_zone, region_of, regions
from slipway.infra.clouds.gcp.nodes import CLUSTER, declared_pools
from slipway.infra.clouds.gcp.review.charges import TABLE, DeclaredPod, charges, declared_pods
from slipway.infra.platform import Resources
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import Properties, Stack, is_true, mapping, mappings, text, texts, whole
from slipway.infra.review.tables import facts_from, hourly, node_price

FACTS = facts_from(Path(__file__).parents[1] / "data" / "review.toml")


SELECTED: Sequence[str] = FACTS["selectable"]

HOST = ("hostNetwork", "hostPID", "hostIPC")


def _refusals(stack: Stack) -> Iterator[Violation]:
    for pod in declared_pods(stack):
        for reason, fix in (*_of_host(pod.spec), *_places(pod), *_size(pod)):
            yield Violation(pod.resource.urn, f"{reason}, and Autopilot refuses the pod", fix)


def _of_host(spec: Properties) -> Iterator[tuple[str, str]]:
    """https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-security, undated, read on 2026-11-22."""
    for key in HOST:
        if is_true(spec.get(key)):
            yield f"its pod has `{key}`", f"leave out `{key}`"
    for volume in mappings(spec.get("volumes")):
        if volume.get("hostPath") is not None:
            name = volume.get("name")
            yield f"its volume `{name}` is a folder of the node (`hostPath`)", "mount the store, or an `emptyDir`"
    for container in (*mappings(spec.get("initContainers")), *mappings(spec.get("containers"))):
        if is_true(mapping(container.get("securityContext")).get("privileged")):
            yield f"its container `{container.get('name')}` is privileged", "leave out `privileged`"


def _places(pod: DeclaredPod) -> Iterator[tuple[str, str]]:
    selected = mapping(pod.spec.get("nodeSelector"))
    for key in selected:
        if key not in SELECTED:
            fix = "ask by compute class, machine family, Spot or accelerator"
            yield f"it selects its nodes by `{key}`, which Autopilot gives no meaning", fix
    if pod.requests.gpus and autopilot.ACCELERATOR_LABEL not in selected:
        yield "it asks for GPUs of no kind", f"select nodes by `{autopilot.ACCELERATOR_LABEL}`"
    if not pod.requests.gpus and any(
        toleration.get("key") == autopilot.GPU_TAINT.key for toleration in mappings(pod.spec.get("tolerations"))
    ):
        yield "it tolerates the taint of GPU nodes and asks for no GPU", "take a pool without an accelerator"


def _size(pod: DeclaredPod) -> Iterator[tuple[str, str]]:
    most = autopilot.most(pod.way.way) if pod.way else None
    if most is None or pod.way is None:
        return
    for key, unit, words in (
        ("cpu", "m", "CPU"),
        ("memory", "Mi", "memory"),
        ("ephemeral_storage", "Mi", "ephemeral storage"),
        # Without an accelerator in its selector, that is what is said of it.
        *((("gpus", "", "GPUs"),) if most.gpus else ()),
    ):
        wanted, largest = getattr(pod.requests, key), getattr(most, key)
        if wanted > largest:
            reason = f"its pod asks for {wanted}{unit} of {words}, what a cloud adds to it included"
            yield (
                f"{reason}; in pool `{pod.way.name}` the most is {largest}{unit}",
                "ask for less, or take another pool",
            )


def _raised_requests(stack: Stack) -> Iterator[Violation]:
    billed = charges(stack)
    for pod in declared_pods(stack):
        changes = ", ".join(_changes(pod.of_step, pod.declared)) if pod.of_step else ""
        if not changes:
            continue
        known = [
            rate * charge.quantity
            for charge in billed
            if charge.urn == pod.resource.urn and charge.price and (rate := hourly(charge.price)) is not None
        ]
        costs = f", for ${sum(known):.3f} an hour" if known else ""
        yield Violation(
            pod.resource.urn,
            f"Autopilot takes no pod of its step's size, and its pod asks for more: {changes}{costs}",
            "ask for as much in the stack file, since it is paid for, or for another ratio of memory to CPU",
        )


def _changes(wanted: Resources, declared: Resources) -> Iterator[str]:
    for key, unit, words in (
        ("cpu", "m", "cpu"),
        ("memory", "Mi", "memory"),
        ("ephemeral_storage", "Mi", "ephemeral_storage"),
    ):
        before, after = getattr(wanted, key), getattr(declared, key)
        if before < after:
            yield f"{words} {before}{unit} → {after}{unit}"


POLICY_TABLE = Path(__file__).parents[1] / "data" / "policies.toml"

POLICIES = policies_of(
    POLICY_TABLE,
    {
        "autopilot-refuses-pod": _refusals,
        "autopilot-raises-requests": _raised_requests,
    },
)


BUCKET = "gcp:storage/bucket:Bucket"


def _elsewhere(stack: Stack) -> Iterator[Violation]:
    for bucket in stack.of_type(BUCKET):
        location = text(bucket.properties.get("location")).lower()
        # A name such as `US` is of several regions.
        if location not in regions():
            continue
        for cluster in stack.of_type(CLUSTER):
            here = region_of(text(cluster.properties.get("location")))
            if not here or here == location:
                continue
            price = TABLE.price("fixed", "inter-region-egress", "", "per_gib")
            cost = f"${price.amount:.2f} per GB on the same continent, more to another one" if price else "billed"
            yield Violation(
                cluster.urn,
                f"it is in {here} and the bucket {bucket.name} in {location}: what its pods read crosses regions, "
                f"which is slow and {cost}",
                "put the bucket where most is read, or the cluster where the bucket is",
            )


def _in_every_zone(stack: Stack) -> Iterator[Violation]:
    billed = charges(stack)
    for pool in declared_pools(stack):
        inputs = pool.inputs
        location = text(inputs.get("location"))
        chosen = is_zone(location) or texts(inputs.get("nodeLocations")) or mapping(inputs.get("autoscaling"))
        count = whole(inputs.get("nodeCount"))
        if chosen or not location or not count:
            continue
        charge = node_price(billed, pool.resource.urn)
        costs = f", ${charge:.2f} an hour each" if charge else ""
        yield Violation(
            pool.resource.urn,
            f"{count} {'node' if count == 1 else 'nodes'} per zone and no zones named: GKE spreads them over "
            f"{nodes.zones(inputs)} zones of {location}, so there are {nodes.most_nodes(inputs)} nodes{costs}",
            "name the pool's `zones`, such as one of them, or let it scale with `total_min` and `total_max`",
        )


PLACE_POLICIES = policies_of(
    POLICY_TABLE,
    {
        "gcp-bucket-in-another-region": _elsewhere,
        "gcp-nodes-in-every-zone": _in_every_zone,
    },
)
