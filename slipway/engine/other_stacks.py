"""Evaluates the stacks to which a stack file refers, from their files in the same checkout.

The program reads the outputs of their last update, which needs credentials; this evaluation needs none. Their
pipelines are left out, because no output depends on them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google.protobuf import struct_pb2

from slipway.engine.evaluate import ORGANIZATION, SECTION, evaluate, load_with_placeholders
from slipway.engine.monitor import Evaluation, EvaluationError, Observer
from slipway.engine.secret_outputs import secret_names
from slipway.engine.stack_config import load_stack, project_name, stack_names
from slipway.infra.clouds.registry import emulators
from slipway.infra.commands import command
from slipway.infra.emulator import Emulator
from slipway.infra.features import parts
from slipway.infra.platform_output import UnreadableStackError
from slipway.infra.review.stack import mapping
from slipway.infra.schema.problems import PREFIX, Problem, SettingsError, listed, without_prefix
from slipway.infra.schema.yaml_files import ConfigError
from slipway.infra.settings.loading import lay_over, overlay_settings

SHOWN = 3
"""How many problems of another stack's file are told. Its own preview tells all."""


@dataclass(frozen=True)
class OtherStack:
    """What the file of another stack declares. ``emulators`` stand in for the clouds of its clusters."""

    name: str
    evaluation: Evaluation
    emulators: Sequence[Emulator]

    @property
    def outputs(self) -> dict[str, Any]:
        """Its outputs as plain values, without those in which there is a secret."""
        secret = secret_names(self.evaluation.exported)
        return {name: output.value for name, output in self.evaluation.outputs.items() if name not in secret}


@dataclass(frozen=True)
class OtherStacks:
    """The stacks of the checkout at ``root`` as one of them reads them, each evaluated when it is first asked for.

    ``program`` is what declares a stack. With ``preview`` it is evaluated as before its first update; else as
    after it, with the settings that its file has for rehearsals. ``way`` are the stacks that refer to one another
    up to here; the last one asks. ``observer`` learns what is declared, ``publish`` the plain values of each file.
    """

    root: Path
    program: Callable[[], object]
    preview: bool
    observer: Observer | None = None
    publish: Callable[[Mapping[str, Any]], object] = lambda _: None
    way: Sequence[str] = ()
    _asked: dict[str, OtherStack] = field(default_factory=dict[str, OtherStack])
    _known: dict[str, OtherStack | UnreadableStackError] = field(
        default_factory=dict[str, OtherStack | UnreadableStackError]
    )

    def of(self, stack: str) -> "OtherStacks":
        """The same for the stack of this name; none is evaluated a second time."""
        return replace(self, way=(*self.way, stack), _asked={})

    @property
    def asked(self) -> list[str]:
        """The names of those that were asked for."""
        return list(dict.fromkeys(other.name for other in self._asked.values()))

    @property
    def exported(self) -> dict[str, struct_pb2.Struct]:
        """The outputs of those that were asked for, secrets marked, by their full names."""
        return {name: other.evaluation.exported for name, other in self._asked.items()}

    def resolve(self, reference: str) -> Mapping[str, Any]:
        """The outputs of a stack, as `slipway.infra.platform_output.Resolve` says."""
        return self.find(reference).outputs

    def find(self, reference: str) -> OtherStack:
        """What a stack declares. Raises UnreadableStackError."""
        name = self._name(reference)
        if name in self.way:
            circle = " → ".join([*self.way[self.way.index(name) :], name])
            raise UnreadableStackError(
                f"the stacks refer to one another in a circle: {circle}",
                "declare the clusters in one of them, and let only the others refer to it",
            )
        if name not in self._known:
            try:
                self._known[name] = self._evaluate(name)
            except UnreadableStackError as error:
                self._known[name] = error
        other = self._known[name]
        if isinstance(other, UnreadableStackError):
            raise other
        self._asked[reference if "/" in reference else f"{ORGANIZATION}/{self._project}/{reference}"] = other
        return other

    @property
    def _project(self) -> str:
        return project_name(self.root)

    def _name(self, reference: str) -> str:
        *before, name = reference.split("/")
        if before and before[-1] != self._project:
            raise UnreadableStackError(
                "it is a stack of another project; without the Pulumi CLI only stacks of this project, "
                f"`{self._project}`, can be read: from their files in this checkout",
                f"name a stack of `{self._project}` that has a file in this checkout",
            )
        return name

    def _evaluate(self, name: str) -> OtherStack:
        known = stack_names(self.root)
        if name not in known:
            others = listed(candidate for candidate in known if candidate not in self.way)
            raise UnreadableStackError(
                "this checkout has no file of that stack, from which it is read without the Pulumi CLI",
                f"correct the name, or add the file; there is {others or 'none'}",
            )
        fix = f"correct that file; `{command('preview', stack=name)}` says what is wrong with it"
        try:
            return self._evaluate_file(name)
        except SettingsError as error:
            raise UnreadableStackError(_problems(name, error.problems), fix) from error
        except (ConfigError, EvaluationError) as error:
            raise UnreadableStackError(
                f"the file of the stack `{name}` cannot be evaluated: {error}", fix
            ) from error

    def _evaluate_file(self, name: str) -> OtherStack:
        config = load_stack(name, self.root)
        self.publish(config.values)
        values = dict(config.values)
        overlay = mapping(values.pop(f"{PREFIX}rehearsal", None))
        if overlay and not self.preview:
            values = lay_over(
                values, {f"{PREFIX}{key}": setting for key, setting in overlay_settings(overlay).items()}
            )
        others = self.of(name)
        settings, placeholders, _ = load_with_placeholders(without_prefix(values), others.resolve)
        emulated = emulators(settings.request)
        if placeholders:
            values[f"{PREFIX}{SECTION}"] = {**mapping(values.get(f"{PREFIX}{SECTION}")), **placeholders}
        for leave_out in parts("feature", "leave_pipelines_out") if values.get(f"{PREFIX}pipelines") else ():
            leave_out(values)
        values.pop(f"{PREFIX}pipelines", None)
        for emulator in emulated:
            values = {**emulator.configuration, **values}
        evaluation = evaluate(
            self.program,
            project=self._project,
            stack=name,
            config=values,
            emulators=emulated,
            observer=self.observer,
            preview=self.preview,
            stacks=others.exported,
        )
        return OtherStack(name, evaluation, emulated)


def _problems(name: str, problems: Sequence[Problem]) -> str:
    descriptions = [f"{problem.key}: {problem.shown}: {problem.reason}" for problem in problems[:SHOWN]]
    more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
    count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
    return f"the file of the stack `{name}` has {count} of its own: {'; '.join([*descriptions, *more])}"
