"""What a stack file may not say of Google Cloud."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path as FilePath
from typing import Any

from slipway.infra.clouds.contract import COPY
from slipway.infra.clouds.gcp.catalogue import is_zone, region_of, regions
from slipway.infra.clouds.gcp.rules import clusters, pools
from slipway.infra.clouds.gcp.rules.pools import RULES
from slipway.infra.clouds.gcp.settings import ExistingGcsStore, FilestoreStore, GcpCluster, GcsStore, Impersonation
from slipway.infra.platform import Data
from slipway.infra.schema.names import DNS_LABEL, KUBERNETES_NAME_LIMIT, node_label_findings
from slipway.infra.schema.paths import bucket_folder_problem, existing_bucket_findings
from slipway.infra.schema.problems import Finding, Path, Problem, listed
from slipway.infra.schema.quantities import mebibytes
from slipway.infra.schema.request import Request
from slipway.infra.schema.rules import Section
from slipway.infra.schema.taints import gpu_taint_findings, taint_findings

# https://cloud.google.com/resource-manager/docs/creating-managing-labels, as documented in 2025.
CLOUD_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
CLOUD_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")

# Label prefixes that are Kubernetes' and GKE's own; a kubelet or GKE refuses them in a pool's settings.
RESERVED_PREFIXES = ("kubernetes.io", "k8s.io", "cloud.google.com", "gke.io")

# https://cloud.google.com/resource-manager/docs/creating-managing-projects, as documented in 2025. What stands
# before a colon is the domain of a project that is older than organizations.
PROJECT = re.compile(r"([a-z0-9][a-z0-9.-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
PROJECT_FIX = "write the id (6 to 30 lower-case letters, digits and hyphens), not the name or number"

PROJECT_VARIABLES = ("GOOGLE_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
"""Environment variables that name the project where the stack does not (pulumi_gcp 9.35, config/vars.py)."""


def no_project(stack: str) -> Problem:
    """What is wrong with a stack that has no project."""
    return Problem(
        "gcp:project",
        None,
        "the stack does not say which Google Cloud project to create things in",
        f"pulumi config set gcp:project <your-project-id> -s {stack}",
    )


def provider_problems(configuration: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the provider's keys in the stack's whole ``configuration``."""
    project = configuration.get("gcp:project")
    if not project or is_project(str(project)):
        return []
    fix = f"{PROJECT_FIX}: `gcloud projects list` shows it as PROJECT_ID"
    return [Problem("gcp:project", project, "not a project id", fix)]


def is_project(text: str) -> bool:
    """Whether ``text`` can be the id of a project."""
    return PROJECT.fullmatch(text) is not None


def check_names(request: Request) -> Iterator[Finding]:
    """Findings about the names, labels and taints of clusters on Google Cloud."""
    for name, cluster in request.clusters_of(GcpCluster).items():
        place = ("clusters", name)
        yield from _starts_with_letter(place, name)
        for key, pool in cluster.pools.items():
            at = (*place, "pools", key)
            yield from _starts_with_letter(at, key)
            yield from node_label_findings((*at, "labels"), pool.labels, RESERVED_PREFIXES, "Kubernetes and GKE")
            yield from _cloud_labels(Section(RULES["name"], at, pool), pool.resource_labels)
            yield from taint_findings((*at, "taints"), pool.taints)
            if pool.accelerator is not None:
                yield from gpu_taint_findings((*at, "taints"), pool.taints, (*at, "accelerator"))


def _starts_with_letter(place: Path, name: str) -> Iterator[Finding]:
    if DNS_LABEL.fullmatch(name) and len(name) <= KUBERNETES_NAME_LIMIT and not name[0].isalpha():
        yield Section(RULES["name"], place, None).found("first-letter", shown=name)


