"""What keeps a step from running at one of several places, and what its times and its price would never do."""

from collections.abc import Iterator

from slipway.infra.pipelines.contract import StepDeclaration, StepSettings, placements
from slipway.infra.pipelines.matrix import MatrixStepSettings
from slipway.infra.pipelines.places import CONDITIONS
from slipway.infra.schema.problems import Finding, listed
from slipway.infra.schema.quantities import seconds
from slipway.infra.schema.rules import Section
from slipway.infra.settings.checks.pipelines import RULES, pools_of
from slipway.infra.settings.checks.steps import Target, targets
from slipway.infra.settings.parsing import Draft, Reading
from slipway.infra.settings.pipelines import KEY, place_of, steps_if_any

FEWEST = 2
"""Places of a step that has any: one is `pool`."""


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about steps with places, and about keys that say something about places where there are none."""
    draft = reading.draft
    for at, placed in placements(draft.pipelines, (KEY,)):
        if isinstance(placed, StepSettings):
            here = Section(RULES["places"], at, placed)
            yield from _times(here, placed) if placed.places else ()
            yield from _useless(here, placed) if placed.places is None else ()
            yield from _several(here, placed)
    for name, settings in draft.pipelines.items():
        moved = [step for step in steps_if_any(name, settings) if step.placed_by.places]
        for step in moved:
            here = Section(RULES["places"], place_of(name, settings, step), None)
            yield from _kind(here, step)
            yield from _clusters(here, step, draft)
            yield from _hardware(here, step, targets(draft))
            for place, on in step.placed_by.on_pools:
                if f"{on.pool}-probe" in step.placed_by.pools:
                    yield here.found("probe", *place, shown=on.pool, pool=on.pool)
        if moved and settings.schedule is not None:
            here, steps = Section(RULES["places"], (KEY, name), None), listed(step.name for step in moved)
            yield here.found("schedule", steps=steps)


def _several(here: Section, placed: StepSettings) -> Iterator[Finding]:
    """One place, a place twice, whose Jobs would have one name, and a step for each pool."""
    names = [place.pool for place in placed.places or ()]
    if placed.places is not None and len(names) < FEWEST:
        yield here.found("few", shown=names, count="a single" if names else "no")
    for index, name in enumerate(names):
        if name in names[:index]:
            yield here.found("twice", index, shown=name)
    if placed.places and isinstance(placed, MatrixStepSettings) and placed.matrix.pool:
        yield here.found("matrix", shown=None)


def _useless(here: Section, placed: StepSettings) -> Iterator[Finding]:
    for key in CONDITIONS:
        # One that says what holds anyway says nothing wrong.
        if getattr(placed, key) != type(placed).model_fields[key].default:
            yield here.found("useless", key, key=key)


def _times(here: Section, placed: StepSettings) -> Iterator[Finding]:
    limit = seconds(placed.time_limit)
    if seconds(placed.next_after) >= limit:
        yield here.found("late", placed=placed)
    if placed.deadline is None:
        if placed.work is not None:
            yield here.found("no-deadline")
        return
    if placed.work is None:
        yield here.found("no-work")
    elif seconds(placed.work) >= seconds(placed.deadline):
        yield here.found("long-work", placed=placed)
    if seconds(placed.deadline) > limit:
        yield here.found("late-deadline", placed=placed)


def _kind(here: Section, step: StepDeclaration) -> Iterator[Finding]:
    if step.shares:
        yield here.found("kind", what=step.shares)
    elif step.command is None and not any("{output}" in argument for argument in step.arguments):
        yield here.found("no-result")


def _clusters(here: Section, step: StepDeclaration, draft: Draft) -> Iterator[Finding]:
    pools = pools_of(draft)
    clusters = dict.fromkeys(str(pools[pool][0][1]) for pool in step.placed_by.pools if pool in pools)
    others = [name for name in clusters if draft.clusters[name].other_stack]
    if others:
        yield here.found("other-stack", cluster=others[0])
    if step.connects and len(clusters) > 1:
        names, services = listed(clusters, "and"), listed(step.connects, "and")
        yield here.found("services", clusters=names, services=services)


def _hardware(here: Section, step: StepDeclaration, known: dict[str, Target]) -> Iterator[Finding]:
    """Places that one image, or one division of the work, does not suit."""
    places = [(place, on, known[on.pool]) for place, on in step.placed_by.on_pools if on.pool in known]
    with_gpus = [place for place in places if place[2].pool.has_gpus]
    if with_gpus and len(with_gpus) < len(places) and step.placed_by.image is None and step.build is None:
        yield here.found("images")
    if step.is_group and len({on.gpus for _, on, _ in places}) > 1:
        gpus = places[0][1].gpus
        place, on, _ = next(entry for entry in places if entry[1].gpus != gpus)
        yield here.found("counts", *place, shown=on.pool, on=on, gpus=gpus)
