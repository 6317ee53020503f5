"""What programs ask of providers and no cloud has to answer."""

import json
from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_gcp as gcp
import pytest

from slipway.engine.evaluate import evaluate
from slipway.engine.monitor import Evaluation

CONFIG = {"aws:region": "cn-north-1", "gcp:project": "acme", "gcp:region": "europe-west4"}


def evaluation(program: Callable[[], object]) -> Evaluation:
    return evaluate(program, project="p", stack="s", config=CONFIG, preview=True)


def test_region_partition_and_project_are_those_of_the_provider_that_is_asked() -> None:
    seen: dict[str, Any] = {}

    def program() -> None:
        other = pulumi.InvokeOptions(provider=aws.Provider("other", region="us-gov-west-1"))
        seen.update(
            region=aws.get_region().region,
            partition=(aws.get_partition().partition, aws.get_partition().dns_suffix),
            other=(aws.get_region(opts=other).region, aws.get_partition(opts=other).partition),
            project=(gcp.organizations.get_client_config().project, gcp.organizations.get_client_config().region),
            zone=gcp.organizations.get_client_config().zone,
        )
        pulumi.export("region", aws.get_region_output().region)

    found = evaluation(program)
    assert seen["region"] == found.outputs["region"].value == "cn-north-1"
    assert seen["partition"] == ("aws-cn", "amazonaws.com.cn")
    assert seen["other"] == ("us-gov-west-1", "aws-us-gov")
    assert seen["project"] == ("acme", "europe-west4")
    assert "getClientConfig.zone" in seen["zone"], "no setting has it"
    assert found.unanswered == {}


def test_a_policy_document_has_the_statements_and_names_what_only_an_update_knows() -> None:
    def program() -> None:
        bucket = aws.s3.Bucket("data")
        reads = {"sid": "Read", "actions": ["s3:GetObject"], "resources": [pulumi.Output.concat(bucket.id, "/*")]}
        assumes = {"actions": ["sts:AssumeRole"], "principals": [{"type": "*", "identifiers": ["*"]}]}
        denies = {"sid": "Read", "effect": "Deny", "actions": ["s3:*"], "resources": ["*"]}
        document = aws.iam.get_policy_document_output(statements=[reads, assumes])
        pulumi.export("known", aws.iam.get_policy_document(statements=[assumes]).json)
        pulumi.export("part", document.json)
        over = json.dumps({"Statement": [{"Sid": "Read", "Effect": "Deny"}]})
        pulumi.export(
            "over",
            aws.iam.get_policy_document(statements=[denies], override_policy_documents=[over]).minified_json,
        )

    outputs = evaluation(program).outputs
    known = json.loads(outputs["known"].value)
    assert known == {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": "*"}],
    }
    [reads, _] = json.loads(outputs["part"].value)["Statement"]
    assert (reads["Action"], "data.id" in reads["Resource"]) == ("s3:GetObject", True)
    assert json.loads(outputs["over"].value)["Statement"] == [{"Sid": "Read", "Effect": "Deny"}]


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("join", {"separator": "-", "input": ["a", "b"]}, "a-b"),
        ("cidrsubnet", {"input": "10.0.0.0/8", "newbits": 8, "netnum": 2}, "10.2.0.0/16"),
        ("cidrhost", {"input": "10.0.0.0/8", "host": -2}, "10.255.255.254"),
        ("jsonencode", {"input": {"b": "<", "a": [1]}}, '{"a":[1],"b":"\\u003c"}'),
        ("replace", {"text": "a.b.c", "search": ".", "replace": "-"}, "a-b-c"),
        ("lookup", {"map": {"a": 1}, "key": "b", "default": 2}, 2),
        ("element", {"input": ["a", "b", "c"], "index": 4}, "b"),
        ("merge", {"input": [{"a": 1}, {"a": 2, "b": 3}]}, {"a": 2, "b": 3}),
        ("base64encode", {"input": "hello"}, "aGVsbG8="),
        ("replace", {"text": "a", "search": "/[a-z]/", "replace": "-"}, None),
        ("uuid", {}, None),
    ],
)
def test_functions_of_std_are_computed(name: str, arguments: dict[str, Any], result: object) -> None:
    seen: list[Any] = []

    def program() -> None:
        answer = pulumi.runtime.invoke_output(f"std:index:{name}", arguments)
        pulumi.Output.from_input(answer).apply(lambda found: seen.append(found["result"]))

    found = evaluation(program)
    assert (seen, found.unanswered) == (([], {f"std:index:{name}": False}) if result is None else ([result], {}))
