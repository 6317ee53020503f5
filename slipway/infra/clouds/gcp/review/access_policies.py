"""Policies on who is let in: readable buckets, grants for everyone, and ways in from the Internet."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from slipway.infra.clouds.gcp.nodes import CLUSTER
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import (
    UNKNOWN,
    Resource,
    Stack,
    at,
    is_true,
    items,
    mapping,
    mappings,
    text,
    texts,
    whole_internet,
)
from slipway.infra.review.tables import facts_from

FACTS = facts_from(Path(__file__).parents[1] / "data" / "review.toml")


EVERYONE = frozenset({"allUsers", "allAuthenticatedUsers"})
"""Anyone, and anyone with any Google account.

Source: https://cloud.google.com/iam/docs/principals-overview, 2026-11-20.
"""


def bindings(grant: Resource) -> Iterator[tuple[str, Sequence[str]]]:
    """Each role that an IAM resource grants, with its members, as far as they are known."""
    properties = grant.properties
    if "policyData" in properties:
        for binding in mappings(_document(properties["policyData"]).get("bindings")):
            yield text(binding.get("role")), texts(binding.get("members"))
        return
    members = properties.get("member", properties.get("members"))
    yield text(properties.get("role")), texts(members)


def everyone_in(members: Sequence[str]) -> str:
    """Those of the members that stand for anyone, as a text."""
    return ", ".join(member for member in members if member in EVERYONE or _whole_pool(member))


def _whole_pool(member: str) -> bool:
    """Whether it is every identity that a workload identity pool admits, also those from outside Google Cloud."""
    return member.startswith("principalSet://") and member.endswith("/*")


def _document(value: object) -> Any:
    try:
        return mapping(json.loads(text(value) or "{}"))
    except ValueError:
        return {}


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
        block for network in mappings(at(allowed, "cidrBlocks")) for block in texts(network.get("cidrBlock"))
    ):
        return "its authorized networks are the whole Internet"
    if is_true(at(allowed, "gcpPublicCidrsAccessEnabled")):
        return "every virtual machine of every Google Cloud customer reaches the control plane's IP endpoint"
    return ""


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
                "name the ranges or service accounts that have to come in",
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


BUCKET = "gcp:storage/bucket:Bucket"

GRANTS: Sequence[str] = FACTS["bucket_grants"]

ACCESS_LISTS: Sequence[str] = FACTS["access_lists"]

PUBLIC_ACLS = frozenset[str](FACTS["public_acls"])


def _public(stack: Stack) -> Iterator[Violation]:
    for bucket in stack.of_type(BUCKET):
        prevention = bucket.properties.get("publicAccessPrevention")
        if prevention not in ("enforced", UNKNOWN):
            yield Violation(
                bucket.urn,
                f"publicAccessPrevention is {prevention or 'not set'}, so one binding can publish all of it",
                "set publicAccessPrevention: enforced",
            )
    for grant in stack.of_type(*GRANTS):
        for role, members in bindings(grant):
            if everyone := everyone_in(members):
                yield Violation(
                    grant.urn,
                    f"{role} for {everyone}: anyone on the Internet has it",
                    "name the accounts that need it; signed URLs let others at single objects for a time",
                )
    for listed in stack.of_type(*ACCESS_LISTS):
        if everyone := _everyone_in_list(listed):
            yield Violation(
                listed.urn,
                f"{everyone}: anyone on the Internet has this access",
                "remove it, and set uniformBucketLevelAccess: true on the bucket",
            )


def _everyone_in_list(resource: Resource) -> str:
    """Who of everyone an access control list names."""
    named = {text(resource.properties.get("entity")), text(resource.properties.get("predefinedAcl"))}
    named |= {entity.rpartition(":")[2] for entity in texts(resource.properties.get("roleEntities"))}
    return ", ".join(sorted(named & (EVERYONE | PUBLIC_ACLS)))


GRANT = re.compile(r"gcp:.*(?:IAM|Iam)(?:Member|Binding|Policy)$")


def _everyone(stack: Stack) -> Iterator[Violation]:
    for grant in _grants(stack):
        # Those on buckets are a policy of their own.
        if grant.type in GRANTS:
            continue
        for role, members in bindings(grant):
            if everyone := everyone_in(members):
                yield Violation(
                    grant.urn,
                    f"{role} for {everyone}, of whom nobody knows who they are",
                    "name the accounts that need it, or one attribute of the identity pool",
                )


def _grants(stack: Stack) -> list[Resource]:
    return [resource for resource in stack.resources.values() if not resource.read and GRANT.search(resource.type)]


POLICIES = policies_of(
    Path(__file__).parents[1] / "data" / "policies.toml",
    {
        "gcp-public-endpoint": _endpoints,
        "gcp-open-firewall": _firewalls,
        "gcp-public-load-balancer": _load_balancers,
        "gcp-public-bucket": _public,
        "gcp-iam-everyone": _everyone,
    },
)
