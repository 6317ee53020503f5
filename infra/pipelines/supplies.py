"""What the images of programs on GPUs lack: steps that publish it, for steps and apps alike."""

from collections.abc import Mapping, Sequence

from infra.kubernetes.gates import Gates
from infra.pipelines.contract import Supplement
from infra.pipelines.node_room import at_most, left, with_room
from infra.platform import Platform, Pool, Resources
from infra.step import Step


def publishing(
    folder: str,
    supplement: Supplement,
    beside: tuple[Platform, Pool],
    kept: Mapping[str, Sequence[Resources]],
    gates: Gates,
) -> Step:
    """The step that publishes ``supplement``, which ``folder`` declares, on the pool ``beside``.

    Another pool is taken where that has no room; ``kept`` is what services and apps ask for, by pool.
    """
    platform, pool = beside
    pool = with_room(platform, pool, supplement.resources, kept)
    return gates.guard(
        Step(
            pipeline=folder,
            name=supplement.name,
            module=supplement.module,
            arguments=supplement.arguments,
            image=supplement.image,
            platform=platform,
            pool=pool,
            resources=at_most(supplement.resources, left(platform, pool, kept)),
            time_limit=supplement.time_limit,
            files=supplement.files,
            supplements=True,
        )
    )
