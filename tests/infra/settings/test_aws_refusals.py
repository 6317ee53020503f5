"""What AWS would refuse, or bill for nothing: refused with key, reason and fix before anything is created."""

from typing import Any

import pytest

from tests.support.aws_values import AWS
from tests.support.refusals import CPU, PREDICT, STEPS, TRAIN, Case, named, the_problem
from tests.support.stack_values import GCP, GONE, changed

CLUSTER = "clusters.dev"
CONTROL = f"{CLUSTER}.control_plane"
NETWORK = f"{CLUSTER}.network"
BLOCK = "cr-0123456789abcdef0"
KEY = f"key/{'0' * 36}"

POOLS: list[Case] = [
    ({f"{TRAIN}.instance_type": "g4dn.xlargee"}, f"{TRAIN}.instance_type", "catalogue", "`g4dn.xlarge`"),
    ({f"{CPU}.instance_type": "zz"}, f"{CPU}.instance_type", "catalogue", "infra/clouds/aws/data"),
    ({f"{CPU}.instance_type": "m7g.xlarge"}, f"{CPU}.instance_type", "Arm", "`m7i.xlarge`"),
    ({f"{TRAIN}.gpus": 2}, f"{TRAIN}.gpus", "comes with 1, and no instance type has 2", "gpus: 1"),
    ({f"{TRAIN}.gpus": 4}, f"{TRAIN}.gpus", "comes with 1", "`g4dn.12xlarge`"),
    ({f"{PREDICT}.gpus": 3}, f"{PREDICT}.gpus", "no instance type has 3 `nvidia-h100-80gb`", "gpus: 1"),
    ({f"{PREDICT}.gpus": 8}, f"{PREDICT}.gpus", "comes with 1", "`p5.48xlarge`"),
    ({f"{CPU}.gpus": 1}, f"{CPU}.gpus", "no GPU", "remove `gpus`"),
    ({f"{TRAIN}.accelerator": "nvidia-tesla-t5"}, f"{TRAIN}.accelerator", "catalogue", "`nvidia-tesla-t4`"),
    (
        {f"{TRAIN}.accelerator": "nvidia-l4"},
        f"{TRAIN}.accelerator",
        "`nvidia-tesla-t4` and no other",
        "`g6.xlarge`",
    ),
    ({f"{TRAIN}.accelerator": "nvidia-tesla-p4"}, f"{TRAIN}.accelerator", "no other", "no instance type"),
    ({f"{CPU}.accelerator": "nvidia-l4"}, f"{CPU}.accelerator", "no GPU", "`g6.xlarge`"),
    ({f"{CPU}.gpu_sharing": {"clients": 2}}, f"{CPU}.gpu_sharing", "no GPU", "remove"),
    ({f"{TRAIN}.gpu_sharing": {"clients": 49}}, f"{TRAIN}.gpu_sharing.clients", "above 48", "48 or less"),
    ({f"{TRAIN}.ami_type": "AL2023_x86_64_STANDARD"}, f"{TRAIN}.ami_type", "no driver", "AL2023_x86_64_NVIDIA"),
    ({f"{TRAIN}.disk_size_gb": 10}, f"{TRAIN}.disk_size_gb", "below 20", "20 or more"),
    ({f"{TRAIN}.nodes": {"min": 3, "max": 1}}, f"{TRAIN}.nodes.min", "more than `max`", "`min: 1`"),
    ({f"{TRAIN}.nodes": {"min": 1}}, f"{TRAIN}.nodes.min", "`max` as well", "count: 1"),
    ({f"{TRAIN}.nodes": {"count": 1, "max": 2}}, f"{TRAIN}.nodes.count", "fixed number", "keep `count`"),
    ({f"{TRAIN}.nodes": {"total_max": 1}}, f"{TRAIN}.nodes.total_max", "no such key", "`max`"),
    ({f"{TRAIN}.nodes": {"max": 0}}, f"{STEPS}.train.pool", "no node", "give pool `train` a node"),
]

CHARTS: list[Case] = [
    (
        {f"{CLUSTER}.charts.device_plugin.chart": "./not-there.tgz"},
        f"{CLUSTER}.charts.device_plugin.chart",
        "cannot be read",
        "fetch it again",
    ),
    (
        {f"{CLUSTER}.charts.cluster_autoscaler.version": "9.0.0"},
        f"{CLUSTER}.charts.cluster_autoscaler.version",
        "pinned",
        "name its `chart`",
    ),
]

