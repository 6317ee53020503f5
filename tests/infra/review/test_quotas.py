"""The quotas that a stack needs, by hand."""

import tomllib
from collections.abc import Mapping
from typing import Any

import pytest

from slipway.evaluated.model import QuotaNeed
from slipway.infra.clouds.aws.catalogue import instance_types
from slipway.infra.clouds.aws.review.charges import DATA as AWS_DATA
from slipway.infra.clouds.aws.review.charges import quotas as aws_quotas
from slipway.infra.clouds.gcp.catalogue import offers
from slipway.infra.clouds.gcp.review import QUOTA_DATA as GCP_DATA
from slipway.infra.clouds.gcp.review import quotas as gcp_quotas
from slipway.infra.review.facts import Quota
from slipway.infra.review.stack import UNKNOWN
from slipway.preview.tables import quota_words as needed_words
from tests.support.clouds import aws, gcp
from tests.support.reviewing import declared, declared_stack, stack_of


def needed(quotas: Any) -> dict[tuple[str, str], float]:
    return {(quota.metric, quota.where): quota.needed for quota in quotas}


def test_what_the_development_stack_needs_on_google_cloud() -> None:
    assert needed(gcp_quotas(declared_stack("gcp-dev"))) == {
        # Two e2-standard-4 on demand, and an n1-standard-4 as Spot.
        ("CPUS", "us-central1"): 8,
        ("PREEMPTIBLE_CPUS", "us-central1"): 4,
        ("PREEMPTIBLE_NVIDIA_T4_GPUS", "us-central1"): 1,
        ("PREEMPTIBLE_NVIDIA_H100_GPUS", "us-central1"): 1,
        # Four boot disks of 100 GB, and the two local SSDs of an a3-highgpu-1g.
        ("SSD_TOTAL_GB", "us-central1"): 400,
        ("PREEMPTIBLE_LOCAL_SSD_GB", "us-central1"): 750,
        ("IN_USE_ADDRESSES", "us-central1"): 1,
        ("STATIC_ADDRESSES", "us-central1"): 1,
        # 8 + 4 + the 26 of the a3-highgpu-1g.
        ("CPUS_ALL_REGIONS", "all regions"): 38,
        ("GPUS_ALL_REGIONS", "all regions"): 2,
        ("NETWORKS", "all regions"): 1,
    }


def test_regions_are_counted_apart_and_the_project_together() -> None:
    declared_stack_ = needed(gcp_quotas(declared_stack("gcp-prod")))
    assert declared_stack_["CPUS", "us-central1"] == 3 * 4 + 4
    assert declared_stack_["CPUS", "us-west4"] == 2 * 4
    assert declared_stack_["DISKS_TOTAL_GB", "us-central1"] == 300
    assert declared_stack_["SSD_TOTAL_GB", "us-west4"] == 2 * 100 + 2000
    assert declared_stack_["PREEMPTIBLE_LOCAL_SSD_GB", "us-west4"] == 16 * 375
    assert declared_stack_["GPUS_ALL_REGIONS", "all regions"] == 1 + 8


def test_what_the_production_stack_needs_on_aws() -> None:
    assert needed(aws_quotas(declared_stack("aws-prod"))) == {
        ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "us-east-2"): 3 * 4,
        ("Running On-Demand G and VT instances", "us-east-2"): 4,
        ("All P5 Spot Instance Requests", "us-east-2"): 192,
        # 3 x 100 + 300 + 2000 GiB.
        ("Storage for General Purpose SSD (gp3) volumes", "us-east-2"): 2.54,
        ("EC2-VPC Elastic IPs", "us-east-2"): 3,
        ("VPCs per Region", "us-east-2"): 1,
        ("Internet gateways per Region", "us-east-2"): 1,
        ("NAT gateways per Availability Zone", "use2-az1"): 1,
        ("NAT gateways per Availability Zone", "use2-az2"): 1,
        ("NAT gateways per Availability Zone", "use2-az3"): 1,
        ("Clusters", "us-east-2"): 1,
        ("Managed node groups per cluster", "ml"): 3,
    }


