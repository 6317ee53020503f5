"""What the stacks of a Pulumi project declare that does not use Slipway."""

import re
from pathlib import Path
from typing import Any

from slipway.engine.evaluate import evaluate
from slipway.engine.evaluation.encoding import Encoder, Secrets, configuration
from slipway.engine.evaluation.remarks import remarks_on_unknown
from slipway.engine.evaluation.worker import Program, Remark, document
from slipway.engine.monitor import Evaluation, Observer
from slipway.engine.project import PulumiProject, naming_all_missing
from slipway.engine.provider_outputs import mark
from slipway.engine.stack_config import StackConfig


def evaluate_other(  # noqa: PLR0917  # As evaluate_stack, with the configuration that it has read.
    name: str, config: StackConfig, tree: Path, secrets: Secrets, remark: Remark, observer: Observer
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
