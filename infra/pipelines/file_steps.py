"""The steps of a ``pipeline.yaml``, with its references resolved by the settings of a stack."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infra.pipelines import references
from infra.pipelines.contract import (
    Best,
    Command,
    Items,
    MultiNodeSettings,
    Nodes,
    StepDeclaration,
    StepSettings,
    literal,
)
from infra.pipelines.file_builds import build_of
from infra.pipelines.file_services import Place, queue_of, substitute
from infra.pipelines.file_settings import used_in
from infra.pipelines.matrix import Value, variants, written
from infra.pipelines.node_roles import resized
from infra.pipelines.pipeline_file import PipelineFile, PipelineStep, StepResult, TableColumn
from infra.pipelines.results import Column, Curves, File, Number, Picture, Result, Table, heading, items_table
from infra.schema.paths import below_problem
from infra.schema.quantities import seconds


def steps(declared: PipelineFile, settings: Any, place: Place) -> Sequence[StepDeclaration]:
    """The steps with ``settings``, those of `infra.pipelines.file_settings`; variants in place of a matrix."""
    return [variant for name in declared.steps for variant in _variants(name, declared, settings, place)]


def _variants(name: str, declared: PipelineFile, settings: Any, place: Place) -> Sequence[StepDeclaration]:
    step = declared.steps[name]
    # A folder that leads out is refused; its files, which may be many, are not looked at.
    code = "." if below_problem(step.code.removeprefix("./")) else step.code

    def declare(own: Mapping[str, Value], placed_by: StepSettings) -> StepDeclaration:
        def value(reference: str) -> str | None:
            if reference not in declared.parameters:
                return None
            return literal(written(own[reference] if reference in own else getattr(settings, reference)))

        def filled(word: str) -> str:
            return references.replaced(word, value)

        queue = queue_of(step, placed_by)
        return StepDeclaration(
            name=name,
            module=None,
            placed_by=placed_by,
            arguments=[filled(word) for word in step.run],
            inputs={each: each for each in used_in(step) if each in declared.steps},
            after=step.after,
            requirements=step.requirements and place(step.requirements),
            results=_results(step),
            command=Command(place(code), step.files, substitute(step.rehearsal, filled, place)),
            environment={key: filled(each) for key, each in step.environment.items()},
            secrets=step.secrets,
            best=step.best and Best(step.best.by, step.best.of),
            connects=tuple(dict.fromkeys([*([queue] if queue else []), *step.connects])),
            items=_items(step, placed_by, filled, queue),
            workers=getattr(placed_by, "workers", 1) if step.items else 1,
            nodes=_nodes(step, placed_by),
            build=None if placed_by.image else build_of(name, step.image, step.build, declared.build, place),
        )

    return variants(getattr(settings.steps, name), declare)


def _items(step: PipelineStep, settings: Any, filled: Callable[[str], str], queue: str | None) -> Items | None:
    if step.items is None:
        return None
    return Items(
        files=filled(step.items.files),
        mode=settings.mode,
        queue=queue,
        attempts=step.items.attempts,
        allow_failed=step.items.allow_failed,
        lease=seconds(step.items.lease),
    )


def _nodes(step: PipelineStep, settings: StepSettings) -> Nodes | None:
    """The pods of a step on several nodes, where there are several."""
    if step.nodes is None or not isinstance(settings, MultiNodeSettings) or settings.nodes == 1:
        return None
    roles = resized(step.nodes.roles, settings.nodes)
    return Nodes(settings.nodes, roles, seconds(settings.wait), step.nodes.port)


def _results(step: PipelineStep) -> tuple[Result, ...]:
    """The declared results, and the table of the items where there are any."""
    table = [items_table(_columns(step.items.columns))] if step.items else []
    return (*table, *(result(key, each) for key, each in step.results.items()))


def _columns(declared: Mapping[str, TableColumn]) -> tuple[Column, ...]:
    return tuple(
        Column(key=key, title=each.title or heading(key), format=each.format) for key, each in declared.items()
    )


def result(name: str, declared: StepResult) -> Result:
    """A result under ``name``, as stack outputs and the report know it."""
    title = declared.title or heading(name)
    where = declared.number or declared.table or declared.curves or declared.picture or declared.file or ""
    path, _, select = where.partition("#")
    if declared.number is not None:
        return Number(name=name, title=title, path=path, select=select, format=declared.format or "number")
    if declared.table is not None:
        columns = _columns(declared.columns or {})
        compare = (declared.compare[0], declared.compare[1]) if declared.compare else None
        return Table(name=name, title=title, path=path, select=select, columns=columns, compare=compare)
    if declared.curves is not None:
        return Curves(
            name=name,
            title=title,
            path=path,
            select=select,
            curves=tuple(declared.draw or ()),
            unit=declared.unit or "epoch",
            logs=declared.logs or "",
        )
    return (File if declared.picture is None else Picture)(name=name, title=title, path=where)
