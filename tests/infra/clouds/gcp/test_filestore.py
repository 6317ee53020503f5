"""Filestore as the store of GKE clusters: what is declared, and which instances Google would refuse."""

from typing import Any

import pytest

from slipway.evaluated.model import Operation
from slipway.evaluated.operations import compare_resources
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds.gcp import raw
from tests.support.previewing import previewed
from tests.support.refusals import Case, named, problems, the_problem

INSTANCE = "gcp:filestore/instance:Instance"
VOLUME = "kubernetes:core/v1:PersistentVolume"

STORE: dict[str, Any] = {"kind": "filestore", "location": "us-central1-a"}


def values(*, protect: bool = False, second: dict[str, Any] | None = None, **store: Any) -> dict[str, Any]:
    def change(given: dict[str, Any]) -> None:
        given["protect"] = protect
        given["store"] = {**STORE, **store}
        if second:
            given["clusters"]["second"] = second

    return raw(change)


def settings(**changes: Any) -> Settings:
    return load(values(**changes))


def test_a_larger_instance_leaves_the_claim_that_cannot_grow_as_it_is() -> None:
    changes = compare_resources(previewed("gcp-batch"), previewed("gcp-batch", {"store.size": "2Ti"}))
    operations = {change.resource.type: change.operation for change in changes if change.operation}
    assert operations == {INSTANCE: Operation.UPDATE, VOLUME: Operation.UPDATE}


SIZES: list[Case] = [
    ({"size": "100Gi"}, "store.size", "1Ti to 65433Gi", "`1Ti`"),
    ({"tier": "BASIC_SSD"}, "store.size", "2560Gi to 65433Gi", "`2560Gi`"),
    ({"tier": "ZONAL", "size": "1100Gi"}, "store.size", "in steps of 256Gi", "`1280Gi`"),
    ({"tier": "ZONAL", "size": "11Ti"}, "store.size", "10Ti to 100Ti in steps of 2560Gi", "`12800Gi`"),
    ({"tier": "ZONAL", "size": "9985Gi"}, "store.size", "ZONAL", "`10Ti`"),
    ({"tier": "ENTERPRISE", "location": "us-central1", "size": "20Ti"}, "store.size", "1Ti to 10Ti", "`10Ti`"),
]

PLACES: list[Case] = [
    ({"location": "us-central1"}, "store.location", "in a zone", "`us-central1-a`"),
    ({"tier": "REGIONAL"}, "store.location", "in a region", "`us-central1`"),
    ({"location": "us-west4-a"}, "store.location", "cluster `dev` is in us-central1", "`us-central1-a`"),
]


@pytest.mark.parametrize(("store", "key", "reason", "fix"), named([*SIZES, *PLACES]))
def test_what_google_has_no_instance_of_is_refused_with_the_nearest_that_it_has(
    store: dict[str, Any], key: str, reason: str, fix: str
) -> None:
    problem = the_problem(values(**store))
    assert problem.key == f"slipway:{key}"
    assert reason in problem.reason
    assert fix in problem.fix


@pytest.mark.parametrize(
    "store",
    [
        {"size": "1Ti"},
        {"size": "1025Gi"},
        {"tier": "ZONAL", "size": "1280Gi"},
        {"tier": "ZONAL", "size": "12800Gi"},
        {"tier": "ENTERPRISE", "location": "us-central1"},
    ],
)
def test_what_google_has_is_accepted(store: dict[str, Any]) -> None:
    load(values(**store))


def test_all_that_is_wrong_is_said_at_once() -> None:
    refused = problems(values(tier="REGIONAL", location="us-west4-a", size="10Gi"))
    assert {problem.key for problem in refused} == {"slipway:store.location", "slipway:store.size"}
    assert len(refused) == 3


def test_teams_are_refused_since_they_would_share_all_files() -> None:
    with_teams = values() | {"teams": {"research": {"namespace": "research"}}}
    assert "every team's Jobs" in the_problem(with_teams).reason
