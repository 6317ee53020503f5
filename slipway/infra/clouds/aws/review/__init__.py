"""What a preview says of resources on AWS. None of it imports the SDK."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from slipway.infra.clouds.aws import nodes
from slipway.infra.clouds.aws.nodes import CLUSTER
from slipway.infra.clouds.aws.review import charges, policies
from slipway.infra.clouds.aws.review.policies import allowing, statements_of
from slipway.infra.review.contract import Review
from slipway.infra.review.facts import Grant, Holding, Identity
from slipway.infra.review.stack import (
    EVERYWHERE,
    UNKNOWN,
    Properties,
    Resource,
    Stack,
    at,
    items,
    mapping,
    text,
    texts,
    unknown,
)
from slipway.infra.review.tables import facts_from, holdings_from, in_place_from, replacing_from

FACTS = facts_from(Path(__file__).parents[1] / "data" / "review.toml")


EKS_CLUSTER = "aws:eks/cluster:Cluster"
ROLE = "aws:iam/role:Role"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
INLINE = "aws:iam/rolePolicy:RolePolicy"
ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"

MANAGED: Mapping[str, str] = FACTS["managed_policies"]

TARGETS: Mapping[str, str] = FACTS["targets"]

STORES = frozenset(TARGETS) - {"aws:kms/key:Key"}


def identities(stack: Stack) -> Sequence[Identity]:
    """The roles; those through which pods reach the store first."""
    identities = [_identity(stack, role) for role in stack.of_type(ROLE)]
    return sorted(identities, key=lambda identity: not identity.store)


def endpoints(stack: Stack) -> Mapping[str, str]:
    """From where each cluster's API can be reached."""
    return {stack.called(cluster): _endpoint(cluster) for cluster in stack.of_type(EKS_CLUSTER)}


def _identity(stack: Stack, role: Resource) -> Identity:
    policies = [policy for policy in stack.of_type(INLINE) if stack.source(policy, "role", ROLE) == role]
    managed = [
        text(attachment.properties.get("policyArn")).rpartition("/")[2]
        for attachment in stack.of_type(ATTACHMENT)
        if stack.source(attachment, "role", ROLE) == role
    ]
    may = [MANAGED.get(name, name) for name in managed]
    may += [words for policy in policies for words in _about(stack, policy)]
    of, clusters, pods = _of(stack, role)
    reached = any(target.type in STORES for policy in policies for target in _targets(stack, policy))
    return Identity(
        text(role.properties.get("name")) or role.name,
        of,
        ", ".join(dict.fromkeys(filter(None, may))) or "nothing",
        clusters,
        store=pods and reached,
    )


def _of(stack: Stack, role: Resource) -> tuple[str, list[str], bool]:
    """Whose role it is, in which clusters, and whether it is that of pods."""
    for type_, key, cluster_key, whose in (
        (ASSOCIATION, "roleArn", "clusterName", ""),
        (nodes.NODE_GROUP, "nodeRoleArn", "clusterName", "nodes"),
        (EKS_CLUSTER, "roleArn", "", "control plane"),
    ):
        using = [user for user in stack.of_type(type_) if stack.source(user, key, ROLE) == role]
        if not using:
            continue
        clusters = [stack.source(user, cluster_key, EKS_CLUSTER) if cluster_key else user for user in using]
        called = sorted({stack.called(cluster) for cluster in clusters if cluster is not None})
        names = dict.fromkeys(_service_account(user) for user in using)
        return whose or f"pods of {', '.join(names)}", called, not whose
    services = [
        service
        for statement in statements_of(role.properties.get("assumeRolePolicy"))
        for service in texts(at(statement, "Principal", "Service"))
    ]
    return ", ".join(dict.fromkeys(services)) or "whoever it trusts", [], False


def _service_account(association: Resource) -> str:
    return "/".join(text(association.properties.get(key)) for key in ("namespace", "serviceAccount"))


def _targets(stack: Stack, policy: Resource) -> Iterator[Resource]:
    for urn in sorted(policy.property_dependencies.get("policy", ())):
        if (target := stack.resources.get(urn)) is not None and target.type in TARGETS:
            yield target


def _about(stack: Stack, policy: Resource) -> list[str]:
    """What an inline policy is about: resources of the stack, or else the services whose actions it allows."""
    if targets := list(_targets(stack, policy)):
        return [TARGETS[target.type] for target in targets]
    statements = statements_of(policy.properties.get("policy"))
    actions = [action for statement in statements for action in texts(statement.get("Action"))]
    if "*" in actions:
        return ["do everything"]
    services = dict.fromkeys(action.partition(":")[0] for action in actions)
    return [f"call {', '.join(services)}"] if services else []


