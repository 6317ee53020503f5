"""What a stack file may not say of Amazon Web Services."""

import re
from collections.abc import Iterator, Mapping

from slipway.infra.clouds.aws.rules import clusters, pools
from slipway.infra.clouds.aws.rules.clusters import key_findings, provider_problems
from slipway.infra.clouds.aws.settings import AwsCluster, EfsStore, ExistingS3Store, S3Store
from slipway.infra.schema.names import node_label_findings
from slipway.infra.schema.paths import bucket_folder_problem, existing_bucket_findings
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.schema.request import STORE_KIND, Request
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


# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, as documented in 2025. Dots, which
# it allows, keep TLS from working by the bucket's own host name.
BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
RESERVED_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
RESERVED_SUFFIXES = ("-s3alias", "--ol-s3", "--x-s3", "--table-s3")


def check_store(request: Request) -> Iterator[Finding]:
    """Findings about the store, and about another store for clusters on AWS."""
    clusters = request.clusters_of(AwsCluster)
    store = request.store
    if isinstance(store, S3Store):
        yield from _bucket(store)
    elif isinstance(store, ExistingS3Store):
        yield from _existing_bucket(store)
    elif isinstance(store, EfsStore):
        yield from _check_backup(store, request.protect)
    elif store is not None and clusters:
        yield Finding(
            STORE_KIND,
            store.kind,
            f"{listed(clusters, 'and')} on AWS: there the store is in the cluster's own VPC",
            "write `kind: s3`, `kind: existing-s3` for a bucket that you have, or `kind: efs` for a file system "
            "without a bucket",
            read=request.cloud_places,
        )
    if isinstance(store, S3Store | ExistingS3Store | EfsStore):
        for name, cluster in clusters.items():
            region: Path = ("clusters", name, "region")
            yield from key_findings(("store", "kms_key"), store.kms_key, cluster.region, region)


def _bucket(store: S3Store) -> Iterator[Finding]:
    name = store.bucket
    if name is not None and (
        not BUCKET.fullmatch(name) or name.startswith(RESERVED_PREFIXES) or name.endswith(RESERVED_SUFFIXES)
    ):
        yield Finding(
            ("store", "bucket"),
            name,
            "not a bucket name: 3 to 63 lower-case letters, digits and hyphens, a letter or digit at both ends, "
            "and none of the beginnings and ends that S3 keeps for itself",
            "choose another, such as `<company>-slipway`, or remove it for the default",
        )


def _existing_bucket(store: ExistingS3Store) -> Iterator[Finding]:
    """What cannot be the name of a bucket or of a folder in it."""
    yield from existing_bucket_findings(store.bucket, BUCKET, "s3://", "aws s3 ls")
    if problem := bucket_folder_problem(store.folder):
        yield Finding(("store", "folder"), store.folder, problem, "write a folder such as `vision/slipway`")


def _check_backup(store: EfsStore, protect: bool) -> Iterator[Finding]:
    if protect and not store.backup:
        yield Finding(
            ("store", "backup"),
            store.backup,
            "the stack is protected, and a file overwritten or deleted by mistake would be gone",
            "write `backup: true`",
            read=(("protect",),),
        )


__all__ = ["CHECKS", "provider_problems"]

CHECKS = (
    check_names,
    clusters.check_clusters,
    clusters.check,
    pools.check_pools,
    pools.check,
    check_store,
)
