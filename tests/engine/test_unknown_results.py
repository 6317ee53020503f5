"""Programs that read what only a cloud knows, each with one cause for which public programs failed."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pytest
from pulumi.output import Unknown

from slipway.engine.evaluate import evaluate
from slipway.engine.leaving_unknown import OtherTypeError
from slipway.engine.monitor import Evaluation
from slipway.engine.provider_outputs import is_marked, unmark
from slipway.engine.unknown_results import ENTRIES
from slipway.infra.review.stack import Partial


def evaluation(program: Callable[[], object], preview: bool = True) -> Evaluation:
    return evaluate(program, project="p", stack="s", config={}, preview=preview)


def inputs_of(result: Evaluation, name: str) -> Any:
    return next(resource.inputs for resource in result.resources.values() if resource.name == name)


@pytest.mark.parametrize("preview", [True, False])
def test_a_function_that_no_emulator_knows_has_an_unknown_result_in_both_forms(preview: bool) -> None:
    def program() -> None:
        image = aws.ec2.get_ami(most_recent=True)
        aws.ec2.Instance("plain", ami=image.id, instance_type="t3.micro")
        aws.ec2.Instance("output", ami=aws.ec2.get_ami_output(most_recent=True).id, instance_type="t3.micro")

    result = evaluation(program, preview)
    assert inputs_of(result, "plain")["ami"].name == "aws:ec2/getAmi.id"
    assert inputs_of(result, "plain")["instanceType"] == "t3.micro"
    unknown = inputs_of(result, "output").get("ami")
    assert isinstance(unknown, Unknown) if preview else unknown is None
    assert result.unanswered == {"aws:ec2/getAmi": True}


def test_fields_of_an_unknown_result_have_their_types_and_stay_marked_in_what_is_made_of_them() -> None:
    seen: dict[str, Any] = {}

    def program() -> None:
        zones = aws.get_availability_zones(state="available")
        image = aws.ec2.get_ami(most_recent=True)
        seen.update(
            zones=[zone.upper() for zone in zones.names],
            beyond=zones.names[ENTRIES + 4],
            text=f"in {zones.names[0]}",
            json=json.dumps({"image": image.id, "device": image.block_device_mappings[0]}),
            account=image.arn.split(":")[4],
            prefix=image.arn[:12],
            nested=image.block_device_mappings[1].ebs["volume_size"],
            tag=image.tags["Name"],
            missing=image.tags.get("team"),
            number=int(aws.get_caller_identity().account_id) + 1,
        )
        assert isinstance(image, aws.ec2.GetAmiResult)
        assert image.public is False
        assert len(zones.names) == ENTRIES

    evaluation(program)
    assert {name for name, value in seen.items() if not is_marked(value)} == set()
    assert unmark(seen["text"]) == Partial("in [aws:index/getAvailabilityZones.names[0]]")


def test_a_function_without_a_declared_type_can_be_read_by_key_and_index() -> None:
    def program() -> None:
        network = pulumi.runtime.invoke("cloud:index:getNetwork", {"name": "main"}).value
        pulumi.export("subnets", [zone["subnets"][0].get("id") for zone in network["zones"]])

    assert evaluation(program).outputs["subnets"].known is False


def test_a_method_of_a_resource_and_the_outputs_of_other_stacks_are_unknown() -> None:
    def program() -> None:
        pulumi.export("method", pulumi.runtime.call("cloud:index:Cluster/getKubeconfig", {}))
        reference = pulumi.StackReference("acme/network/prod")
        pulumi.export("network", reference.require_output("id"))

    result = evaluation(program)
    assert {name: output.known for name, output in result.outputs.items()} == {"method": False, "network": False}
    assert {*result.unanswered} == {
        "cloud:index:Cluster/getKubeconfig",
        "the outputs of the stack acme/network/prod",
    }


def test_a_resource_as_an_input_is_its_id_or_its_urn() -> None:
    class Group(pulumi.ComponentResource):
        def __init__(self) -> None:
            super().__init__("acme:index:Group", "group")

    def program() -> None:
        role = aws.iam.Role("role", assume_role_policy="{}")
        pulumi.CustomResource("cloud:index:Member", "member", {"role": role, "group": Group()})

    result = evaluation(program)
    assert inputs_of(result, "member")["role"].name == "role.id"
    assert inputs_of(result, "member")["group"].endswith("acme:index:Group::group")


def test_a_component_of_another_language_is_one_resource_with_unknown_outputs() -> None:
    class Network(pulumi.ComponentResource):
        subnets: pulumi.Output[list[str]]

        def __init__(self) -> None:
            super().__init__("awsx:ec2:Vpc", "vpc", {"subnets": {"strategy": "Auto"}}, None, remote=True)

    result = evaluation(lambda: pulumi.export("subnets", Network().subnets))
    assert result.outputs["subnets"].known is False
    assert inputs_of(result, "vpc") == {"subnets": {"strategy": "Auto"}}


def test_a_callback_that_takes_a_mark_apart_leaves_its_result_unknown() -> None:
    def program() -> None:
        namespace = k8s.core.v1.Namespace("ns")
        pulumi.export("parsed", namespace.metadata.uid.apply(lambda uid: base64.b64decode(uid, validate=True)))
        pulumi.export("text", namespace.metadata.uid.apply(lambda uid: f"id {uid}"))

    result = evaluation(program)
    assert unmark(result.outputs["text"].value) == Partial("id [ns.metadata.uid]")
    assert result.outputs["parsed"].known is False
    assert len(result.left_unknown) == 1
    with pytest.raises(json.JSONDecodeError):
        evaluation(lambda: pulumi.export("x", pulumi.Output.from_input("no value here").apply(json.loads)))


def test_objects_of_a_yaml_text_are_resources(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {since: 2026-11-26}\n---\n"
        "apiVersion: acme.io/v1\nkind: Thing\nmetadata: {name: thing, namespace: team}\n",
        encoding="utf-8",
    )
    result = evaluation(lambda: k8s.yaml.ConfigFile("app", file=str(file)))
    assert inputs_of(result, "settings")["data"] == {"since": "2026-11-26"}
    assert {resource.type for resource in result.resources.values() if resource.custom} == {
        "kubernetes:core/v1:ConfigMap",
        "kubernetes:acme.io/v1:Thing",
    }


@pytest.mark.parametrize("preview", [True, False])
def test_callbacks_are_not_called_with_what_a_resource_that_nothing_stands_in_for_would_have(
    preview: bool,
) -> None:
    def program() -> None:
        database = aws.rds.Instance("database", instance_class="db.t3.micro")
        pulumi.export("address", database.endpoint.apply(lambda endpoint: endpoint.split(":")[0]))
        pulumi.export("class", database.instance_class.apply(lambda name: name.upper()))

    outputs = evaluation(program, preview).outputs
    assert outputs["address"].known is False
    assert outputs["class"].value == "DB.T3.MICRO"


def test_an_output_of_another_type_than_the_input_is_unknown() -> None:
    class Cluster(pulumi.CustomResource):
        @property
        @pulumi.getter
        def identities(self) -> pulumi.Output[dict[str, str]]: ...

        def __init__(self) -> None:
            super().__init__("cloud:index:Cluster", "cluster", {"identities": ["one"]})

    result = evaluation(lambda: pulumi.export("identities", Cluster().identities))
    assert result.outputs["identities"].known is False
    assert [type(error) for error in result.left_unknown] == [OtherTypeError]


def test_a_request_that_fails_in_the_sdk_ends_a_preview() -> None:
    def program() -> None:
        pulumi.CustomResource("cloud:index:Thing", "thing", {"what": object()})

    with pytest.raises(Exception, match="object"):
        evaluation(program)
