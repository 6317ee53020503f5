"""Names, labels and taints that Kubernetes or Google Cloud would refuse."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from infra.names import KUBERNETES_NAME_LIMIT
from infra.settings.base import TaintSettings
from infra.settings.checks.finding import Finding, Path
from infra.settings.reading import Reading

GPU_TAINT = "nvidia.com/gpu"

# https://kubernetes.io/docs/concepts/overview/working-with-objects/names and …/labels, as documented in
# 2025: names are DNS labels of RFC 1123; a label or taint key is a name of at most 63 characters after an optional
# DNS subdomain.
DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")

# https://cloud.google.com/resource-manager/docs/creating-managing-labels, as documented in 2025.
CLOUD_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
CLOUD_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")

# Label prefixes that are Kubernetes' and GKE's own; a kubelet or GKE refuses them in a pool's settings.
RESERVED_PREFIXES = ("kubernetes.io", "k8s.io", "cloud.google.com", "gke.io")


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about every name, label and taint in the file."""
    draft = reading.draft
    yield from _name(("namespace",), draft.namespace)
    if draft.namespace == "default" or draft.namespace.startswith("kube-"):
        yield Finding(
            ("namespace",),
            draft.namespace,
            "a namespace that every cluster has already, and Slipway labels and owns its own",
            "choose another name, such as `slipway`",
        )
    yield from _name(("service_account",), draft.service_account)
    if draft.service_account == "default":
        yield Finding(
            ("service_account",),
            draft.service_account,
            "Kubernetes makes a service account of that name in every namespace",
            "choose another name, such as `runner`",
        )
    for name, cluster in draft.clusters.items():
        yield from _name(("clusters", name), name)
        for pool in cluster.pools:
            yield from _name(("clusters", name, "pools", pool), pool)
    for name, cluster in draft.gcp.items():
        place = ("clusters", name)
        yield from _starts_with_letter(place, name)
        yield from _cloud_labels((*place, "labels"), cluster.labels)
        for key, pool in cluster.pools.items():
            at = (*place, "pools", key)
            yield from _starts_with_letter(at, key)
            yield from _node_labels((*at, "labels"), pool.labels)
            yield from _cloud_labels((*at, "resource_labels"), pool.resource_labels)
            yield from _taints((*at, "taints"), pool.taints)
            if pool.accelerator is not None:
                yield from _gpu_taint((*at, "taints"), pool.taints, (*at, "accelerator"))
    for name, cluster in draft.existing.items():
        for key, pool in cluster.pools.items():
            at = ("clusters", name, "pools", key)
            yield from _labels((*at, "selector"), pool.selector)
            yield from _taints((*at, "taints"), pool.taints)


def same_pool_names(reading: Reading) -> Iterator[Finding]:
    """A step names a pool alone, so two clusters may not both have one of that name."""
    first: dict[str, str] = {}
    for cluster, pool in sorted(reading.names):
        if pool in first and first[pool] != cluster:
            yield Finding(
                ("clusters", cluster, "pools", pool),
                pool,
                f"cluster `{first[pool]}` has a pool of that name too, and a step names only the pool",
                "rename one of them",
            )
        first.setdefault(pool, cluster)


def same_resource_names(reading: Reading) -> Iterator[Finding]:
    """Pulumi tells node pools apart by ``<cluster>-<pool>``: `b-c` of `a` and `c` of `a-b` would be one."""
    first: dict[str, tuple[str, str]] = {}
    for cluster, pool in sorted(reading.names):
        taken, of = first.setdefault(f"{cluster}-{pool}", (pool, cluster))
        if of != cluster:
            yield Finding(
                ("clusters", cluster, "pools", pool),
                pool,
                f"with its cluster's name it reads `{cluster}-{pool}`, like pool `{taken}` of cluster `{of}`",
                "rename one of them",
            )


