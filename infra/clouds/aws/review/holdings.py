"""What of users' data goes with a resource."""

from dataclasses import replace
from pathlib import Path

from infra.review.facts import Holding
from infra.review.holdings import holdings_from
from infra.review.properties import at
from infra.review.resource import Resource
from infra.review.stack import Stack

TABLE = holdings_from(Path(__file__).parents[1] / "data" / "holdings.toml")

FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"
BACKUP_POLICY = "aws:efs/backupPolicy:BackupPolicy"

BACKED_UP = "AWS Backup keeps its daily backups for 35 days, unless its plan was changed"
"""Source: https://docs.aws.amazon.com/efs/latest/ug/automatic-backups.html, read 2026-11-22."""


def holding(resource: Resource, stack: Stack) -> Holding | None:
    """What goes with this one; None for a type that holds nothing of users'."""
    row = TABLE.get(resource.type)
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