def the_quota(quotas: Any, metric: str) -> Quota:
    (result,) = [quota for quota in quotas if quota.metric == metric]
    return result


def test_where_to_see_the_limit() -> None:
    stack = stack_of(*declared_stack("gcp-dev").resources.values(), configuration={"gcp:project": "a-project"})
    gpus = the_quota(gcp_quotas(stack), "PREEMPTIBLE_NVIDIA_T4_GPUS")
    assert gpus.see.startswith("gcloud compute regions describe us-central1 --project=a-project ")
    everywhere = the_quota(gcp_quotas(stack), "GPUS_ALL_REGIONS")
    assert everywhere.see.startswith("gcloud compute project-info describe --project=a-project ")
    assert everywhere.ordinary == 0
    assert "--project=<project> " in the_quota(gcp_quotas(declared_stack("gcp-dev")), "CPUS").see
    spot = the_quota(aws_quotas(declared_stack("aws-dev")), "All G and VT Spot Instance Requests")
    assert spot.see == (
        "aws service-quotas get-service-quota --service-code ec2 --quota-code L-3819A6DF"
        " --region ap-south-1 --query Quota.Value"
    )


def gke(nodes: int = 1, **config: Any) -> dict[tuple[str, str], float]:
    properties = {"location": "us-central1-a", "nodeCount": nodes, "nodeConfig": config}
    return needed(gcp_quotas(stack_of(declared(gcp.NODE_POOL, properties=properties))))


GPUS: Mapping[str, tuple[Mapping[str, Any], tuple[str, float]]] = {
    "H100 on demand": (
        {"machineType": "a3-highgpu-8g"},
        ("GPUS-PER-GPU-FAMILY-per-project-region, NVIDIA_H100", 8),
    ),
    "H100 by flex-start": (
        {"machineType": "a3-highgpu-8g", "flexStart": True},
        ("PREEMPTIBLE_NVIDIA_H100_GPUS", 8),
    ),
    "preemptible T4": (
        {
            "machineType": "n1-standard-4",
            "preemptible": True,
            "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 2}],
        },
        ("PREEMPTIBLE_NVIDIA_T4_GPUS", 2),
    ),
    "CPUs of a newer family": ({"machineType": "n4-standard-8"}, ("CPUS-PER-VM-FAMILY-per-project-region, N4", 8)),
}


@pytest.mark.parametrize("case", GPUS)
def test_which_metric_counts_a_machine(case: str) -> None:
    config, (metric, amount) = GPUS[case]
    assert gke(3, **config)[metric, "us-central1"] == 3 * amount


def test_a_quota_with_a_dimension_is_seen_elsewhere() -> None:
    pool = declared(
        gcp.NODE_POOL,
        properties={"location": "us-west4-a", "nodeCount": 1, "nodeConfig": {"machineType": "a3-highgpu-8g"}},
    )
    pool_ = the_quota(gcp_quotas(stack_of(pool)), "GPUS-PER-GPU-FAMILY-per-project-region, NVIDIA_H100")
    assert pool_.see.startswith("gcloud beta quotas info describe GPUS-PER-GPU-FAMILY-per-project-region ")
    assert pool_.ordinary == 0


def test_nodes_that_can_never_be_there_need_nothing() -> None:
    assert gke(0, machineType="e2-standard-4") == {}


def test_what_is_not_known_needs_nothing() -> None:
    assert gke(machineType=UNKNOWN, diskType=UNKNOWN) == {}
    group = declared(aws.NODE_GROUP, properties={"scalingConfig": UNKNOWN, "capacityType": UNKNOWN})
    assert set(needed(aws_quotas(stack_of(group)))) == {("Managed node groups per cluster", "<region>")}


