"""Prints what stacks of this revision declare: ``python -m slipway.engine.evaluation --stack gcp-dev``.

A preview starts this program in the tree of each revision that it compares, so it may import whatever its own
revision has. What it prints is the contract: see `slipway.engine.evaluation.encoding` and
`slipway.engine.evaluation.worker`.
"""
# ruff: noqa: PLC0415
# What the program imports is imported in the functions: an import that fails is an error of the program, too.

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.engine.evaluation.encoding import Encoder, Secrets, configuration
from slipway.engine.evaluation.worker import Program, Remark, declaration, document, run, with_stand_ins

SECRETS = "slipway:secrets"

if TYPE_CHECKING:
    from slipway.engine.monitor import Evaluation, Observer
    from slipway.engine.other_stacks import OtherStacks
    from slipway.infra.review.stack import Resource
    from slipway.infra.schema.problems import Problem


def evaluate_stack(name: str, tree: Path, secrets: Secrets, remark: Remark) -> dict[str, Any]:
    """What the stack ``name`` of ``tree`` declares; raises what the program raises."""
    from slipway.engine.evaluate import evaluate, load_with_placeholders
    from slipway.engine.evaluation.remarks import remarks_on_unknown
    from slipway.engine.project import SlipwayProject, naming_all_missing
    from slipway.engine.stack_config import load_stack, read_yaml
    from slipway.infra.clouds.registry import emulators
    from slipway.infra.features import parts
    from slipway.infra.schema.problems import SettingsError, without_prefix
    from slipway.infra.stack.configuration import shipping_problems

    config = load_stack(name, tree)
    secrets.publish(config.values)
    if not config.ours and (evaluations := parts("evaluation", "evaluate_other")):
        return evaluations[0](name, config, tree, secrets, remark, _listener(secrets))
    raw = without_prefix(config.values)
    others = _others(tree, secrets).of(name)
    try:
        renamed: list[Problem] = []
        settings, placeholders, unset = load_with_placeholders(raw, others.resolve, warn=renamed.append)
    except SettingsError as error:
        raise SettingsError([*error.problems, *shipping_problems(raw, tree)]) from None
    emulated = emulators(settings.request)
    values = with_stand_ins(config.values, emulated, remark)
    if config.secrets:
        remark(f"secrets that only their passphrase opens have a placeholder: {', '.join(config.secrets)}")
    file: Mapping[str, Any] = read_yaml(config.file).get("config") or {}
    project = SlipwayProject.read(tree)
    program = Program(project.run)

    def run_program() -> "Evaluation":
        return evaluate(
            program,
            project=project.name,
            stack=name,
            config={**values, **_secret_digests(file, secrets, placeholders)},
            secrets=[SECRETS] if config.secrets or placeholders else [],
            emulators=emulated,
            observer=_listener(secrets),
            preview=True,
            stacks=others.exported,
        )

    with project.in_folder():
        evaluation = naming_all_missing(run_program)
        for text in remarks_on_unknown(evaluation, tree):
            remark(text)
        written = configuration(config.values, file, secrets)
        whole = document(evaluation, program, emulated, written, Encoder(secrets, tree))
    return {**whole, "unset": [*map(_described, unset)], "renamed": [*map(_described, renamed)]}


def _described(problem: "Problem") -> dict[str, str]:
    return {"key": problem.key, "reason": problem.reason, "fix": problem.fix}


def _secret_digests(file: Mapping[str, Any], secrets: Secrets, placeholders: Mapping[str, str]) -> dict[str, Any]:
    """A value for each encrypted secret of the stack: another one where its ``file`` has another text.

    ``placeholders`` are in the place of those that the file does not have.
    """
    section: Mapping[str, Any] = {**(file.get(SECRETS) or {}), **placeholders}
    return {SECRETS: {name: secrets.digest(value)["digest"] for name, value in section.items()}} if section else {}


def other_stacks(name: str, tree: Path, secrets: Secrets) -> dict[str, Any]:
    """What the stacks declare to whose clusters the file of the stack ``name`` refers.

    ``clusters`` are those, by their names in the file, each with its stack and its name there. ``stacks`` has what
    each stack declares, with the namespaces and service accounts of its teams; None where that cannot be told. A
    stack is missing where ``tree`` has no file of it.
    """
    try:
        from slipway.engine.stack_config import load_stack, references, stack_names
        from slipway.infra.schema.problems import without_prefix

        references_of_stack = references(without_prefix(load_stack(name, tree).values))
        names_here = stack_names(tree)
        others = _others(tree, secrets).of(name)
        stacks = {
            reference.stack: _declared_document(reference.reference, others, Encoder(secrets, tree))
            for reference in references_of_stack
        }
    except Exception:
        # The evaluation of the stack tells what is wrong.
        return {}
    return (
        {
            "elsewhere": {
                "clusters": {
                    reference.name: {"stack": reference.stack, "cluster": reference.cluster}
                    for reference in references_of_stack
                },
                "stacks": {stack: content for stack, content in stacks.items() if stack in names_here},
            }
        }
        if references_of_stack
        else {}
    )


def _declared_document(reference: str, others: "OtherStacks", encoder: Encoder) -> dict[str, Any] | None:
    from slipway.infra.platform_output import OUTPUT, UnreadableStackError
    from slipway.infra.review.stack import at, mapping, text

    try:
        other = others.find(reference)
    except UnreadableStackError:
        return None
    teams = mapping(at(other.outputs, OUTPUT, "teams")).values()
    return {
        **declaration([*other.evaluation.resources.values()], other.emulators, encoder),
        "teams": [[text(at(team, "namespace")), text(at(team, "service_account"))] for team in teams],
    }


@cache
def _others(tree: Path, secrets: Secrets) -> "OtherStacks":
    """The stacks of ``tree`` as others read them: this process evaluates each of them once for that."""
    from slipway.engine.other_stacks import OtherStacks
    from slipway.infra.program import declare

    return OtherStacks(tree, declare, preview=True, observer=_listener(secrets), publish=secrets.publish)


def _listener(secrets: Secrets) -> "Observer":
    """Keeps all secrets that resources are declared with out of messages."""
    from slipway.engine.monitor import Observer

    class Listener(Observer):
        def registering(self, resource: "Resource") -> None:
            secrets.remember(resource.inputs, resource.properties)

    return Listener()


if __name__ == "__main__":
    run(evaluate_stack, other_stacks)
