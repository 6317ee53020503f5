"""A stack is what the whole program of its project declares, by the project's name: `slipway.run` and what stands
beside it."""

import textwrap
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.engine.evaluation.__main__ import evaluate_stack
from slipway.engine.evaluation.decoding import decode
from slipway.engine.evaluation.encoding import Secrets
from slipway.engine.evaluation.worker import evaluate_or_fail
from slipway.infra import program
from slipway.infra.review.stack import Resource, Stack
from slipway.infra.schema.problems import SettingsError
from slipway.infra.schema.yaml_files import ConfigError
from slipway.policies.check import check
from tests.support.checkout import ROOT
from tests.support.project import PROJECT_FILE, STACK
from tests.support.tree import write_tree

TODAY = date(2026, 11, 24)
RUN = "from slipway import run\n\ndeclared = run()\n"
CLUSTERS = STACK.partition("  slipway:pipelines")[0]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(program, "PROJECT", tmp_path)
    files = {"Pulumi.yaml": PROJECT_FILE.replace("slipway", "acme", 1), "stacks/Pulumi.here.yaml": CLUSTERS}
    return write_tree(tmp_path, files)


def evaluated(project: Path, main: str) -> dict[str, Any]:
    write_tree(project, {"__main__.py": textwrap.dedent(main)})
    return evaluate_stack("here", project, Secrets(b"k"), lambda _: None)


def failure(project: Path, main: str) -> dict[str, str]:
    write_tree(project, {"__main__.py": textwrap.dedent(main)})
    return evaluate_or_fail("here", project, Secrets(b"k"), evaluate_stack)["failure"]


def test_names_are_those_of_the_project(project: Path) -> None:
    declared = evaluated(project, RUN)["resources"]
    assert {resource["urn"].split("::")[1] for resource in declared} == {"acme"}
    (namespace,) = [resource for resource in declared if resource["type"] == "kubernetes:core/v1:Namespace"]
    assert "acme" in namespace["properties"]["metadata"]["labels"]["app.kubernetes.io/instance"]


def test_what_the_program_requires_of_its_configuration_is_told_at_once(project: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        evaluated(
            project, f"import pulumi\n{RUN}config = pulumi.Config()\nconfig.require('a')\nconfig.require('b')\n"
        )
    assert [problem.key for problem in caught.value.problems] == ["acme:a", "acme:b"]


def test_a_program_that_never_calls_run_is_refused(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"slipway\.run"):
        evaluated(project, "import slipway\n")


def test_a_project_without_a_program_is_refused_and_runs_no_other(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"__main__\.py"):
        evaluate_stack("here", project, Secrets(b"k"), lambda _: None)


@pytest.mark.parametrize(
    ("main", "message", "line"),
    [
        (f"{RUN}\nrun()\n", "second time", "__main__.py:5"),
        ("import not_there\n", "not_there", "__main__.py:1"),
        (f"{RUN}raise LookupError('no such subnet')\n", "no such subnet", "__main__.py:4"),
    ],
)
def test_an_error_of_the_program_says_where_it_is(project: Path, main: str, message: str, line: str) -> None:
    failed = failure(project, main)
    assert message in failed["message"]
    assert failed["where"] == line


BESIDE = """
    import pulumi
    import pulumi_aws as aws
    import pulumi_kubernetes as k8s
    import pulumi_random as random

    from slipway import run

    before = random.RandomPassword("before", length=20)
    image = aws.ec2.get_ami(owners=["amazon"], most_recent=True)

    declared = run()
    here = declared.clusters["here"]
    on_cluster = pulumi.ResourceOptions(provider=here.provider)
    settings = k8s.core.v1.ConfigMap(
        "settings",
        metadata={"name": "settings", "namespace": here.namespace},
        data={"image": image.id, "store": declared.store.url},
        opts=on_cluster,
    )

    class Reader(pulumi.ComponentResource):
        def __init__(self, name, opts):
            super().__init__("acme:index:Reader", name, {}, opts)
            labels = {"app": name}
            k8s.apps.v1.Deployment(
                name,
                metadata=k8s.meta.v1.ObjectMetaArgs(name=name, namespace=here.namespace, labels=labels),
                spec={
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {
                            "serviceAccountName": here.service_account,
                            "volumes": [here.volume],
                            "containers": [
                                {
                                    "name": name,
                                    "image": "nginx",
                                    "securityContext": {"privileged": True},
                                    "volumeMounts": [{"name": here.volume.name, "mountPath": "/store"}],
                                }
                            ],
                        },
                    },
                },
                opts=pulumi.ResourceOptions(parent=self),
            )

    Reader("reader", pulumi.ResourceOptions(providers=[here.provider], depends_on=[*declared.jobs.values()]))
    logs = aws.s3.Bucket("logs")
    aws.s3.BucketPublicAccessBlock("logs", bucket=logs.id, block_public_acls=False)
    elsewhere = k8s.Provider("elsewhere")
    k8s.core.v1.Namespace("mine", metadata={"name": "mine"}, opts=pulumi.ResourceOptions(provider=elsewhere))
    pulumi.export("password", before.result)
"""


def test_resources_beside_it_are_the_stack_s_and_keep_the_policies(project: Path) -> None:
    document = evaluated(project, BESIDE)
    declared = {resource["name"]: resource for resource in document["resources"] if resource["custom"]}
    assert "unknown" in str(declared["settings"]["properties"]["data"]["image"])
    namespace = declared["here-namespace"]["urn"]
    for name in ("settings", "reader"):
        # What is in the namespace waits for it, and belongs to the stack.
        metadata = declared[name]["properties"]["metadata"]
        assert namespace in declared[name]["dependencies"]
        assert metadata["namespace"] == "slipway"
        assert metadata["labels"]["app.kubernetes.io/instance"].endswith("acme.here")
    # What another cluster has is the project's own business.
    assert "labels" not in declared["mine"]["properties"]["metadata"]
    (volume,) = declared["reader"]["properties"]["spec"]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"].startswith("store-")

    stack = decode("here", document | {"remarks": []}).stack
    assert stack is not None
    found = {(finding.policy, finding.name) for finding in check(stack, {}, TODAY)[0]}
    assert ("pod-refused", "reader (Deployment)") in found


def test_an_object_in_no_cluster_is_refused(project: Path) -> None:
    main = f"import pulumi_kubernetes as k8s\n{RUN}k8s.core.v1.ConfigMap('lost', data={{}})\n"
    failed = failure(project, main)
    assert "lost" in failed["message"]
    assert "provider" in failed["message"]


AWS = """
    import json

    import pulumi
    import pulumi_aws as aws

    from slipway import run

    image = aws.ec2.get_ami(owners=["amazon"], most_recent=True)
    declared = run()
    (cluster,) = declared.clusters.values()
    models = aws.s3.Bucket("models")
    aws.s3.BucketPolicy(
        "models",
        bucket=models.id,
        policy=pulumi.Output.json_dumps({
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Principal": {"AWS": cluster.identity}, "Action": ["s3:GetObject"],
                 "Resource": [pulumi.Output.concat(models.arn, "/*")]},
            ],
        }),
    )
    public = aws.s3.Bucket("public")
    aws.s3.BucketPolicy(
        "public",
        bucket=public.id,
        policy=pulumi.Output.json_dumps({
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject"],
                 "Resource": [pulumi.Output.concat(public.arn, "/*")]},
            ],
        }),
    )
    aws.ec2.Instance("bastion", ami=image.id, instance_type="t3.micro")
    assert cluster.network is not None
    aws.ec2.SecurityGroup("database", vpc_id=cluster.network.id)
    aws.rds.SubnetGroup("database", subnet_ids=cluster.network.subnets)
    assert declared.store.bucket is not None
"""

GCP = """
    import pulumi_gcp as gcp

    from slipway import run

    declared = run()
    cluster = next(iter(declared.clusters.values()))
    topic = gcp.pubsub.Topic("trained")
    gcp.pubsub.TopicIAMMember(
        "trained", topic=topic.name, role="roles/pubsub.publisher", member=cluster.identity
    )
    public = gcp.storage.Bucket("public", location="EU")
    gcp.storage.BucketIAMMember("public", bucket=public.name, role="roles/storage.objectViewer", member="allUsers")
    assert cluster.network is not None
    gcp.compute.Firewall("database", network=cluster.network.id, allows=[{"protocol": "tcp", "ports": ["5432"]}])
    gcp.compute.Address("database", subnetwork=cluster.network.subnets[0], address_type="INTERNAL")
    assert declared.store.bucket is not None
"""


def shipped(project: Path, stack: str, main: str) -> Stack:
    config = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text())
    config["config"].pop("slipway:pipelines", None)
    write_tree(project, {"stacks/Pulumi.here.yaml": yaml.safe_dump(config)})
    evaluation = decode("here", evaluated(project, main) | {"remarks": []}).stack
    assert evaluation is not None
    return evaluation


