"""What keeps a step from running at one of several places, and what its times and its price would never do."""

from collections.abc import Iterator, Sequence

from slipway.infra.pipelines.contract import PipelineSettings, StepDeclaration, StepSettings, placements
from slipway.infra.pipelines.matrix import MATRIX, POOL, MatrixStepSettings
from slipway.infra.pipelines.places import CONDITIONS, PLACES
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.schema.quantities import seconds
from slipway.infra.settings.checks.pipelines import pools_of
from slipway.infra.settings.checks.steps import Target, targets
from slipway.infra.settings.parsing import Draft, Reading
from slipway.infra.settings.pipelines import KEY, place_of, steps_if_any

FEWEST = 2
"""Places of a step that has any: one is `pool`."""

DEFAULT_QUEUE = "default"
"""The LocalQueue whose label Kueue gives to Jobs that name no queue (pkg/controller/jobframework/defaults.go of
github.com/kubernetes-sigs/kueue, v0.19.2, seen November 2026)."""


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about steps with places, and about keys that say something about places where there are none."""
    draft = reading.draft
    for at, placed in placements(draft.pipelines, (KEY,)):
        if isinstance(placed, StepSettings):
            yield from _times(at, placed) if placed.places else ()
            yield from _useless(at, placed) if placed.places is None else ()
            yield from _several(at, placed)
            yield from _matrix(at, placed)
    for name, settings in draft.pipelines.items():
        moved = [step for step in steps_if_any(name, settings) if step.placed_by.places]
        for step in moved:
            at = place_of(name, settings, step)
            yield from _kind(at, step)
            yield from _clusters(at, step, draft)
            yield from _queue(at, draft)
            yield from _hardware(at, step, targets(draft))
            yield from _names(at, step)
        if moved:
            yield from _runs(name, settings, moved)


def _several(at: Path, placed: StepSettings) -> Iterator[Finding]:
    """One place, and a place twice, whose Jobs would have one name."""
    names = [place.pool for place in placed.places or ()]
    if placed.places is not None and len(names) < FEWEST:
        fix = f"write `pool` in place of `{PLACES}`, or add another pool"
        yield Finding((*at, PLACES), names, "a single place" if names else "no place", fix)
    for index, name in enumerate(names):
        if name in names[:index]:
            fix = "remove one of them: after the last place comes the first"
            yield Finding((*at, PLACES, index), name, "it stands here twice", fix)


def _useless(at: Path, placed: StepSettings) -> Iterator[Finding]:
    for key in CONDITIONS:
        # One that says what holds anyway says nothing wrong.
        if getattr(placed, key) != type(placed).model_fields[key].default:
            reason = "it decides between places, and the step has one pool"
            fix = f"add `{PLACES}`, or remove `{key}`"
            yield Finding((*at, key), getattr(placed, key), reason, fix, read=((*at, PLACES),))


def _matrix(at: Path, placed: StepSettings) -> Iterator[Finding]:
    if placed.places and isinstance(placed, MatrixStepSettings) and placed.matrix.pool:
        reason = f"its `{MATRIX}` makes a step for each pool, and `{PLACES}` one step at one of them"
        yield Finding((*at, PLACES), None, reason, f"remove `{MATRIX}.{POOL}` or `{PLACES}`")


def _times(at: Path, placed: StepSettings) -> Iterator[Finding]:
    limit, key = seconds(placed.time_limit), (*at, "time_limit")
    if seconds(placed.next_after) >= limit:
        yield Finding(
            (*at, "next_after"),
            placed.next_after,
            f"the step would wait for its first place until its time limit, {placed.time_limit}, is over",
            "write less, such as `15m`, or a longer `time_limit`",
            read=(key,),
        )
    if placed.deadline is None:
        if placed.work is not None:
            reason = "without `deadline` it decides nothing"
            yield Finding((*at, "work"), placed.work, reason, "add `deadline`, or remove `work`")
        return
    if placed.work is None:
        yield Finding(
            (*at, "deadline"),
            placed.deadline,
            "nothing says how long its program computes, and so when it falls behind",
            "add `work: <time>`, as long as it takes without interruption; rather too long than too short",
        )
    elif seconds(placed.work) >= seconds(placed.deadline):
        yield Finding(
            (*at, "work"),
            placed.work,
            f"as long as the deadline, {placed.deadline}, or longer: no place could keep it",
            "write a longer `deadline`",
            read=((*at, "deadline"),),
        )
    if seconds(placed.deadline) > limit:
        yield Finding(
            (*at, "deadline"),
            placed.deadline,
            f"the step ends at its time limit, {placed.time_limit}, before that",
            "write a longer `time_limit`: it may be far longer, since a step that is late still ends well",
            read=(key,),
        )


def _kind(at: Path, step: StepDeclaration) -> Iterator[Finding]:
    if step.shares:
        yield Finding(
            (*at, PLACES),
            None,
            f"its {step.shares} are worked on by pods that each go on where another one ended, on one pool",
            "write `pool`",
        )
    elif step.command is None and not any("{output}" in argument for argument in step.arguments):
        yield Finding(
            (*at, PLACES), None, "it leaves no result by which one place knows of another", "write `pool`"
        )


def _clusters(at: Path, step: StepDeclaration, draft: Draft) -> Iterator[Finding]:
    pools = pools_of(draft)
    clusters = dict.fromkeys(str(pools[pool][0][1]) for pool in step.placed_by.pools if pool in pools)
    others = [name for name in clusters if draft.clusters[name].other_stack]
    if others:
        yield Finding(
            (*at, PLACES),
            None,
            f"cluster `{others[0]}` is another stack's, which says nothing of how its nodes are bought",
            "write `pool`",
        )
    if step.connects and len(clusters) > 1:
        yield Finding(
            (*at, PLACES),
            None,
            f"they are in the clusters {listed(clusters, 'and')}, and the step connects to "
            f"{listed(step.connects, 'and')}: a service is reached in its cluster alone",
            "name pools of the cluster of its services",
        )


def _queue(at: Path, draft: Draft) -> Iterator[Finding]:
    if draft.kueue is not None and draft.kueue.local_queue == DEFAULT_QUEUE:
        yield Finding(
            (*at, PLACES),
            None,
            f"Kueue puts each Job of a namespace with a LocalQueue `{DEFAULT_QUEUE}` into it once it is made, and "
            "all places would run at once",
            "have a LocalQueue of another name made, or write `pool`",
            read=(("kueue", "local_queue"),),
        )


def _hardware(at: Path, step: StepDeclaration, known: dict[str, Target]) -> Iterator[Finding]:
    """Places that one image, or one division of the work, does not suit."""
    places = [(place, on, known[on.pool]) for place, on in step.placed_by.on_pools if on.pool in known]
    with_gpus = [place for place in places if place[2].pool.has_gpus]
    if with_gpus and len(with_gpus) < len(places) and step.placed_by.image is None and step.build is None:
        yield Finding(
            (*at, PLACES),
            None,
            "some have GPUs and some have none, and TensorFlow's images for the two are others",
            "write an `image` that runs on both, or name pools of one kind",
        )
    counts = {on.gpus for _, on, _ in places}
    if step.is_group and len(counts) > 1:
        place, on, _ = next(entry for entry in places if entry[1].gpus != places[0][1].gpus)
        yield Finding(
            (*at, *place),
            on.pool,
            f"{on.gpus} GPUs in each of its pods there and {places[0][1].gpus} elsewhere, and the programs of a "
            "step on several nodes divide its work by their number",
            "name pools with as many GPUs in a node",
        )


def _names(at: Path, step: StepDeclaration) -> Iterator[Finding]:
    """Places whose Job would have the name of the probe of another one."""
    pools = step.placed_by.pools
    for place, on in step.placed_by.on_pools:
        if f"{on.pool}-probe" in pools:
            reason = f"the Job that asks for its nodes would be called like the one at `{on.pool}-probe`"
            yield Finding((*at, *place), on.pool, reason, f"call the pool `{on.pool}-probe` something else")


def _runs(name: str, settings: PipelineSettings, moved: Sequence[StepDeclaration]) -> Iterator[Finding]:
    steps = listed(step.name for step in moved)
    if settings.schedule is not None:
        reason = (
            f"the step {steps} has `{PLACES}`. A run by the clock makes Jobs of its own, and what moves a step "
            "may change those alone that `pulumi up` made"
        )
        yield Finding((KEY, name, "schedule"), None, reason, f"write `pool` for {steps}, or remove `schedule`")
