"""Caches of steps: whether the step reads anything that one keeps, and whether one keeps anything."""

from collections.abc import Iterator

from slipway.infra.pipelines.contract import StepDeclaration
from slipway.infra.schema.problems import Finding, Path
from slipway.infra.schema.quantities import mebibytes
from slipway.infra.settings.parsing import Reading
from slipway.infra.settings.pipelines import place_of, steps_if_any

LEAST = 1024
"""MiB that a cache has at least: of less, what file systems take for themselves is a part worth naming."""


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the caches of steps."""
    for name, settings in reading.draft.pipelines.items():
        for step in steps_if_any(name, settings):
            if step.placed_by.cache is not None:
                yield from _cache((*place_of(name, settings, step), "cache"), step, step.placed_by.cache)


def _cache(at: Path, step: StepDeclaration, size: str) -> Iterator[Finding]:
    if step.command is None:
        reason = "its program is a module of the pipeline, which opens the store itself"
        yield Finding(at, size, reason, "remove it, or write the step in a `pipeline.yaml`")
    elif not step.inputs and not step.data:
        reason = "the step reads neither results of other steps nor inputs, so that there is nothing to keep"
        yield Finding(at, size, reason, "remove it")
    elif mebibytes(size) < LEAST:
        yield Finding(at, size, f"a cache of less than {LEAST}Mi keeps little", f"write `{LEAST}Mi` or more")
