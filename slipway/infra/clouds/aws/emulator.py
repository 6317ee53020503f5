"""Stands in for AWS where the program is evaluated without it: outputs, function results and nodes.

Everything it makes up is well-formed and clearly fake. Nodes are worked out from what a node group and its launch
template were declared with, not from the settings they came from, so that a mistake in between is found
when pods are placed on them.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from slipway.infra import emulator
from slipway.infra.clouds.aws import nodes
from slipway.infra.clouds.aws.catalogue import is_zone_id
from slipway.infra.clouds.aws.cluster import SYSTEM
from slipway.infra.clouds.aws.nodes import LAUNCH_TEMPLATE, NODE_GROUP
from slipway.infra.clouds.aws.settings import AwsCluster
from slipway.infra.emulator import EMULATED_CA_CERTIFICATE, EMULATED_DIGEST, StoreFiles
from slipway.infra.platform import Node
from slipway.infra.review.stack import Unknown, items, mapping, mappings, text
from slipway.infra.schema.request import Request

ACCOUNT = "000000000000"

IMAGE = "aws:ecr/getImage:getImage"

Inputs = Mapping[str, Any]
Outputs = Callable[[str, Inputs], Mapping[str, Any]]


class Emulator(emulator.Emulator):
    """Stands in for AWS, for the resources that this package declares."""

    computed_calls: ClassVar[frozenset[str]] = frozenset({IMAGE})

    def __init__(self, request: Request) -> None:
        ours = request.clusters_of(AwsCluster)
        # A stack has one cluster on AWS, or none where it uses those of another stack.
        regions = {cluster.region for cluster in ours.values()}
        self.configuration = {"aws:region": regions.pop()} if regions else {}
        self._pools = {f"{name}-{pool}": (name, pool) for name in ours for pool in ours[name].pools}
        self._sharing = {
            f"{name}-{pool}": declared.gpu_sharing
            for name, cluster in ours.items()
            for pool, declared in cluster.pools.items()
        }
        self._namespaces = [(name, request.namespace) for name in ours if not ours[name].owns_namespace]
        self._templates: dict[str, Inputs] = {}

    def outputs(self, token: str, name: str, inputs: Inputs) -> Mapping[str, Any] | None:
        """The computed outputs of a resource; None for a type that this package does not declare."""
        if (known := _OUTPUTS.get(token)) is not None:
            made = known(name, inputs)
        elif (row := ROWS.get(token)) is not None:
            words = emulator.Words(inputs, region="")
            words |= {"account": ACCOUNT, "logical": name}
            words["made"] = _id(row.get("prefix", ""), row.get("seed", "{logical}").format_map(words))
            made = emulator.filled({"id": "{made}", **row}, words, but=("prefix", "seed"))
        else:
            return None
        if token == LAUNCH_TEMPLATE:
            self._templates[made["id"]] = inputs
        return made

    def call(self, token: str, args: Inputs, store: StoreFiles) -> Mapping[str, Any] | None:  # noqa: ARG002
        """The result of a provider function: whose credentials these are, or which image has a tag."""
        if token == "aws:index/getCallerIdentity:getCallerIdentity":
            return {
                "id": ACCOUNT,
                "accountId": ACCOUNT,
                "arn": f"arn:aws:iam::{ACCOUNT}:user/emulated",
                "userId": "AIDAEMULATED00000000",
            }
        if token == IMAGE:
            return {"id": EMULATED_DIGEST, **args, "imageDigest": EMULATED_DIGEST, "registryId": ACCOUNT}
        return None

    def nodes(self, token: str, name: str, inputs: Inputs) -> Sequence[Node]:
        """The nodes of a node group at its largest. Its launch template has to have been asked for before."""
        if token != NODE_GROUP:
            return []
        cluster, pool = self._pools[name]
        template = self._templates[inputs["launchTemplate"]["id"]]
        sharing = self._sharing[name]
        return [
            Node(
                cluster=cluster,
                pool=pool,
                labels=nodes.labels_of(inputs, template),
                taints=nodes.taints(inputs),
                allocatable=nodes.node_resources(inputs, template, sharing.clients if sharing else 1),
                count=nodes.most_nodes(inputs),
                accelerator=nodes.accelerator_of(inputs, template),
            )
        ]

    def standing_namespaces(self) -> Sequence[tuple[str, str]]:
        """Where the cluster's own services are, and the namespace where the stack does not create it."""
        ours = sorted({cluster for cluster, _ in self._pools.values()})
        return [*((cluster, SYSTEM) for cluster in ours), *self._namespaces]


