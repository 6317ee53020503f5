"""IAM grants that give more than anyone needs."""

import re
from collections.abc import Iterator

from infra.clouds.gcp.nodes import CLUSTER, NODE_POOL
from infra.clouds.gcp.review.policies.buckets import GRANTS as OF_BUCKETS
from infra.clouds.gcp.review.policies.members import bindings, everyone_in
from infra.review.policy import Harm, Policy, Severity, Violation
from infra.review.properties import UNKNOWN, at, is_true
from infra.review.stack import Resource, Stack

ACCOUNT = "gcp:serviceaccount/account:Account"

GRANT = re.compile(r"gcp:.*(?:IAM|Iam)(?:Member|Binding|Policy)$")

OF_EVERYTHING = re.compile(r"gcp:(?:projects|folder|organizations)/(?:iAM|iam)(?:Member|Binding|Policy):")
"""Grants on a whole project, folder or organization."""

ADMINISTERS = re.compile(r"roles/(?:owner|editor|.*\.admin|.*Admin(?:\.v\d)?)$")
"""Roles that change everything, or everything of a service.

Source: https://cloud.google.com/iam/docs/roles-overview#legacy-basic, 2026-11-20.
"""

IMPERSONATES = frozenset(
    {"roles/iam.serviceAccountTokenCreator", "roles/iam.serviceAccountUser", "roles/iam.workloadIdentityUser"}
)
"""On a whole project: to act as any of its service accounts.

Source: https://cloud.google.com/iam/docs/best-practices-service-accounts, 2026-11-20.
"""

READS_SECRETS = frozenset(
    {
        "roles/cloudkms.cryptoKeyDecrypter",
        "roles/cloudkms.cryptoKeyEncrypterDecrypter",
        "roles/secretmanager.secretAccessor",
    }
)
"""On a whole project: to read all that it keeps secret.

Source: https://cloud.google.com/secret-manager/docs/access-control, 2026-11-20.
"""

DEFAULT_ACCOUNT = re.compile(r"(?:default|\d+-compute@developer\.gserviceaccount\.com)")
"""The account of Compute Engine, which many projects let edit everything.

Source: https://cloud.google.com/compute/docs/access/service-accounts#default_service_account, 2026-11-20.
"""


def _everyone(stack: Stack) -> Iterator[Violation]:
    for grant in _grants(stack):
        # Those on buckets are a policy of their own.
        if grant.type in OF_BUCKETS:
            continue
        for role, members in bindings(grant):
            if everyone := everyone_in(members):
                yield Violation(
                    grant.urn,
                    f"{role} for {everyone}, of whom nobody knows who they are",
                    "name the accounts that need it, or one attribute of the identity pool",
                )


def _broad(stack: Stack) -> Iterator[Violation]:
    nodes = {each.urn for _, _, grants in _node_accounts(stack) for each in grants}
    for grant in _grants(stack):
        # A condition can limit a role to single resources; the basic roles take none.
        if not OF_EVERYTHING.match(grant.type) or grant.urn in nodes or grant.properties.get("condition"):
            continue
        for role, _ in bindings(grant):
            if why := _too_much(role):
                yield Violation(
                    grant.urn,
                    f"{role} on the whole {_scope(grant)}: {why}",
                    "grant what is needed, on the one resource that needs it",
                )


def _too_much(role: str) -> str:
    if ADMINISTERS.match(role):
        return "whoever has it can change everything that it administers, and grant it to others"
    if role in IMPERSONATES:
        return "whoever has it can act as any service account there"
    if role in READS_SECRETS:
        return "whoever has it can read every secret there"
    # A bucket's own grant does, and reaches that bucket only.
    return "whoever has it reaches every bucket" if role.startswith("roles/storage.") else ""


def _scope(grant: Resource) -> str:
    return {"projects": "project", "folder": "folder"}.get(grant.type.split(":")[1].split("/")[0], "organization")


def _nodes(stack: Stack) -> Iterator[Violation]:
    for machines, account, grants in _node_accounts(stack):
        if DEFAULT_ACCOUNT.fullmatch(account):
            yield Violation(
                machines.urn,
                "its nodes run as Compute Engine's default service account, which in many projects may edit all "
                "of it, and whoever breaks out of a pod has it",
                "set nodeConfig.serviceAccount to an account with roles/container.defaultNodeServiceAccount",
            )
        for grant in grants:
            roles = ", ".join(role for role, _ in bindings(grant))
            yield Violation(
                grant.urn,
                f"{roles} for the nodes of {machines.name}: whoever breaks out of a pod has it",
                "grant nodes roles/container.defaultNodeServiceAccount, and pods theirs by Workload Identity",
            )


def _node_accounts(stack: Stack) -> Iterator[tuple[Resource, str, list[Resource]]]:
    """Node pools, and clusters with nodes of their own: their account's e-mail address, and what it has too much.

    An account serves many pools; its grants are told of once. An address that is not known yet is empty.
    """
    told = set[str]()
    for machines in stack.of_type(NODE_POOL, CLUSTER):
        autopilot = is_true(machines.properties.get("enableAutopilot"))
        # Without its default pool, a cluster has no machines of its own.
        if machines.type == CLUSTER and (is_true(machines.properties.get("removeDefaultNodePool")) or autopilot):
            continue
        account = at(machines.properties, "nodeConfig", "serviceAccount")
        source = stack.source(machines, "nodeConfig", ACCOUNT)
        known = "" if account == UNKNOWN else str(account or "default")
        grants = [
            grant
            for grant in _grants(stack)
            if OF_EVERYTHING.match(grant.type)
            and grant.urn not in told
            and _is_for(stack, grant, known, source)
            and any(ADMINISTERS.match(role) or role in IMPERSONATES for role, _ in bindings(grant))
        ]
        told |= {grant.urn for grant in grants}
        yield machines, known, grants


def _is_for(stack: Stack, grant: Resource, email: str, account: Resource | None) -> bool:
    named = any(f"serviceAccount:{email}" in members for _, members in bindings(grant)) if email else False
    # In a preview both addresses are unknown, but not where they come from.
    sources = [stack.source(grant, key, ACCOUNT) for key in ("member", "members")]
    return named or any(each is account for each in sources if each is not None)


def _grants(stack: Stack) -> list[Resource]:
    return [each for each in stack.resources.values() if not each.read and GRANT.search(each.type)]


POLICIES = (
    Policy(
        "gcp-iam-everyone",
        Severity.ERROR,
        "No IAM grant is for everyone, or for all that an identity pool lets in.",
        _everyone,
        "Name the accounts that need it.",
        harm=Harm.OPENING,
    ),
    Policy(
        "gcp-project-wide-role",
        Severity.ERROR,
        "No role that administers, impersonates or reaches every bucket is granted on a whole project.",
        _broad,
        "Grant what is needed, on the one resource that needs it.",
    ),
    Policy(
        "gcp-node-service-account",
        Severity.ERROR,
        "Nodes have a service account of their own, which administers nothing.",
        _nodes,
        "Give them an account with roles/container.defaultNodeServiceAccount.",
    ),
)
