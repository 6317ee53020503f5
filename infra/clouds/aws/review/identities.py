"""Who may do what on AWS, and from where control planes can be reached, in a few words each."""

import json
from collections.abc import Iterator, Mapping, Sequence

from infra.clouds.aws import nodes
from infra.review.facts import Identity
from infra.review.properties import UNKNOWN, at, items, mapping, mappings, text, texts
from infra.review.stack import Resource, Stack

CLUSTER = "aws:eks/cluster:Cluster"
ROLE = "aws:iam/role:Role"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
INLINE = "aws:iam/rolePolicy:RolePolicy"
ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"

MANAGED: Mapping[str, str] = {
    "AmazonEKSClusterPolicy": "run the cluster",
    "AmazonEKSWorkerNodePolicy": "join the cluster",
    "AmazonEC2ContainerRegistryPullOnly": "pull images",
    "AmazonEC2ContainerRegistryReadOnly": "pull images",
    "AmazonEKS_CNI_Policy": "give pods addresses",
    "AdministratorAccess": "do everything",
    "PowerUserAccess": "do everything but IAM",
}
"""Policies of AWS's own in a few words; others are shown by their names."""

TARGETS: Mapping[str, str] = {
    "aws:s3/bucket:Bucket": "use the bucket's objects",
    "aws:s3/filesFileSystem:FilesFileSystem": "mount its file system",
    "aws:efs/fileSystem:FileSystem": "mount the file system",
    "aws:kms/key:Key": "use the key",
}
"""What an inline policy is about, by the type of the resources in it: before the first update their names, and so
the policy, are not known."""

STORES = frozenset(TARGETS) - {"aws:kms/key:Key"}


def identities(stack: Stack) -> Sequence[Identity]:
    """The roles; those through which pods reach the store first."""
    found = [_identity(stack, role) for role in stack.of_type(ROLE)]
    return sorted(found, key=lambda each: not each.store)


def endpoints(stack: Stack) -> Mapping[str, str]:
    """From where each cluster's API can be reached."""
    return {stack.called(each): _endpoint(each) for each in stack.of_type(CLUSTER)}


def _identity(stack: Stack, role: Resource) -> Identity:
    policies = [each for each in stack.of_type(INLINE) if stack.source(each, "role", ROLE) == role]
    managed = [
        text(each.properties.get("policyArn")).rpartition("/")[2]
        for each in stack.of_type(ATTACHMENT)
        if stack.source(each, "role", ROLE) == role
    ]
    may = [MANAGED.get(name, name) for name in managed]
    may += [words for each in policies for words in _about(stack, each)]
    of, clusters, pods = _of(stack, role)
    reached = any(target.type in STORES for each in policies for target in _targets(stack, each))
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
        (CLUSTER, "roleArn", "", "control plane"),
    ):
        using = [each for each in stack.of_type(type_) if stack.source(each, key, ROLE) == role]
        if not using:
            continue
        clusters = [stack.source(each, cluster_key, CLUSTER) if cluster_key else each for each in using]
        called = sorted({stack.called(each) for each in clusters if each is not None})
        names = dict.fromkeys(_service_account(each) for each in using)
        return whose or f"pods of {', '.join(names)}", called, not whose
    services = [service for each in _trusted(role) for service in texts(at(each, "Principal", "Service"))]
    return ", ".join(dict.fromkeys(services)) or "whoever it trusts", [], False


def _service_account(association: Resource) -> str:
    return "/".join(text(association.properties.get(key)) for key in ("namespace", "serviceAccount"))


def _trusted(role: Resource) -> Sequence[Mapping[str, object]]:
    return mappings(at(_document(role.properties.get("assumeRolePolicy")), "Statement"))


def _targets(stack: Stack, policy: Resource) -> Iterator[Resource]:
    for urn in sorted(policy.property_dependencies.get("policy", ())):
        if (found := stack.resources.get(urn)) is not None and found.type in TARGETS:
            yield found


def _about(stack: Stack, policy: Resource) -> list[str]:
    """What an inline policy is about: resources of the stack, or else the services whose actions it allows."""
    if targets := list(_targets(stack, policy)):
        return [TARGETS[each.type] for each in targets]
    statements = mappings(at(_document(policy.properties.get("policy")), "Statement"))
    actions = [action for each in statements for action in texts(each.get("Action"))]
    if "*" in actions:
        return ["do everything"]
    services = dict.fromkeys(each.partition(":")[0] for each in actions)
    return [f"call {', '.join(services)}"] if services else []


def _document(value: object) -> object:
    """A policy document, which resources have as JSON."""
    if not isinstance(value, str):
        return mapping(value)
    try:
        return json.loads(value)
    except ValueError:
        return {}


def _endpoint(cluster: Resource) -> str:
    vpc = at(cluster.properties, "vpcConfig")
    parts: list[str] = []
    if at(vpc, "endpointPublicAccess") is not False:
        blocks = at(vpc, "publicAccessCidrs")
        listed = ", ".join(text(each) for each in items(blocks)) or "every address"
        parts.append(f"public endpoint, for {'some networks' if blocks == UNKNOWN else listed}")
    if at(vpc, "endpointPrivateAccess") is True:
        parts.append("from the VPC")
    return "; ".join(parts) or "from nowhere"