def _endpoint(cluster: Resource) -> str:
    vpc = at(cluster.properties, "vpcConfig")
    parts: list[str] = []
    if at(vpc, "endpointPublicAccess") is not False:
        blocks = at(vpc, "publicAccessCidrs")
        listed = ", ".join(text(block) for block in items(blocks)) or "every address"
        parts.append(f"public endpoint, for {'some networks' if blocks == UNKNOWN else listed}")
    if at(vpc, "endpointPrivateAccess") is True:
        parts.append("from the VPC")
    return "; ".join(parts) or "from nowhere"


ENTRY = "aws:eks/accessEntry:AccessEntry"
ACCESS = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
INGRESS_RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"

OF_NODES = "EC2"
"""What the types of access entries begin with by which machines join a cluster.

Source: https://docs.aws.amazon.com/eks/latest/userguide/access-entries.html, 2026-11-23.
"""

DOCUMENTS = ("policy", "assumeRolePolicy")
"""The properties with a policy document. One that says who may do something has principals."""

MOST_ACTIONS = 3
"""How many actions of a statement are named."""


def outside_grants(stack: Stack) -> Sequence[Grant]:
    """Everything that lets somebody in, in the order of declaration."""
    inside = stack.namespaces
    grants: list[Grant] = []
    for resource in stack.resources.values():
        if resource.package != "aws" or resource.read:
            continue
        if resource.type == CLUSTER:
            grants += _networks(stack, resource)
        elif resource.type in {ENTRY, ACCESS}:
            grants += _administrators(stack, resource)
        elif resource.type == ASSOCIATION:
            grants += _pods(stack, resource, inside)
        elif resource.type == INGRESS_RULE:
            grants += _connections(resource)
        grants += _by_documents(resource)
    return grants


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
    actions = texts(statement.get("Action")) or [
        f"all but {action}" for action in texts(statement.get("NotAction"))
    ]
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
        name for kind in ("AWS", "Federated", "CanonicalUser") for name in texts(mapping(principal).get(kind))
    ]
    for who in named:
        if not unknown(who) and not who.startswith("["):
            yield "everybody" if who == "*" else who


DATA = Path(__file__).parents[1] / "data"

HOLDINGS = holdings_from(DATA / "holdings.toml")

FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"
BACKUP_POLICY = "aws:efs/backupPolicy:BackupPolicy"

BACKED_UP = "AWS Backup keeps its daily backups for 35 days, unless its plan was changed"
"""Source: https://docs.aws.amazon.com/efs/latest/ug/automatic-backups.html, read 2026-11-22."""


def _is_taken_away(_: object, after: object) -> bool:
    return after is None


SOMETIMES: Mapping[str, Mapping[str, Callable[[object, object], bool]]] = {
    "aws:eks/cluster:Cluster": {"encryptionConfig": _is_taken_away}
}
"""What the provider's own code decides, so that the schema does not have it. Source:
https://github.com/hashicorp/terraform-provider-aws/blob/main/internal/service/eks/cluster.go, 2026-06-02."""


COMPUTED: Mapping[str, Sequence[str]] = {
    FILE_SYSTEM: [
        "availabilityZoneName",
        "creationToken",
        "encrypted",
        "kmsKeyId",
        "performanceMode",
        "protection",
    ]
}
"""What keeps its value where it is taken away, as the provider's own schema says. Source:
https://github.com/hashicorp/terraform-provider-aws/blob/main/internal/service/efs/file_system.go, 2026-11-23."""


def holding(resource: Resource, stack: Stack) -> Holding | None:
    """What goes with this one; None for a type that holds nothing of users'."""
    row = HOLDINGS.get(resource.type)
    if row is None:
        return None
    duration = row.of(resource)
    if resource.type == FILE_SYSTEM and _backed_up(resource, stack):
        return replace(duration, restore=BACKED_UP)
    return duration


def _backed_up(system: Resource, stack: Stack) -> bool:
    return any(
        system.urn in policy.property_dependencies.get("fileSystemId", ())
        and at(policy.properties, "backupPolicy", "status") == "ENABLED"
        for policy in stack.of_type(BACKUP_POLICY)
    )


REVIEW = Review(
    pools=charges.pools,
    charges=charges.charges,
    disk_price=charges.disk_price,
    quotas=charges.quotas,
    policies=policies.POLICIES,
    replacing=partial(replacing_from, DATA / "replacing.json"),
    holding=holding,
    in_place=partial(in_place_from, DATA / "in_place.toml"),
    computed=lambda: COMPUTED,
    sometimes=SOMETIMES,
    # Every update makes a new version, which its node group then takes.
    moving=frozenset({"aws:ec2/launchTemplate:LaunchTemplate"}),
    identities=identities,
    grants=outside_grants,
    endpoints=endpoints,
    node_labels={nodes.NODE_GROUP: nodes.POOL_LABEL, CLUSTER: ""},
)
