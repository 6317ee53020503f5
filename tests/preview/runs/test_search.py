"""What a preview says of a Job that searches."""

from tests.preview.runs.test_reruns import job, runs


def test_the_number_of_trials_is_said() -> None:
    searching = job("tune", "1", placed={"decides": {"search": {"trials": 40, "at_once": 4}}})
    words = runs([], [searching])["tune"].because
    assert "40" in words
    assert "4 at once" in words
