"""What AWS's recorded answers, held to the models of its services, say of a stack before its first `pulumi up`."""

import tomllib
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber

from slipway.infra.clouds.aws import doctor
from slipway.infra.clouds.aws.review import REVIEW
from slipway.infra.clouds.aws.settings import AwsCluster, ExistingS3Store
from slipway.infra.review.contract import reviewed
from slipway.infra.review.facts import Observation, Quota, State
from slipway.infra.review.stack import Resource, Stack
from slipway.infra.schema.request import Request

CALLER = {
    "UserId": "AROA:me",
    "Account": "111122223333",
    "Arn": "arn:aws:sts::111122223333:assumed-role/deploy/me",
}


@pytest.fixture(autouse=True)
def somebody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[None]:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    doctor.signed_in.cache_clear()
    yield
    doctor.signed_in.cache_clear()


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> dict[str, Stubber]:
    """Clients whose answers are set before they are asked for, by service."""
    session = botocore.session.Session()
    result: dict[str, Stubber] = {}
    for service in ("sts", "iam", "service-quotas", "ec2", "s3"):
        client = session.create_client(service, region_name="us-east-2")
        result[service] = Stubber(client)
        result[service].activate()
    monkeypatch.setattr(doctor.Account, "_client", lambda _, service, __: result[service].client)
    return result


def stack(*quotas: Quota, **configuration: Any) -> Stack:
    vpc = Resource("urn:vpc", "aws:ec2/vpc:Vpc", "vpc", {})
    values = {"aws:region": "us-east-2", **{f"aws:{key}": value for key, value in configuration.items()}}
    return Stack("dev", {vpc.urn: vpc}, values, quotas=quotas)


def request(**cluster: Any) -> Request:
    made = AwsCluster.model_validate(
        {
            "cloud": "aws",
            "region": "us-east-2",
            "zones": ["use2-az1", "use2-az2"],
            "control_plane": {"authorized_networks": {"here": "198.18.0.0/24"}},
            "pools": {"train": {"instance_type": "g4dn.xlarge", "nodes": {"min": 0, "max": 1}}},
            **cluster,
        }
    )
    return Request({"ml": made}, None, "slipway", "runner", protect=False, pool_names={"ml": ["train"]})


def examined(subject: Stack, wanted: Request | None = None) -> dict[State, list[Observation]]:
    observations: dict[State, list[Observation]] = {state: [] for state in State}
    for probe in doctor.probes(subject, wanted):
        for observation in probe.run():
            if observation.subject != doctor.HELPER:
                observations[observation.state].append(observation)
    return observations


def of(given: list[Observation], subject: str) -> list[tuple[str, str]]:
    return [(observation.said, observation.mend) for observation in given if observation.subject == subject]


T4 = Quota("All G and VT Spot", "us-east-2", 4, "vCPUs", "aws see", key=("ec2", "L-3819A6DF", "us-east-2"))
LIMIT = {"ServiceCode": "ec2", "QuotaCode": "L-3819A6DF"}


def answers(stubs: dict[str, Stubber], *, denied: bool, limit: float | None, zones: list[str]) -> None:
    stubs["sts"].add_response("get_caller_identity", CALLER)
    decision = "implicitDeny" if denied else "allowed"
    stubs["iam"].add_response(
        "simulate_principal_policy",
        {
            "EvaluationResults": [
                {"EvalActionName": "ec2:CreateVpc", "EvalDecision": decision},
                {"EvalActionName": "ec2:DeleteVpc", "EvalDecision": "allowed"},
            ]
        },
        {
            "PolicySourceArn": "arn:aws:iam::111122223333:role/deploy",
            "ActionNames": ["ec2:CreateVpc", "ec2:DeleteVpc"],
            "MaxItems": 1000,
        },
    )
    if limit is None:
        stubs["service-quotas"].add_client_error("get_service_quota", "NoSuchResourceException", "", 400)
        stubs["service-quotas"].add_response("get_aws_default_service_quota", {"Quota": {"Value": 0.0}}, LIMIT)
    else:
        stubs["service-quotas"].add_response("get_service_quota", {"Quota": {"Value": limit}}, LIMIT)
    stubs["ec2"].add_response(
        "describe_instance_type_offerings",
        {"InstanceTypeOfferings": [{"InstanceType": "g4dn.xlarge", "Location": zone} for zone in zones]},
        {
            "LocationType": "availability-zone-id",
            "Filters": [{"Name": "instance-type", "Values": ["g4dn.xlarge"]}],
        },
    )


