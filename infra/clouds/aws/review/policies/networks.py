"""Ways in from the Internet: endpoints of clusters, security groups, load balancers, and nodes with addresses."""

from collections.abc import Iterator

from infra.clouds.aws.nodes import LAUNCH_TEMPLATE, NODE_GROUP
from infra.clouds.aws.review.pools import CLUSTER, template
from infra.review.networks import whole_internet
from infra.review.policy import Harm, Policy, Severity, Violation
from infra.review.properties import UNKNOWN, at, is_true, mappings, text, texts
from infra.review.stack import Resource, Stack

SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
DEFAULT_GROUP = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
OLD_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
SUBNET = "aws:ec2/subnet:Subnet"
LOAD_BALANCERS = (
    "aws:lb/loadBalancer:LoadBalancer",
    "aws:alb/loadBalancer:LoadBalancer",
    "aws:elb/loadBalancer:LoadBalancer",
)


def _endpoints(stack: Stack) -> Iterator[Violation]:
    for cluster in stack.of_type(CLUSTER):
        public = at(cluster.properties, "vpcConfig", "endpointPublicAccess")
        blocks = at(cluster.properties, "vpcConfig", "publicAccessCidrs")
        if public is False or UNKNOWN in (public, blocks):
            continue
        # EKS takes an empty list for the whole Internet.
        if not blocks or whole_internet(texts(blocks)):
            yield Violation(
                cluster.urn,
                "its public endpoint is open to the whole Internet",
                "name the networks that need it under control_plane.authorized_networks of the cluster "
                "(vpcConfig.publicAccessCidrs), or set public_endpoint: false",
            )


def _nodes(stack: Stack) -> Iterator[Violation]:
    for group in stack.of_type(NODE_GROUP):
        subnets = (stack.resources.get(urn) for urn in sorted(group.property_dependencies.get("subnetIds", ())))
        public = [each.name for each in subnets if each and is_true(each.properties.get("mapPublicIpOnLaunch"))]
        interfaces = mappings(template(stack, group).get("networkInterfaces"))
        if public or any(is_true(each.get("associatePublicIpAddress")) for each in interfaces):
            where = f", as all machines in {', '.join(public)}" if public else ""
            yield Violation(
                group.urn,
                f"its nodes have public addresses{where}",
                "use subnets without mapPublicIpOnLaunch, with a NAT gateway as their way out",
            )


def _groups(stack: Stack) -> Iterator[Violation]:
    for resource in stack.of_type(SECURITY_GROUP, DEFAULT_GROUP, OLD_RULE, RULE):
        if whole_internet(_sources(resource)):
            yield Violation(
                resource.urn,
                "it lets the whole Internet in",
                "name the security groups or the ranges that have to come in",
            )


def _sources(resource: Resource) -> list[str]:
    """From which blocks it lets traffic in."""
    properties = resource.properties
    if resource.type == RULE:
        return [text(properties.get("cidrIpv4")), text(properties.get("cidrIpv6"))]
    if resource.type == OLD_RULE:
        rules = [properties] if properties.get("type") == "ingress" else []
    else:
        rules = mappings(properties.get("ingress"))
    return [block for rule in rules for key in ("cidrBlocks", "ipv6CidrBlocks") for block in texts(rule.get(key))]


def _load_balancers(stack: Stack) -> Iterator[Violation]:
    for balancer in stack.of_type(*LOAD_BALANCERS):
        internal = balancer.properties.get("internal")
        if internal != UNKNOWN and not is_true(internal):
            yield Violation(balancer.urn, "it has public addresses", "set internal: true")


def _metadata(stack: Stack) -> Iterator[Violation]:
    for machines in stack.of_type(LAUNCH_TEMPLATE):
        tokens = at(machines.properties, "metadataOptions", "httpTokens")
        off = at(machines.properties, "metadataOptions", "httpEndpoint") == "disabled"
        if tokens not in ("required", UNKNOWN) and not off:
            yield Violation(
                machines.urn,
                "its machines give their role's credentials to any request for them, also to one that an attacker "
                "has a server send",
                "set metadataOptions.httpTokens: required, and httpPutResponseHopLimit: 1",
            )


POLICIES = (
    Policy(
        "aws-public-endpoint",
        Severity.ERROR,
        "The public endpoint of an EKS cluster is off, or open to named networks only.",
        _endpoints,
        "Name the networks that need it.",
        harm=Harm.OPENING,
    ),
    Policy(
        "aws-public-nodes",
        Severity.WARNING,
        "EKS nodes have no public addresses.",
        _nodes,
        "Put them into private subnets.",
    ),
    Policy(
        "aws-open-security-group",
        Severity.ERROR,
        "No security group lets the whole Internet in.",
        _groups,
        "Name the security groups or the ranges that have to come in.",
        harm=Harm.OPENING,
    ),
    Policy(
        "aws-public-load-balancer",
        Severity.ERROR,
        "Load balancers are internal.",
        _load_balancers,
        "Set internal: true.",
        harm=Harm.OPENING,
    ),
    Policy(
        "aws-instance-metadata",
        Severity.WARNING,
        "Machines ask for a token before their metadata service tells anything (IMDSv2).",
        _metadata,
        "Set metadataOptions.httpTokens: required.",
    ),
)
