"""Stacks evaluated for a preview, changed in one setting or in one file; each once in a test run."""

import json
from collections.abc import Mapping
from datetime import date
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from slipway.engine.evaluate import evaluate
from slipway.evaluated.model import Finding
from slipway.evaluated.operations import compare_resources
from slipway.infra.clouds.registry import emulators
from slipway.infra.kubernetes.review import REVIEW
from slipway.infra.program import declare
from slipway.infra.review.contract import reviewed
from slipway.infra.review.stack import Stack
from slipway.infra.schema.problems import PREFIX, without_prefix
from slipway.infra.settings.loading import load
from slipway.policies.changes import Change
from slipway.policies.check import check_change
from tests.support.checkout import ROOT
from tests.support.reviewing import REVIEWS
from tests.support.stack_values import changed, other_stacks, stack_config

TODAY = date(2026, 11, 24)


def previewed(name: str, changes: Mapping[str, Any] | None = None, root: Path = ROOT) -> Stack:
    """One of the repository's stacks with the settings at dotted paths changed, shipping the files of ``root``.

    It is to be read only: a stack of this repository's own files is the same one for all tests.
    """
    settings = json.dumps(changed(without_prefix(stack_config(name, ROOT)), changes or {}))
    return _evaluated(name, settings) if root == ROOT else _evaluate(name, settings, root)


@lru_cache(maxsize=32)
def _evaluated(name: str, settings: str) -> Stack:
    return _evaluate(name, settings, ROOT)


def _evaluate(name: str, settings: str, root: Path) -> Stack:
    raw = json.loads(settings)
    config = stack_config(name, ROOT)
    others = other_stacks(name)
    stand_ins = emulators(load(raw, others.resolve).request)
    for emulator in stand_ins:
        config = {**emulator.configuration, **config}
    config |= {f"{PREFIX}{key}": value for key, value in raw.items()}
    evaluation = evaluate(
        partial(declare, root),
        project="slipway",
        stack=name,
        config=config,
        emulators=stand_ins,
        preview=True,
        stacks=others.exported,
    )
    return reviewed(
        Stack(
            name, evaluation.resources, steps={step.job: step for step in evaluation.steps}, configuration=config
        ),
        [*REVIEWS, REVIEW],
    )


def findings(name: str, changes: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> list[Finding]:
    """What a preview says of these changes to a stack of the repository, or to it with the settings ``base``."""
    before = previewed(name, base)
    after = previewed(name, {**(base or {}), **changes})
    return check_change(Change(before, after, compare_resources(before, after)), {}, TODAY)[0]
