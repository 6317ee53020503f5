"""The store as pods see it: a volume of the EFS CSI driver, claimed in their namespace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra.clouds.aws.bucket import StoreBucketArgs, store_bucket
from infra.clouds.aws.efs import elastic_file_system
from infra.clouds.aws.iam_policies import Statement, allow
from infra.clouds.aws.logs import AccessLogsArgs, access_logs
from infra.clouds.aws.mounts import ROOT, Mountable, MountArgs, team_root
from infra.clouds.aws.names import resource_name
from infra.clouds.aws.s3files import kms_statements, s3_files
from infra.clouds.aws.settings import EfsStore, S3Store
from infra.platform import Claim, Store
from infra.schema.names import KUBERNETES_NAME_LIMIT

DRIVER = "efs.csi.aws.com"

CLAIM = "store"
"""Name of the PersistentVolumeClaim, and of the volume in pods."""

SIZE = "1Gi"
"""Kubernetes wants one; the file systems have no size."""


@dataclass(frozen=True)
class TeamStore:
    """The store of one team, what its Jobs' own identity may do to it, and ``app`` as `AwsStore` has it."""

    store: Store
    statements: Sequence[Statement] = ()
    app: Callable[[str | None], Sequence[Statement]] = lambda _: ()


@dataclass(frozen=True)
class AwsStore:
    """The store, what to wait for before the first pod, and what the Jobs' own identity may do to it.

    ``teams`` are the stores of other teams' stacks, by the team's name. ``app`` says what the identity of an app
    may do to it that has the folder of its own, or None, which it is given.
    """

    store: Store
    ready: Sequence[pulumi.Resource]
    statements: Sequence[Statement] = ()
    teams: Mapping[str, TeamStore] = field(default_factory=dict[str, TeamStore])
    app: Callable[[str | None], Sequence[Statement]] = lambda _: ()


def s3_store(name: str, settings: S3Store, namespace: str, args: MountArgs) -> AwsStore:
    """A bucket, mounted through S3 Files.

    Nothing of it is read back by the program: a result is in the bucket only a while after the Job that wrote it
    is done.
    """
    region = args.settings.region
    made = store_bucket(name, StoreBucketArgs(settings, args.settings, args.account, args.protect))
    bucket = made.bucket
    if settings.access_logs:
        access_logs(
            name, AccessLogsArgs(bucket, args.settings, args.account, settings.access_log_days, args.protect)
        )
    mountable = s3_files(name, settings, made, args)
    volume = _volume(name, namespace, mountable, args)

    def store(root: str, volume: k8s.core.v1.PersistentVolume) -> Store:
        mounted = _store(pulumi.Output.concat("s3://", bucket.bucket, f"/{root}"), volume, mountable)
        arguments = {"region": region, "bucket": bucket.bucket, "folder": root}
        return replace(mounted, browse=_browse(region, bucket.bucket, root), reader=arguments)

    return AwsStore(
        store=store(ROOT, volume),
        ready=[volume],
        statements=_bucket_statements(settings, bucket, region, ROOT),
        app=partial(_app_statements, settings, bucket, region, ROOT),
        teams={
            team: TeamStore(
                store(team_root(team), each),
                _bucket_statements(settings, bucket, region, team_root(team)),
                partial(_app_statements, settings, bucket, region, team_root(team)),
            )
            for team, each in _team_volumes(name, mountable, args).items()
        },
    )


def efs_store(name: str, settings: EfsStore, namespace: str, args: MountArgs) -> AwsStore:
    """An EFS file system. Pods have it through the mount only, and need no rights of their own."""
    mountable = elastic_file_system(name, settings, args)
    volume = _volume(name, namespace, mountable, args)
    handle = mountable.handle.apply(lambda found: found.partition(":")[0])

    def url(root: str) -> pulumi.Output[str]:
        return pulumi.Output.concat("efs://", handle, f"/{root}")

    return AwsStore(
        store=_store(url(ROOT), volume, mountable),
        ready=[volume],
        teams={
            team: TeamStore(_store(url(team_root(team)), each, mountable))
            for team, each in _team_volumes(name, mountable, args).items()
        },
    )


def readable(store: Store, arguments: Mapping[str, str]) -> Store:
    """``store``, which another stack has, with what shows it; ``arguments`` are its `Store.reader` there."""
    return replace(store, browse=_browse(arguments["region"], arguments["bucket"], arguments["folder"]))


