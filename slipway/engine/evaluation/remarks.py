"""What people are told of values that only a cloud or an update knows."""

from collections.abc import Iterator
from pathlib import Path

from slipway.engine.evaluation.worker import message, where
from slipway.engine.leaving_unknown import OtherTypeError
from slipway.engine.monitor import Evaluation
from slipway.engine.provider_outputs import unmark
from slipway.engine.unknown_results import ENTRIES


def remarks_on_unknown(evaluation: Evaluation, tree: Path) -> Iterator[str]:
    """What the program asked of a cloud that nothing here stands in for, and what of it is not evaluated."""
    if evaluation.unanswered:
        yield f"values known only by the cloud: {', '.join(sorted(evaluation.unanswered))}"
    if stood_in := sorted(name for name, at_once in evaluation.unanswered.items() if at_once):
        yield (
            f"the program reads at once what only the cloud knows: in the results of {', '.join(stood_in)} a list "
            f"is taken to have {ENTRIES} entries, and a truth value to be false"
        )
    for error in evaluation.left_unknown:
        place = where(error, tree)
        if isinstance(error, OtherTypeError):
            yield str(error)
        else:
            text = str(unmark(message(error))) + (f" ({place})" if place else "")
            yield f"what a callback makes of a value that only an update knows is unknown: {text}"
