"""Who may do what on Google Cloud, and from where control planes can be reached, in a few words each."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from infra.clouds.gcp import nodes
from infra.clouds.gcp.nodes import CLUSTER
from infra.review.facts import Identity
from infra.review.properties import at, is_true, mappings, text
from infra.review.stack import JOB, Resource, Stack

ACCOUNT = "gcp:serviceaccount/account:Account"
IMPERSONATION = "gcp:serviceaccount/iAMMember:IAMMember"
BUCKET_GRANTS = ("gcp:storage/bucketIAMMember:BucketIAMMember", "gcp:storage/bucketIAMBinding:BucketIAMBinding")
PROJECT_GRANTS = ("gcp:projects/iAMMember:IAMMember", "gcp:projects/iAMBinding:IAMBinding")

FUSE_DRIVER = "gcsfuse.csi.storage.gke.io"
"""Of volumes that Cloud Storage FUSE mounts as the pod's own service account."""

MEMBER = re.compile(r"\[([^/\]]+)/([^/\]]+)\]$|/subject/ns/([^/]+)/sa/([^/]+)$")
"""The Kubernetes service account in a member of a Workload Identity pool."""

WORDS: Mapping[str, str] = {
    "roles/container.defaultNodeServiceAccount": "write logs and metrics",
    "roles/artifactregistry.reader": "pull images",
    "roles/storage.objectUser": "read and write the bucket's objects",
    "roles/storage.legacyBucketReader": "list the names of the bucket's objects",
    "roles/storage.objectViewer": "read the bucket's objects",
    "roles/storage.admin": "administer buckets",
    "roles/owner": "own the project",
    "roles/editor": "edit the project",
}
"""Roles in a few words; others are shown as they are."""


def identities(stack: Stack) -> Sequence[Identity]:
    """The Google service accounts, and the pods that have rights under their own name."""
    pods = _mounting(stack)
    accounts = [_account(stack, each, pods) for each in stack.of_type(ACCOUNT)]
    return [*_direct(stack, pods), *accounts]


def endpoints(stack: Stack) -> Mapping[str, str]:
    """From where each cluster's API can be reached."""
    return {stack.called(each): _endpoint(each) for each in stack.of_type(CLUSTER)}


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
    grants = [each for each in stack.of_type(*PROJECT_GRANTS) if _granted_to(stack, each) == account.urn]
    of_buckets = [each for each in stack.of_type(*BUCKET_GRANTS) if _granted_to(stack, each) == account.urn]
    members = [each for each in stack.of_type(IMPERSONATION) if account.urn in each.dependencies]
    users = list(dict.fromkeys(filter(None, (_member(each.properties.get("member")) for each in members))))
    node_pools = [each for each in stack.of_type(nodes.NODE_POOL) if stack.source(each, "nodeConfig", ACCOUNT)]
    with_nodes = {
        stack.called(cluster)
        for each in node_pools
        if account.urn in each.property_dependencies.get("nodeConfig", ())
        and (cluster := stack.source(each, "cluster", CLUSTER)) is not None
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


def _mounting(stack: Stack) -> dict[str, list[str]]:
    """The Kubernetes service accounts as which pods mount buckets, each with its clusters."""
    found: dict[str, dict[str, None]] = {}
    for job in stack.of_type(JOB):
        pod = at(job.properties, "spec", "template", "spec")
        drivers = [at(volume, "csi", "driver") for volume in mappings(at(pod, "volumes"))]
        if FUSE_DRIVER in drivers:
            namespace = text(at(job.properties, "metadata", "namespace")) or "default"
            account = text(at(pod, "serviceAccountName")) or "default"
            found.setdefault(f"{namespace}/{account}", {})[stack.cluster_of(job)] = None
    return {owner: sorted(clusters) for owner, clusters in found.items()}


def _member(member: object) -> str:
    found = MEMBER.search(text(member))
    return "/".join(each for each in found.groups() if each) if found else ""


def _may(grants: Iterable[Resource]) -> str:
    roles = [text(each.properties.get("role")) for each in grants]
    words = [WORDS.get(role, role.removeprefix("roles/")) for role in dict.fromkeys(filter(None, roles))]
    return ", ".join(words) or "nothing"


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
        names = [text(each.get("cidrBlock")) for each in blocks]
        parts.append(f"IP endpoint, for {', '.join(filter(None, names)) or 'every address'}")
    return "; ".join(parts) or "from the VPC alone"