def _id(prefix: str, name: str) -> str:
    """An id in AWS's form, the same in every evaluation."""
    return f"{prefix}-{hashlib.sha256(f'{prefix}/{name}'.encode()).hexdigest()[:17]}"


def _arn(service: str, inputs: Inputs, resource: str) -> str:
    """IAM's ARNs have no region, and a bucket's no account either."""
    region = str(inputs.get("region") or "")
    account = "" if service == "s3" else ACCOUNT
    return f"arn:aws:{service}:{'' if service == 's3' else region}:{account}:{resource}"


def _ec2(prefix: str, kind: str, name: str, inputs: Inputs) -> Mapping[str, Any]:
    id_ = _id(prefix, name)
    return {"id": id_, "arn": _arn("ec2", inputs, f"{kind}/{id_}"), "ownerId": ACCOUNT}


def _vpc(name: str, inputs: Inputs) -> Mapping[str, Any]:
    return {
        **_ec2("vpc", "vpc", name, inputs),
        "defaultSecurityGroupId": _id("sg", f"{name}-default"),
        "mainRouteTableId": _id("rtb", f"{name}-main"),
    }


def _subnet(name: str, inputs: Inputs) -> Mapping[str, Any]:
    zone = inputs.get("availabilityZone") or inputs["availabilityZoneId"]
    known = {"availabilityZoneId": zone} if is_zone_id(zone) else {"availabilityZone": zone}
    return {**_ec2("subnet", "subnet", name, inputs), **known}


def _cluster(_: str, inputs: Inputs) -> Mapping[str, Any]:
    name, region = inputs["name"], inputs["region"]
    digest = hashlib.sha256(name.encode()).hexdigest()[:32].upper()
    return {
        "id": name,
        "arn": _arn("eks", inputs, f"cluster/{name}"),
        "endpoint": f"https://{digest}.emulated.{region}.eks.amazonaws.com.invalid",
        "certificateAuthority": {"data": EMULATED_CA_CERTIFICATE},
        "certificateAuthorities": [{"data": EMULATED_CA_CERTIFICATE}],
        "vpcConfig": {
            **inputs["vpcConfig"],
            "clusterSecurityGroupId": _id("sg", f"eks-{name}"),
            "vpcId": _id("vpc", name),
        },
        "platformVersion": "eks.0-emulated",
        "status": "ACTIVE",
    }


def _node_group(name: str, inputs: Inputs) -> Mapping[str, Any]:
    cluster, group = inputs["clusterName"], inputs["nodeGroupName"]
    return {
        "id": f"{cluster}:{group}",
        "arn": _arn("eks", inputs, f"nodegroup/{cluster}/{group}/emulated"),
        "resources": [{"autoscalingGroups": [{"name": f"eks-{group}-{_id('emulated', name)}"}]}],
        "releaseVersion": "1.0.0-emulated",
        "status": "ACTIVE",
    }


def _access(_: str, inputs: Inputs) -> Mapping[str, Any]:
    made = f"{inputs['clusterName']}:{inputs['principalArn']}"
    return {"id": f"{made}:{inputs['policyArn']}" if inputs.get("policyArn") else made}


def _key(name: str, inputs: Inputs) -> Mapping[str, Any]:
    digest = hashlib.sha256(name.encode()).hexdigest()
    made = f"00000000-0000-0000-0000-{digest[:12]}"
    return {"id": made, "keyId": made, "arn": _arn("kms", inputs, f"key/{made}")}


def _mount_target(name: str, inputs: Inputs) -> Mapping[str, Any]:
    network = {"networkInterfaceId": _id("eni", name), "vpcId": _id("vpc", inputs["subnetId"])}
    return {"id": _id("fsmt", name), "ownerId": ACCOUNT, **network}


_OUTPUTS: Mapping[str, Outputs] = {
    "aws:ec2/vpc:Vpc": _vpc,
    "aws:ec2/subnet:Subnet": _subnet,
    "aws:eks/cluster:Cluster": _cluster,
    NODE_GROUP: _node_group,
    "aws:eks/accessEntry:AccessEntry": _access,
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": _access,
    "aws:kms/key:Key": _key,
    "aws:s3/filesMountTarget:FilesMountTarget": _mount_target,
    "aws:efs/mountTarget:MountTarget": _mount_target,
}

ROWS = emulator.rows(Path(__file__).parent / "data" / "emulated.toml")
"""The outputs of all other types, which their names and inputs alone decide."""


