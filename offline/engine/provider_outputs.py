"""What a provider adds to a resource's inputs, whatever the cloud: ids, and what Kubernetes puts into metadata."""

import hashlib
import secrets
import uuid
from collections.abc import Mapping
from typing import Any

from infra.review.stack import Resource

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
