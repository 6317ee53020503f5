"""Labels, taints and tags that Kubernetes or AWS would refuse."""

import re
from collections.abc import Iterator, Mapping

from infra.clouds.aws.settings import AwsCluster
from infra.schema.kubernetes_names import node_label_findings
from infra.schema.problems import Finding, Path
from infra.schema.request import Request
from infra.schema.taints import gpu_taint_findings, taint_findings

# https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html, "Tag naming limits and
# requirements", as documented in 2025; a resource has 50 tags at most, those of Slipway and EKS included.
TAG_KEY = re.compile(r"[\w .:/=+@-]{1,128}")
TAG_VALUE = re.compile(r"[\w .:/=+@-]{0,256}")
TAGS_LIMIT = 40

# Prefixes of tags by which EKS, the Cluster Autoscaler and AWS itself find their resources.
RESERVED_TAGS = ("aws:", "eks:", "kubernetes.io/", "k8s.io/")

# Prefixes of labels that a kubelet refuses to set for itself, or that EKS or NVIDIA's device plugin set.
RESERVED_LABELS = ("kubernetes.io", "k8s.io", "eks.amazonaws.com", "k8s.amazonaws.com", "nvidia.com")


def check(request: Request) -> Iterator[Finding]:
    """Findings about the labels, taints and tags of clusters on AWS."""
    for name, cluster in request.clusters_of(AwsCluster).items():
        place = ("clusters", name)
        yield from _tags((*place, "tags"), cluster.tags)
        for key, pool in cluster.pools.items():
            at = (*place, "pools", key)
            yield from node_label_findings(
                (*at, "labels"), pool.labels, RESERVED_LABELS, "Kubernetes, EKS and NVIDIA"
            )
            yield from _tags((*at, "tags"), pool.tags)
            yield from taint_findings((*at, "taints"), pool.taints)
            if pool.has_gpus:
                yield from gpu_taint_findings((*at, "taints"), pool.taints, (*at, "instance_type"))


def _tags(place: Path, tags: Mapping[str, str]) -> Iterator[Finding]:
    if len(tags) > TAGS_LIMIT:
        yield Finding(
            place,
            len(tags),
            "a resource has 50 tags at most, and some of them are Slipway's and EKS's own",
            f"leave {TAGS_LIMIT}",
        )
    for key, value in tags.items():
        if key.lower().startswith(RESERVED_TAGS) or key == "Name":
            yield Finding(
                (*place, key),
                key,
                "a tag by which AWS, EKS or Slipway tell resources apart",
                "choose another key",
            )
        elif not TAG_KEY.fullmatch(key):
            yield Finding(
                (*place, key),
                key,
                "not the key of an AWS tag: 1 to 128 letters, digits, spaces and `_.:/=+-@`",
                "correct the key",
            )
        elif not TAG_VALUE.fullmatch(value):
            yield Finding(
                (*place, key),
                value,
                "not the value of an AWS tag: at most 256 letters, digits, spaces and `_.:/=+-@`",
                "correct the value",
            )
