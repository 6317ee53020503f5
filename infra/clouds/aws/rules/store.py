"""The bucket or file system, by itself and as the store of EKS clusters."""

import re
from collections.abc import Iterator

from infra.clouds.aws.rules.clusters import key_findings
from infra.clouds.aws.settings import AwsCluster, EfsStore, S3Store
from infra.schema.problems import Finding, Path, listed
from infra.schema.request import STORE_KIND, Request

# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, as documented in 2025. Dots, which
# it allows, keep TLS from working by the bucket's own host name.
BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
RESERVED_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
RESERVED_SUFFIXES = ("-s3alias", "--ol-s3", "--x-s3", "--table-s3")


def check(request: Request) -> Iterator[Finding]:
    """Findings about the store, and about another store for clusters on AWS."""
    clusters = request.clusters_of(AwsCluster)
    store = request.store
    if isinstance(store, S3Store):
        yield from _bucket(store)
    elif isinstance(store, EfsStore):
        yield from _kept(store, request.protect)
    elif store is not None and clusters:
        yield Finding(
            STORE_KIND,
            store.kind,
            f"{listed(clusters, 'and')} on AWS: there the store is in the cluster's own VPC",
            "write `kind: s3`, or `kind: efs` for a file system without a bucket",
            read=request.cloud_places,
        )
    if isinstance(store, S3Store | EfsStore):
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
    if store.mount == "mountpoint":
        yield Finding(
            ("store", "mount"),
            store.mount,
            "Mountpoint for S3 can neither rename a file nor append to one, and checkpoints and results need both",
            "write `s3files`, or `kind: efs`",
        )
    if not store.versioning:
        yield Finding(
            ("store", "versioning"),
            store.versioning,
            "S3 Files tells by its versions what changed in the bucket, and does not work without them",
            "write `versioning: true`; `old_version_days` says how soon old ones go",
        )


def _kept(store: EfsStore, protect: bool) -> Iterator[Finding]:
    if protect and not store.backup:
        yield Finding(
            ("store", "backup"),
            store.backup,
            "the stack is protected, and a file overwritten or deleted by mistake would be gone",
            "write `backup: true`",
            read=(("protect",),),
        )
