"""Functions of providers that need no cloud: their results follow from their arguments and the configuration.

What the program reads of them is known in a preview, as it is in `pulumi up`: the objects of a YAML text, a policy
document, the region and partition of a provider, and the functions of the `std` package.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
# Results of functions have no types, and neither have PyYAML's resolvers.

import base64
import hashlib
import ipaddress
import itertools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from slipway.infra.review.stack import items, mapping, mappings, text
from slipway.offline.engine.provider_outputs import mark

DECODE = "kubernetes:yaml:decode"
"""The function behind `ConfigFile` and `ConfigGroup` of the provider's SDK (pulumi-kubernetes 4.32, yaml.py). The
provider itself decodes those of `yaml.v2`, and renders charts and kustomizations."""

POLICY_DOCUMENT = "aws:iam/getPolicyDocument:getPolicyDocument"
"""A marked argument stays visible in its result."""

Arguments = Mapping[str, Any]


class _Loader(yaml.SafeLoader):
    """Reads a date as a text: JSON, of which Kubernetes' objects are made, has no dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def known_result(token: str, args: Arguments, provider: Arguments) -> Mapping[str, Any] | None:
    """The result of the function ``token``; None where nothing here knows it, or it cannot be computed.

    ``provider`` are the settings of the provider that is asked. Raises YAMLError where a text is none.
    """
    package, _, name = token.partition(":index:")
    try:
        if compute := _FUNCTIONS.get(token):
            return compute(args, provider)
        result = _STD[name](args) if package == "std" and name in _STD else None
    except (ValueError, LookupError, TypeError, AttributeError, OSError):
        return None
    return None if result is None else {"result": result}


def _decode(args: Arguments, _: Arguments) -> Mapping[str, Any]:
    return {"result": [document for document in yaml.load_all(args["text"], Loader=_Loader) if document]}


# What AWS, Google Cloud and Azure know of a provider's own configuration.


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
    described = mark("aws:index/getRegion.description")
    return {"id": region, "name": region, "region": region, "endpoint": endpoint, "description": described}


def _partition(_: Arguments, provider: Arguments) -> Mapping[str, Any] | None:
    if not (region := text(provider.get("region"))):
        return None
    partition, suffix = _partition_of(region)
    reverse = ".".join(reversed(suffix.split(".")))
    return {"id": partition, "partition": partition, "dnsSuffix": suffix, "reverseDnsPrefix": reverse}


def _client_config(name: str, *fields: str) -> Callable[[Arguments, Arguments], Mapping[str, Any]]:
    """A function that tells who the provider is: its settings, and a mark for what it would ask its cloud."""

    def compute(_: Arguments, provider: Arguments) -> Mapping[str, Any]:
        return {field: text(provider.get(field)) or mark(f"{name}.{field}") for field in fields}

    return compute


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
        found += [dict(each) for each in (listed if isinstance(listed, list) else [listed])]
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


_FUNCTIONS: Mapping[str, Callable[[Arguments, Arguments], Mapping[str, Any] | None]] = {
    DECODE: _decode,
    POLICY_DOCUMENT: _policy_document,
    "aws:index/getRegion:getRegion": _region,
    "aws:index/getPartition:getPartition": _partition,
    "gcp:organizations/getClientConfig:getClientConfig": _client_config(
        "gcp:organizations/getClientConfig", "accessToken", "id", "project", "region", "zone"
    ),
    "azure-native:authorization:getClientConfig": _client_config(
        "azure-native:authorization:getClientConfig", "clientId", "objectId", "subscriptionId", "tenantId"
    ),
}


# The package `std` (2.3.2), whose functions are those of Terraform's language: those that differ in nothing from
# Python's. What Go writes otherwise (`format`, `regex`), and what differs from one call to the next (`timestamp`),
# stays unknown.


def _replace(a: Arguments) -> str | None:
    regular = len(a["search"]) > 1 and a["search"][0] == a["search"][-1] == "/"
    return None if regular else a["text"].replace(a["search"], a["replace"])


def _lookup(a: Arguments) -> Any:
    return a["map"][a["key"]] if a.get("default") is None else a["map"].get(a["key"], a["default"])


def _json(a: Arguments) -> str:
    written = json.dumps(a["input"], separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    # As Go's encoder has them.
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _subnet(a: Arguments) -> str:
    network = ipaddress.ip_network(a["input"], strict=False)
    return str(next(itertools.islice(network.subnets(int(a["newbits"])), int(a["netnum"]), None)))


def _read(a: Arguments) -> bytes:
    return Path(a["input"]).read_bytes()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


_STD: Mapping[str, Callable[[Arguments], Any]] = {
    "abspath": lambda a: os.path.abspath(a["input"]),  # noqa: PTH100  # Without following links, as Go's.
    "base64decode": lambda a: base64.b64decode(a["input"]).decode(),
    "base64encode": lambda a: _base64(a["input"].encode()),
    "base64sha256": lambda a: _base64(hashlib.sha256(a["input"].encode()).digest()),
    "cidrhost": lambda a: str(ipaddress.ip_network(a["input"], strict=False)[int(a["host"])]),
    "cidrsubnet": _subnet,
    "compact": lambda a: [value for value in a["input"] if value],
    "concat": lambda a: [value for each in a["input"] for value in each],
    "contains": lambda a: a["element"] in a["input"],
    "distinct": lambda a: [value for at, value in enumerate(a["input"]) if value not in a["input"][:at]],
    "element": lambda a: a["input"][int(a["index"]) % len(a["input"])],
    "endswith": lambda a: a["input"].endswith(a["suffix"]),
    "file": lambda a: _read(a).decode(),
    "filebase64": lambda a: _base64(_read(a)),
    "filebase64sha256": lambda a: _base64(hashlib.sha256(_read(a)).digest()),
    "filesha256": lambda a: hashlib.sha256(_read(a)).hexdigest(),
    "index": lambda a: a["input"].index(a["element"]),
    "join": lambda a: a["separator"].join(a["input"]),
    "jsondecode": lambda a: json.loads(a["input"]),
    "jsonencode": _json,
    "keys": lambda a: sorted(a["input"]),
    "length": lambda a: len(a["input"]),
    "lookup": _lookup,
    "lower": lambda a: a["input"].lower(),
    "max": lambda a: max(a["input"]),
    "md5": lambda a: hashlib.md5(a["input"].encode()).hexdigest(),
    "merge": lambda a: {key: value for each in a["input"] for key, value in each.items()},
    "min": lambda a: min(a["input"]),
    "replace": _replace,
    "sha1": lambda a: hashlib.sha1(a["input"].encode()).hexdigest(),
    "sha256": lambda a: hashlib.sha256(a["input"].encode()).hexdigest(),
    "slice": lambda a: a["list"][int(a["from"]) : int(a["to"])],
    "split": lambda a: a["text"].split(a["separator"]) if a["separator"] else list(a["text"]),
    "startswith": lambda a: a["input"].startswith(a["prefix"]),
    "substr": lambda a: a["input"][int(a["offset"]) :][: int(a["length"]) if a["length"] >= 0 else None],
    "trimspace": lambda a: a["input"].strip(),
    "upper": lambda a: a["input"].upper(),
    "values": lambda a: [a["input"][key] for key in sorted(a["input"])],
    "zipmap": lambda a: dict(zip(a["keys"], a["values"], strict=True)),
}
