"""What of users' data goes with a Kubernetes object.

Sources, read 2026-11-22: https://kubernetes.io/docs/concepts/storage/persistent-volumes/#reclaiming,
https://kubernetes.io/docs/concepts/storage/storage-classes/#reclaim-policy and
https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#persistentvolumeclaim-retention.
"""

from infra.kubernetes.review.clients import queued_items
from infra.review.facts import Holding
from infra.review.properties import at, items, text
from infra.review.stack import Resource, Stack

CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
VOLUME = "kubernetes:core/v1:PersistentVolume"
NAMESPACE = "kubernetes:core/v1:Namespace"
STORAGE_CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
RELEASE = "kubernetes:helm.sh/v3:Release"

PROMETHEUS = ("values", "prometheus", "prometheusSpec")
"""Where a release of kube-prometheus-stack says how its operator runs Prometheus (version 88.5.3)."""
METRICS_CLAIM = (*PROMETHEUS, "storageSpec", "volumeClaimTemplate", "spec")
"""Where it says which claim the operator makes for Prometheus."""

RETAIN = "Retain"
DELETE = "Delete"

FROM_STORE = (
    "items that are not done are found again from the store, the results of the others are in it, and only how "
    "often each was tried is forgotten"
)
"""What becomes of the items of a queue that is lost."""


def holding(resource: Resource, stack: Stack) -> Holding | None:
    """What goes with this one; None for a kind that holds nothing of users'.

    A namespace holds the claims that its StatefulSets and Prometheus's operator make; those that the stack
    declares are asked for themselves.
    """
    if resource.type == CLAIM:
        return _claim(resource, stack)
    if resource.type == VOLUME:
        return Holding("the volume and everything on it", kept=_kept(_policy(resource)))
    if resource.type == NAMESPACE and (owners := _with_claims(resource, stack)):
        named = ", ".join(
            f"the metrics of {each.name}" if each.type == RELEASE else f"the claims of the StatefulSet {each.name}"
            for each in owners
        )
        lost = f"the namespace and everything in it, {named} included"
        return Holding(lost, meant=all(each.type == RELEASE or _goes_with_it(each) for each in owners))
    if resource.type == STATEFUL_SET and _claims(resource):
        return _volumes(resource, stack)
    return None


def _volumes(set_: Resource, stack: Stack) -> Holding:
    """Of a StatefulSet: its volumes outlive it unless it says otherwise."""
    if not _goes_with_it(set_):
        return Holding("its volumes", kept="the claims of a StatefulSet outlive it, unless it says otherwise")
    steps = queued_items(set_, stack)
    return Holding(
        "its volume and everything on it",
        rebuilt=f"{FROM_STORE}; {', '.join(steps)} can go on once it is there again" if steps else "",
        meant=True,
    )


def _goes_with_it(set_: Resource) -> bool:
    """Whether the claims of a StatefulSet are deleted with it."""
    return at(set_.properties, "spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted") == DELETE


def _claims(set_: Resource) -> bool:
    return bool(items(at(set_.properties, "spec", "volumeClaimTemplates")))


def _claim(claim: Resource, stack: Stack) -> Holding:
    lost = "the claim and everything in it"
    within = frozenset(each.urn for each in _namespaces(claim, stack))
    if volume := volume_of(claim, stack):
        return Holding(lost, kept=_kept(_policy(volume)), within=within)
    if class_ := storage_class(at(claim.properties, "spec", "storageClassName"), claim, stack):
        return Holding(lost, kept=_kept(text(class_.properties.get("reclaimPolicy"))), within=within)
    name = at(claim.properties, "spec", "storageClassName")
    if at(claim.properties, "spec", "volumeName") or name == "":
        owner = "its volume"
    else:
        owner = f"the storage class {name}" if text(name) else "the cluster's default storage class"
    return Holding(
        lost, restore=f"it cannot be restored, unless the reclaim policy of {owner} is Retain", within=within
    )


def volume_of(claim: Resource, stack: Stack) -> Resource | None:
    """The volume that the stack declares for the claim; None where the cluster makes one or has it already."""
    name = at(claim.properties, "spec", "volumeName")
    for each in stack.of_type(VOLUME):
        named = isinstance(name, str) and at(each.properties, "metadata", "name") == name
        if each.provider == claim.provider and (named or each.urn in claim.property_dependencies.get("spec", ())):
            return each
    return None


def _policy(volume: Resource) -> str:
    """Of a volume that somebody declares, not of one that a class makes."""
    return text(at(volume.properties, "spec", "persistentVolumeReclaimPolicy")) or RETAIN


def _kept(policy: str) -> str:
    return "the reclaim policy of its volume is Retain" if policy == RETAIN else ""


def storage_class(name: object, resource: Resource, stack: Stack) -> Resource | None:
    """The class of that name on the cluster of ``resource``, where the stack declares it."""
    return next(
        (
            each
            for each in stack.of_type(STORAGE_CLASS)
            if text(name)
            and each.provider == resource.provider
            and at(each.properties, "metadata", "name") == name
        ),
        None,
    )


def _namespaces(resource: Resource, stack: Stack) -> list[Resource]:
    """The namespace of an object, where the stack declares it."""
    path = ("namespace",) if resource.type == RELEASE else ("metadata", "namespace")
    name = at(resource.properties, *path)
    return [
        each
        for each in stack.of_type(NAMESPACE)
        if isinstance(name, str)
        and each.provider == resource.provider
        and at(each.properties, "metadata", "name") == name
    ]


def _with_claims(namespace: Resource, stack: Stack) -> list[Resource]:
    """What makes claims in the namespace: StatefulSets without queues, whose items are found again, and releases
    with Prometheus."""
    sets = [each for each in stack.of_type(STATEFUL_SET) if _claims(each) and not queued_items(each, stack)]
    releases = [each for each in stack.of_type(RELEASE) if at(each.properties, *METRICS_CLAIM)]
    return [each for each in (*sets, *releases) if namespace in _namespaces(each, stack)]