def _name(place: Path, name: str) -> Iterator[Finding]:
    if len(name) > KUBERNETES_NAME_LIMIT:
        yield Finding(
            place,
            name,
            f"{len(name)} characters, and a Kubernetes name has at most {KUBERNETES_NAME_LIMIT}",
            "shorten it",
        )
    elif not DNS_LABEL.fullmatch(name):
        yield Finding(
            place,
            name,
            "not a Kubernetes name",
            "use lower-case letters, digits and hyphens, with a letter or digit at both ends",
        )


def _starts_with_letter(place: Path, name: str) -> Iterator[Finding]:
    if DNS_LABEL.fullmatch(name) and len(name) <= KUBERNETES_NAME_LIMIT and not name[0].isalpha():
        yield Finding(place, name, "a name on Google Cloud begins with a letter", "put a letter in front")


def _key_problem(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    if not LABEL_NAME.fullmatch(name):
        return "its name is not 1 to 63 letters, digits, `-`, `_` and `.` with a letter or digit at both ends"
    if slash and (len(prefix) > 253 or not DNS_SUBDOMAIN.fullmatch(prefix)):
        return "what stands before the `/` is not a DNS name"
    return None


def _labels(place: Path, labels: Mapping[str, str]) -> Iterator[Finding]:
    for key, value in labels.items():
        if problem := _key_problem(key):
            yield Finding((*place, key), key, f"not a label key: {problem}", "correct the key")
        elif value and not LABEL_NAME.fullmatch(value):
            yield Finding(
                (*place, key),
                value,
                "not a label value: at most 63 letters, digits, `-`, `_` and `.`, a letter or digit at both ends",
                "correct the value",
            )


def _node_labels(place: Path, labels: Mapping[str, str]) -> Iterator[Finding]:
    yield from _labels(place, labels)
    for key in labels:
        prefix = key.rpartition("/")[0]
        if any(prefix == own or prefix.endswith(f".{own}") for own in RESERVED_PREFIXES):
            yield Finding(
                (*place, key),
                key,
                f"`{prefix}/` is reserved for Kubernetes and GKE, which set its labels themselves",
                "use a prefix of your own, or none",
            )


def _taints(place: Path, taints: Sequence[TaintSettings]) -> Iterator[Finding]:
    for index, taint in enumerate(taints):
        if problem := _key_problem(taint.key):
            yield Finding((*place, index, "key"), taint.key, f"not a taint key: {problem}", "correct the key")
        if taint.value and not LABEL_NAME.fullmatch(taint.value):
            yield Finding(
                (*place, index, "value"),
                taint.value,
                "not a taint value: at most 63 letters, digits, `-`, `_` and `.`, a letter or digit at both ends",
                "correct the value",
            )
    for (key, effect), count in Counter((taint.key, taint.effect) for taint in taints).items():
        if count > 1:
            yield Finding(
                place,
                f"{key}:{effect}",
                f"the taint stands {count} times, and a node has one of each key and effect",
                "leave one of them",
            )


def _gpu_taint(place: Path, taints: Sequence[TaintSettings], accelerator: Path) -> Iterator[Finding]:
    for index, taint in enumerate(taints):
        if taint.key == GPU_TAINT:
            yield Finding(
                (*place, index, "key"),
                taint.key,
                f"every GPU pool has the taint `{GPU_TAINT}=present:NoSchedule` already, as GKE sets it",
                "remove this one",
                read=(accelerator,),
            )


def _cloud_labels(place: Path, labels: Mapping[str, str]) -> Iterator[Finding]:
    for key, value in labels.items():
        if not CLOUD_LABEL_KEY.fullmatch(key) or key.startswith("goog"):
            yield Finding(
                (*place, key),
                key,
                "not a Google Cloud label key: a lower-case letter, then lower-case letters, digits, `_` and `-`, "
                "63 at most, and not beginning with `goog`",
                "correct the key",
            )
        elif not CLOUD_LABEL_VALUE.fullmatch(value):
            yield Finding(
                (*place, key),
                value,
                "not a Google Cloud label value: lower-case letters, digits, `_` and `-`, 63 at most",
                "correct the value",
            )
