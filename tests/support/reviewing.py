"""Stacks as reviewers see them: those of the repository, and small ones made by hand."""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from slipway.engine.evaluate import evaluate
from slipway.engine.stack_config import references
from slipway.infra.clouds.registry import CLOUDS, emulators
from slipway.infra.emulator import Emulator
from slipway.infra.program import declare
from slipway.infra.review.contract import reviewed
from slipway.infra.review.stack import Resource, Stack
from slipway.infra.schema.problems import without_prefix
from tests.support.checkout import ROOT
from tests.support.stack_values import other_stacks, stack_config, stack_settings

REVIEWS = [cloud.review() for cloud in CLOUDS.values()]


@cache
def stack_emulators(name: str) -> list[Emulator]:
    """What stands in for the clouds of one of the repository's stacks."""
    return emulators(stack_settings(name).request)


@cache
def declared_stack(name: str) -> Stack:
    """One of the repository's stacks, evaluated as for its first preview."""
    stand_ins = stack_emulators(name)
    config: dict[str, Any] = {}
    for emulator in stand_ins:
        config |= emulator.configuration
    config |= stack_config(name, ROOT)
    others = other_stacks(name)
    for reference in references(without_prefix(config)):
        others.resolve(reference.reference)
    evaluation = evaluate(
        partial(declare, ROOT),
        project="slipway",
        stack=name,
        config=config,
        emulators=stand_ins,
        preview=True,
        stacks=others.exported,
    )
    return reviewed(
        Stack(
            name,
            evaluation.resources,
            steps={step.job: step for step in evaluation.steps},
            configuration=stack_config(name, ROOT),
        ),
        REVIEWS,
    )


def declared(type_: str, name: str = "it", properties: Mapping[str, Any] | None = None, **more: Any) -> Resource:
    """A resource that stands in no program."""
    return Resource(f"urn:pulumi:test::slipway::{type_}::{name}", type_, name, properties or {}, **more)


def stack_of(*resources: Resource, name: str = "test", **more: Any) -> Stack:
    """A stack of these resources."""
    return reviewed(Stack(name, {resource.urn: resource for resource in resources}, **more), REVIEWS)
