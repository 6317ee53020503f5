"""Keys of Cloud KMS that are named instead of the stack's own."""

import re
from collections.abc import Iterator

from infra.clouds.gcp.catalogue import region_of
from infra.clouds.gcp.settings import OWN, GcpCluster, GcsStore
from infra.schema.problems import Finding, Path
from infra.schema.request import Request

KEY = re.compile(
    r"projects/[a-z0-9:.-]+/locations/([a-z0-9-]+)/keyRings/[\w-]{1,63}/cryptoKeys/[\w-]{1,63}", re.ASCII
)
"""https://docs.cloud.google.com/kms/docs/resource-hierarchy#retrieve_resource_id, read on 2026-11-22."""


def check(request: Request) -> Iterator[Finding]:
    """Findings about the keys of clusters' Secrets and of the bucket."""
    for name, cluster in request.clusters_of(GcpCluster).items():
        at = ("clusters", name)
        yield from _key(
            (*at, "control_plane", "secrets_key"),
            cluster.control_plane.secrets_key,
            region_of(cluster.location),
            (*at, "location"),
        )
    store = request.store
    if isinstance(store, GcsStore):
        yield from _key(("store", "kms_key"), store.kms_key, store.location.lower(), ("store", "location"))


def _key(place: Path, key: str | None, region: str, location: Path) -> Iterator[Finding]:
    """A cluster and a bucket only take a key of their own region."""
    if key is None or key == OWN:
        return
    found = KEY.fullmatch(key)
    if found is None:
        yield Finding(
            place,
            key,
            "not the name of a Cloud KMS key",
            f"write `{OWN}` for one that the stack creates, or "
            "`projects/<project>/locations/<region>/keyRings/<ring>/cryptoKeys/<key>`",
        )
    elif found[1] != region:
        yield Finding(
            place,
            key,
            f"a key in {found[1]}, and it has to be in {region}, where what it encrypts is",
            f"name a key in {region}, or write `{OWN}` for one that the stack creates",
            read=(location,),
        )