CAPACITY: list[Case] = [
    (
        {f"{PREDICT}.capacity_block": BLOCK, f"{PREDICT}.zones": ["aps1-az1"]},
        f"{PREDICT}.capacity_block",
        "`spot`",
        "remove",
    ),
    (
        {f"{TRAIN}.capacity_reservation": BLOCK, f"{TRAIN}.zones": ["aps1-az1"]},
        f"{TRAIN}.capacity_reservation",
        "`spot`",
        "remove",
    ),
    (
        {
            f"{PREDICT}.spot": False,
            f"{PREDICT}.zones": ["aps1-az1"],
            f"{PREDICT}.capacity_block": BLOCK,
            f"{PREDICT}.capacity_reservation": BLOCK,
        },
        f"{PREDICT}.capacity_reservation",
        "`capacity_block` is set too",
        "keep one",
    ),
    (
        {f"{PREDICT}.spot": False, f"{PREDICT}.capacity_block": BLOCK},
        f"{PREDICT}.zones",
        "in one zone",
        "name that one zone",
    ),
    (
        {f"{PREDICT}.spot": False, f"{PREDICT}.zones": ["aps1-az1"], f"{PREDICT}.capacity_block": "mine"},
        f"{PREDICT}.capacity_block",
        "not the id",
        "`cr-`",
    ),
    (
        {f"{TRAIN}.spot": False, f"{TRAIN}.zones": ["aps1-az1"], f"{TRAIN}.capacity_block": BLOCK},
        f"{TRAIN}.instance_type",
        "does not sell it by Capacity Block",
        "`spot: true`",
    ),
    (
        {f"{PREDICT}.instance_type": "p5e.48xlarge", f"{PREDICT}.spot": False},
        f"{PREDICT}.instance_type",
        "does not sell it on demand",
        "`capacity_block: cr-…`",
    ),
    ({f"{TRAIN}.efa": True}, f"{TRAIN}.efa", "no EFA", "`g4dn.8xlarge`"),
    ({f"{CPU}.efa": True}, f"{CPU}.efa", "no GPU", "remove"),
    ({f"{PREDICT}.efa": True}, f"{PREDICT}.zones", "within one zone", "name one zone"),
]

ELSEWHERE = {
    "us": {f"{CLUSTER}.region": "us-east-2", f"{CLUSTER}.zones": ["use2-az1", "use2-az2"]},
    "london": {f"{CLUSTER}.region": "eu-west-2", f"{CLUSTER}.zones": ["euw2-az1", "euw2-az2"]},
    "tokyo": {f"{CLUSTER}.region": "ap-northeast-1", f"{CLUSTER}.zones": ["apne1-az1", "apne1-az2"]},
    "frankfurt": {f"{CLUSTER}.region": "eu-central-1", f"{CLUSTER}.zones": ["euc1-az1", "euc1-az2"]},
}

OFFERED: list[Case] = [
    (ELSEWHERE["frankfurt"], f"{PREDICT}.instance_type", "by Capacity Block only", "ap-south-1"),
    (
        {**ELSEWHERE["frankfurt"], f"{PREDICT}.instance_type": "p5.48xlarge"},
        f"{PREDICT}.instance_type",
        "does not offer `p5.48xlarge` in `eu-central-1`, as of the catalogue",
        "another region: ap-northeast-1",
    ),
    (
        {
            f"{CLUSTER}.region": "eu-central-1",
            f"{CLUSTER}.zones": ["eu-central-1a", "eu-central-1b"],
            f"{PREDICT}.instance_type": "p5.48xlarge",
        },
        f"{PREDICT}.instance_type",
        "in `eu-central-1`",
        "infra/data/accelerators/nvidia-h100-80gb.toml",
    ),
    (
        {**ELSEWHERE["us"], f"{PREDICT}.spot": False},
        f"{PREDICT}.instance_type",
        "Capacity Block only",
        "capacity_block",
    ),
    (ELSEWHERE["tokyo"], f"{PREDICT}.instance_type", "in `apne1-az2`", "`apne1-az1`"),
    (
        {**ELSEWHERE["tokyo"], f"{PREDICT}.zones": ["apne1-az2"]},
        f"{PREDICT}.zones[0]",
        "does not offer `p5.4xlarge` in `apne1-az2`",
        "`apne1-az1`",
    ),
    (ELSEWHERE["london"], f"{PREDICT}.spot", "no Spot price", "`euw2-az3`"),
    (
        {**ELSEWHERE["us"], PREDICT: {"instance_type": "p5.4xlarge"}},
        f"{PREDICT}.instance_type",
        "in `us-east-2` AWS sells it by Capacity Block only",
        "capacity_block",
    ),
    (
        {
            f"{CLUSTER}.region": "ca-central-1",
            f"{CLUSTER}.zones": ["cac1-az1", "cac1-az4"],
            PREDICT: {"instance_type": "g6.xlarge"},
        },
        f"{TRAIN}.instance_type",
        "in `cac1-az4`",
        "of its own: `cac1-az1`. Where",
    ),
]

