"""What a stack declares on AWS, taken by an API that checks it as AWS does."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import boto3
import moto
import pytest

from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds.aws import (
    ATTACHMENT,
    EFS,
    REPOSITORY,
    ROLE,
    ROLE_POLICY,
    declare,
    logged,
    raw,
    with_store,
)
from tests.support.recording import Recording

pytestmark = pytest.mark.slow

KEY = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"

STORES: dict[str, Settings] = {
    "s3": with_store(kind="s3", kms_key=KEY),
    "efs": with_store(kind="efs"),
    "logged": load(raw(logged)),
}


@pytest.fixture(scope="module")
def _aws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(name, "none")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with moto.mock_aws(config={"iam": {"load_aws_managed_policies": True}}):
            yield


def made(recording: Recording, iam: Any) -> set[str]:
    """The names of the recording's roles, once they are there with their policies."""
    roles = {resource.inputs["name"] for resource in recording.of(ROLE)}
    for resource in recording.of(ROLE):
        document = resource.inputs["assumeRolePolicy"]
        iam.create_role(RoleName=resource.inputs["name"], AssumeRolePolicyDocument=document)
    for resource in recording.of(ROLE_POLICY):
        name, policy = resource.inputs["name"], resource.inputs["policy"]
        iam.put_role_policy(RoleName=resource.inputs["role"], PolicyName=name, PolicyDocument=policy)
    for resource in recording.of(ATTACHMENT):
        iam.attach_role_policy(RoleName=resource.inputs["role"], PolicyArn=resource.inputs["policyArn"])
    return roles


@pytest.mark.usefixtures("_aws")
@pytest.mark.parametrize("kind", STORES)
def test_iam_takes_every_role_and_policy_and_has_those_of_its_own_that_are_named(kind: str) -> None:
    iam = boto3.client("iam")
    roles = made(declare(STORES[kind], stack=kind), iam)
    listed = {role["RoleName"] for page in iam.get_paginator("list_roles").paginate() for role in page["Roles"]}
    assert roles <= listed


@pytest.mark.usefixtures("_aws")
def test_iam_refuses_what_is_wrong() -> None:
    """So that the test above can fail."""
    iam = boto3.client("iam")
    declared = declare(STORES["s3"])
    trust = declared.of(ROLE)[0].inputs["assumeRolePolicy"]
    iam.create_role(RoleName="wrong", AssumeRolePolicyDocument=trust)
    policy = declared.one(ROLE_POLICY, "run").inputs["policy"].replace("arn:aws:s3", "aws:s3")
    with pytest.raises(iam.exceptions.MalformedPolicyDocumentException):
        iam.put_role_policy(RoleName="wrong", PolicyName="wrong", PolicyDocument=policy)
    with pytest.raises(iam.exceptions.NoSuchEntityException):
        iam.attach_role_policy(RoleName="wrong", PolicyArn="arn:aws:iam::aws:policy/AmazonEKSWorkerPolicy")


@pytest.mark.usefixtures("_aws")
def test_ecr_takes_the_repository_and_what_it_deletes() -> None:
    recording = declare(STORES["s3"])
    repository = recording.one(REPOSITORY).inputs
    ecr = boto3.client("ecr")
    ecr.create_repository(repositoryName=repository["name"], imageTagMutability=repository["imageTagMutability"])
    policy = recording.one("aws:ecr/lifecyclePolicy:LifecyclePolicy").inputs["policy"]
    ecr.put_lifecycle_policy(repositoryName=repository["name"], lifecyclePolicyText=policy)
    assert ecr.get_lifecycle_policy(repositoryName=repository["name"])["lifecyclePolicyText"] == policy


@pytest.mark.usefixtures("_aws")
def test_efs_takes_the_successor_of_a_file_system_while_that_is_there() -> None:
    efs: Any = boto3.client("efs")  # pyright: ignore[reportUnknownMemberType]
    for key in (KEY, f"{KEY[:-1]}6"):
        inputs = declare(with_store(kind="efs", kms_key=key), stack="moved").one(EFS).inputs
        # As the provider makes one up where none is set.
        token = inputs.get("creationToken") or uuid4().hex
        efs.create_file_system(CreationToken=token, Encrypted=inputs["encrypted"], KmsKeyId=inputs["kmsKeyId"])
    assert len(efs.describe_file_systems()["FileSystems"]) == 2
