"""What a preview says of resources on AWS. None of it imports the SDK."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from infra.clouds.aws import nodes
from infra.clouds.aws.review import access, charges, identities, pools, quotas
from infra.clouds.aws.review.policies import buckets, grants, networks, protection
from infra.review.contract import Review
from infra.review.data_files import in_place_from, replacing_from
from infra.review.facts import Holding, Seconds
from infra.review.holdings import holdings_from
from infra.review.properties import at, text
from infra.review.stack import Resource, Stack

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
    found = row.of(resource)
    if resource.type == FILE_SYSTEM and _backed_up(resource, stack):
        return replace(found, restore=BACKED_UP)
    return found


def _backed_up(system: Resource, stack: Stack) -> bool:
    return any(
        system.urn in policy.property_dependencies.get("fileSystemId", ())
        and at(policy.properties, "backupPolicy", "status") == "ENABLED"
        for policy in stack.of_type(BACKUP_POLICY)
    )


def creation(resource: Resource) -> Seconds | None:
    """How long this one takes; None where it is not known.

    A node group waits for the nodes that it starts with, and how long one without any takes is not recorded.
    """
    known = pools.TIMES.get(("creation", resource.type))
    if resource.type == nodes.NODE_GROUP and not nodes.fewest_nodes(resource.properties):
        return None
    if resource.type == "aws:eks/addon:Addon":
        return pools.TIMES.get(("addons", text(resource.properties.get("addonName"))), known)
    return known


REVIEW = Review(
    pools=pools.pools,
    charges=charges.charges,
    disk_price=charges.disk_price,
    balancer_price=charges.balancer_price,
    quotas=quotas.quotas,
    policies=(
        *buckets.POLICIES,
        *networks.POLICIES,
        *grants.POLICIES,
        *protection.POLICIES,
    ),
    replacing=partial(replacing_from, DATA / "replacing.json"),
    holding=holding,
    creation=creation,
    in_place=partial(in_place_from, DATA / "in_place.toml"),
    computed=lambda: COMPUTED,
    sometimes=SOMETIMES,
    # Every update makes a new version, which its node group then takes.
    moving=frozenset({"aws:ec2/launchTemplate:LaunchTemplate"}),
    identities=identities.identities,
    grants=access.grants,
    endpoints=identities.endpoints,
)