def eks(machine: str, capacity: str) -> dict[tuple[str, str], float]:
    group = declared(
        aws.NODE_GROUP,
        properties={
            "instanceTypes": [machine],
            "capacityType": capacity,
            "scalingConfig": {"maxSize": 2},
            "region": "us-east-2",
        },
    )
    return needed(aws_quotas(stack_of(group)))


def test_which_quota_counts_an_instance() -> None:
    assert eks("p5.48xlarge", "ON_DEMAND")["Running On-Demand P instances", "us-east-2"] == 384
    assert eks("p4d.24xlarge", "SPOT")["All P4, P3 and P2 Spot Instance Requests", "us-east-2"] == 192
    # Bought beforehand.
    assert set(eks("p5.48xlarge", "CAPACITY_BLOCK")) == {("Managed node groups per cluster", "us-east-2")}


@pytest.mark.parametrize("path", [GCP_DATA, AWS_DATA], ids=["gcp", "aws"])
def test_every_fact_names_where_it_is_from(path: Any) -> None:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    assert all({"date"} < source.keys() for source in data["sources"].values())
    rows = [row for kind in ("vcpus", "counts", "disks") for row in data.get(kind, {}).values()]
    assert all(row["source"] in data["sources"] for row in rows if isinstance(row, dict) and "name" in row)


def named_or_unknown(quotas: Any, unit: str, amount: float) -> bool:
    """Whether one quota of a region counts this: a fact, or one that is shown as unknown."""
    result = [quota for quota in quotas if quota.unit == unit and quota.where != "all regions"]
    return [finding.needed for finding in result] == [amount] and bool(result[0].see)


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("accelerator", sorted(offers()))
def test_every_accelerator_of_google_cloud_is_in_the_quota_at_maximum(accelerator: str, spot: bool) -> None:
    config = {
        "machineType": "n1-standard-4",
        "spot": spot,
        "guestAccelerators": [{"type": accelerator, "count": 2}],
    }
    pool = declared(gcp.NODE_POOL, properties={"location": "us-central1-a", "nodeCount": 1, "nodeConfig": config})
    quotas = gcp_quotas(stack_of(pool))
    assert named_or_unknown(quotas, "GPUs", 2)
    assert all(quota.known for quota in quotas), "every accelerator that ships has a fact"


@pytest.mark.parametrize("capacity", ["ON_DEMAND", "SPOT"])
@pytest.mark.parametrize("machine", sorted(name for name, value in instance_types().items() if value.accelerator))
def test_every_accelerator_of_aws_is_in_the_quota_at_maximum(machine: str, capacity: str) -> None:
    group = declared(
        aws.NODE_GROUP,
        properties={"instanceTypes": [machine], "capacityType": capacity, "scalingConfig": {"maxSize": 1}},
    )
    assert named_or_unknown(aws_quotas(stack_of(group)), "vCPUs", instance_types()[machine].vcpus)


def test_a_quota_that_no_source_names_is_shown_as_unknown() -> None:
    config = {"machineType": "n1-standard-4", "guestAccelerators": [{"type": "nvidia-next", "count": 1}]}
    pool = declared(gcp.NODE_POOL, properties={"location": "us-west4-a", "nodeCount": 3, "nodeConfig": config})
    (google,) = [quota for quota in gcp_quotas(stack_of(pool)) if not quota.known]
    assert (google.where, google.needed) == ("us-west4", 3)
    assert "nvidia-next" in google.metric
    group = declared(
        aws.NODE_GROUP,
        properties={
            "instanceTypes": ["p6-b200.48xlarge"],
            "capacityType": "SPOT",
            "scalingConfig": {"maxSize": 2},
        },
    )
    (amazon,) = [quota for quota in aws_quotas(stack_of(group)) if not quota.known]
    assert (amazon.needed, amazon.unit) == (384, "vCPUs")
    shown = [needed_words(QuotaNeed.model_validate(entry, from_attributes=True)) for entry in (google, amazon)]
    assert all("unknown" in words for words in shown)