def _browse(
    region: str, bucket: pulumi.Input[str], root: str
) -> Callable[[pulumi.Input[str]], pulumi.Output[str]]:
    def browse(path: pulumi.Input[str]) -> pulumi.Output[str]:
        return pulumi.Output.concat(
            f"https://{region}.console.aws.amazon.com/s3/buckets/", bucket, f"?prefix={root}/", path, "/"
        )

    return browse


def _team_volumes(name: str, mountable: Mountable, args: MountArgs) -> dict[str, k8s.core.v1.PersistentVolume]:
    return {
        team: _volume(f"{name}-{team}", args.teams[team].namespace, replace(mountable, handle=handle), args)
        for team, handle in mountable.teams.items()
    }


def _store(
    url: pulumi.Input[str],
    volume: k8s.core.v1.PersistentVolume,
    mountable: Mountable,
) -> Store:
    return Store(
        url=url,
        volume=k8s.core.v1.VolumeArgs(
            name=CLAIM,
            persistent_volume_claim=k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=CLAIM),
        ),
        claim=Claim(
            name=CLAIM,
            size=SIZE,
            access_mode="ReadWriteMany",
            # None at all, unlike the cluster's default: the claim is for this volume.
            storage_class="",
            volume_name=volume.metadata.name.apply(str),
        ),
        replaced_with=[*mountable.made_of, volume],
    )


def _volume(name: str, namespace: str, mountable: Mountable, args: MountArgs) -> k8s.core.v1.PersistentVolume:
    """Goes before anything that it is mounted through, which the driver still needs to unmount it."""
    return k8s.core.v1.PersistentVolume(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(name=resource_name(KUBERNETES_NAME_LIMIT, name)),
        spec=k8s.core.v1.PersistentVolumeSpecArgs(
            capacity={"storage": SIZE},
            access_modes=["ReadWriteMany"],
            volume_mode="Filesystem",
            persistent_volume_reclaim_policy="Retain",
            storage_class_name="",
            mount_options=list(mountable.mount_options) or None,
            claim_ref=k8s.core.v1.ObjectReferenceArgs(
                api_version="v1", kind="PersistentVolumeClaim", namespace=namespace, name=CLAIM
            ),
            csi=k8s.core.v1.CSIPersistentVolumeSourceArgs(driver=DRIVER, volume_handle=mountable.handle),
        ),
        opts=pulumi.ResourceOptions(
            provider=args.cluster.provider,
            depends_on=[args.cluster.storage.addon, *mountable.ready],
            # A volume's handle cannot change, and its name is taken until the old one is gone.
            delete_before_replace=True,
            # Once bound, it takes no claim of another namespace.
            replace_on_changes=["spec.claimRef"],
        ),
    )


def _bucket_statements(settings: S3Store, bucket: aws.s3.Bucket, region: str, root: str) -> list[Statement]:
    """Read, write, list and delete objects below ``root``; nothing on the bucket itself or beside that prefix."""
    return [
        allow(
            ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            [pulumi.Output.concat(bucket.arn, f"/{root}/*")],
        ),
        allow(["s3:ListBucket"], [bucket.arn], {"StringLike": {"s3:prefix": [root, f"{root}/*"]}}),
        *kms_statements(settings, region, ["kms:Decrypt", "kms:GenerateDataKey"]),
    ]


def _app_statements(
    settings: S3Store, bucket: aws.s3.Bucket, region: str, root: str, folder: str | None
) -> list[Statement]:
    """Read and list the objects below ``root``; write and delete only those below its ``folder``, if any."""
    reading = [
        allow(["s3:GetObject"], [pulumi.Output.concat(bucket.arn, f"/{root}/*")]),
        allow(["s3:ListBucket"], [bucket.arn], {"StringLike": {"s3:prefix": [root, f"{root}/*"]}}),
    ]
    if folder is None:
        return [*reading, *kms_statements(settings, region, ["kms:Decrypt"])]
    return [
        *reading,
        allow(
            ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            [pulumi.Output.concat(bucket.arn, f"/{root}/{folder}/*")],
        ),
        *kms_statements(settings, region, ["kms:Decrypt", "kms:GenerateDataKey"]),
    ]
