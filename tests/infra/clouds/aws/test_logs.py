"""What a stack on AWS logs of traffic and accesses, where its settings ask for it."""

import json

import pytest

from slipway.infra.clouds.aws.emulator import Emulator as AwsEmulator
from slipway.infra.settings.loading import load
from tests.support.clouds.aws import ACCOUNT, BUCKET, REGION, ROLE, ROLE_POLICY, declare, logged, raw

FLOWS = "aws:ec2/flowLog:FlowLog"
GROUP = "aws:cloudwatch/logGroup:LogGroup"
LOGGING = "aws:s3/bucketLogging:BucketLogging"
POLICY = "aws:s3/bucketPolicy:BucketPolicy"
BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"


def test_without_a_word_nothing_is_logged() -> None:
    recording = declare(load(raw()))
    assert recording.of(FLOWS) == []
    assert recording.of(LOGGING) == []
    assert len(recording.of(BUCKET)) == 1


@pytest.mark.slow
def test_connections_are_logged_by_a_role_that_can_do_nothing_else() -> None:
    recording = declare(load(raw(logged)))
    flows = recording.one(FLOWS)
    group = recording.one(GROUP, "dev-flow-logs")
    assert flows.inputs["trafficType"] == "ALL"
    assert group.inputs["retentionInDays"] == 30
    assert f"log-group:{group.inputs['name']}" in flows.inputs["logDestination"]
    trust = json.loads(recording.one(ROLE, "dev-flow-logs").inputs["assumeRolePolicy"])
    assert trust["Statement"][0]["Condition"]["StringEquals"] == {"aws:SourceAccount": ACCOUNT}
    policy = recording.one(ROLE_POLICY, "dev-flow-logs")
    assert policy.urn in recording.waits_for(flows)
    statements = json.loads(policy.inputs["policy"])["Statement"]
    assert all("*" not in statement["Resource"] for statement in statements)
    writing = [statement for statement in statements if "logs:PutLogEvents" in statement["Action"]]
    assert all(group.inputs["name"] in resource for entry in writing for resource in entry["Resource"])


def test_accesses_are_logged_to_a_private_bucket_that_only_s3_writes_to_for_this_one() -> None:
    recording = declare(load(raw(logged)))
    store, logs = recording.one(BUCKET, "store"), recording.one(BUCKET, "store-logs")
    logging = recording.one(LOGGING)
    assert logging.inputs["bucket"] == store.inputs["bucket"]
    assert logging.inputs["targetBucket"] == logs.inputs["bucket"] != store.inputs["bucket"]
    assert logs.inputs["bucket"].endswith(f"{ACCOUNT}-{REGION}-logs")
    policy = recording.one(POLICY, "store-logs")
    assert policy.urn in recording.waits_for(logging)
    allowed, denied = json.loads(policy.inputs["policy"])["Statement"]
    assert allowed["Principal"] == {"Service": "logging.s3.amazonaws.com"}
    assert allowed["Action"] == ["s3:PutObject"]
    assert allowed["Condition"]["ArnLike"] == {"aws:SourceArn": f"arn:aws:s3:::{store.inputs['bucket']}"}
    assert denied["Effect"] == "Deny"
    assert recording.one(BLOCK, "store-logs").inputs["restrictPublicBuckets"] is True
    (rule,) = recording.one(LIFECYCLE, "store-logs").inputs["rules"]
    assert rule["expiration"] == {"days": 30}


@pytest.mark.slow
@pytest.mark.parametrize("protect", [False, True])
def test_logs_are_as_protected_as_the_stack(protect: bool) -> None:
    def change(values: dict[str, object]) -> None:
        logged(values)
        values["protect"] = protect

    logs = declare(load(raw(change))).one(BUCKET, "store-logs")
    assert logs.protect is protect
    assert logs.inputs["forceDestroy"] is not protect


@pytest.mark.slow
def test_the_emulated_cloud_has_an_answer_for_all_of_it() -> None:
    settings = load(raw(logged))
    emulator = AwsEmulator(settings.request)
    for resource in declare(settings).resources:
        if resource.type.startswith("aws:"):
            assert (emulator.outputs(resource.type, resource.name, resource.inputs) or {}).get("id")
