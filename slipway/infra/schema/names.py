"""Names: how Kubernetes writes those of objects, labels and images, and how a name is made to fit a limit."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Annotated

from pydantic import AfterValidator

from slipway.infra.schema.base import refuse
from slipway.infra.schema.problems import Finding, Path

KUBERNETES_NAME_LIMIT = 63
"""Longest DNS label (RFC 1123), and so the longest Job, Service or namespace name."""

DIGEST_LENGTH = 10
"""Hexadecimal digits of a digest that stand in a name: 40 bits, enough to tell the runs of one stack apart."""


def fit(name: str, limit: int) -> str:
    """The name itself where it has at most ``limit`` characters, else its beginning and a hash of the whole.

    Two long names that differ only past the limit stay different; the same name always gives the same result.
    """
    if len(name) <= limit:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:7]
    return f"{name[: limit - len(mark) - 1].rstrip('-')}-{mark}"


def spell(limit: int, *parts: str) -> str:
    """The parts as one name of lower-case letters, digits and hyphens, as all clouds allow, fit to ``limit``."""
    return fit(re.sub(r"[^a-z0-9-]+", "-", "-".join(parts).lower()).strip("-"), limit)


def short_digest(hexdigest: str) -> str:
    """The part of a SHA-256 hex digest that stands in resource names and store paths."""
    return hexdigest[:DIGEST_LENGTH]


# https://kubernetes.io/docs/concepts/overview/working-with-objects/names and …/labels, as documented in
# 2025: names are DNS labels of RFC 1123; a label or taint key is a name of at most 63 characters after an optional
# DNS subdomain.
DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
SUBDOMAIN_LIMIT = 253
LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def _label_problem(name: str) -> tuple[str, str] | None:
    """Reason and fix where ``name`` is no DNS label, as names of Jobs and namespaces have to be."""
    if len(name) > KUBERNETES_NAME_LIMIT:
        reason = f"{len(name)} characters, and a Kubernetes name has at most {KUBERNETES_NAME_LIMIT}"
        return reason, "shorten it"
    if not DNS_LABEL.fullmatch(name):
        fix = "use lower-case letters, digits and hyphens, with a letter or digit at both ends"
        return "not a Kubernetes name", fix
    return None


def name_findings(place: Path, name: str) -> Iterator[Finding]:
    """What Kubernetes would not take as a name."""
    if problem := _label_problem(name):
        yield Finding(place, name, *problem)


def _label(value: str) -> str:
    if problem := _label_problem(value):
        raise refuse(*problem)
    return value


NamespaceName = Annotated[str, AfterValidator(_label)]
"""The name of a namespace that is there."""


def _subdomain(value: str) -> str:
    if len(value) > SUBDOMAIN_LIMIT:
        reason = f"{len(value)} characters, and the name of a Kubernetes object has at most {SUBDOMAIN_LIMIT}"
        raise refuse(reason, "write the name as `kubectl get` shows it")
    if not is_subdomain(value):
        raise refuse(
            "not the name of a Kubernetes object: lower-case letters, digits, `-` and `.`, a letter or digit at "
            "both ends of each part",
            "write the name as `kubectl get` shows it",
        )
    return value


ObjectName = Annotated[str, AfterValidator(_subdomain)]
"""The name of a Secret, a StorageClass or another object that is there."""


def is_subdomain(text: str) -> bool:
    """Whether ``text`` is a DNS subdomain as Kubernetes wants it of most names."""
    return len(text) <= SUBDOMAIN_LIMIT and DNS_SUBDOMAIN.fullmatch(text) is not None


def key_problem(key: str) -> str | None:
    """Why ``key`` cannot be the key of a label or taint; None where it can."""
    prefix, slash, name = key.rpartition("/")
    if not LABEL_NAME.fullmatch(name):
        return "its name is not 1 to 63 letters, digits, `-`, `_` and `.` with a letter or digit at both ends"
    if slash and not is_subdomain(prefix):
        return "what stands before the `/` is not a DNS name"
    return None


def label_findings(place: Path, labels: Mapping[str, str]) -> Iterator[Finding]:
    """What Kubernetes would not take as labels."""
    for key, value in labels.items():
        if problem := key_problem(key):
            yield Finding((*place, key), key, f"not a label key: {problem}", "correct the key")
        elif value and not LABEL_NAME.fullmatch(value):
            yield Finding(
                (*place, key),
                value,
                "not a label value: at most 63 letters, digits, `-`, `_` and `.`, a letter or digit at both ends",
                "correct the value",
            )


def node_label_findings(
    place: Path, labels: Mapping[str, str], reserved: Sequence[str], owners: str
) -> Iterator[Finding]:
    """What cannot be the labels of a pool's nodes; ``reserved`` are prefixes whose labels ``owners`` set."""
    yield from label_findings(place, labels)
    for key in labels:
        prefix = key.rpartition("/")[0]
        if any(prefix == domain or prefix.endswith(f".{domain}") for domain in reserved):
            yield Finding(
                (*place, key),
                key,
                f"`{prefix}/` is reserved for {owners}, which set its labels themselves",
                "use a prefix of your own, or none",
            )


# The grammar of github.com/distribution/reference (reference.go and regexp.go, v0.6.0), which container runtimes
# parse images with. What stands before the first slash is a host where it has a dot or a port, or is `localhost`.
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
REFERENCE = re.compile(
    rf"(?P<name>(?:(?P<host>{_HOST})(?::(?P<port>[0-9]{{1,5}}))?/)?{_PART}(?:/{_PART})*)"
    r"(?::\w[\w.-]{0,127})?@sha256:[0-9a-f]{64}",
    re.ASCII,
)
LONGEST_NAME = 255
LAST_PORT = 65535


def _by_digest(value: str) -> str:
    fix = (
        "write `<registry>/<name>@sha256:<64 hexadecimal digits>`; `docker buildx imagetools inspect <image>` "
        "shows the digest"
    )
    if not re.search(r"@sha256:[0-9a-f]{64}$", value):
        raise refuse(
            "not an image by digest: a tag can be moved, and then the same step runs other code",
            fix,
        )
    match = REFERENCE.fullmatch(value)
    if match is None or len(match["name"]) > LONGEST_NAME:
        raise refuse("no registry can have an image of this name", fix)
    if match["port"] and not 0 < int(match["port"]) <= LAST_PORT:
        raise refuse(f"`{match['port']}` is no port: ports are 1 to {LAST_PORT}", fix)
    return value


Image = Annotated[str, AfterValidator(_by_digest)]
"""A container image by its digest."""


UNREAD: ContextVar[bool] = ContextVar("unread", default=False)
"""True where no registry is asked."""
