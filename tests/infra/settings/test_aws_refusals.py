"""What AWS would refuse, or bill for nothing: refused with key, reason and fix before anything is created."""

from typing import Any

import pytest

from tests.support.clouds.aws_values import AWS
from tests.support.refusals import CPU, PREDICT, STEPS, TRAIN, Refusal, elsewhere, wrong
from tests.support.stack_values import GCP, GONE

CLUSTER = "clusters.dev"
CONTROL = f"{CLUSTER}.control_plane"
NETWORK = f"{CLUSTER}.network"
BLOCK = "cr-0123456789abcdef0"
KEY = f"key/{'0' * 36}"

POOLS: list[Any] = [
    wrong(f"{TRAIN}.instance_type", "g4dn.xlargee", "`g4dn.xlarge`"),
    wrong(f"{CPU}.instance_type", "zz", "infra/clouds/aws/data"),
    wrong(f"{CPU}.instance_type", "m7g.xlarge", "`m7i.xlarge`"),
    wrong(f"{CPU}.gpu_sharing", {"clients": 2}, "no GPU"),
    elsewhere({f"{TRAIN}.gpu_sharing": {"clients": 49}}, f"{TRAIN}.gpu_sharing.clients", "above 48", "48 or less"),
    wrong(f"{CPU}.instance_store", True, "NVMe", "disk_size_gb"),
    wrong(f"{TRAIN}.disk_size_gb", 10, "below 20", "20 or more"),
    elsewhere({f"{TRAIN}.nodes": {"min": 3, "max": 1}}, f"{TRAIN}.nodes.min", "`max`", "`min: 1`"),
    elsewhere({f"{TRAIN}.nodes": {"min": 1}}, f"{TRAIN}.nodes.min", "`max`", "count: 1"),
    elsewhere({f"{TRAIN}.nodes": {"count": 1, "max": 2}}, f"{TRAIN}.nodes.count", "`count`"),
    elsewhere({f"{TRAIN}.nodes": {"total_max": 1}}, f"{TRAIN}.nodes.total_max", "`max`"),
    elsewhere({f"{TRAIN}.nodes": {"max": 0}}, f"{STEPS}.train.pool", "`train`"),
]

CHARTS: list[Any] = [
    wrong(f"{CLUSTER}.charts", {"device_plugin": {"chart": "./a.tgz"}}, "kubernetes.helm.v3.Release", "`chart`"),
]

CAPACITY: list[Any] = [
    elsewhere(
        {f"{PREDICT}.capacity_block": BLOCK, f"{PREDICT}.zones": ["aps1-az1"]},
        f"{PREDICT}.capacity_block",
        "`spot`",
    ),
    elsewhere(
        {f"{TRAIN}.capacity_reservation": BLOCK, f"{TRAIN}.zones": ["aps1-az1"]},
        f"{TRAIN}.capacity_reservation",
        "`spot`",
    ),
    elsewhere(
        {
            f"{PREDICT}.spot": False,
            f"{PREDICT}.zones": ["aps1-az1"],
            f"{PREDICT}.capacity_block": BLOCK,
            f"{PREDICT}.capacity_reservation": BLOCK,
        },
        f"{PREDICT}.capacity_reservation",
        "`capacity_block`",
    ),
    elsewhere({f"{PREDICT}.spot": False, f"{PREDICT}.capacity_block": BLOCK}, f"{PREDICT}.zones"),
    elsewhere(
        {f"{PREDICT}.spot": False, f"{PREDICT}.zones": ["aps1-az1"], f"{PREDICT}.capacity_block": "mine"},
        f"{PREDICT}.capacity_block",
        "`cr-`",
    ),
    elsewhere(
        {f"{TRAIN}.spot": False, f"{TRAIN}.zones": ["aps1-az1"], f"{TRAIN}.capacity_block": BLOCK},
        f"{TRAIN}.instance_type",
        "`spot: true`",
    ),
    elsewhere(
        {f"{PREDICT}.instance_type": "p5e.48xlarge", f"{PREDICT}.spot": False},
        f"{PREDICT}.instance_type",
        "`capacity_block: cr-…`",
    ),
    wrong(f"{TRAIN}.efa", True, "no EFA", "`g4dn.8xlarge`"),
    wrong(f"{CPU}.efa", True, "no GPU"),
    elsewhere({f"{PREDICT}.efa": True}, f"{PREDICT}.zones"),
]

