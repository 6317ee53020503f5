"""Who outside the clusters is let in on Google Cloud: members of IAM and networks, each with what they may do."""

import re
from collections.abc import Iterator, Sequence

from infra.clouds.gcp.nodes import CLUSTER
from infra.clouds.gcp.review.policies.grants import GRANT
from infra.clouds.gcp.review.policies.members import bindings
from infra.review.facts import Grant
from infra.review.networks import EVERYWHERE
from infra.review.properties import at, is_true, mappings, text, texts
from infra.review.stack import Resource, Stack

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

SCOPES = (
    "bucket",
    "cryptoKeyId",
    "repository",
    "serviceAccountId",
    "secretId",
    "topic",
    "dataset",
    "folder",
    "orgId",
    "project",
)
"""The properties that name what a grant is on, the narrowest first."""

SYSTEM = "kube-system"


def grants(stack: Stack) -> Sequence[Grant]:
    """Everything that lets somebody in, in the order of declaration."""
    found: list[Grant] = []
    for resource in stack.resources.values():
        if resource.package != "gcp" or resource.read:
            continue
        if resource.type == CLUSTER:
            found += _reaching(stack, resource)
        elif resource.type == FILESTORE:
            found += _mounting(resource)
        elif resource.type == FIREWALL:
            found += _connecting(resource)
        elif GRANT.search(resource.type):
            found += _members(stack, resource)
    return found


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
    blocks = [text(each.get("cidrBlock")) for each in mappings(at(authorized, "cidrBlocks"))]
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
    found = IN_POOL.match(member)
    if found is None:
        return "" if member.startswith("[") or "[" in member.partition(":")[2] else member
    project, namespace, account = found[1], found[2] or found[4], found[3] or found[5]
    own = {text(each.properties.get("project")) for each in stack.of_type(CLUSTER)}
    if project not in own:
        return f"pods of {namespace}/{account} in the project {project}"
    inside = {SYSTEM, *(text(at(each.properties, "metadata", "namespace")) for each in stack.resources.values())}
    return "" if namespace in inside else f"pods of {namespace}/{account}"


def _scope(grant: Resource) -> str:
    kind = re.sub(r"(?:IAM|Iam)(?:Member|Binding|Policy)$", "", grant.type.rpartition(":")[2])
    name = next(filter(None, (text(grant.properties.get(key)) for key in SCOPES)), grant.name)
    return f"the {kind[:1].lower()}{kind[1:]} {name}" if kind else name
