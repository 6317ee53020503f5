"""The places of steps: for each, the quotas that count its nodes, and whether its zones offer the machine."""

from collections.abc import Iterator
from functools import partial

from slipway.evaluated.phrasing import amount_of
from slipway.evaluated.places import moved_steps
from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.review.facts import Observation, Probe, Standing, State
from slipway.infra.review.stack import NodePool, Stack


def probes(stack: Stack) -> Iterator[Probe]:
    """One for each place of each step, on the clouds that can be asked."""
    for step in moved_steps(stack).values():
        for place in step.places:
            pool = place.pool(stack)
            if pool is not None and pool.urn in stack.resources:
                subject = f"{step.job.name} at {pool.name}"
                yield Probe(subject, partial(_ask, stack, pool, place.pods, subject))


def _ask(stack: Stack, pool: NodePool, nodes: int, subject: str) -> Iterator[Observation]:
    """What is there for so many nodes of the pool at once."""
    cloud = CLOUDS.get(stack.resources[pool.urn].package)
    supply = cloud.supply(stack, pool) if cloud else None
    if supply is None:
        return
    where = ", ".join(pool.zones) or pool.cluster
    needs = [
        f"{amount_of(quota.needed * nodes, quota.unit)} of {quota.metric} ({quota.where})" for quota in pool.quotas
    ]
    machines = f"{pool.described or 'its machine'}{f', {nodes} at once' if nodes > 1 else ''}"
    what = f"takes {machines}, in {where}: {'; '.join(needs) or 'no quota counts it'}"
    if supply.unknown:
        yield Observation(State.UNKNOWN, subject, f"{what}. What is there was not asked for: {supply.unknown}")
        return
    says = [_said(standing) for standing in supply.standings]
    lacks = [_lacks(standing, nodes) for standing in supply.standings]
    if supply.offering is not None:
        others = [zone for zone in pool.zones if zone not in supply.offering]
        says.append(f"{', '.join(others)} do not offer it" if others else "all zones offer it")
        lacks.append(not supply.offering)
    pairs = zip(supply.standings, lacks, strict=False)
    see = next((standing.quota.see for standing, lack in pairs if lack is not False), "")
    state = State.WRONG if True in lacks else State.UNKNOWN if None in lacks else State.FINE
    yield Observation(state, subject, f"{what}. {'; '.join(says)}", see, listed=True)


def _said(standing: Standing) -> str:
    name = standing.quota.metric
    if standing.limit is None:
        return f"how much of {name} there is could not be read"
    if standing.used is None:
        return f"the limit of {name} is {standing.limit:g}, whatever of it is used"
    return f"{standing.limit - standing.used:g} of {standing.limit:g} of {name} are left"


def _lacks(standing: Standing, nodes: int) -> bool | None:
    """Whether there is too little of the quota for so many nodes; None where nobody says it."""
    if standing.limit is None:
        return None
    return standing.limit - (standing.used or 0) < standing.quota.needed * nodes
