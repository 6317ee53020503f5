"""Decodes what a revision printed of a stack into the `Stack` that reviews, policies and comparisons read."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic import TypeAdapter

from slipway.engine.evaluation.encoding import LISTS, MARK
from slipway.engine.provider_outputs import unmark
from slipway.evaluated.scheduling import pool_of_nodes
from slipway.infra.clouds.registry import reviews
from slipway.infra.placed_model import PlacedStep
from slipway.infra.platform import Node
from slipway.infra.review.contract import reviewed
from slipway.infra.review.facts import Charge
from slipway.infra.review.stack import UNKNOWN, NodePool, Resource, Secret, Stack, Unknown
from slipway.infra.schema.quantities import canonical

_RESOURCE, _NODE, _STEP = TypeAdapter(Resource), TypeAdapter(Node), TypeAdapter(PlacedStep)


@dataclass(frozen=True)
class FailedEvaluation:
    """Why a stack could not be evaluated.

    ``kind`` is the name of the error's class, ``message`` its text. ``problems`` are those of wrong settings, each
    with ``key``, ``value``, ``reason`` and ``fix``. ``where`` is the file and line of the program's last frame in
    the tree (``slipway/infra/placed.py:12``), empty where there is none.
    """

    kind: str
    message: str
    problems: Sequence[Mapping[str, str]] = ()
    where: str = ""


@dataclass(frozen=True)
class ClusterElsewhere:
    """A cluster of another stack, as a stack file names it: ``name`` there, and ``cluster`` of ``stack``.

    ``pools`` are those that the cluster has, None where the file of the other stack cannot be evaluated, and
    ``charges`` what their nodes are billed for. ``objects`` are declared in it there. ``teams`` are the namespaces
    and service accounts of those who may use it. ``removed`` says that there is no such file.
    """

    name: str
    stack: str
    cluster: str
    pools: Sequence[NodePool] | None = None
    charges: Sequence[Charge] = ()
    objects: Sequence[Resource] = ()
    teams: Sequence[tuple[str, str]] = ()
    removed: bool = False


@dataclass(frozen=True)
class EvaluatedStack:
    """One stack of one revision: either ``stack`` or ``failure`` is set.

    ``outputs`` says of each stack output whether it is a secret. ``remarks`` are warnings of the program and of
    its evaluation. ``elsewhere`` are the clusters of other stacks that its file names. ``unset`` are the problems
    of secrets that it needs and does not have, for which a placeholder stood in. ``renamed`` are keys that still
    work by the name of an earlier release.
    """

    name: str
    stack: Stack | None = None
    failure: FailedEvaluation | None = None
    outputs: Mapping[str, bool] = field(default_factory=dict[str, bool])
    remarks: Sequence[str] = ()
    elsewhere: Sequence[ClusterElsewhere] = ()
    unset: Sequence[Mapping[str, str]] = ()
    renamed: Sequence[Mapping[str, str]] = ()


def decode(name: str, document: Mapping[str, Any]) -> EvaluatedStack:
    """Decodes the document that was printed of the stack ``name``."""
    remarks = tuple(document.get("remarks", ()))
    elsewhere = tuple(_elsewhere(document.get("elsewhere", {})))
    if failure := document.get("failure"):
        return EvaluatedStack(name, failure=FailedEvaluation(**failure), remarks=remarks, elsewhere=elsewhere)
    standing = [
        node for node in document["standing"] if node["cluster"] not in {cluster.name for cluster in elsewhere}
    ]
    stack = _stack(name, {**document, "standing": standing})
    stack = replace(
        stack,
        pools=[*stack.pools, *(pool for cluster in elsewhere for pool in cluster.pools or ())],
        charges_elsewhere=[charge for cluster in elsewhere for charge in cluster.charges],
        declared_elsewhere={cluster.name: cluster.objects for cluster in elsewhere},
    )
    return EvaluatedStack(
        name,
        stack,
        outputs=document["outputs"],
        remarks=remarks,
        elsewhere=elsewhere,
        unset=tuple(document.get("unset", ())),
        renamed=tuple(document.get("renamed", ())),
    )


def _stack(name: str, document: Mapping[str, Any]) -> Stack:
    return reviewed(
        Stack(
            name=name,
            resources={resource["urn"]: _resource(resource) for resource in document["resources"]},
            configuration=_decode(document.get("configuration", {})),
            steps={step["job"]: _STEP.validate_python(step) for step in document.get("steps", ())},
            pools=[pool_of_nodes(_NODE.validate_python(node)) for node in document["standing"]],
        ),
        reviews(),
    )


def _elsewhere(document: Mapping[str, Any]) -> Iterator[ClusterElsewhere]:
    declared: Mapping[str, Any] = document.get("stacks", {})
    stacks = {
        name: _stack(name, declared_stack)
        for name, declared_stack in declared.items()
        if declared_stack is not None
    }
    for name, entry in document.get("clusters", {}).items():
        cluster = ClusterElsewhere(name, entry["stack"], entry["cluster"], removed=entry["stack"] not in declared)
        if (stack := stacks.get(cluster.stack)) is not None:
            pools = [pool for pool in stack.pools if pool.cluster == cluster.cluster]
            urns = {pool.urn for pool in pools if pool.urn}
            cluster = replace(
                cluster,
                pools=[replace(pool, cluster=name, stack=cluster.stack) for pool in pools],
                charges=[charge for charge in stack.charges if charge.pool in urns],
                objects=[
                    resource
                    for resource in stack.resources.values()
                    if stack.cluster_of(resource) == cluster.cluster
                ],
                teams=[(namespace, account) for namespace, account in declared[cluster.stack].get("teams", ())],
            )
        yield cluster


def _resource(resource: Mapping[str, Any]) -> Resource:
    lists = {key: tuple(resource[key]) for key in LISTS}
    properties = _decode(resource["properties"])
    if _BUILT_IN.match(resource["type"]):
        properties = _canonical(properties)
    return _RESOURCE.validate_python({**resource, **lists, "properties": properties})


_BUILT_IN = re.compile(r"kubernetes:(?:[^/.]*|[^/]*\.k8s\.io)/")
"""Types of the API groups that Kubernetes itself has. The provider writes quantities as the API server does in
these, and in no custom resource and no values of charts (pulumi-kubernetes 4.32.0, seen November 2026)."""

_AMOUNTS = frozenset({"capacity", "hard", "limits", "requests"})
"""Keys of mappings from resources to quantities."""


def _canonical(value: Any) -> Any:
    """The value with its quantities as the API server writes them."""
    if isinstance(value, list):
        return [_canonical(element) for element in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    return {key: _canonical_of(key, item) for key, item in cast("dict[str, Any]", value).items()}


def _canonical_of(key: str, value: Any) -> Any:
    if key in _AMOUNTS and isinstance(value, dict):
        amounts = cast("dict[str, Any]", value).items()
        return {name: canonical(amount) if type(amount) is str else amount for name, amount in amounts}
    if key == "sizeLimit" and type(value) is str:
        return canonical(value)
    return _canonical(value)


_MARKED: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "unknown": lambda marked: Unknown(marked["of"]) if "of" in marked else UNKNOWN,
    "secret": lambda marked: Secret(marked["digest"], marked.get("partial", False)),
    "mapping": lambda marked: {key: _decode(item) for key, item in marked["value"].items()},
}


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        if MARK in mapping:
            return _MARKED[mapping[MARK]](mapping)
        return {key: _decode(item) for key, item in mapping.items()}
    if isinstance(value, list):
        return [_decode(element) for element in cast("list[Any]", value)]
    return unmark(value) if isinstance(value, str) else value
