"""What the stacks of a Pulumi project declare that does not use Slipway."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.engine.any_program import PulumiProject, naming_all_missing
from slipway.engine.evaluate import evaluate
from slipway.engine.evaluation.encoding import Encoder, Secrets, configuration
from slipway.engine.evaluation.worker import Program, Remark, document, message, where
from slipway.engine.leaving_unknown import OtherTypeError
from slipway.engine.monitor import Evaluation
from slipway.engine.provider_outputs import mark, unmark
from slipway.engine.stack_config import StackConfig
from slipway.engine.unknown_results import ENTRIES

if TYPE_CHECKING:
    from slipway.engine.monitor import Observer


def evaluate_any(  # noqa: PLR0917  # As evaluate_stack, with the configuration that it has read.
    name: str, config: StackConfig, tree: Path, secrets: Secrets, remark: Remark, observer: "Observer"
) -> dict[str, Any]:
    """What the stack ``name`` of the project in ``tree`` declares; raises what the program raises."""
    project = PulumiProject.read(tree)
    program = Program(project.run)

    def run() -> Evaluation:
        return evaluate(
            program,
            project=project.name,
            stack=name,
            config=_with_marks(config),
            secrets=sorted({_top(key) for key in config.secrets}),
            observer=observer,
            preview=True,
        )

    if config.secrets:
        remark(f"secrets that only their passphrase opens are unknown: {', '.join(config.secrets)}")
    # The paths of files that resources upload are relative to the program's folder.
    with project.in_folder():
        evaluation = naming_all_missing(run)
        for text in remarks_on_unknown(evaluation, tree):
            remark(text)
        written = configuration(config.values, config.written, secrets)
        return document(evaluation, program, (), written, Encoder(secrets, tree))


def _with_marks(config: StackConfig) -> dict[str, Any]:
    """The configuration with a mark for each value that only the stack's passphrase or key service opens."""
    return {key: mark(key) if key in config.secrets else value for key, value in config.values.items()}


def _top(key: str) -> str:
    """``app:keys`` of ``app:keys.first[0]``."""
    return re.split(r"[.\[]", key, maxsplit=1)[0]


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
