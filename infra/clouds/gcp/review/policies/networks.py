"""Ways in from the Internet: endpoints of clusters, firewalls, load balancers, and nodes with addresses."""

from collections.abc import Iterator

from infra.clouds.gcp.nodes import CLUSTER, NODE_POOL
from infra.review.networks import whole_internet
from infra.review.policy import Harm, Policy, Severity, Violation
from infra.review.properties import UNKNOWN, at, is_true, items, mappings, texts
from infra.review.stack import Resource, Stack

FIREWALL = "gcp:compute/firewall:Firewall"
FORWARDING_RULES = (
    "gcp:compute/forwardingRule:ForwardingRule",
    "gcp:compute/globalForwardingRule:GlobalForwardingRule",
)


def _endpoints(stack: Stack) -> Iterator[Violation]:
    for cluster in stack.of_type(CLUSTER):
        if reason := _open(cluster):
            yield Violation(
                cluster.urn,
                reason,
                "name the networks that need it under control_plane.authorized_networks of the cluster "
                "(masterAuthorizedNetworksConfig), or turn the IP endpoint off and use the DNS endpoint",
            )


def _open(cluster: Resource) -> str:
    """Why anyone reaches the cluster's IP endpoint; empty where not, or where an update decides.

    The DNS endpoint does not count: IAM authenticates every request to it.
    """
    properties = cluster.properties
    enabled = at(properties, "controlPlaneEndpointsConfig", "ipEndpointsConfig", "enabled")
    private = at(properties, "privateClusterConfig", "enablePrivateEndpoint")
    allowed = properties.get("masterAuthorizedNetworksConfig")
    if enabled is False or is_true(private) or UNKNOWN in (enabled, private, allowed):
        return ""
    if allowed is None:
        return "the control plane's IP endpoint has no authorized networks, so it is open to the whole Internet"
    if whole_internet(
        block for each in mappings(at(allowed, "cidrBlocks")) for block in texts(each.get("cidrBlock"))
    ):
        return "its authorized networks are the whole Internet"
    if is_true(at(allowed, "gcpPublicCidrsAccessEnabled")):
        return "every virtual machine of every Google Cloud customer reaches the control plane's IP endpoint"
    return ""


def _nodes(stack: Stack) -> Iterator[Violation]:
    for pool in stack.of_type(NODE_POOL):
        own = at(pool.properties, "networkConfig", "enablePrivateNodes")
        cluster = stack.source(pool, "cluster", CLUSTER)
        if own is None and cluster is not None:
            own = at(cluster.properties, "privateClusterConfig", "enablePrivateNodes")
        elif own is None:
            continue
        if own != UNKNOWN and not is_true(own):
            yield Violation(
                pool.urn,
                "its nodes have public addresses",
                "set networkConfig.enablePrivateNodes, with Cloud NAT as their way out",
            )


def _firewalls(stack: Stack) -> Iterator[Violation]:
    for rule in stack.of_type(FIREWALL):
        properties = rule.properties
        opens = properties.get("direction", "INGRESS") == "INGRESS" and items(properties.get("allows"))
        if (
            opens
            and not is_true(properties.get("disabled"))
            and whole_internet(texts(properties.get("sourceRanges")))
        ):
            yield Violation(
                rule.urn,
                "it lets the whole Internet in",
                "name the ranges or service accounts that have to come in; people can come through IAP",
            )


def _load_balancers(stack: Stack) -> Iterator[Violation]:
    for rule in stack.of_type(*FORWARDING_RULES):
        scheme = rule.properties.get("loadBalancingScheme", "EXTERNAL")
        if isinstance(scheme, str) and scheme.startswith("EXTERNAL"):
            yield Violation(
                rule.urn,
                "its load balancer has a public address",
                "use an internal one (loadBalancingScheme: INTERNAL_MANAGED)",
            )


POLICIES = (
    Policy(
        "gcp-public-endpoint",
        Severity.ERROR,
        "The IP endpoint of a GKE control plane is off, private, or open to named networks only.",
        _endpoints,
        "Name the networks, or use the DNS endpoint, which IAM guards.",
        harm=Harm.OPENING,
    ),
    Policy(
        "gcp-public-nodes",
        Severity.WARNING,
        "GKE nodes have no public addresses.",
        _nodes,
        "Set networkConfig.enablePrivateNodes.",
    ),
    Policy(
        "gcp-open-firewall",
        Severity.ERROR,
        "No firewall rule lets the whole Internet in.",
        _firewalls,
        "Name the ranges that have to come in.",
        harm=Harm.OPENING,
    ),
    Policy(
        "gcp-public-load-balancer",
        Severity.ERROR,
        "Load balancers are internal.",
        _load_balancers,
        "Set loadBalancingScheme to an internal one.",
        harm=Harm.OPENING,
    ),
)
