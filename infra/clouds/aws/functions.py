"""Functions of the provider that need no cloud: the region that it is configured for, and policy documents."""

# pyright: reportUnknownVariableType=false
# A policy in JSON has no types.

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from slipway.infra.review.stack import Unknown, items, mapping, mappings, text

Arguments = Mapping[str, Any]

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
        (found for prefix, found in PARTITIONS.items() if region.startswith(prefix)), ("aws", "amazonaws.com")
    )


def _region(args: Arguments, provider: Arguments) -> Mapping[str, Any] | None:
    region = text(args.get("region")) or text(args.get("name")) or text(provider.get("region"))
    if not region or args.get("endpoint"):
        return None
    endpoint = f"ec2.{region}.{_partition_of(region)[1]}"
    described = Unknown("aws:index/getRegion.description")
    return {"id": region, "name": region, "region": region, "endpoint": endpoint, "description": described}


def _partition(_: Arguments, provider: Arguments) -> Mapping[str, Any] | None:
    if not (region := text(provider.get("region"))):
        return None
    partition, suffix = _partition_of(region)
    reverse = ".".join(reversed(suffix.split(".")))
    return {"id": partition, "partition": partition, "dnsSuffix": suffix, "reverseDnsPrefix": reverse}


def _policy_document(args: Arguments, _: Arguments) -> Mapping[str, Any]:
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
    found: list[dict[str, Any]] = []
    for document in items(documents):
        listed = mapping(json.loads(document or "{}")).get("Statement", [])
        found += [dict(each) for each in (mappings(listed) or [mapping(listed)])]
    return found


def _statement(declared: Arguments) -> dict[str, Any]:
    conditions: dict[str, dict[str, Any]] = {}
    for condition in mappings(declared.get("conditions")):
        conditions.setdefault(condition["test"], {})[condition["variable"]] = _one_or_all(condition["values"])
    statement = {
        "Sid": declared.get("sid"),
        "Effect": declared.get("effect") or "Allow",
        **{key: _one_or_all(declared.get(key[0].lower() + key[1:] + "s")) for key in ("Action", "NotAction")},
        **{key: _one_or_all(declared.get(key[0].lower() + key[1:] + "s")) for key in ("Resource", "NotResource")},
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
    found: dict[str, Any] = {}
    for principal in mappings(declared):
        found.setdefault(principal["type"], []).extend(principal["identifiers"])
    if found == {"*": ["*"]}:
        return "*"
    return {kind: _one_or_all(sorted(identifiers, reverse=True)) for kind, identifiers in found.items()}


FUNCTIONS: Mapping[str, Callable[[Arguments, Arguments], Mapping[str, Any] | None]] = {
    "iam/getPolicyDocument:getPolicyDocument": _policy_document,
    "index/getRegion:getRegion": _region,
    "index/getPartition:getPartition": _partition,
}
"""By their tokens, each by its arguments and the settings of the provider."""
