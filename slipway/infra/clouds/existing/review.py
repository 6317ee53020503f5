"""What a preview says of clusters that are already there. None of it imports the SDK."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from slipway.infra.clouds.existing.settings import S3Driver, s3_drivers
from slipway.infra.review.contract import Review, Violation, policies_of
from slipway.infra.review.facts import Charge, Identity
from slipway.infra.review.stack import KUBERNETES_PROVIDER, Properties, Stack, at, mapping, mappings, text, texts

VOLUME = "kubernetes:core/v1:PersistentVolume"


def charges(stack: Stack) -> Sequence[Charge]:
    """The nodes of clusters that are there already, whose price only their owner knows: unknown, not free."""
    providers = {
        resource.name: resource.urn
        for resource in stack.resources.values()
        if resource.type == KUBERNETES_PROVIDER
    }
    return [
        Charge(
            providers.get(pool.cluster, ""),
            f"your own nodes ({pool.name}), not priced",
            None,
            idle=pool.max_nodes,
            most=pool.max_nodes,
        )
        for pool in stack.pools
        if not pool.urn
    ]


def identities(stack: Stack) -> Sequence[Identity]:
    """The Secrets with which CSI drivers mount the volumes that the stack declares: all that asks for keys."""
    identities: list[Identity] = []
    for volume in stack.of_type(VOLUME):
        driver = text(at(volume.properties, "spec", "csi", "driver"))
        secret = at(volume.properties, "spec", "csi", "nodeStageSecretRef")
        if name := text(at(secret, "name")):
            owner = f"Secret {text(at(secret, 'namespace')) or 'default'}/{name}"
            may = "mount the store's volume"
            identities.append(Identity(owner, f"driver {driver}", may, [stack.cluster_of(volume)], store=True))
    return identities


def _cannot_rename(stack: Stack) -> Iterator[Violation]:
    unable = {name: known for name, known in s3_drivers().items() if not (known.renames and known.appends)}
    for resource in stack.resources.values():
        if resource.package != "kubernetes" or resource.read or _only_read(resource.properties):
            continue
        for volume in _volumes(resource.properties):
            driver = unable.get(text(volume.get("driver")))
            if driver and volume.get("readOnly") is not True:
                yield Violation(
                    resource.urn,
                    f"{volume['driver']} mounts buckets with {driver.mount}, which cannot {_lacking(driver)}: a "
                    "checkpoint that is written beside its name and then renamed is lost",
                    "use a store that renames, such as `store: {kind: s3}` (S3 Files), or mount it read-only",
                )
                break


def _lacking(driver: S3Driver) -> str:
    return " or ".join(word for word, can in (("rename", driver.renames), ("append", driver.appends)) if not can)


def _only_read(properties: Properties) -> bool:
    modes = texts(at(properties, "spec", "accessModes"))
    options = {option.removeprefix("--") for option in texts(at(properties, "spec", "mountOptions"))}
    return modes == ["ReadOnlyMany"] or bool(options & {"read-only", "ro"})


def _volumes(properties: Properties) -> Iterator[Properties]:
    """The CSI volumes of an object: a PersistentVolume's own, or those of a pod template anywhere in it."""
    pending = [properties]
    while pending:
        value = pending.pop()
        for volume in (value, *mappings(value.get("volumes"))):
            if csi := mapping(volume.get("csi")):
                yield csi
        pending.extend(filter(None, map(mapping, value.values())))


POLICIES = policies_of(Path(__file__).parent / "data" / "policies.toml", {"store-cannot-rename": _cannot_rename})

REVIEW = Review(charges=charges, identities=identities, policies=POLICIES)