ELSEWHERE = {
    "us": {f"{CLUSTER}.region": "us-east-2", f"{CLUSTER}.zones": ["use2-az1", "use2-az2"]},
    "london": {f"{CLUSTER}.region": "eu-west-2", f"{CLUSTER}.zones": ["euw2-az1", "euw2-az2"]},
    "tokyo": {f"{CLUSTER}.region": "ap-northeast-1", f"{CLUSTER}.zones": ["apne1-az1", "apne1-az2"]},
    "frankfurt": {f"{CLUSTER}.region": "eu-central-1", f"{CLUSTER}.zones": ["euc1-az1", "euc1-az2"]},
}

OFFERED: list[Any] = [
    elsewhere(ELSEWHERE["frankfurt"], f"{PREDICT}.instance_type", "ap-south-1"),
    elsewhere(
        {**ELSEWHERE["frankfurt"], f"{PREDICT}.instance_type": "p5.48xlarge"},
        f"{PREDICT}.instance_type",
        "`p5.48xlarge`",
        "`eu-central-1`",
        "another region: ap-northeast-1",
    ),
    elsewhere(
        {
            f"{CLUSTER}.region": "eu-central-1",
            f"{CLUSTER}.zones": ["eu-central-1a", "eu-central-1b"],
            f"{PREDICT}.instance_type": "p5.48xlarge",
        },
        f"{PREDICT}.instance_type",
        "`eu-central-1`",
        "infra/data/accelerators/nvidia-h100-80gb.toml",
    ),
    elsewhere({**ELSEWHERE["us"], f"{PREDICT}.spot": False}, f"{PREDICT}.instance_type", "capacity_block"),
    elsewhere(ELSEWHERE["tokyo"], f"{PREDICT}.instance_type", "`apne1-az2`", "`apne1-az1`"),
    elsewhere(
        {**ELSEWHERE["tokyo"], f"{PREDICT}.zones": ["apne1-az2"]},
        f"{PREDICT}.zones[0]",
        "`p5.4xlarge`",
        "`apne1-az2`",
        "`apne1-az1`",
    ),
    elsewhere(ELSEWHERE["london"], f"{PREDICT}.spot", "`euw2-az3`"),
    elsewhere(
        {**ELSEWHERE["us"], PREDICT: {"instance_type": "p5.4xlarge"}},
        f"{PREDICT}.instance_type",
        "`us-east-2`",
        "capacity_block",
    ),
    elsewhere(
        {
            f"{CLUSTER}.region": "ca-central-1",
            f"{CLUSTER}.zones": ["cac1-az1", "cac1-az4"],
            PREDICT: {"instance_type": "g6.xlarge"},
        },
        f"{TRAIN}.instance_type",
        "`cac1-az4`",
        "`cac1-az1`",
    ),
]