def of_name(stack: Stack, type_: str, name: str) -> Resource:
    (resource,) = [
        resource for resource in stack.resources.values() if (resource.type, resource.name) == (type_, name)
    ]
    return resource


def test_aws_resources_know_the_role_of_the_pods_and_are_held_to_its_policies(project: Path) -> None:
    stack = shipped(project, "aws-dev", AWS)
    policy = of_name(stack, "aws:s3/bucketPolicy:BucketPolicy", "models").properties["policy"]
    assert "[run.arn]" in policy
    group = of_name(stack, "aws:ec2/securityGroup:SecurityGroup", "database")
    assert stack.source(group, "vpcId", "aws:ec2/vpc:Vpc") is not None
    subnets = of_name(stack, "aws:rds/subnetGroup:SubnetGroup", "database")
    assert stack.source(subnets, "subnetIds", "aws:ec2/subnet:Subnet") is not None
    assert group.place.startswith("__main__.py:")
    assert ("aws-public-bucket", "public (BucketPolicy)") in {
        (finding.policy, finding.name) for finding in check(stack, {}, TODAY)[0]
    }


def test_google_resources_know_the_member_of_the_pods_and_are_held_to_its_policies(project: Path) -> None:
    stack = shipped(project, "gcp-dev", GCP)
    member = of_name(stack, "gcp:pubsub/topicIAMMember:TopicIAMMember", "trained").properties["member"]
    assert member.endswith("/subject/ns/slipway/sa/runner")
    firewall = of_name(stack, "gcp:compute/firewall:Firewall", "database")
    assert stack.source(firewall, "network", "gcp:compute/network:Network") is not None
    address = of_name(stack, "gcp:compute/address:Address", "database")
    assert stack.source(address, "subnetwork", "gcp:compute/subnetwork:Subnetwork") is not None
    assert {resource.name for resource in stack.resources.values() if resource.place} == {
        "database",
        "public",
        "trained",
    }
    assert ("gcp-public-bucket", "public (BucketIAMMember)") in {
        (finding.policy, finding.name) for finding in check(stack, {}, TODAY)[0]
    }
