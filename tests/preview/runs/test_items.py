"""Which items a Job works on again, and what of its workers changed."""

import json
from typing import Any

import pytest

from slipway.evaluated.model import JobRun, Outcome
from slipway.infra.review.stack import Resource
from tests.preview.runs.test_reruns import files, job, mounting, runs

INPUTS = ("--input", "prepare=/store/prepare/1"), ("--input", "model=/store/model/1")


def days(digest: str = "1", *, prepare: str = "1", model: str = "1", pods: int = 2, **flags: str) -> Resource:
    """A Job that works on the items of ``prepare``, and whose program reads ``model``."""
    values = {"items": f"/store/prepare/{prepare}/days/*.csv", "mode": "parallel", "lease": "60", **flags}
    words = [word for flag, value in values.items() for word in (f"--{flag.replace('_', '-')}", value)]
    given = [f"prepare=/store/prepare/{prepare}", f"model=/store/model/{model}"]
    made = job("days", digest, *given, *words, "--workers", str(pods), "--", "python", flags.get("run", "day.py"))
    properties: dict[str, Any] = {**made.properties}
    properties["spec"] = {**properties["spec"], "parallelism": pods, "completions": pods}
    made.properties = properties
    return made


def step(name: str, digest: str) -> list[Resource]:
    bundle = f"{name}-bundle-{digest}"
    return [files(name, digest, main_py=digest), job(name, digest, **mounting(bundle, "main/py"))]


def run(before: list[Resource], after: list[Resource]) -> JobRun:
    return runs(before, after)["days"]


def test_another_result_of_what_has_the_items_runs_those_that_changed() -> None:
    before = [*step("prepare", "1"), *step("model", "1"), days()]
    found = run(before, [*step("prepare", "2"), *step("model", "1"), days("2", prepare="2")])
    assert (found.outcome, found.items) == (Outcome.RUNS, "changed")
    assert found.because == "its input prepare runs again; it works only on items that are new or changed"


@pytest.mark.parametrize("model", ["1", "2"])
def test_whatever_else_decides_its_result_runs_all_of_them(model: str) -> None:
    before = [*step("prepare", "1"), *step("model", "1"), days()]
    other = days("2", prepare="2", model=model, **({} if model == "2" else {"run": "other.py"}))
    found = run(before, [*step("prepare", "2"), *step("model", model), other])
    assert found.items == "all"
    assert found.because.endswith("it works on all of its items again")


def of_photos(digest: str, url: str = "gs://team-data/cats", *, fingerprint: str = "a") -> Resource:
    """A Job that works on the items of an input."""
    made = days(digest[:1], items="/folders/photos/*.png", fingerprint=fingerprint)
    annotations = {
        **made.properties["metadata"]["annotations"],
        "slipway/data": json.dumps({"photos": [url, digest]}),
    }
    properties: dict[str, Any] = {**made.properties}
    properties["metadata"] = {**properties["metadata"], "annotations": annotations}
    made.properties = properties
    return made


def test_other_data_of_an_input_are_told_with_their_digests() -> None:
    before = [of_photos("1" * 64)]
    found = run(before, [of_photos("2" * 64)])
    assert (found.outcome, found.items) == (Outcome.RUNS, "changed")
    assert all(word in found.because for word in ("photos", "gs://team-data/cats", "1" * 10, "2" * 10))
    assert run(before, [of_photos("2" * 64, fingerprint="b")]).items == "all"
    moved = run(before, [of_photos("2" * 64, "gs://team-data/dogs")])
    assert "gs://team-data/dogs" in moved.because


def test_a_job_without_items_or_that_is_new_says_nothing_of_items() -> None:
    assert run([*step("prepare", "1")], [*step("prepare", "1"), days()]).items == ""
    plain = runs(step("prepare", "1"), step("prepare", "2"))["prepare"]
    assert (plain.items, plain.because) == ("", "main/py changed")


def test_another_number_of_workers_finds_the_result() -> None:
    found = run([days()], [days(pods=4)])
    assert (found.outcome, found.items) == (Outcome.RESUMES, "")
    assert found.because == "the number of its workers changed from 2 to 4"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"lease": "60"}, {"lease": "120"}, "its lease, in seconds, changed from 60 to 120"),
        ({"attempts": "3"}, {"attempts": "5"}, "the number of attempts at an item changed from 3 to 5"),
        ({"allow_failed": "0"}, {"allow_failed": "2"}, "how many of its items may fail changed from 0 to 2"),
        ({}, {"queue": "fraud-queue:6379", "queue_password": "P"}, "its items come from fraud-queue:6379 now"),
        ({"queue": "fraud-queue:6379"}, {}, "each of its workers has its own share of the items"),
    ],
)
def test_what_changed_for_workers_is_told_in_words(
    before: dict[str, str], after: dict[str, str], words: str
) -> None:
    found = run([days(**before)], [days(**after)])
    assert (found.outcome, found.because) == (Outcome.RESUMES, words)
