"""Who may do what outside clusters that are already there: only where a store asks for keys."""

from collections.abc import Sequence

from infra.review.facts import Identity
from infra.review.properties import at, text
from infra.review.stack import Stack

VOLUME = "kubernetes:core/v1:PersistentVolume"


def identities(stack: Stack) -> Sequence[Identity]:
    """The Secrets with which CSI drivers mount the volumes that the stack declares."""
    found: list[Identity] = []
    for volume in stack.of_type(VOLUME):
        driver = text(at(volume.properties, "spec", "csi", "driver"))
        secret = at(volume.properties, "spec", "csi", "nodeStageSecretRef")
        if name := text(at(secret, "name")):
            owner = f"Secret {text(at(secret, 'namespace')) or 'default'}/{name}"
            may = "mount the store's volume"
            found.append(Identity(owner, f"driver {driver}", may, [stack.cluster_of(volume)], store=True))
    return found