CLUSTERS: list[Any] = [
    wrong(f"{TRAIN}.accelerator", "nvidia-l4", "instance type"),
    wrong(f"{CLUSTER}.region", "ap-south-11", "`ap-south-1`"),
    wrong(f"{CLUSTER}.region", "us-east1", "`us-east-1`"),
    elsewhere({f"{CLUSTER}.region": GONE, f"{CLUSTER}.location": "ap-south-1"}, f"{CLUSTER}.location", "`region`"),
    elsewhere(
        {f"{TRAIN}.instance_type": GONE, f"{TRAIN}.machine_type": "g4dn.xlarge"},
        f"{TRAIN}.machine_type",
        "`instance_type`",
    ),
    elsewhere({f"{TRAIN}.nodes": {"total_min": 0, "max": 1}}, f"{TRAIN}.nodes.total_min", "`min`"),
    wrong(f"{CLUSTER}.region", "us-gov-west-1", "`us-west-1`"),
    wrong(f"{CLUSTER}.region", GONE, "us-east-1"),
    wrong(f"{CLUSTER}.zones", ["aps1-az1"]),
    elsewhere(
        {
            f"{CLUSTER}.region": "us-east-1",
            f"{CLUSTER}.zones": [f"use1-az{n}" for n in (1, 2, 4, 5)],
            PREDICT: GONE,
        }
        | {f"{STEPS}.predict": {"pool": "train", "gpus": 1}},
        f"{CLUSTER}.zones",
        "3 zones at most",
    ),
    elsewhere({f"{CLUSTER}.zones": ["aps1-az1", "aps1-az2", "aps1-az1"]}, f"{CLUSTER}.zones[2]"),
    elsewhere({f"{CLUSTER}.zones": ["aps1-az1", "aps1-az2", "use1-az1"]}, f"{CLUSTER}.zones[2]", "aps1-az1"),
    elsewhere({f"{CLUSTER}.zones": ["aps1-az1", "aps1-az2", "mars"]}, f"{CLUSTER}.zones[2]", "ap-south-1a"),
    elsewhere({f"{CLUSTER}.zones": ["aps1-az1", "aps1-az2", "aps1-az9"]}, f"{CLUSTER}.zones[2]"),
    wrong(f"{CLUSTER}.zones", ["aps1-az1", "ap-south-1b"]),
    elsewhere(
        {f"{CLUSTER}.region": "us-east-1", f"{CLUSTER}.zones": ["use1-az1", "use1-az2", "use1-az3"]}
        | {PREDICT: {"instance_type": "p5.48xlarge", "spot": True}, f"{TRAIN}.zones": ["use1-az1"]},
        f"{CLUSTER}.zones[2]",
    ),
    elsewhere({f"{TRAIN}.zones": ["aps1-az3"]}, f"{TRAIN}.zones[0]", "`aps1-az"),
    wrong(f"{TRAIN}.zones", []),
    elsewhere({f"{TRAIN}.zones": ["aps1-az1", "aps1-az1"]}, f"{TRAIN}.zones[1]"),
    wrong(f"{CLUSTER}.kubernetes_version", "1.30", "`1.36`"),
    wrong(f"{CLUSTER}.pools.train.kubernetes_version", "1.37", "nodes cannot have it", "`1.36`"),
    wrong(f"{CONTROL}.authorized_networks", {}),
    elsewhere({f"{CONTROL}.public_endpoint": False}, f"{CONTROL}.authorized_networks"),
    elsewhere({f"{CONTROL}.authorized_networks": {"all": "0.0.0.0/0"}}, f"{CONTROL}.authorized_networks.all"),
    wrong(f"{CONTROL}.authorized_networks", {"one": "0.0.0.0/1", "other": "128.0.0.0/1"}),
    elsewhere(
        {f"{CONTROL}.authorized_networks": {"home": "192.168.1.0/24"}}, f"{CONTROL}.authorized_networks.home"
    ),
    wrong(f"{CONTROL}.authorized_networks", {f"n{n}": f"203.0.113.{n}/32" for n in range(41)}, "40 networks"),
    elsewhere({f"{CONTROL}.logs": ["audits"]}, f"{CONTROL}.logs[0]", "`audit`"),
    wrong(f"{CONTROL}.log_days", 90, "removed", "retention_in_days"),
    wrong(f"{CONTROL}.secrets_key", "alias/mine", "not the ARN"),
    wrong(f"{CONTROL}.secrets_key", f"arn:aws:kms:us-east-1:111122223333:{KEY}", "`us-east-1`", "`ap-south-1`"),
    elsewhere({f"{CLUSTER}.admins": ["me"]}, f"{CLUSTER}.admins[0]", "not the ARN", "role/<name>"),
    elsewhere({f"{CLUSTER}.admins": ["arn:aws:sts::111122223333:assumed-role/ops/me"]}, f"{CLUSTER}.admins[0]"),
    elsewhere(
        {f"{CLUSTER}.admins": ["arn:aws:iam::111122223333:root"]},
        f"{CLUSTER}.admins[0]",
        "not the ARN",
        "role/<name>",
    ),
    elsewhere({f"{CLUSTER}.admins": ["arn:aws:iam::111122223333:role/ops"] * 2}, f"{CLUSTER}.admins[1]"),
    wrong(
        "clusters.other",
        {
            "cloud": "aws",
            "region": "us-east-1",
            "zones": ["use1-az1", "use1-az2"],
            "control_plane": {"public_endpoint": False},
            "pools": {"more": {"instance_type": "m7i.large"}},
        },
        "the VPC of one cluster",
    ),
    elsewhere(
        {CPU: GONE, f"{STEPS}.prepare": {"pool": "train", "gpus": 1, "cpu": "2", "memory": "6Gi"}},
        f"{CLUSTER}.pools",
        "none is without GPUs",
        "m7i.xlarge",
    ),
    wrong(f"{CPU}.taints", [{"key": "mine", "value": "only"}]),
    wrong(f"{CPU}.nodes", {"min": 0, "max": 2}, "`min: 1`"),
]

