"""What the AWS Load Balancer Controller may do in the account, decided as IAM decides it."""

from collections.abc import Mapping
from typing import Any

import pytest

from slipway.infra.clouds.aws.charts import CLUSTER_TAG
from tests.infra import test_ingress as ingress
from tests.support.clouds import aws
from tests.support.clouds.iam import allows

pytestmark = pytest.mark.slow

REQUEST, RESOURCE = f"aws:RequestTag/{CLUSTER_TAG}", f"aws:ResourceTag/{CLUSTER_TAG}"
ELB = "arn:aws:elasticloadbalancing:us-east-1:000000000000"
BALANCER = f"{ELB}:loadbalancer/app/shop/50dc6c495c0c9188"
LISTENER = f"{ELB}:listener/app/shop/50dc6c495c0c9188/f2f7dc8efc522ab2"
RULE = f"{ELB}:listener-rule/app/shop/50dc6c495c0c9188/f2f7dc8efc522ab2/9683b2d02a6cabee"
TARGETS = f"{ELB}:targetgroup/shop/73e2d6bc24d8a067"
GROUPS = "arn:aws:ec2:us-east-1:000000000000:security-group"

SOME_GROUP = f"{GROUPS}/sg-0123"

CHANGED = {
    LISTENER: ["AddListenerCertificates", "DeleteListener", "ModifyListener", "ModifyListenerAttributes"],
    RULE: ["DeleteRule", "ModifyRule", "SetRulePriorities", "AddTags", "RemoveTags"],
    TARGETS: ["DeregisterTargets", "ModifyTargetGroup", "ModifyTargetGroupAttributes", "RegisterTargets"],
    BALANCER: ["DeleteLoadBalancer", "ModifyLoadBalancerAttributes", "SetSecurityGroups", "SetSubnets"],
    SOME_GROUP: [
        "AuthorizeSecurityGroupIngress",
        "RevokeSecurityGroupIngress",
        "DeleteSecurityGroup",
        "CreateTags",
    ],
}
"""What the controller changes, by the ARN of what it changes."""

CREATED = {
    f"{ELB}:loadbalancer/app/new/1": "CreateLoadBalancer",
    f"{ELB}:targetgroup/new/1": "CreateTargetGroup",
    f"{GROUPS}/*": "CreateSecurityGroup",
}
BELOW = {BALANCER: "CreateListener", LISTENER: "CreateRule"}


def action(name: str, resource: str) -> str:
    return f"{resource.split(':')[2]}:{name}"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Mapping[str, Any]]:
    """Its policy, its cluster's name, and the cluster's outputs."""
    folder = tmp_path_factory.mktemp("pipelines")
    ingress.write_pipeline(folder)
    recording = ingress.run(folder, aws.BASE, ingress.BY_COGNITO)
    policy = recording.one(aws.ROLE_POLICY, "dev-load-balancers").inputs["policy"]
    cluster = recording.one(aws.CLUSTER)
    return policy, cluster.inputs["name"], cluster.outputs


@pytest.mark.parametrize(("resource", "name"), [(arn, name) for arn, names in CHANGED.items() for name in names])
def test_it_changes_what_has_the_clusters_tag_and_nothing_else(
    controller: tuple[str, str, Mapping[str, Any]], resource: str, name: str
) -> None:
    policy, cluster, _ = controller
    assert allows(policy, action(name, resource), resource, {RESOURCE: cluster})
    assert not allows(policy, action(name, resource), resource, {RESOURCE: "another"})
    assert not allows(policy, action(name, resource), resource, {})


@pytest.mark.parametrize(("resource", "name"), CREATED.items())
def test_what_it_makes_gets_the_clusters_tag(
    controller: tuple[str, str, Mapping[str, Any]], resource: str, name: str
) -> None:
    policy, cluster, _ = controller
    assert allows(policy, action(name, resource), resource, {REQUEST: cluster})
    assert not allows(policy, action(name, resource), resource, {REQUEST: "another"})
    assert not allows(policy, action(name, resource), resource, {})
    tags, service = "CreateTags" if "ec2" in resource else "AddTags", resource.split(":")[2]
    creation = {f"{service}:CreateAction": name}
    assert allows(policy, action(tags, resource), resource, {REQUEST: cluster, **creation})
    assert not allows(policy, action(tags, resource), resource, {REQUEST: "another", **creation})


@pytest.mark.parametrize(("resource", "name"), BELOW.items())
def test_it_makes_listeners_and_rules_of_its_load_balancers_only(
    controller: tuple[str, str, Mapping[str, Any]], resource: str, name: str
) -> None:
    policy, cluster, _ = controller
    assert allows(policy, action(name, resource), resource, {REQUEST: cluster, RESOURCE: cluster})
    assert not allows(policy, action(name, resource), resource, {REQUEST: cluster, RESOURCE: "another"})
    assert not allows(policy, action(name, resource), resource, {REQUEST: cluster})


def test_it_takes_no_load_balancer_over_by_a_tag(controller: tuple[str, str, Mapping[str, Any]]) -> None:
    policy, cluster, _ = controller
    for context in ({REQUEST: cluster}, {REQUEST: cluster, RESOURCE: "another"}):
        assert not allows(policy, "elasticloadbalancing:AddTags", BALANCER, context)
        assert not allows(policy, "ec2:CreateTags", SOME_GROUP, context)


def test_it_opens_the_nodes_security_group(controller: tuple[str, str, Mapping[str, Any]]) -> None:
    policy, _, outputs = controller
    nodes = f"{GROUPS}/{outputs['vpcConfig']['clusterSecurityGroupId']}"
    assert allows(policy, "ec2:AuthorizeSecurityGroupIngress", nodes, {})
    assert not allows(policy, "ec2:DeleteSecurityGroup", nodes, {})


def test_it_has_no_rights_for_what_its_chart_turns_off(controller: tuple[str, str, Mapping[str, Any]]) -> None:
    policy, cluster, _ = controller
    for name in ("wafv2:AssociateWebACL", "shield:DeleteProtection", "elasticloadbalancing:SetWebAcl"):
        assert not allows(policy, name, BALANCER, {RESOURCE: cluster})
    assert allows(policy, "elasticloadbalancing:DescribeLoadBalancers", "*", {})
    assert len("".join(policy.split())) < 10_240, "the limit of a role's inline policies"
