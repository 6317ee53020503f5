"""Prints what stacks of a revision from before ``python -m offline.evaluation`` declare, in today's format.

Such a revision (any up to November 2026) has its engine in ``stacks`` and no folder ``offline``. This file is
started by its path in the root of the older tree. It imports ``infra`` and ``stacks`` from there, and the encoder
from the revision that it belongs to. It can be deleted once nobody compares with a revision that old.
"""
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownMemberType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# ruff: noqa: PLC0415
# The modules are those of the older revision.

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offline.evaluation.encoding import Secrets
    from offline.evaluation.worker import Remark

PREFIX = "slipway:"


def evaluate_stack(name: str, tree: Path, secrets: "Secrets", remark: "Remark") -> dict[str, Any]:
    """What the stack ``name`` of ``tree`` declares; raises what the program raises."""
    from stacks.config import load_stack, read_yaml
    from stacks.emulators import emulators
    from stacks.evaluate import evaluate
    from stacks.monitor import Observer
    from stacks.program import declare, shipping_problems

    from infra.settings.errors import SettingsError
    from infra.settings.loading import load
    from offline.evaluation.encoding import Encoder, configuration
    from offline.evaluation.worker import Program, document, with_stand_ins

    class Listener(Observer):
        def registering(self, resource: Any) -> None:
            secrets.remember(resource.inputs, resource.shown_inputs)

    _answer_as_in_a_preview()
    config = load_stack(name, tree)
    secrets.publish(config.values)
    raw = {key.removeprefix(PREFIX): value for key, value in config.values.items() if key.startswith(PREFIX)}
    try:
        settings = load(raw)
    except SettingsError as error:
        raise SettingsError([*error.problems, *shipping_problems(raw, tree)]) from None
    emulated = emulators(settings)
    values = with_stand_ins(config.values, emulated, remark)
    program = Program(declare)
    evaluation = evaluate(
        program,
        project="slipway",
        stack=name,
        config=values,
        emulators=emulated,
        observer=Listener(),
        preview=True,
    )
    for urn, known_resource in evaluation.resources.items():
        evaluation.resources[urn] = SimpleNamespace(
            **vars(known_resource), type=known_resource.token, properties=known_resource.shown_inputs
        )
    written = configuration(config.values, read_yaml(config.file).get("config"), secrets)
    return document(evaluation, program, emulated, written, Encoder(secrets, tree))


def _answer_as_in_a_preview() -> None:
    """Makes the engine of a revision from before previews leave unknown what only an update knows."""
    from pulumi.runtime.proto import resource_pb2

    from stacks import evaluate, monitor

    class Previewing(monitor.Monitor):
        def _answer(self, request: Any, resource: Any, *, lost: bool) -> Any:  # noqa: ARG002
            return resource_pb2.RegisterResourceResponse(urn=resource.urn, object=request.object)

    if not hasattr(monitor.Cloud, "foreseen"):
        evaluate.Monitor = Previewing


if __name__ == "__main__":
    sys.path[:0] = [str(Path.cwd())]
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from offline.evaluation.worker import run

    run(evaluate_stack)