NETWORKS: list[Any] = [
    wrong(f"{NETWORK}.vpc_cidr", "10.0.0.0/15", "/16"),
    wrong(f"{NETWORK}.vpc_cidr", "10.0.0.0/25", "/24"),
    wrong(f"{NETWORK}.vpc_cidr", "10.0.0.0/24"),
    wrong(f"{NETWORK}.vpc_cidr", "127.0.0.0/16", "`10.0.0.0/8`"),
    wrong(f"{NETWORK}.vpc_cidr", "169.254.0.0/16", "`10.0.0.0/8`"),
    wrong(f"{NETWORK}.vpc_cidr", "8.8.0.0/16", "`10.0.0.0/8`"),
    wrong(f"{NETWORK}.services_cidr", "8.8.0.0/16", "`10.0.0.0/8`"),
    wrong(f"{NETWORK}.services_cidr", "172.20.0.0/25", "/12 and /24", "172.20.0.0/16"),
    wrong(f"{NETWORK}.services_cidr", "10.0.128.0/20"),
    wrong(f"{NETWORK}.nat", "two", "`one`", "`per-zone`"),
]

STORES: list[Any] = [
    wrong("store.mount", "mountpoint", "`kind: efs`"),
    wrong("store.versioning", False, "`old_version_days`"),
    wrong("store.bucket", "My_Bucket"),
    wrong("store.bucket", "mine--x-s3"),
    wrong("store.kms_key", "mine", "not the ARN", "arn:aws:kms"),
    elsewhere(
        {"store": {"kind": "efs", "kms_key": f"arn:aws:kms:us-east-1:111122223333:{KEY}"}},
        "store.kms_key",
        "`us-east-1`",
        "`ap-south-1`",
    ),
    elsewhere({"protect": True, "store": {"kind": "efs"}}, "store.backup", "backup: true"),
    elsewhere({"store": {"kind": "pvc"}}, "store.kind", "`dev`", "kind: s3"),
    elsewhere({"store": GCP["store"]}, "store.kind", "`dev`", "kind: s3"),
]

NAMES: list[Any] = [
    elsewhere({f"{TRAIN}.labels": {"kubernetes.io/role": "x"}}, f'{TRAIN}.labels["kubernetes.io/role"]'),
    elsewhere(
        {f"{TRAIN}.labels": {"eks.amazonaws.com/nodegroup": "x"}},
        f'{TRAIN}.labels["eks.amazonaws.com/nodegroup"]',
        "Kubernetes, EKS and NVIDIA",
    ),
    elsewhere(
        {f"{TRAIN}.labels": {"nvidia.com/gpu.present": "true"}}, f'{TRAIN}.labels["nvidia.com/gpu.present"]'
    ),
    elsewhere({f"{TRAIN}.taints": [{"key": "nvidia.com/gpu"}]}, f"{TRAIN}.taints[0].key"),
    elsewhere({f"{TRAIN}.taints": [{"key": "a b"}]}, f"{TRAIN}.taints[0].key"),
    elsewhere({f"{TRAIN}.tags": {"aws:mine": "x"}}, f'{TRAIN}.tags["aws:mine"]'),
    elsewhere({f"{TRAIN}.tags": {"Name": "x"}}, f"{TRAIN}.tags.Name"),
    elsewhere({f"{TRAIN}.tags": {"a?": "x"}}, f'{TRAIN}.tags["a?"]'),
    elsewhere({f"{TRAIN}.tags": {"a": "x" * 257}}, f"{TRAIN}.tags.a", "at most 256"),
    wrong(f"{TRAIN}.tags", {f"t{n}": "x" for n in range(41)}, "50 tags", "40"),
    elsewhere({"clusters.dev.pools.Big": {"instance_type": "m7i.large"}}, f"{CLUSTER}.pools.Big"),
]

CASES = [*POOLS, *CHARTS, *CAPACITY, *OFFERED, *CLUSTERS, *NETWORKS, *STORES, *NAMES]


@pytest.mark.parametrize("refusal", CASES)
def test_it_is_refused_with_key_reason_and_fix(refusal: Refusal) -> None:
    refusal.check(AWS)
