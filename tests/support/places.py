"""Jobs as those of a step with places, as `slipway.infra.kubernetes.places.mover` declares them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slipway.infra.kubernetes.labels import MOVES_ANNOTATION, PLACE_ANNOTATION, RUNS_ANNOTATION
from slipway.infra.placed import MOVER
from slipway.infra.platform import DECLARED_ALONE
from slipway.infra.review.stack import Resource

HELD = {**DECLARED_ALONE, RUNS_ANNOTATION: MOVER}


def with_places(
    mover: Resource,
    places: Sequence[Resource],
    *probes: Resource,
    sure: Sequence[bool] = (),
    agents: Sequence[Resource] = (),
    **rules: Any,
) -> list[Resource]:
    """The Jobs of a step: that of its mover, which the others come before, one for each place, its probes, and its
    agents in other clusters.

    Only the last place is sure where ``sure`` is not given.
    ``rules`` are those of the plan.
    """
    pools = [place.name for place in places]
    nothing = dict.fromkeys(("deadline", "work", "max_price"))
    moves = {
        **{"time_limit": 3600, "next_after": 900, **nothing, **rules},
        "places": pools,
        "sure": [*sure] or [place is places[-1] for place in places],
    }
    held = [
        _annotated(
            place,
            {**HELD, PLACE_ANNOTATION: json.dumps({"of": mover.name, "index": index, "pool": pools[index]})},
            suspend=True,
        )
        for index, place in enumerate(places)
    ]
    held += [_annotated(probe, HELD, suspend=True) for probe in probes]
    held += [_annotated(agent, HELD) for agent in agents]
    urns = frozenset(job.urn for job in held)
    moved = replace(mover, dependencies=mover.dependencies | urns)
    return [*held, _annotated(moved, {MOVES_ANNOTATION: json.dumps(moves)})]


def _annotated(job: Resource, annotations: Mapping[str, str], **spec: Any) -> Resource:
    metadata = {**job.properties.get("metadata", {}), "name": job.name, "annotations": {**annotations}}
    return replace(
        job, properties={**job.properties, "metadata": metadata, "spec": {**job.properties["spec"], **spec}}
    )
