"""``slipway doctor``: a row for each place of a step, with its quotas and its zones."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from slipway.command.doctor import places
from slipway.evaluated.places import moved_steps, range_words, step_range
from slipway.infra.review.facts import Observation, Quota, Standing, State, Supply
from slipway.infra.review.stack import NodePool, Stack
from tests.support.costing import Pool, job, stack
from tests.support.places import with_places

ZONES = ("r-a", "r-b")
METRIC = Quota("SPOT_GPUS", "r", 2, "GPUs", "cloud see")


def moved() -> Stack:
    """A step with two pods at a Spot place, and then at another one."""
    pools = [Pool("cpu", 1, 1, 0.2), Pool("spot", 0, 2, 1.0, gpus=2), Pool("own", 0, 2, 4.0, gpus=2)]
    at_places = [job(f"train-at-{pool.name}", pool.name, gpus=2, pods=2) for pool in pools[1:]]
    declared = stack(
        pools, *with_places(job("train", "cpu", cpu="50m"), at_places, time_limit=7200, deadline=None)
    )
    nodes = [
        replace(pool, quotas=[METRIC], zones=ZONES, machine="m2", spot=True) if pool.name == "spot" else pool
        for pool in declared.pools
    ]
    return replace(declared, pools=nodes)


def observed(monkeypatch: pytest.MonkeyPatch, supply: Supply | None) -> Sequence[Observation]:
    """Its rows, where the cloud has ``supply`` at the first place."""

    def answer(_: Stack, pool: NodePool) -> Supply | None:
        return supply if pool.name == "spot" else Supply()

    monkeypatch.setattr(places, "CLOUDS", {"cloud": SimpleNamespace(supply=answer)})
    return [one for probe in places.probes(moved()) for one in probe.run()]


@pytest.mark.parametrize(
    ("supply", "state", "words"),
    [
        (Supply([Standing(METRIC, 8, 4)], ZONES), State.FINE, ["Spot m2", "4 GPUs of SPOT_GPUS (r)", "4 of 8"]),
        (Supply([Standing(METRIC, 8, 5)], ZONES), State.WRONG, ["3 of 8"]),
        (Supply([Standing(METRIC, 8, 4)], ["r-a"]), State.FINE, ["r-b"]),
        (Supply([Standing(METRIC, 8, 4)], []), State.WRONG, ["r-a, r-b"]),
        (Supply([Standing(METRIC, 4)]), State.FINE, ["limit of SPOT_GPUS is 4"]),
        (Supply([Standing(METRIC)], ZONES), State.UNKNOWN, ["SPOT_GPUS"]),
        (Supply(unknown="nobody is signed in"), State.UNKNOWN, ["nobody is signed in"]),
    ],
)
def test_a_place_has_a_row_with_quota_and_zones(
    monkeypatch: pytest.MonkeyPatch, supply: Supply, state: State, words: list[str]
) -> None:
    first, second = observed(monkeypatch, supply)
    assert (first.state, second.state) == (state, State.FINE)
    assert all(word in first.said for word in words)
    assert (first.subject, second.subject) == ("train at spot", "train at own")


def test_a_quota_that_is_too_small_comes_with_what_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert observed(monkeypatch, Supply([Standing(METRIC, 3, 0)]))[0].mend == METRIC.see


def test_a_cloud_that_cannot_be_asked_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.subject for one in observed(monkeypatch, None)] == ["train at own"]


def test_a_preview_says_what_each_place_needs() -> None:
    found = moved()
    (step,) = moved_steps(found).values()
    took = step_range(found, step, None)
    assert [(need.place, need.metric, need.needed) for need in took.needs] == [("spot", "SPOT_GPUS", 4)]
    assert "4 GPUs of SPOT_GPUS (r) at spot" in range_words("train", took)
