"""Compares the variants of a step: their settings, numbers and durations, and which is best."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pydantic import ValidationError

from slipway.infra.kubernetes.labels import RESULTS_ANNOTATION
from slipway.infra.pipelines.results import RESULTS, Number
from slipway.infra.placed_model import PlacedStep
from slipway.infra.review.stack import Resource, strings
from slipway.rehearse.output.results import CollectedResults, JobResults, ShownNumber, decimals, format_value
from slipway.rehearse.state import JobRecord

DIGITS = 6
"""Digits after the point that numbers have at most to be told apart."""

POOL = "pool"
"""The name under which a variant has the pool that it runs on."""

Value = bool | int | float | str


@dataclass(frozen=True)
class ComparedVariant:
    """One variant: its own settings, and by name the numbers that it left."""

    record: JobRecord
    values: Mapping[str, Value]
    numbers: Mapping[str, ShownNumber]

    def value(self, name: str) -> float | None:
        """One of its numbers; None where it left none."""
        return self.numbers[name].value if name in self.numbers else None

    def text(self, axis: str) -> str:
        """Its value on an axis as people read it; a pool with its accelerator."""
        value = self.values.get(axis, "")
        if axis == POOL and self.record.accelerator:
            return f"{value} ({self.record.accelerator})"
        return value if isinstance(value, str) else json.dumps(value)

    @property
    def label(self) -> str:
        """All values in one line: ``trees 300, pool t4``."""
        return ", ".join(f"{axis} {self.text(axis)}" for axis in self.values)

    @property
    def result(self) -> str:
        """How its Job ended."""
        code = 0 if self.record.phase.good else self.record.exit_code
        return f"{self.record.phase}, exit code {code}" if code else str(self.record.phase)


@dataclass(frozen=True)
class Comparison:
    """The variants of one step, in the order of their declaration.

    ``measures`` are titles of numbers by name. ``by`` is the name of the number that decides which variant later
    steps read, and ``of`` says whether the largest or the smallest is best; without ``by`` they read all.
    """

    pipeline: str
    step: str
    variants: Sequence[ComparedVariant]
    measures: Mapping[str, str] = field(default_factory=dict[str, str])
    by: str = ""
    of: Literal["max", "min"] = "max"

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """In what the variants differ."""
        return tuple(dict.fromkeys(axis for variant in self.variants for axis in variant.values))

    @cached_property
    def best(self) -> ComparedVariant | None:
        """The variant that later steps read: of equal ones the first, as the steps themselves choose."""
        sign = 1 if self.of == "max" else -1
        values = [(variant, value) for variant in self.variants if (value := variant.value(self.by)) is not None]
        return max(values, key=lambda entry: sign * entry[1], default=(None, 0.0))[0]

    @property
    def title(self) -> str:
        """What is compared."""
        return f"{len(self.variants)} variants of {self.step}"

    @property
    def rule(self) -> str:
        """A sentence that says what is marked."""
        if not self.by:
            return ""
        largest = "largest" if self.of == "max" else "smallest"
        lacking = sum(variant.value(self.by) is None for variant in self.variants)
        without = f"; {lacking} of {len(self.variants)} left none" if lacking else ""
        return f"★ the {largest} {self.measures.get(self.by, self.by)}: later steps read this variant{without}"

    def cell(self, variant: ComparedVariant, name: str) -> str:
        """A number of a variant with as many digits as those of the others; empty where it left none."""
        if name not in variant.numbers:
            return ""
        number = variant.numbers[name]
        if number.value is None:
            return number.text
        values = {value for other in self.variants if (value := other.value(name)) is not None}
        digits = decimals(values)
        # As many more as tell the variants apart, within reason.
        while digits < DIGITS and len({format_value(value, number.format, digits) for value in values}) < len(
            values
        ):
            digits += 1
        return format_value(number.value, number.format, digits)


def compare(
    jobs: Iterable[Resource],
    steps: Iterable[PlacedStep],
    records: Mapping[str, JobRecord],
    results: CollectedResults,
    order: Sequence[str] = (),
) -> tuple[Comparison, ...]:
    """A comparison for each of ``steps`` of which ``jobs`` run variants, however these ended.

    ``records`` are by URN; ``order`` are names of Jobs as their steps are declared. Others come by their values.
    """
    numbers = {
        job_results.job: {number.name: number for number in job_results.numbers} for job_results in results.jobs
    }
    places = {name: number for number, name in enumerate(order)}
    by_name = {job.name: job for job in jobs}
    groups: dict[tuple[str, str], list[PlacedStep]] = {}
    for step in steps:
        if step.variant and step.job in by_name:
            groups.setdefault((step.pipeline, step.declared), []).append(step)
    for variants in groups.values():
        variants.sort(key=lambda step: (places.get(step.job, len(places)), _sizes(step)))
    return tuple(
        _comparison(pipeline, name, [(by_name[step.job], step.variant) for step in variants], records, numbers)
        for (pipeline, name), variants in groups.items()
    )


def _sizes(step: PlacedStep) -> list[tuple[float, str]]:
    """What to sort by: numbers by size, texts by the alphabet."""
    values: Mapping[str, Value] = step.variant["values"]
    return [(0.0, size) if isinstance(size, str) else (float(size), "") for size in values.values()]


def _comparison(
    pipeline: str,
    step: str,
    variants: Sequence[tuple[Resource, Mapping[str, Any]]],
    records: Mapping[str, JobRecord],
    numbers: Mapping[str, Mapping[str, ShownNumber]],
) -> Comparison:
    best: Mapping[str, Any] = next(
        (variant["best"] for _, variant in variants if "best" in variant), dict[str, Any]()
    )
    measures: dict[str, str] = {}
    for job, _ in variants:
        measures.update({number.name: number.title for number in _declared_numbers(job)})
    return Comparison(
        pipeline,
        step,
        [
            ComparedVariant(records[job.urn], variant["values"], numbers.get(job.name, {}))
            for job, variant in variants
        ],
        measures,
        best.get("by", ""),
        best.get("of", "max"),
    )


def _declared_numbers(job: Resource) -> list[Number]:
    text = strings(job.metadata.get("annotations")).get(RESULTS_ANNOTATION, "[]")
    try:
        return [number for number in RESULTS.validate_json(text) if isinstance(number, Number)]
    except ValidationError:
        # `collect` says of these results that they cannot be shown.
        return []


def shown_whole(jobs: Iterable[JobResults], comparisons: Iterable[Comparison]) -> list[JobResults]:
    """The Jobs whose tables, pictures and curves are shown. Of the variants of a step only the best is, if one is.

    Each variant's titles say which one it is.
    """
    variants = {
        candidate.record.name: (compared, candidate) for compared in comparisons for candidate in compared.variants
    }
    whole: list[JobResults] = []
    for job in jobs:
        comparison, variant = variants.get(job.job, (None, None))
        if comparison is None or variant is None:
            whole.append(job)
        elif comparison.best is None or comparison.best is variant:
            whole.append(job.titled(variant.label))
    return whole
