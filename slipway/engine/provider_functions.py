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

from slipway.engine.provider_outputs import mark
from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.review.stack import Unknown

DECODE = "kubernetes:yaml:decode"
"""The function behind `ConfigFile` and `ConfigGroup` of the provider's SDK (pulumi-kubernetes 4.32, yaml.py). The
provider itself decodes those of `yaml.v2`, and renders charts and kustomizations."""


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
    package, _, name = token.partition(":")
    if token == DECODE:
        return {"result": [document for document in yaml.load_all(args["text"], Loader=_Loader) if document]}
    try:
        if cloud := CLOUDS.get(package):
            result = cloud.computed(name, args, provider)
            return result and {
                key: mark(value.source) if isinstance(value, Unknown) else value for key, value in result.items()
            }
        compute = _STD.get(name.removeprefix("index:")) if package == "std" else None
        result = compute(args) if compute else None
    except (ValueError, LookupError, TypeError, AttributeError, OSError):
        return None
    return None if result is None else {"result": result}


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
    "concat": lambda a: [value for part in a["input"] for value in part],
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
    "merge": lambda a: {key: value for part in a["input"] for key, value in part.items()},
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
