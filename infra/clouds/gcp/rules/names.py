"""Names, labels, taints and project ids that Google Cloud would refuse."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.clouds.gcp.settings import GcpCluster
from infra.schema.kubernetes_names import DNS_LABEL, node_label_findings
from infra.schema.names import KUBERNETES_NAME_LIMIT
from infra.schema.problems import Finding, Path, Problem
from infra.schema.request import Request
from infra.schema.taints import gpu_taint_findings, taint_findings

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


def check(request: Request) -> Iterator[Finding]:
    """Findings about the names, labels and taints of clusters on Google Cloud."""
    for name, cluster in request.clusters_of(GcpCluster).items():
        place = ("clusters", name)
        yield from _starts_with_letter(place, name)
        yield from _cloud_labels((*place, "labels"), cluster.labels)
        for key, pool in cluster.pools.items():
            at = (*place, "pools", key)
            yield from _starts_with_letter(at, key)
            yield from node_label_findings((*at, "labels"), pool.labels, RESERVED_PREFIXES, "Kubernetes and GKE")
            yield from _cloud_labels((*at, "resource_labels"), pool.resource_labels)
            yield from taint_findings((*at, "taints"), pool.taints)
            if pool.accelerator is not None:
                yield from gpu_taint_findings((*at, "taints"), pool.taints, (*at, "accelerator"))


def _starts_with_letter(place: Path, name: str) -> Iterator[Finding]:
    if DNS_LABEL.fullmatch(name) and len(name) <= KUBERNETES_NAME_LIMIT and not name[0].isalpha():
        yield Finding(place, name, "a name on Google Cloud begins with a letter", "put a letter in front")


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
