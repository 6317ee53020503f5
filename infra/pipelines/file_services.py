"""The services of a ``pipeline.yaml``, and which of its steps connect to them, with the settings of a stack."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from infra.pipelines import references, valkey
from infra.pipelines.contract import Probe, ServiceDeclaration, ServiceSettings, Substitute, literal
from infra.pipelines.file_builds import build_of
from infra.pipelines.file_settings import ASSIGNMENT, QUEUE, SERVICES
from infra.pipelines.matrix import written
from infra.pipelines.pipeline_file import PipelineFile, PipelineService, PipelineStep, RehearsalCommand

Place = Callable[[str], str]
"""A path below the pipeline's folder as a declaration names it: below the repository, or absolute."""


def services(declared: PipelineFile, settings: Any, place: Place) -> Sequence[ServiceDeclaration]:
    """The services to which a step connects with ``settings``, those of `infra.pipelines.file_settings`."""
    used = {
        service
        for name, step in declared.steps.items()
        for service in (*step.connects, queue_of(step, getattr(settings.steps, name)))
    }
    return [
        _service(name, each, declared, settings, place) for name, each in declared.services.items() if name in used
    ]


def queue_of(step: PipelineStep, settings: Any) -> str | None:
    """The service that hands out the items of ``step``, which ``settings`` place; None where none does."""
    with_queue = step.items is not None and getattr(settings, ASSIGNMENT, None) == QUEUE
    return step.items.queue if step.items and with_queue else None


def substitute(declared: RehearsalCommand | None, filled: Callable[[str], str], place: Place) -> Substitute | None:
    """What a rehearsal runs instead; ``filled`` is a word with the values of parameters in place of references."""
    if declared is None:
        return None
    requirements = declared.requirements
    return Substitute([filled(word) for word in declared.run or ()], requirements and place(requirements))


def _service(
    name: str, service: PipelineService, declared: PipelineFile, settings: Any, place: Place
) -> ServiceDeclaration:
    placed_by: ServiceSettings = getattr(getattr(settings, SERVICES), name)

    def value(reference: str) -> str | None:
        known = reference in declared.parameters
        return literal(written(getattr(settings, reference))) if known else None

    def filled(word: str) -> str:
        return references.replaced(word, value)

    instead = substitute(service.rehearsal, filled, place)
    if service.kind == valkey.KIND:
        preset = valkey.declaration(name, placed_by)
        return replace(preset, image=service.image or preset.image, substitute=instead or preset.substitute)
    return ServiceDeclaration(
        name=name,
        image=service.image or "",
        arguments=[filled(word) for word in service.run or ()],
        port=service.port or 0,
        placed_by=placed_by,
        probe=Probe(service.probe and service.probe.path),
        substitute=instead,
        build=build_of(name, service.image, service.build, declared.build, place),
    )
