"""Who outside the clusters is let in on AWS: principals of IAM and networks, each with what they may do."""

import json
from collections.abc import Iterator, Sequence

from infra.clouds.aws.review.identities import ASSOCIATION, ROLE
from infra.clouds.aws.review.policies.statements import allowing
from infra.clouds.aws.review.pools import CLUSTER
from infra.review.facts import Grant
from infra.review.networks import EVERYWHERE
from infra.review.properties import Properties, at, mapping, text, texts, unknown
from infra.review.stack import Resource, Stack

ENTRY = "aws:eks/accessEntry:AccessEntry"
ACCESS = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
INGRESS_RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"

OF_NODES = "EC2"
"""What the types of access entries begin with by which machines join a cluster.

Source: https://docs.aws.amazon.com/eks/latest/userguide/access-entries.html, 2026-11-23.
"""

DOCUMENTS = ("policy", "assumeRolePolicy")
"""The properties with a policy document. One that says who may do something has principals."""

SYSTEM = "kube-system"
MOST_ACTIONS = 3
"""How many actions of a statement are named."""


def grants(stack: Stack) -> Sequence[Grant]:
    """Everything that lets somebody in, in the order of declaration."""
    inside = {SYSTEM, *(text(at(each.properties, "metadata", "namespace")) for each in stack.resources.values())}
    found: list[Grant] = []
    for resource in stack.resources.values():
        if resource.package != "aws" or resource.read:
            continue
        if resource.type == CLUSTER:
            found += _networks(stack, resource)
        elif resource.type in {ENTRY, ACCESS}:
            found += _administrators(stack, resource)
        elif resource.type == ASSOCIATION:
            found += _pods(stack, resource, inside)
        elif resource.type == INGRESS_RULE:
            found += _connections(resource)
        found += _by_documents(resource)
    return found


def _networks(stack: Stack, cluster: Resource) -> Iterator[Grant]:
    vpc = at(cluster.properties, "vpcConfig")
    if at(vpc, "endpointPublicAccess") is False:
        return
    for block in texts(at(vpc, "publicAccessCidrs")) or [EVERYWHERE]:
        yield Grant(cluster.urn, block, f"reach the API server of the cluster {stack.called(cluster)}")


def _administrators(stack: Stack, resource: Resource) -> Iterator[Grant]:
    """Both kinds of resources: an entry gives groups of Kubernetes, an association a policy of EKS."""
    entry = stack.source(resource, "principalArn", ENTRY) or resource
    who = text(entry.properties.get("principalArn"))
    if not who or text(resource.properties.get("type")).startswith(OF_NODES):
        return
    cluster = stack.source(resource, "clusterName", CLUSTER)
    name = stack.called(cluster) if cluster else text(resource.properties.get("clusterName"))
    policy = text(resource.properties.get("policyArn")).rpartition("/")[2]
    namespaces = texts(at(resource.properties, "accessScope", "namespaces"))
    where = f" in {', '.join(namespaces)}" if namespaces else ""
    if policy:
        yield Grant(resource.urn, who, f"use the cluster {name} with {policy}{where}")
    for group in texts(resource.properties.get("kubernetesGroups")):
        yield Grant(resource.urn, who, f"use the cluster {name} as the group {group}")


def _pods(stack: Stack, association: Resource, inside: set[str]) -> Iterator[Grant]:
    """Pods of namespaces in which the stack has nothing of its own, such as those of teams."""
    namespace = text(association.properties.get("namespace"))
    role = stack.source(association, "roleArn", ROLE)
    if namespace and namespace not in inside:
        account = text(association.properties.get("serviceAccount"))
        name = role.name if role else text(association.properties.get("roleArn"))
        yield Grant(association.urn, f"pods of {namespace}/{account}", f"take on the role {name}")


def _connections(rule: Resource) -> Iterator[Grant]:
    for key in ("cidrIpv4", "cidrIpv6"):
        if block := text(rule.properties.get(key)):
            protocol = text(rule.properties.get("ipProtocol"))
            port = rule.properties.get("fromPort")
            ports = "" if protocol == "-1" or not isinstance(port, int | float) else f" by {protocol} {int(port)}"
            yield Grant(rule.urn, block, f"connect to {rule.name}{ports}")


def _by_documents(resource: Resource) -> Iterator[Grant]:
    for key in DOCUMENTS:
        for statement in allowing(resource.properties.get(key)):
            may = f"take on the role {resource.name}" if resource.type == ROLE else _actions(resource, statement)
            if condition := mapping(statement.get("Condition")):
                may += f", if {json.dumps(condition, sort_keys=True)}"
            yield from (Grant(resource.urn, who, may) for who in _principals(statement))


def _actions(resource: Resource, statement: Properties) -> str:
    actions = texts(statement.get("Action")) or [f"all but {each}" for each in texts(statement.get("NotAction"))]
    more = f" and {len(actions) - MOST_ACTIONS} more" if actions[MOST_ACTIONS:] else ""
    return f"{', '.join(actions[:MOST_ACTIONS])}{more} by {resource.name} ({resource.type.rpartition(':')[2]})"


def _principals(statement: Properties) -> Iterator[str]:
    """Accounts, roles, users and providers of identities.

    Services of AWS are left out, and roles of the stack, of which only an update knows the ARN.
    """
    if excluded := statement.get("NotPrincipal"):
        yield f"everybody but {json.dumps(excluded, sort_keys=True, default=str)}"
    principal = statement.get("Principal")
    named = texts(principal) or [
        each for kind in ("AWS", "Federated", "CanonicalUser") for each in texts(mapping(principal).get(kind))
    ]
    for who in named:
        if not unknown(who) and not who.startswith("["):
            yield "everybody" if who == "*" else who