def test_an_account_that_has_everything_is_fine(stubs: dict[str, Stubber]) -> None:
    answers(stubs, denied=False, limit=8, zones=["use2-az2", "use2-az3"])
    observations = examined(stack(T4, allowedAccountIds=["111122223333"]), request())
    assert observations[State.WRONG] == []
    # What others in the account use is in no answer, and is said.
    assert [observation.subject for observation in observations[State.UNKNOWN]] == [doctor.QUOTAS]
    assert len(observations[State.FINE]) == 6


def test_each_thing_that_is_missing_comes_with_its_command(stubs: dict[str, Stubber]) -> None:
    answers(stubs, denied=True, limit=None, zones=["use2-az3"])
    examples = {"authorized_networks": {"here": "203.0.113.0/24"}}
    observations = examined(stack(T4, allowedAccountIds=["999900001111"]), request(control_plane=examples))[
        State.WRONG
    ]
    assert of(observations, doctor.ACCOUNT)[0][0] == "is 111122223333, and the stack allows 999900001111"
    ((said, mend),) = of(observations, doctor.ACTIONS)
    assert said == "of arn:aws:iam::111122223333:role/deploy lack ec2:CreateVpc"
    assert mend.startswith("aws iam attach-role-policy --role-name deploy")
    ((said, mend),) = of(observations, doctor.QUOTAS)
    assert said == "All G and VT Spot (us-east-2) is 0; the stack needs up to 4 vCPUs"
    assert mend == (
        "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-3819A6DF "
        "--region us-east-2 --desired-value 4"
    )
    assert "do not offer g4dn.xlarge; use2-az3 do" in of(observations, doctor.OFFERS)[0][0]
    assert "authorized_networks.here' <your address>/32" in of(observations, "authorized networks")[0][1]


@pytest.mark.parametrize("harmed", [False, True])
def test_an_existing_bucket_is_looked_at_before_it_is_mounted(stubs: dict[str, Stubber], *, harmed: bool) -> None:
    named = {"Bucket": "team-data", "ExpectedBucketOwner": "111122223333"}
    stubs["s3"].add_response("head_bucket", {"BucketRegion": "eu-west-1" if harmed else "us-east-2"}, named)
    stubs["s3"].add_response("get_bucket_versioning", {} if harmed else {"Status": "Enabled"}, named)
    if harmed:
        stubs["s3"].add_response("get_bucket_policy_status", {"PolicyStatus": {"IsPublic": True}}, named)
    else:
        stubs["s3"].add_client_error("get_bucket_policy_status", "NoSuchBucketPolicy", "none", 404)
    answers(stubs, denied=False, limit=8, zones=["use2-az2", "use2-az3"])
    store = ExistingS3Store.model_validate({"kind": "existing-s3", "bucket": "team-data", "folder": "vision"})
    observations = examined(stack(T4), replace(request(), store=store))
    counts = [len(of(observations[state], doctor.BUCKET)) for state in (State.FINE, State.WRONG, State.UNKNOWN)]
    assert counts == ([0, 3, 0] if harmed else [1, 0, 0])


