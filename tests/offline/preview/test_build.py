"""What goes wrong with the preview of one stack is told of that stack, and the others have theirs."""

from collections.abc import Mapping
from datetime import date

from slipway.infra.exits import Exit
from slipway.infra.review.contract import Severity
from slipway.infra.review.stack import Stack
from slipway.offline.evaluated.timeline import JobDuration
from slipway.offline.evaluation.decoding import EvaluatedStack
from slipway.offline.preview.build import Options, build, exit_code
from slipway.offline.preview.revisions import Evaluations


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
