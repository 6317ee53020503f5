"""Names of resources on Google Cloud: which characters they may have, and how long they may be.

Limits: Compute Engine 63 (RFC 1035), GKE clusters and node pools 40, service account ids 6 to 30, buckets 3 to 63,
Filestore instances 63,
key rings 63 with the random end that Pulumi gives them; from the ``name`` fields of their REST references,
2026-11-20.
"""

import pulumi

from infra.schema.names import spell

NETWORK_LIMIT = 63
CLUSTER_LIMIT = 40
POOL_LIMIT = 40
SERVICE_ACCOUNT_LIMIT = 30
BUCKET_LIMIT = 63
INSTANCE_LIMIT = 63
KEY_RING_LIMIT = 63 - len("-0123abc")


def resource_name(limit: int, *parts: str) -> str:
    """``slipway-<stack>-<parts>`` in the characters that Google Cloud allows, at most ``limit`` of them.

    Stacks of one project do not meet: the stack's name is part of every name that is unique in a project.
    """
    return spell(limit, pulumi.get_project(), pulumi.get_stack(), *parts)


def pool_name(pool: str) -> str:
    """A node pool's name in its cluster, and so the value of the label ``cloud.google.com/gke-nodepool``."""
    return spell(POOL_LIMIT, pool)


def bucket_name(project: str, chosen: str | None) -> str:
    """The bucket's name: as chosen, or ``<project>-slipway-<stack>``. Bucket names are unique in the world."""
    return chosen or spell(BUCKET_LIMIT, project, pulumi.get_project(), pulumi.get_stack())