def _cloud_labels(here: Section, labels: Mapping[str, str]) -> Iterator[Finding]:
    for key, value in labels.items():
        if not CLOUD_LABEL_KEY.fullmatch(key) or key.startswith("goog"):
            yield here.found("label-key", key, shown=key)
        elif not CLOUD_LABEL_VALUE.fullmatch(value):
            yield here.found("label-value", key)


DATA = FilePath(__file__).parents[1] / "data" / "filestore.toml"

GIB = 1024
"""MiB."""


@dataclass(frozen=True)
class Tier:
    """``place`` is whether its instances are in a zone or a region; ``sizes`` are (least, most, unit) in GiB."""

    place: str
    sizes: Sequence[tuple[int, int, int]]


@cache
def tiers() -> Mapping[str, Tier]:
    """The tiers by the name that Google's API has for them."""
    content = tomllib.loads(DATA.read_text(encoding="utf-8"))["tiers"]
    return {
        name: Tier(value["place"], [(least, most, unit) for least, most, unit in value["sizes"]])
        for name, value in content.items()
    }


def check_filestore(request: Request) -> Iterator[Finding]:
    """Findings about the instance's place and size, and about clusters that are far from it."""
    store = request.store
    if not isinstance(store, FilestoreStore):
        return
    here, tier = Section(RULES["store"], ("store",), store), tiers()[store.tier]
    yield from _place(here, store, tier)
    yield from _size(here, store, tier)
    for name, cluster in request.clusters_of(GcpCluster).items():
        if (region := region_of(cluster.location)) != region_of(store.location):
            read = (("clusters", name, "location"),)
            yield here.found("filestore-far", read=read, name=name, region=region, place=_example(tier, region))
    for team in request.teams:
        yield Section(RULES["store"], (), None).found("filestore-teams", team, shown=None)


def _place(here: Section, store: FilestoreStore, tier: Tier) -> Iterator[Finding]:
    region = region_of(store.location)
    if region not in regions():
        yield here.found("filestore-region", known=regions(), place=_example(tier, "us-central1"))
    elif is_zone(store.location) != (tier.place == "zone"):
        kind = "zone" if is_zone(store.location) else "region"
        yield here.found("filestore-place", kind=kind, store=store, tier=tier, place=_example(tier, region))


def _example(tier: Tier, region: str) -> str:
    return f"`{region}-a` or another of its zones" if tier.place == "zone" else f"`{region}`"


def _size(here: Section, store: FilestoreStore, tier: Tier) -> Iterator[Finding]:
    wanted = mebibytes(store.size) / GIB
    if any(least <= wanted <= most and (wanted - least) % unit == 0 for least, most, unit in tier.sizes):
        return
    ranges = [
        f"{_spell_size(least)} to {_spell_size(most)}" + (f" in steps of {_spell_size(unit)}" if unit > 1 else "")
        for least, most, unit in tier.sizes
    ]
    yield here.found("filestore-size", store=store, ranges=listed(ranges), size=_spell_size(_next(tier, wanted)))


