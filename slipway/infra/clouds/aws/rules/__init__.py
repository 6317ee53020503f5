"""What a stack file may not say of Amazon Web Services."""

import re
from collections.abc import Iterator, Mapping

from slipway.infra.clouds.aws.rules import clusters, pools
from slipway.infra.clouds.aws.rules.clusters import key_findings, provider_problems
from slipway.infra.clouds.aws.rules.pools import RULES
from slipway.infra.clouds.aws.settings import AwsCluster, EfsStore, ExistingS3Store, S3Store
from slipway.infra.schema.names import node_label_findings
from slipway.infra.schema.paths import bucket_folder_problem, existing_bucket_findings
from slipway.infra.schema.problems import Finding, listed
from slipway.infra.schema.request import Request
from slipway.infra.schema.rules import Section
from slipway.infra.schema.taints import gpu_taint_findings, taint_findings

# https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html, "Tag naming limits and
# requirements", as documented in 2025; a resource has 50 tags at most, those of Slipway and EKS included.
TAG_KEY = re.compile(r"[\w .:/=+@-]{1,128}")
TAG_VALUE = re.compile(r"[\w .:/=+@-]{0,256}")
TAGS_LIMIT = 40

# Prefixes of tags by which EKS, the Cluster Autoscaler and AWS itself find their resources.
RESERVED_TAGS = ("aws:", "eks:", "kubernetes.io/", "k8s.io/")

# Prefixes of labels that a kubelet refuses to set for itself, or that EKS or NVIDIA's device plugin set.
RESERVED_LABELS = ("kubernetes.io", "k8s.io", "eks.amazonaws.com", "k8s.amazonaws.com", "nvidia.com")


def check_names(request: Request) -> Iterator[Finding]:
    """Findings about the labels, taints and tags of clusters on AWS."""
    for name, cluster in request.clusters_of(AwsCluster).items():
        place = ("clusters", name)
        for key, pool in cluster.pools.items():
            at = (*place, "pools", key)
            yield from node_label_findings(
                (*at, "labels"), pool.labels, RESERVED_LABELS, "Kubernetes, EKS and NVIDIA"
            )
            yield from _tags(Section(RULES["tag"], at, pool), pool.tags)
            yield from taint_findings((*at, "taints"), pool.taints)
            if pool.has_gpus:
                yield from gpu_taint_findings((*at, "taints"), pool.taints, (*at, "instance_type"))


def _tags(here: Section, tags: Mapping[str, str]) -> Iterator[Finding]:
    if len(tags) > TAGS_LIMIT:
        yield here.found("many", shown=len(tags), most=TAGS_LIMIT)
    for key, value in tags.items():
        if key.lower().startswith(RESERVED_TAGS) or key == "Name":
            yield here.found("reserved", key, shown=key)
        elif not TAG_KEY.fullmatch(key):
            yield here.found("key", key, shown=key)
        elif not TAG_VALUE.fullmatch(value):
            yield here.found("value", key)


# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, as documented in 2025. Dots, which
# it allows, keep TLS from working by the bucket's own host name.
BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
RESERVED_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
RESERVED_SUFFIXES = ("-s3alias", "--ol-s3", "--x-s3", "--table-s3")


def check_store(request: Request) -> Iterator[Finding]:
    """Findings about the store, and about another store for clusters on AWS."""
    clusters, store = request.clusters_of(AwsCluster), request.store
    here = Section(RULES["store"], ("store",), store)
    if isinstance(store, S3Store):
        name = store.bucket
        if name is not None and (
            not BUCKET.fullmatch(name) or name.startswith(RESERVED_PREFIXES) or name.endswith(RESERVED_SUFFIXES)
        ):
            yield here.found("bucket-name")
    elif isinstance(store, ExistingS3Store):
        yield from existing_bucket_findings(store.bucket, BUCKET, "s3://", "aws s3 ls")
        if problem := bucket_folder_problem(store.folder):
            yield here.found("folder", problem=problem)
    elif isinstance(store, EfsStore):
        if request.protect and not store.backup:
            yield here.found("unprotected", read=(("protect",),))
    elif store is not None and clusters:
        yield here.found("elsewhere", read=request.cloud_places, clusters=listed(clusters, "and"))
    if isinstance(store, S3Store | ExistingS3Store | EfsStore):
        keys = Section(RULES["key"], ("store",), store)
        for name, cluster in clusters.items():
            yield from key_findings(keys, "kms_key", cluster.region, ("clusters", name, "region"))


__all__ = ["CHECKS", "provider_problems"]

CHECKS = (
    check_names,
    clusters.check_clusters,
    clusters.check,
    pools.check_pools,
    pools.check,
    check_store,
)
