"""Stacks on AWS for tests: settings to vary, and what they declare."""

from collections.abc import Callable, Mapping
from typing import Any

from slipway.infra.clouds.aws.emulator import Emulator as AwsEmulator
from slipway.infra.clouds.aws.platforms import platforms
from slipway.infra.platform import Platform
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds.stacks import changed_copy, declare_once, with_extra_pool
from tests.support.recording import Recording

ACCOUNT = "000000000000"
REGION = "us-east-1"

CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
ADDON = "aws:eks/addon:Addon"
ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
ROLE = "aws:iam/role:Role"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
BUCKET = "aws:s3/bucket:Bucket"
FILES = "aws:s3/filesFileSystem:FilesFileSystem"
EFS = "aws:efs/fileSystem:FileSystem"
KEY = "aws:kms/key:Key"
REPOSITORY = "aws:ecr/repository:Repository"
VOLUME = "kubernetes:core/v1:PersistentVolume"
RELEASE = "kubernetes:helm.sh/v3:Release"
GROUP_TAG = "aws:autoscaling/tag:Tag"

CPU_POOL = {"instance_type": "m6i.xlarge", "nodes": {"min": 1, "max": 2}}
T4_POOL = {"instance_type": "g4dn.xlarge", "spot": True, "nodes": {"min": 0, "max": 1}}
BASE: dict[str, Any] = {
    "clusters": {
        "dev": {
            "cloud": "aws",
            "region": REGION,
            "zones": ["us-east-1a", "us-east-1b"],
            "control_plane": {"authorized_networks": {"office": "198.51.100.0/24"}},
            "pools": {"cpu": CPU_POOL, "train": T4_POOL},
        }
    },
    "store": {"kind": "s3"},
}


def raw(change: Callable[[dict[str, Any]], object] = lambda _: None) -> dict[str, Any]:
    """The plain values of a small stack, changed in place by ``change``."""
    return changed_copy(BASE, change)


def logged(values: dict[str, Any]) -> None:
    """Turns on what can be logged of traffic and accesses."""
    values["clusters"]["dev"].update(flow_logs=True)
    values["store"].update(access_logs=True)


def changed(**cluster: Any) -> Settings:
    """A small stack with these keys in its cluster."""
    return load(raw(lambda values: values["clusters"]["dev"].update(cluster)))


def with_store(**store: Any) -> Settings:
    """A small stack with this store."""
    return load(raw(lambda values: values.update(store=store)))


def with_pool(pool: Mapping[str, Any], **cluster: Any) -> Settings:
    """A small stack with one more pool, named ``extra``, in a cluster with these keys."""
    return with_extra_pool(BASE, pool, cluster)


def declare(
    settings: Settings,
    *,
    preview: bool = False,
    stack: str = "test",
    then: Callable[[Mapping[str, Platform]], object] | None = None,
    config: Mapping[str, str] | None = None,
) -> Recording:
    """Declares a stack on AWS, once in a test run unless ``then`` runs in the program."""
    config = {"aws:region": REGION, **(config or {})}
    emulator = AwsEmulator(settings.request)
    return declare_once(settings, platforms, emulator, config, preview=preview, stack=stack, then=then)
