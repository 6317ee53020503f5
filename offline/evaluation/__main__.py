"""Prints what stacks of this revision declare: ``python -m offline.evaluation --stack gcp-dev``.

A preview starts this program in the tree of each revision that it compares, so it may import whatever its own
revision has. What it prints is the contract: see `offline.evaluation.encoding` and `offline.evaluation.worker`.
"""
# ruff: noqa: PLC0415
# What the program imports is imported in the function: an import that fails is an error of the program, too.

from pathlib import Path
from typing import Any

from offline.evaluation.encoding import Encoder, Secrets, configuration
from offline.evaluation.worker import Program, Remark, document, run, stood_in


def evaluate_stack(name: str, tree: Path, secrets: Secrets, remark: Remark) -> dict[str, Any]:
    """What the stack ``name`` of ``tree`` declares; raises what the program raises."""
    from infra.clouds.registry import emulators
    from infra.program import declare, shipping_problems
    from infra.review.stack import Resource
    from infra.schema.problems import SettingsError, without_prefix
    from infra.settings.loading import load
    from offline.engine.evaluate import evaluate
    from offline.engine.monitor import Observer
    from offline.engine.stack_config import load_stack, read_yaml

    class Listener(Observer):
        def registering(self, resource: Resource) -> None:
            secrets.remember(resource.inputs, resource.properties)

    config = load_stack(name, tree)
    secrets.publish(config.values)
    raw = without_prefix(config.values)
    try:
        settings = load(raw)
    except SettingsError as error:
        raise SettingsError([*error.problems, *shipping_problems(raw, tree)]) from None
    found = emulators(settings.request)
    values = stood_in(config.values, found, remark)
    if config.secrets:
        remark(f"secrets that only their passphrase opens have a placeholder: {', '.join(config.secrets)}")
    program = Program(declare)
    evaluation = evaluate(
        program, project="slipway", stack=name, config=values, emulators=found, observer=Listener(), preview=True
    )
    written = configuration(config.values, read_yaml(config.file).get("config"), secrets)
    return document(evaluation, program, found, written, Encoder(secrets, tree))


if __name__ == "__main__":
    run(evaluate_stack)