CLUSTERS: list[Case] = [
    ({f"{CLUSTER}.region": "ap-south-11"}, f"{CLUSTER}.region", "catalogue", "`ap-south-1`"),
    ({f"{CLUSTER}.region": "us-east1"}, f"{CLUSTER}.region", "catalogue", "`us-east-1`"),
    (
        {f"{CLUSTER}.region": GONE, f"{CLUSTER}.location": "ap-south-1"},
        f"{CLUSTER}.location",
        "no such key",
        "`region`",
    ),
    (
        {f"{TRAIN}.instance_type": GONE, f"{TRAIN}.machine_type": "g4dn.xlarge"},
        f"{TRAIN}.machine_type",
        "no such key",
        "`instance_type`",
    ),
    (
        {f"{TRAIN}.nodes": {"total_min": 0, "max": 1}},
        f"{TRAIN}.nodes.total_min",
        "no such key",
        "`min`",
    ),
    ({f"{CLUSTER}.region": "us-gov-west-1"}, f"{CLUSTER}.region", "catalogue", "`us-west-1`"),
    ({f"{CLUSTER}.region": GONE}, f"{CLUSTER}.region", "required", "us-east-1"),
    ({f"{CLUSTER}.zones": ["aps1-az1"]}, f"{CLUSTER}.zones", "at least two", "two or three"),
    (
        {
            f"{CLUSTER}.region": "us-east-1",
            f"{CLUSTER}.zones": [f"use1-az{n}" for n in (1, 2, 4, 5)],
            PREDICT: GONE,
        }
        | {f"{STEPS}.predict": {"pool": "train", "gpus": 1}},
        f"{CLUSTER}.zones",
        "3 zones at most",
        "two or three",
    ),
    ({f"{CLUSTER}.zones": ["aps1-az1", "aps1-az2", "aps1-az1"]}, f"{CLUSTER}.zones[2]", "twice", "remove"),
    ({f"{CLUSTER}.zones": ["aps1-az1", "aps1-az2", "use1-az1"]}, f"{CLUSTER}.zones[2]", "not a zone", "aps1-az1"),
    ({f"{CLUSTER}.zones": ["aps1-az1", "aps1-az2", "mars"]}, f"{CLUSTER}.zones[2]", "not a zone", "ap-south-1a"),
    (
        {f"{CLUSTER}.zones": ["aps1-az1", "aps1-az2", "aps1-az9"]},
        f"{CLUSTER}.zones[2]",
        "not a zone",
        "did you mean",
    ),
    ({f"{CLUSTER}.zones": ["aps1-az1", "ap-south-1b"]}, f"{CLUSTER}.zones", "mixed", "as ids"),
    (
        {f"{CLUSTER}.region": "us-east-1", f"{CLUSTER}.zones": ["use1-az1", "use1-az2", "use1-az3"]}
        | {PREDICT: {"instance_type": "p5.48xlarge", "spot": True}, f"{TRAIN}.zones": ["use1-az1"]},
        f"{CLUSTER}.zones[2]",
        "no control plane",
        "another one",
    ),
    ({f"{TRAIN}.zones": ["aps1-az3"]}, f"{TRAIN}.zones[0]", "no subnet there", "`aps1-az"),
    ({f"{TRAIN}.zones": []}, f"{TRAIN}.zones", "empty", "at least one"),
    ({f"{TRAIN}.zones": ["aps1-az1", "aps1-az1"]}, f"{TRAIN}.zones[1]", "twice", "remove"),
    ({f"{CLUSTER}.kubernetes_version": "1.30"}, f"{CLUSTER}.kubernetes_version", "standard support", "`1.36`"),
    ({f"{CONTROL}.authorized_networks": {}}, f"{CONTROL}.authorized_networks", "whole Internet", "checkip"),
    ({f"{CONTROL}.public_endpoint": False}, f"{CONTROL}.authorized_networks", "no public endpoint", "remove"),
    (
        {f"{CONTROL}.authorized_networks": {"all": "0.0.0.0/0"}},
        f"{CONTROL}.authorized_networks.all",
        "whole Internet",
        "name the networks",
    ),
    (
        {f"{CONTROL}.authorized_networks": {"one": "0.0.0.0/1", "other": "128.0.0.0/1"}},
        f"{CONTROL}.authorized_networks",
        "whole Internet",
        "name the networks",
    ),
    (
        {f"{CONTROL}.authorized_networks": {"home": "192.168.1.0/24"}},
        f"{CONTROL}.authorized_networks.home",
        "private addresses",
        "public address",
    ),
    (
        {f"{CONTROL}.authorized_networks": {f"n{n}": f"203.0.113.{n}/32" for n in range(41)}},
        f"{CONTROL}.authorized_networks",
        "40 networks",
        "join",
    ),
    ({f"{CONTROL}.logs": ["audits"]}, f"{CONTROL}.logs[0]", "not one of", "`audit`"),
    ({f"{CONTROL}.log_days": 31}, f"{CONTROL}.log_days", "not one of", "write `1`, `3`, `5`, `7`, `14`, `30`"),
    ({f"{CONTROL}.log_days": "30"}, f"{CONTROL}.log_days", "has to be a number", "without quotes: `30`"),
    ({f"{CONTROL}.secrets_key": "alias/mine"}, f"{CONTROL}.secrets_key", "not the ARN", "describe-key"),
    (
        {f"{CONTROL}.secrets_key": f"arn:aws:kms:us-east-1:111122223333:{KEY}"},
        f"{CONTROL}.secrets_key",
        "a key of `us-east-1`",
        "`ap-south-1`",
    ),
    ({f"{CLUSTER}.admins": ["me"]}, f"{CLUSTER}.admins[0]", "not the ARN", "role/<name>"),
    (
        {f"{CLUSTER}.admins": ["arn:aws:sts::111122223333:assumed-role/ops/me"]},
        f"{CLUSTER}.admins[0]",
        "a session",
        "the role itself",
    ),
    (
        {f"{CLUSTER}.admins": ["arn:aws:iam::111122223333:root"]},
        f"{CLUSTER}.admins[0]",
        "not the ARN",
        "role/<name>",
    ),
    (
        {f"{CLUSTER}.admins": ["arn:aws:iam::111122223333:role/ops"] * 2},
        f"{CLUSTER}.admins[1]",
        "twice",
        "remove",
    ),
    (
        {
            "clusters.other": {
                "cloud": "aws",
                "region": "us-east-1",
                "zones": ["use1-az1", "use1-az2"],
                "control_plane": {"public_endpoint": False},
                "pools": {"more": {"instance_type": "m7i.large"}},
            }
        },
        "clusters.other",
        "the VPC of one cluster",
        "a stack of its own",
    ),
    (
        {CPU: GONE, f"{STEPS}.prepare": {"pool": "train", "gpus": 1, "cpu": "2", "memory": "6Gi"}},
        f"{CLUSTER}.pools",
        "none is without GPUs",
        "m7i.xlarge",
    ),
    (
        {f"{CPU}.taints": [{"key": "mine", "value": "only"}]},
        f"{CPU}.taints",
        "do not tolerate",
        "add a pool",
    ),
    ({f"{CPU}.nodes": {"min": 0, "max": 2}}, f"{CPU}.nodes", "the autoscaler", "`min: 1`"),
]

