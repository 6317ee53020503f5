"""Policies about stores that clusters mount."""

from collections.abc import Iterator, Sequence

from infra.clouds.existing.catalogue import S3Driver, s3_drivers
from infra.review.policy import Policy, Severity, Violation
from infra.review.properties import Properties, at, mapping, mappings, text, texts
from infra.review.stack import Stack


def _cannot_rename(stack: Stack) -> Iterator[Violation]:
    unable = {name: each for name, each in s3_drivers().items() if not (each.renames and each.appends)}
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
    options = {each.removeprefix("--") for each in texts(at(properties, "spec", "mountOptions"))}
    return modes == ["ReadOnlyMany"] or bool(options & {"read-only", "ro"})


def _volumes(properties: Properties) -> Iterator[Properties]:
    """The CSI volumes of an object: a PersistentVolume's own, or those of a pod template anywhere in it."""
    pending = [properties]
    while pending:
        found = pending.pop()
        for volume in (found, *mappings(found.get("volumes"))):
            if csi := mapping(volume.get("csi")):
                yield csi
        pending.extend(filter(None, map(mapping, found.values())))


POLICIES: Sequence[Policy] = (
    Policy(
        "store-cannot-rename",
        Severity.ERROR,
        "What pods write to can rename and append: steps publish a checkpoint by renaming it.",
        _cannot_rename,
        "Use a store that renames, or mount this one read-only.",
    ),
)
