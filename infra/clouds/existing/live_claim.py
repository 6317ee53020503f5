"""What the claims in a cluster contradict in the sizes that a stack file asks for."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infra.api_server import ApiServer, UnreadableError
from infra.clouds.existing.settings import PvcStore
from infra.clouds.existing.store import claim_name
from infra.schema.problems import Finding, Path
from infra.schema.quantities import size_in_bytes
from infra.schema.request import Request


@dataclass(frozen=True)
class _Asked:
    """A claim, and the size that the stack file asks for ``at`` one place; ``other`` is the end of the fix."""

    name: str
    size: str
    at: Path
    other: str = ""


def check(server: ApiServer, request: Request, cluster: str) -> Iterator[Finding]:
    """Findings about sizes that claims of ``cluster`` cannot take: Kubernetes lets a bound claim only grow.

    These are the store's claim and those of apps that keep data. A service whose volume changes is another
    StatefulSet with another claim. Nothing where there is no claim yet. Raises UnreadableError where the claims
    may not be read. A change of the store to another class, access mode or folder is another claim.
    """
    for asked in _asked(request, cluster):
        yield from _check(server, asked, request.namespace)


def _asked(request: Request, cluster: str) -> Iterator[_Asked]:
    store = request.store
    if isinstance(store, PvcStore) and store.host_path is None:
        yield _Asked(
            claim_name(store, request.namespace),
            store.size,
            ("store", "size"),
            ". Another `storage_class` deletes this claim and everything in it",
        )
    for volume in request.app_volumes_on(cluster):
        yield _Asked(volume.claim, volume.size, volume.at)


def _check(server: ApiServer, asked: _Asked, namespace: str) -> Iterator[Finding]:
    claim = server.find("v1", "PersistentVolumeClaim", asked.name, namespace)
    if claim is None:
        return
    size = str(claim["spec"]["resources"]["requests"]["storage"])
    capacity = str(claim.get("status", {}).get("capacity", {}).get("storage") or size)
    wanted, old = size_in_bytes(asked.size), _bytes(size)
    key = asked.at[-1]
    # A size whose growth failed may shrink again to anything above what the volume has (Kubernetes 1.34,
    # kubernetes.io/docs/concepts/storage/persistent-volumes, "Recovering from failure when expanding volumes").
    if wanted < old and wanted <= _bytes(capacity):
        yield _refused(
            asked,
            f"the claim `{asked.name}` in namespace `{namespace}` has {size}, and Kubernetes shrinks no volume",
            f"write `{key}: {size}`",
        )
    elif wanted > old and (reason := _fixed(server, claim)):
        yield _refused(
            asked,
            f"the claim `{asked.name}` in namespace `{namespace}` has {size} and cannot grow: {reason}",
            f"write `{key}: {size}`, or have an administrator set `allowVolumeExpansion: true` on the class, if "
            f"its driver can expand volumes{asked.other}",
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


def _refused(asked: _Asked, reason: str, fix: str) -> Finding:
    return Finding(asked.at, asked.size, reason, fix)


def _bytes(amount: str) -> Fraction:
    # The kubernetes package takes two seconds to import, and is there already where the claim was read.
    from kubernetes.utils import parse_quantity  # noqa: PLC0415  # pyright: ignore  # It has no types.

    return Fraction(parse_quantity(amount))