def _next(tier: Tier, wanted: float) -> int:
    """The smallest size in GiB that is not below ``wanted``; the largest where there is none."""
    for least, most, unit in tier.sizes:
        if wanted <= most:
            steps = max(0, -int((least - wanted) // unit)) if wanted > least else 0
            return min(least + steps * unit, most)
    return tier.sizes[-1][1]


def _spell_size(gib: int) -> str:
    return f"{gib // 1024}Ti" if gib % 1024 == 0 else f"{gib}Gi"


# https://cloud.google.com/storage/docs/buckets#naming, as documented in 2025.
BUCKET = re.compile(r"[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]")

EXISTING_BUCKET = re.compile(r"[a-z0-9][a-z0-9_.-]{1,220}[a-z0-9]")
"""With dots, a name has up to 222 characters (cloud.google.com/storage/docs/buckets#naming, seen in 2026)."""

SOFT_DELETE_MINIMUM_DAYS = 7
"""https://cloud.google.com/storage/docs/soft-delete, as documented in 2025: seven to ninety days, or none."""


def check(request: Request) -> Iterator[Finding]:
    """Findings about the bucket, and about another store for clusters on Google Cloud."""
    clusters, store = request.clusters_of(GcpCluster), request.store
    here = Section(RULES["store"], ("store",), store)
    if isinstance(store, GcsStore):
        yield from _bucket(here, store)
        yield from _retention(here, store, request.protect)
    elif isinstance(store, ExistingGcsStore):
        yield from existing_bucket_findings(store.bucket, EXISTING_BUCKET, "gs://", "gcloud storage ls")
        if store.folder != "/" and (problem := bucket_folder_problem(store.folder)):
            yield here.found("folder", problem=problem)
        yield from _impersonation(here, store.impersonation)
    elif store is not None and not isinstance(store, FilestoreStore) and clusters:
        yield here.found("elsewhere", read=request.cloud_places, clusters=listed(clusters, "and"))


def _bucket(here: Section, store: GcsStore) -> Iterator[Finding]:
    if store.location.lower() not in regions():
        # `US` and `EU` are several regions, and no abbreviation of one.
        yield here.found("location", known=regions() if "-" in store.location else ())
    if store.bucket is not None and (not BUCKET.fullmatch(store.bucket) or _is_reserved(store.bucket)):
        yield here.found("bucket-name")
    yield from _impersonation(here, store.impersonation)


def _impersonation(here: Section, impersonation: Impersonation | None) -> Iterator[Finding]:
    for index, project in enumerate(impersonation.projects if impersonation else ()):
        if not is_project(project):
            yield here.found("project", index, fix=PROJECT_FIX)


def _retention(here: Section, store: GcsStore, protect: bool) -> Iterator[Finding]:
    """How long objects that were deleted or overwritten can be had back."""
    if 0 < store.soft_delete_days < SOFT_DELETE_MINIMUM_DAYS:
        yield here.found("soft-delete", least=SOFT_DELETE_MINIMUM_DAYS)
    if protect and not store.versioning and not store.soft_delete_days:
        yield here.found("unprotected", read=(("protect",),))


def _is_reserved(name: str) -> bool:
    return name.startswith("goog") or "google" in name or "g00gle" in name


def input_problem(data: Data, cluster: str, request: Request) -> tuple[str, str] | None:
    """Reason and fix where ``cluster`` cannot mount ``data``; None where it can."""
    store = request.store
    if data.scheme != "gs":
        return f"cluster `{cluster}` is on Google Cloud, which mounts buckets of Cloud Storage alone", COPY
    if isinstance(store, FilestoreStore):
        reason = "pods mount a file system there, and have no identity that a bucket could let in"
        return f"the store is `kind: filestore`: {reason}", COPY
    if isinstance(store, ExistingGcsStore) and data.bucket == store.bucket:
        return _beside(data, store.root)
    if isinstance(store, GcsStore) and data.bucket == store.bucket:
        return _beside(data, "")
    return None


def _beside(data: Data, root: str) -> tuple[str, str] | None:
    """Reason and fix where ``data`` in the bucket of the store is not beside its folder, ``root``."""
    inside, outside = f"{data.folder}/".lstrip("/"), f"{root}/".lstrip("/")
    if inside.startswith(outside):
        folder = inside.removeprefix(outside).strip("/")
        fix = f'write `"{{store}}/{folder}"`' if folder else "name a folder of it, as `{store}/<folder>`"
        return "it is in the store, which pods have mounted", fix
    if outside.startswith(inside):
        reason = "the store is a folder of it, so that every result would change what it is"
        return reason, f"name a folder beside `{root}`"
    return None


__all__ = ["CHECKS", "input_problem", "provider_problems"]

CHECKS = (
    check_names,
    clusters.check_clusters,
    clusters.check,
    pools.check,
    pools.check_pools,
    clusters.check_node_networks,
    check,
    check_filestore,
)