NETWORKS: list[Case] = [
    ({f"{NETWORK}.vpc_cidr": "10.0.0.0/15"}, f"{NETWORK}.vpc_cidr", "larger", "/16"),
    ({f"{NETWORK}.vpc_cidr": "10.0.0.0/25"}, f"{NETWORK}.vpc_cidr", "too small", "/24"),
    ({f"{NETWORK}.vpc_cidr": "10.0.0.0/24"}, f"{NETWORK}.vpc_cidr", "nodes and their pods take", "larger block"),
    ({f"{NETWORK}.vpc_cidr": "127.0.0.0/16"}, f"{NETWORK}.vpc_cidr", "loopback", "`10.0.0.0/8`"),
    ({f"{NETWORK}.vpc_cidr": "169.254.0.0/16"}, f"{NETWORK}.vpc_cidr", "link-local", "`10.0.0.0/8`"),
    ({f"{NETWORK}.vpc_cidr": "8.8.0.0/16"}, f"{NETWORK}.vpc_cidr", "Internet", "`10.0.0.0/8`"),
    ({f"{NETWORK}.services_cidr": "8.8.0.0/16"}, f"{NETWORK}.services_cidr", "Internet", "`10.0.0.0/8`"),
    ({f"{NETWORK}.services_cidr": "172.20.0.0/25"}, f"{NETWORK}.services_cidr", "/12 and /24", "172.20.0.0/16"),
    ({f"{NETWORK}.services_cidr": "10.0.128.0/20"}, f"{NETWORK}.services_cidr", "overlaps", "free"),
    ({f"{NETWORK}.nat": "two"}, f"{NETWORK}.nat", "not one of", "`one` or `per-zone`"),
]