def test_what_there_is_for_a_pool_is_asked_by_quota_and_zone(stubs: dict[str, Stubber]) -> None:
    answers(stubs, denied=False, limit=8.0, zones=["use2-az1"])
    group = Resource(
        "urn:train",
        "aws:eks/nodeGroup:NodeGroup",
        "ml-train",
        {"clusterName": "ml", "instanceTypes": ["g4dn.xlarge"], "capacityType": "SPOT"},
    )
    before = stack()
    declared = reviewed(replace(before, resources={**before.resources, group.urn: group}), [REVIEW])
    (pool,) = declared.pools
    supply = doctor.supply(declared, replace(pool, zones=["use2-az1", "use2-az2"]))
    assert [(entry.quota.key[1], entry.quota.needed, entry.limit, entry.used) for entry in supply.standings] == [
        ("L-3819A6DF", 4, 8, None)
    ]
    assert supply.offering == ["use2-az1"]


def test_what_may_not_be_read_is_unknown(stubs: dict[str, Stubber]) -> None:
    stubs["sts"].add_response("get_caller_identity", CALLER)
    stubs["iam"].add_client_error("simulate_principal_policy", "AccessDenied", "not authorized", 403)
    stubs["service-quotas"].add_client_error("get_service_quota", "AccessDeniedException", "no", 403)
    stubs["ec2"].add_client_error("describe_instance_type_offerings", "UnauthorizedOperation", "no", 403)
    observations = examined(stack(T4), request())
    assert observations[State.WRONG] == []
    assert {observation.subject for observation in observations[State.UNKNOWN]} == {
        doctor.ACCOUNT,
        doctor.ACTIONS,
        doctor.QUOTAS,
        doctor.OFFERS,
    }


def test_nobody_signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    observations = examined(stack(T4))
    assert of(observations[State.WRONG], doctor.SIGN_IN)[0][1] == "aws configure sso"
    assert len(observations[State.UNKNOWN]) == 1
    assert [observation.subject for observation in observations[State.FINE]] == ["aws:region"]


def test_a_single_sign_on_that_has_ended_names_its_profile(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "[profile ml]\nsso_session = acme\nsso_account_id = 111122223333\nsso_role_name = deploy\n"
        "[sso-session acme]\nsso_region = us-east-2\nsso_start_url = https://acme.awsapps.com/start\n",
        encoding="utf-8",
    )
    observations = examined(stack(profile="ml"))
    assert of(observations[State.WRONG], doctor.SIGN_IN)[0][1] == "aws sso login --profile ml"


def test_a_profile_that_is_not_there(tmp_path: Path) -> None:
    ((said, mend),) = of(examined(stack(profile="nobody"))[State.WRONG], doctor.SIGN_IN)
    assert "nobody" in said
    assert mend == "aws configure list-profiles"


def test_an_address_where_nobody_answers_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    observations = examined(stack(T4))
    assert observations[State.WRONG] == []
    assert "AWS cannot be reached" in of(observations[State.UNKNOWN], doctor.SIGN_IN)[0][0]


def test_a_token_that_has_expired(stubs: dict[str, Stubber]) -> None:
    stubs["sts"].add_client_error("get_caller_identity", "ExpiredToken", "is expired", 403)
    assert of(examined(stack())[State.WRONG], doctor.SIGN_IN) == [("has expired", "aws configure sso")]


def test_a_session_has_the_policies_of_its_role() -> None:
    sso = "arn:aws:sts::111122223333:assumed-role/AWSReservedSSO_Admin_0123456789abcdef/me"
    assert doctor.principal(sso) == (
        "arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/AWSReservedSSO_Admin_0123456789abcdef"
    )
    assert doctor.principal("arn:aws:iam::111122223333:user/me") == "arn:aws:iam::111122223333:user/me"


def test_every_action_is_an_operation_of_aws() -> None:
    session, services = botocore.session.Session(), {"elasticfilesystem": "efs"}
    rules = tomllib.loads(doctor.DATA.read_text(encoding="utf-8"))["actions"]
    names = {action for actions in rules.values() for action in actions} - {"iam:PassRole"}
    for name in sorted(names):
        service, operation = name.split(":")
        assert operation in session.get_service_model(services.get(service, service)).operation_names, name