PARTITIONS = {
    "cn-": ("aws-cn", "amazonaws.com.cn"),
    "us-gov-": ("aws-us-gov", "amazonaws.com"),
    "us-isob-": ("aws-iso-b", "sc2s.sgov.gov"),
    "us-iso-": ("aws-iso", "c2s.ic.gov"),
    "eusc-": ("aws-eusc", "amazonaws.eu"),
}
"""Partition and DNS suffix by the beginning of a region's name; every other region is of `aws`.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html, read November 2026."""


def _partition_of(region: str) -> tuple[str, str]:
    return next(
        (names for prefix, names in PARTITIONS.items() if region.startswith(prefix)), ("aws", "amazonaws.com")
    )


def _region(args: Inputs, provider: Inputs) -> Mapping[str, Any] | None:
    region = text(args.get("region")) or text(args.get("name")) or text(provider.get("region"))
    if not region or args.get("endpoint"):
        return None
    endpoint = f"ec2.{region}.{_partition_of(region)[1]}"
    described = Unknown("aws:index/getRegion.description")
    return {"id": region, "name": region, "region": region, "endpoint": endpoint, "description": described}


def _partition(_: Inputs, provider: Inputs) -> Mapping[str, Any] | None:
    if not (region := text(provider.get("region"))):
        return None
    partition, suffix = _partition_of(region)
    reverse = ".".join(reversed(suffix.split(".")))
    return {"id": partition, "partition": partition, "dnsSuffix": suffix, "reverseDnsPrefix": reverse}


def _policy_document(args: Inputs, _: Inputs) -> Mapping[str, Any]:
    """An IAM policy as the provider writes it: a list of one is its element (pulumi-aws 7.51, November 2026)."""
    statements = [
        *_statements_of(args.get("sourcePolicyDocuments")),
        *map(_statement, mappings(args.get("statements"))),
    ]
    for over in _statements_of(args.get("overridePolicyDocuments")):
        named = [index for index, known in enumerate(statements) if known.get("Sid", "") == over.get("Sid")]
        if named:
            statements[named[0]] = over
        else:
            statements.append(over)
    document = {
        "Version": args.get("version") or "2012-10-17",
        "Id": args.get("policyId"),
        "Statement": statements,
    }
    document = {key: value for key, value in document.items() if value}
    return {
        "id": hashlib.sha256(json.dumps(document).encode()).hexdigest()[:10],
        "json": json.dumps(document, indent=2),
        "minifiedJson": json.dumps(document, separators=(",", ":")),
    }


def _statements_of(documents: object) -> list[dict[str, Any]]:
    statements: list[dict[str, Any]] = []
    for document in items(documents):
        listed = mapping(json.loads(document or "{}")).get("Statement", [])
        statements += map(dict[str, Any], mappings(listed) or [mapping(listed)])
    return statements


def _statement(declared: Inputs) -> dict[str, Any]:
    conditions: dict[str, dict[str, Any]] = {}
    for condition in mappings(declared.get("conditions")):
        conditions.setdefault(condition["test"], {})[condition["variable"]] = _one_or_all(condition["values"])
    statement = {
        "Sid": declared.get("sid"),
        "Effect": declared.get("effect") or "Allow",
        **{
            key: _one_or_all(declared.get(key[0].lower() + key[1:] + "s"))
            for key in ("Action", "NotAction", "Resource", "NotResource")
        },
        "Principal": _principals(declared.get("principals")),
        "NotPrincipal": _principals(declared.get("notPrincipals")),
        "Condition": conditions,
    }
    return {key: value for key, value in statement.items() if value}


def _one_or_all(values: object) -> Any:
    # `&{aws:username}` is how a program writes a variable of IAM.
    listed = [str(value).replace("&{", "${") for value in items(values)]
    return listed[0] if len(listed) == 1 else listed


def _principals(declared: object) -> Any:
    principals: dict[str, Any] = {}
    for principal in mappings(declared):
        principals.setdefault(principal["type"], []).extend(principal["identifiers"])
    if principals == {"*": ["*"]}:
        return "*"
    return {kind: _one_or_all(sorted(identifiers, reverse=True)) for kind, identifiers in principals.items()}


FUNCTIONS: Mapping[str, Callable[[Inputs, Inputs], Mapping[str, Any] | None]] = {
    "iam/getPolicyDocument:getPolicyDocument": _policy_document,
    "index/getRegion:getRegion": _region,
    "index/getPartition:getPartition": _partition,
}
"""Functions of the provider that need no cloud, by their tokens: each takes its arguments and the settings of the
provider."""