STORES: list[Case] = [
    ({"store.mount": "mountpoint"}, "store.mount", "neither rename a file nor append", "`s3files`"),
    ({"store.versioning": False}, "store.versioning", "does not work without", "versioning: true"),
    ({"store.bucket": "My_Bucket"}, "store.bucket", "not a bucket name", "choose another"),
    ({"store.bucket": "mine--x-s3"}, "store.bucket", "not a bucket name", "choose another"),
    ({"store.cache_days": 366}, "store.cache_days", "above 365", "365 or less"),
    ({"store.kms_key": "mine"}, "store.kms_key", "not the ARN", "arn:aws:kms"),
    (
        {"store": {"kind": "efs", "kms_key": f"arn:aws:kms:us-east-1:111122223333:{KEY}"}},
        "store.kms_key",
        "a key of `us-east-1`",
        "`ap-south-1`",
    ),
    ({"protect": True, "store": {"kind": "efs"}}, "store.backup", "protected", "backup: true"),
    ({"store": {"kind": "pvc"}}, "store.kind", "`dev` on AWS", "kind: s3"),
    ({"store": GCP["store"]}, "store.kind", "`dev` on AWS", "kind: s3"),
]

NAMES: list[Case] = [
    ({f"{TRAIN}.labels": {"kubernetes.io/role": "x"}}, f'{TRAIN}.labels["kubernetes.io/role"]', "reserved", "own"),
    (
        {f"{TRAIN}.labels": {"eks.amazonaws.com/nodegroup": "x"}},
        f'{TRAIN}.labels["eks.amazonaws.com/nodegroup"]',
        "Kubernetes, EKS and NVIDIA",
        "own",
    ),
    (
        {f"{TRAIN}.labels": {"nvidia.com/gpu.present": "true"}},
        f'{TRAIN}.labels["nvidia.com/gpu.present"]',
        "reserved",
        "own",
    ),
    ({f"{TRAIN}.taints": [{"key": "nvidia.com/gpu"}]}, f"{TRAIN}.taints[0].key", "already", "remove"),
    ({f"{TRAIN}.taints": [{"key": "a b"}]}, f"{TRAIN}.taints[0].key", "not a taint key", "correct"),
    ({f"{TRAIN}.tags": {"aws:mine": "x"}}, f'{TRAIN}.tags["aws:mine"]', "tell resources apart", "another key"),
    ({f"{TRAIN}.tags": {"Name": "x"}}, f"{TRAIN}.tags.Name", "tell resources apart", "another key"),
    ({f"{TRAIN}.tags": {"a?": "x"}}, f'{TRAIN}.tags["a?"]', "not the key", "correct"),
    ({f"{CLUSTER}.tags": {"a": "x" * 257}}, f"{CLUSTER}.tags.a", "at most 256", "correct"),
    ({f"{CLUSTER}.tags": {f"t{n}": "x" for n in range(41)}}, f"{CLUSTER}.tags", "50 tags", "40"),
    (
        {"clusters.dev.pools.Big": {"instance_type": "m7i.large"}},
        f"{CLUSTER}.pools.Big",
        "not a Kubernetes",
        "lower",
    ),
]

CASES = [*POOLS, *CHARTS, *CAPACITY, *OFFERED, *CLUSTERS, *NETWORKS, *STORES, *NAMES]


@pytest.mark.parametrize(("changes", "key", "reason", "fix"), named(CASES))
def test_it_is_refused_with_key_reason_and_fix(changes: dict[str, Any], key: str, reason: str, fix: str) -> None:
    problem = the_problem(changed(AWS, changes))
    assert problem.key == f"slipway:{key}"
    assert reason in problem.reason
    assert fix in problem.fix
