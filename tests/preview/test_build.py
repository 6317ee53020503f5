"""What goes wrong with the preview of one stack is told of that stack, and the others have theirs."""

from collections.abc import Mapping
from datetime import date

import pytest

from slipway.engine.evaluation.decoding import EvaluatedStack
from slipway.evaluated.schedule import JobDuration
from slipway.infra.exits import Exit
from slipway.infra.review.contract import Severity
from slipway.infra.review.stack import Stack
from slipway.preview.build import Options, build, exit_code
from slipway.preview.revisions import Evaluations
from tests.support.costing import TODAY, Pool, job, stack
from tests.support.reviewing import declared


def test_a_failed_preview_of_one_stack_shows_no_values_and_keeps_the_others() -> None:
    def measured(name: str) -> Mapping[str, JobDuration]:
        if name == "bad":
            raise LookupError("password-of-somebody")
        return {}

    evaluations = Evaluations({name: EvaluatedStack(name, Stack(name, {}, {})) for name in ("a", "bad", "c")}, {})
    found = build(evaluations, Options(date(2026, 11, 22), lambda _: {}, measured=measured))
    assert [stack.stack for stack in found.stacks] == ["bad", "a", "c"], "what fails comes first"
    assert [stack.cost is None for stack in found.stacks] == [True, False, False]
    (failure,) = found.stacks[0].failures
    assert failure.message.startswith("its preview failed with LookupError in ")
    assert exit_code(found, Severity.ERROR) == Exit.REFUSED


def test_a_schedule_costs_the_same_with_a_base_and_without() -> None:
    """Its Jobs have times, and no Job of the stack runs with the update."""
    pool = Pool("cpu", 0, 3, 0.3)
    days = job("days", "cpu", limit=36_000)
    clock = {"spec": {"schedule": "0 3 * * *", "timeZone": "UTC"}}
    nightly = declared("kubernetes:batch/v1:CronJob", "nightly", clock, dependencies=frozenset({days.urn}))
    evaluated = {"it": EvaluatedStack("it", stack([pool], days, nightly))}
    options = Options(TODAY, lambda _: {}, "main", measured=lambda _: {"days": JobDuration(600, "measured")})
    for base in ({}, evaluated):
        [preview] = build(Evaluations(evaluated, base), options).stacks
        assert preview.cost is not None
        [scheduled] = preview.cost.scheduled
        assert (scheduled.basis, scheduled.monthly) == ("measured", pytest.approx(0.1 * 365.25 / 12, rel=0.01))
    assert preview.difference is not None
    assert preview.difference.scheduled_monthly == 0
