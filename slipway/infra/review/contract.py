"""The contract of a review: the facts that a cloud has about resources, and how they are added to a stack.

Everything in this folder is plain data: a declared stack without the SDKs that declared it. The engines in
``offline`` fill a `stack.Stack` from an evaluation, or from Pulumi's own when they are run as a policy pack; the
clouds answer through a `Review`. Importing any of it, a cloud's review included, never imports an SDK.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

from slipway.infra.review.facts import Charge, Disk, Grant, Holding, Identity, InPlace, Price, Quota
from slipway.infra.review.stack import NodePool, Resource, Stack


class Harm(StrEnum):
    """What a finding does to the user, the worst first."""

    LOSS = "loss"
    """Data or versions of models are deleted."""
    OPENING = "opening"
    """Something is open to others, or no longer guarded."""
    INTERRUPTION = "interruption"
    """What runs ends, or cannot go on."""
    REFUSAL = "refusal"
    """`pulumi up` refuses the update, or fails half-way."""
    COST = "cost"
    """Something is billed at all times."""


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Violation:
    """One breach of a policy. ``resource`` is a URN, or a configuration key where no resource is to blame."""

    resource: str
    reason: str
    fix: str


Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Policy(Generic[Subject]):
    """A rule about a whole stack, or about a change of one.

    Suppressions name its ``id``, and ``title`` is the rule in one sentence. ``harm`` is what a breach does to the
    user, None where it is bad practice alone.
    """

    id: str
    severity: Severity
    title: str
    check: Callable[[Subject], Iterable[Violation]]
    harm: Harm | None = None


def policies_of(
    table: Path, checks: Mapping[str, Callable[[Subject], Iterable[Violation]]]
) -> tuple[Policy[Subject], ...]:
    """A policy for each of ``checks``, by its id, with what the TOML file ``table`` says of it."""
    rows = tomllib.loads(table.read_text(encoding="utf-8"))
    return tuple(
        Policy(name, Severity(row["severity"]), row["title"], check, Harm(row["harm"]) if "harm" in row else None)
        for name, check in checks.items()
        for row in (rows[name],)
    )


@dataclass(frozen=True)
class Review:
    """The facts that a cloud, or Kubernetes, has about its resources. Each field has a default without facts.

    ``replacing`` are, by resource type, the paths of the properties whose change replaces a resource, whatever the
    change below them is, without the indices of lists: ``nodeConfig.diskType``, ``spec.template``. A path that
    ends in ``{}`` counts only where a block comes or goes, or more or fewer of it: ``nodeConfig{}``. A type that
    is missing is not known. ``sometimes`` are, by type and path, the properties that replace a resource by some
    changes only; they are asked with the values before and after.

    ``disk_price`` is what a GiB of a disk costs that one of the cloud's clusters makes; None for one of another's.

    ``computed`` are, by resource type, the paths of the optional properties that the provider computes where they
    are not set: one that is taken away keeps its value.

    ``holding`` is what of users' data goes with a resource of a stack, as both are before an update; None for a
    type that holds none. ``in_place`` are, by resource
    type, the updates in place that are refused, end what runs, or need a word. ``moving`` are the types of which
    every update, be it in place, changes what other resources read from them. ``grants`` are who from outside the
    clusters is let in, by whatever resource.

    ``node_labels`` are, by the type of a resource whose nodes go with it, the label whose value tells its nodes
    from others of the cluster, as `slipway.infra.review.stack.NodePool.labels` has it; empty where all of the
    cluster are its.
    """

    pools: Callable[[Stack], Sequence[NodePool]] = lambda _: ()
    charges: Callable[[Stack], Sequence[Charge]] = lambda _: ()
    disk_price: Callable[[Disk, Stack], Price | None] = lambda _, __: None
    quotas: Callable[[Stack], Sequence[Quota]] = lambda _: ()
    policies: Sequence[Policy[Stack]] = ()
    replacing: Callable[[], Mapping[str, Sequence[str]]] = dict[str, Sequence[str]]
    computed: Callable[[], Mapping[str, Sequence[str]]] = dict[str, Sequence[str]]
    holding: Callable[[Resource, Stack], Holding | None] = lambda _, __: None
    in_place: Callable[[], Mapping[str, Sequence[InPlace]]] = dict[str, Sequence[InPlace]]
    moving: frozenset[str] = frozenset()
    sometimes: Mapping[str, Mapping[str, Callable[[object, object], bool]]] = field(
        default_factory=dict[str, Mapping[str, Callable[[object, object], bool]]]
    )
    identities: Callable[[Stack], Sequence[Identity]] = lambda _: ()
    grants: Callable[[Stack], Sequence[Grant]] = lambda _: ()
    endpoints: Callable[[Stack], Mapping[str, str]] = lambda _: {}
    node_labels: Mapping[str, str] = field(default_factory=dict[str, str])


def reviewed(stack: Stack, reviews: Sequence[Review]) -> Stack:
    """``stack`` with what ``reviews`` say of it. Of its pools, those that are no declared resource are kept."""
    declared = [pool for review in reviews for pool in review.pools(stack)]
    stack = replace(stack, pools=[*declared, *(pool for pool in stack.pools if not pool.urn)])
    resources = stack.resources.items()
    return replace(
        stack,
        charges=[_priced(charge, reviews, stack) for review in reviews for charge in review.charges(stack)],
        quotas=[quota for review in reviews for quota in review.quotas(stack)],
        identities=[identity for review in reviews for identity in review.identities(stack)],
        grants=[grant for review in reviews for grant in review.grants(stack)],
        endpoints={name: how for review in reviews for name, how in review.endpoints(stack).items()},
        holdings={
            urn: held
            for review in reversed(reviews)
            for urn, resource in resources
            if (held := review.holding(resource, stack)) is not None
        },
    )


def _priced(charge: Charge, reviews: Sequence[Review], stack: Stack) -> Charge:
    """The charge with the price of its disk, where a cloud knows it."""
    if charge.disk is None:
        return charge
    prices = [review.disk_price(charge.disk, stack) for review in reviews] if charge.quantity else []
    price = next((known for known in prices if known is not None), None)
    what = charge.what if price is not None else f"{charge.what}, whose price is not recorded"
    return replace(charge, what=what, price=price)
