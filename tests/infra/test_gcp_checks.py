"""What is refused before anything is declared on Google Cloud."""

from typing import Any

import pytest

from infra import gcp
from infra.settings import Problem, Settings, SettingsError, load
from tests.support.gcp import declare, raw
from tests.support.recording import record


def problems(settings: Settings, project: str | None = "a-project") -> list[Problem]:
    config = {"gcp:project": project} if project else {}
    return record(lambda: gcp.problems(settings), config, preview=True).result


@pytest.fixture(autouse=True)
def _no_project_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"):
        monkeypatch.delenv(name, raising=False)


def test_a_good_stack_has_no_problems() -> None:
    assert problems(load(raw())) == []


def test_a_stack_without_a_project_says_how_to_name_one() -> None:
    (problem,) = problems(load(raw()), project=None)
    assert problem.key == "gcp:project"
    assert "pulumi config set gcp:project" in problem.fix


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"store": {"soft_delete_days": 3}}, "slipway:store.soft_delete_days"),
    ({"protect": True, "store": {"soft_delete_days": 0}}, "slipway:store.versioning"),
]


@pytest.mark.parametrize(("change", "key"), WRONG, ids=[f"{key}-{n}" for n, (_, key) in enumerate(WRONG)])
def test_what_google_cloud_would_refuse_is_refused_before(change: dict[str, Any], key: str) -> None:
    def apply(values: dict[str, Any]) -> None:
        values.update(protect=change.get("protect", False))
        values["store"].update(change.get("store", {}))

    found = problems(load(raw(apply)))
    assert [problem.key for problem in found] == [key]
    assert all(problem.reason and problem.fix for problem in found)


def test_nothing_is_declared_with_problems() -> None:
    settings = load(raw())
    with pytest.raises(SettingsError, match="gcp:project"):
        declare(settings, project="")


def test_all_problems_come_at_once() -> None:
    def change(values: dict[str, Any]) -> None:
        values["store"].update(soft_delete_days=0)
        values.update(protect=True)

    assert [problem.key for problem in problems(load(raw(change)), project=None)] == [
        "gcp:project",
        "slipway:store.versioning",
    ]
