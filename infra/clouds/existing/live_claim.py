"""What the store's claim in a cluster contradicts in the size that a stack file asks for."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

from infra.api_server import ApiServer, UnreadableError
from infra.clouds.existing.settings import PvcStore
from infra.clouds.existing.store import claim_name
from infra.schema.problems import Finding
from infra.schema.quantities import size_in_bytes


def check(server: ApiServer, store: PvcStore, namespace: str) -> Iterator[Finding]:
    """Findings about a size that the claim in ``namespace`` cannot take: Kubernetes lets a bound claim only grow.

    Nothing where there is no claim yet. Raises UnreadableError where the claim may not be read. A change to
    another class, access mode or folder is another claim.
    """
    name = claim_name(store, namespace)
    claim = server.find("v1", "PersistentVolumeClaim", name, namespace)
    if claim is None:
        return
    asked = str(claim["spec"]["resources"]["requests"]["storage"])
    has = str(claim.get("status", {}).get("capacity", {}).get("storage") or asked)
    wanted, old = size_in_bytes(store.size), _bytes(asked)
    # A size whose growth failed may shrink again to anything above what the volume has (Kubernetes 1.34,
    # kubernetes.io/docs/concepts/storage/persistent-volumes, "Recovering from failure when expanding volumes").
    if wanted < old and wanted <= _bytes(has):
        yield _refused(
            store,
            f"the claim `{name}` in namespace `{namespace}` has {asked}, and Kubernetes shrinks no volume",
            f"write `size: {asked}`",
        )
    elif wanted > old and (reason := _fixed(server, claim)):
        yield _refused(
            store,
            f"the claim `{name}` in namespace `{namespace}` has {asked} and cannot grow: {reason}",
            f"write `size: {asked}`, or have an administrator set `allowVolumeExpansion: true` on the class, if "
            "its driver can expand volumes. Another `storage_class` deletes this claim and everything in it",
        )


def _fixed(server: ApiServer, claim: Mapping[str, Any]) -> str | None:
    """Why the claim cannot grow; None where it can, or where the user may not read whether it can."""
    name = claim["spec"].get("storageClassName")
    if not name:
        return "it has no StorageClass"
    with suppress(UnreadableError):
        found = server.find("storage.k8s.io/v1", "StorageClass", name)
        if found is None:
            return f"its StorageClass `{name}` is gone"
        if found.get("allowVolumeExpansion") is not True:
            return f"its StorageClass `{name}` does not set `allowVolumeExpansion`"
    return None


def _refused(store: PvcStore, reason: str, fix: str) -> Finding:
    return Finding(("store", "size"), store.size, reason, fix)


def _bytes(amount: str) -> Fraction:
    # The kubernetes package takes two seconds to import, and is there already where the claim was read.
    from kubernetes.utils import parse_quantity  # noqa: PLC0415  # pyright: ignore  # It has no types.

    return Fraction(parse_quantity(amount))
