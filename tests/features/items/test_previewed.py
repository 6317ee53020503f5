"""Which items a Job works on again, and what of its workers changed."""

from typing import Any

import pytest

from slipway.evaluated.model import JobRun, Outcome
from slipway.infra.review.stack import Resource
from tests.preview.runs.test_reruns import job, runs


def days(
    digest: str = "1", *, prepare: str = "1", model: str = "1", run: str = "day.py", **tells: Any
) -> Resource:
    """A Job that works on the items of ``prepare``, and whose program reads ``model``."""
    says = {"workers": 2, "attempts": 3, "allow_failed": 0, "lease": 60, "queue": "", **tells}
    placed = {"of_items": ["prepare"], "tells": says, "decides": {"arguments": [run]}}
    pods = says["workers"]
    made = job("days", digest, inputs={"prepare": f"prepare/{prepare}", "model": f"model/{model}"}, placed=placed)
    made.properties["spec"].update({"parallelism": pods, "completions": pods})
    made.properties["spec"]["template"]["spec"]["containers"][0]["args"] = [str(says)]
    return made


def step(name: str, digest: str) -> list[Resource]:
    return [job(name, digest, placed={"files": {"main.py": digest}})]


def run(before: list[Resource], after: list[Resource]) -> JobRun:
    return runs(before, after)["days"]


def test_another_result_of_what_has_the_items_runs_those_that_changed() -> None:
    before = [*step("prepare", "1"), *step("model", "1"), days()]
    change = run(before, [*step("prepare", "2"), *step("model", "1"), days("2", prepare="2")])
    assert (change.outcome, change.items) == (Outcome.RUNS, "changed")
    assert change.because == "its input prepare runs again; it works only on items that are new or changed"


@pytest.mark.parametrize("model", ["1", "2"])
def test_whatever_else_decides_its_result_runs_all_of_them(model: str) -> None:
    before = [*step("prepare", "1"), *step("model", "1"), days()]
    other = days("2", prepare="2", model=model, **({} if model == "2" else {"run": "other.py"}))
    change = run(before, [*step("prepare", "2"), *step("model", model), other])
    assert change.items == "all"
    assert change.because.endswith("it works on all of its items again")


def of_photos(digest: str, url: str = "gs://team-data/cats", *, surroundings: str = "a") -> Resource:
    """A Job that works on the items of data."""
    placed = {
        "of_items": ["photos"],
        "surroundings": surroundings,
        "decides": {"data": {"photos": [url, digest]}},
    }
    return job("days", digest[:1], placed=placed)


def test_other_data_of_an_input_are_told_with_their_digests() -> None:
    before = [of_photos("1" * 64)]
    change = run(before, [of_photos("2" * 64)])
    assert (change.outcome, change.items) == (Outcome.RUNS, "changed")
    assert all(word in change.because for word in ("photos", "gs://team-data/cats", "1" * 10, "2" * 10))
    assert run(before, [of_photos("2" * 64, surroundings="b")]).items == "all"
    moved = run(before, [of_photos("2" * 64, "gs://team-data/dogs")])
    assert "gs://team-data/dogs" in moved.because


def test_a_job_without_items_or_that_is_new_says_nothing_of_items() -> None:
    assert run([*step("prepare", "1")], [*step("prepare", "1"), days()]).items == ""
    plain = runs(step("prepare", "1"), step("prepare", "2"))["prepare"]
    assert (plain.items, plain.because) == ("", "main.py changed")


def test_another_number_of_workers_finds_the_result() -> None:
    change = run([days()], [days(workers=4)])
    assert (change.outcome, change.items) == (Outcome.RESUMES, "")
    assert change.because == "the number of its workers changed from 2 to 4"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"lease": 60}, {"lease": 120}, "its lease, in seconds, changed from 60 to 120"),
        ({"attempts": 3}, {"attempts": 5}, "the number of attempts at an item changed from 3 to 5"),
        ({"allow_failed": 0}, {"allow_failed": 2}, "how many of its items may fail changed from 0 to 2"),
        ({}, {"queue": "fraud-queue:6379"}, "its items come from fraud-queue:6379 now"),
        ({"queue": "fraud-queue:6379"}, {}, "each of its workers has its own share of the items"),
    ],
)
def test_what_changed_for_workers_is_told_in_words(
    before: dict[str, Any], after: dict[str, Any], words: str
) -> None:
    change = run([days(**before)], [days(**after)])
    assert (change.outcome, change.because) == (Outcome.RESUMES, words)


def test_the_number_of_trials_of_a_search_is_said() -> None:
    searching = job("tune", "1", placed={"decides": {"search": {"trials": 40, "at_once": 4}}})
    assert all(words in runs([], [searching])["tune"].because for words in ("40", "4 at once"))
