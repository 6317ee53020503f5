"""What a provider adds to a resource's inputs, and the marks of what it adds only in an update."""

import hashlib
import re
import secrets
import uuid
from collections.abc import Mapping
from typing import Any, cast

from slipway.infra.review.stack import UNKNOWN, Partial, Resource, Unknown

EPOCH = "2026-01-01T00:00:00Z"
"""Creation time of every emulated object: the same in every evaluation, so that nothing seems to have changed."""

CLUSTER_SCOPED = frozenset(
    {
        "Namespace",
        "Node",
        "NodePatch",
        "PersistentVolume",
        "StorageClass",
        "ClusterRole",
        "ClusterRoleBinding",
        "PriorityClass",
        "AdmissionCheck",
        "ClusterQueue",
        "Cohort",
        "ProvisioningRequestConfig",
        "ResourceFlavor",
        "Topology",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "WorkloadPriorityClass",
    }
)
"""Kinds that live in no namespace, of those that a stack may declare."""

PASSWORD = "random:index/randomPassword:RandomPassword"

_KEY = secrets.token_hex()
"""Decides the passwords of this process: what a rehearsal starts with them listens where all users may connect."""

RELEASE = "Release"
"""A Helm release, which is no Kubernetes object but lives in a namespace like one."""


def kind_of(token: str) -> str | None:
    """The Kubernetes kind of a resource type (``kubernetes:batch/v1:Job`` → ``Job``), None for other resources."""
    package, _, rest = token.partition(":")
    return rest.rpartition(":")[2] if package == "kubernetes" else None


def _named(resource: Resource) -> Mapping[str, Any]:
    """What holds name and namespace: a Helm release has no metadata."""
    return resource.inputs if kind_of(resource.type) == RELEASE else resource.metadata


def object_name(resource: Resource) -> str:
    """The name of a Kubernetes object: its own, or one that Pulumi makes from the logical name."""
    name = _named(resource).get("name")
    return str(name) if name else f"{resource.name}-{hashlib.sha256(resource.urn.encode()).hexdigest()[:8]}"


def namespace_of(resource: Resource) -> str:
    """The namespace of a Kubernetes object; empty for kinds that have none."""
    return "" if kind_of(resource.type) in CLUSTER_SCOPED else str(_named(resource).get("namespace") or "default")


def computed_outputs(resource: Resource) -> dict[str, Any]:
    """What the provider would add: for a Kubernetes object the metadata of one that was just created."""
    if resource.type == PASSWORD:
        made = hashlib.sha512(f"{_KEY} {resource.urn}".encode()).hexdigest()
        # No bcrypt hash of it, but something that changes with it.
        return {"result": made[: int(resource.inputs["length"])], "bcryptHash": made[-32:]}
    kind = kind_of(resource.type)
    if kind is None:
        return {}
    if kind == RELEASE:
        return {
            "status": {"name": object_name(resource), "namespace": namespace_of(resource), "status": "deployed"}
        }
    metadata: dict[str, Any] = {
        **resource.metadata,
        "name": object_name(resource),
        "uid": _uuid(resource.urn),
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": EPOCH,
    }
    if kind not in CLUSTER_SCOPED:
        metadata["namespace"] = namespace_of(resource)
    outputs: dict[str, Any] = {"metadata": metadata}
    if kind == "Job":
        outputs["status"] = {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}
    return outputs


def physical_id(resource: Resource, outputs: Mapping[str, Any]) -> str:
    """An id as the resource's provider would shape it."""
    if resource.type.startswith("pulumi:providers:"):
        return _uuid(resource.urn)
    if kind_of(resource.type) is not None:
        namespace = namespace_of(resource)
        return f"{namespace}/{object_name(resource)}" if namespace else object_name(resource)
    return str(outputs.get("name") or resource.name)


def _uuid(urn: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, urn))


# Marks in place of values that are known only after an update.
#
# In Pulumi's own preview a text is unknown as soon as one part of it is. A reviewer would not see, for example,
# that a role's policy allows another action, because the policy contains an address that only the cloud knows. So
# the program gets a mark in place of an unknown value, and the mark stays visible in the texts that the program
# builds from it. The mark of a number is a number, because the program may calculate with it. A truth value cannot
# be marked: it stays unknown.


_MARK = re.compile(r"<<unknown:([^<>]*)>>")

_FIRST, _APART = 8_675_309_000_000_000, 1_000
_LAST = _FIRST + 999_999 * _APART
"""Numbers of 16 digits, which a double holds exactly. Far enough apart that what is one more stays one's own."""

_DIGITS_BEGIN = "8675309"
_DIGITS = re.compile(rf"(?<![0-9.]){_DIGITS_BEGIN}[0-9]{{9}}(?:\.0)?(?![0-9])")

_numbered: list[str] = []
"""Names of the numbers that were handed on: the nth has the nth mark."""


NOTICE = "Calling __str__ on an Output[T] is not supported"
"""What stands in a text in place of the output that the program put there (pulumi 3.260, output.py)."""


def mark(name: str) -> str:
    """What stands for a text that is not known; ``name`` says which."""
    return f"<<unknown:{re.sub('[<>]', '', name)}>>"


def number_mark(name: str) -> int:
    """What stands for a number that is not known; ``name`` says which."""
    if name not in _numbered:
        _numbered.append(name)
    return _FIRST + _numbered.index(name) * _APART


def as_marks(value: Any) -> Any:
    """A text or a number, with marks of texts in place of those of numbers."""
    if isinstance(value, str):
        # Shipped code is long: the pattern, which begins with what is not there, tries each of its characters.
        if _DIGITS_BEGIN not in value:
            return value
        return _DIGITS.sub(lambda match: _mark_for(float(match[0])) or match[0], value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _mark_for(value) or value
    return value


def is_marked(value: Any) -> bool:
    """Whether a mark is in ``value`` or in anything below it."""
    if isinstance(value, Mapping):
        return any(is_marked(item) for item in cast("Mapping[Any, Any]", value).values())
    if isinstance(value, list):
        return any(is_marked(element) for element in cast("list[Any]", value))
    text = as_marks(value)
    return isinstance(text, str) and _MARK.search(text) is not None


def marked_name(value: Any) -> str | None:
    """The name of what ``value`` is the mark of; None where it is no mark, or more than one."""
    match = _MARK.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


def unmark(text: str) -> str | Partial | Unknown:
    """``text`` as a reviewer may have it."""
    if _MARK.fullmatch(text):
        return UNKNOWN
    return Partial(_MARK.sub(r"[\1]", text)) if is_marked(text) else text


def _mark_for(number: float) -> str:
    """The mark of the text that stands for this number, or for one near it; empty where the number is none's."""
    if not _FIRST <= number <= _LAST:
        return ""
    index = round((number - _FIRST) / _APART)
    if index >= len(_numbered):
        return ""
    more = int(number) - _FIRST - index * _APART
    return mark(_numbered[index] + (f"{more:+d}" if more else ""))
