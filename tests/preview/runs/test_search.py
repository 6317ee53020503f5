"""What a preview says of a Job that searches."""

from typing import Any

from slipway.infra.review.stack import JOB, Resource
from slipway.preview import run_changes


def job(*arguments: str) -> Resource:
    containers: list[dict[str, Any]] = [{"args": [*arguments, "--", "python", "train.py"]}]
    return Resource("urn", JOB, "tune", {"spec": {"template": {"spec": {"containers": containers}}}})


def test_the_number_of_trials_is_said() -> None:
    (words,) = run_changes.trials_words(job("--output", "x", "--search", '{"trials": 40, "at_once": 4}'))
    assert "40" in words
    assert "4 at once" in words


def test_jobs_without_a_search_have_no_trials() -> None:
    assert run_changes.trials_words(job("--items", "days/*.csv")) == []
