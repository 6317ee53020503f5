"""The figures of docs/fraud.md on days of the handbook's simulator, which are not part of the repository."""

import pytest

from tests.workloads.fraud.programs import REAL_FILES, content, learn, run

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not REAL_FILES, reason="SLIPWAY_FRAUD_DIR names no folder with days of transactions"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the pipeline says of them with the settings that are shipped, but for the budget."""
    folder = tmp_path_factory.mktemp("days")
    run("prepare.py", "--source", REAL_FILES, "--output", folder / "data")
    learn(folder / "data", folder / "days")
    run("evaluate.py", "--data", folder / "data", "--days", folder / "days", "--budget", 133,
        "--output", folder / "report", loaded=True)  # fmt: skip
    return content(folder / "report" / "report.json")


def test_the_days_are_read_whole(report: dict) -> None:
    assert report["problems"] == []
    assert [(day["day"], day["transactions"], day["frauds"]) for day in report["data"]["days"]] == [
        ("2018-04-01", 9488, 3),
        ("2018-04-02", 9583, 13),
        ("2018-04-03", 9747, 15),
        ("2018-04-04", 9530, 18),
        ("2018-04-05", 9651, 22),
    ]


def test_the_published_accuracies_are_those_of_predicting_no_fraud(report: dict) -> None:
    accuracy = {day["day"]: day["accuracy"] for day in report["days"] if day["by"] == "no fraud"}
    assert accuracy["2018-04-04"] == pytest.approx(0.99811, abs=5e-6)
    assert accuracy["2018-04-05"] == pytest.approx(0.99772, abs=5e-6)


def test_the_model_is_better_than_a_balanced_logistic_regression(report: dict) -> None:
    test, budget = report["test"]["this_model"], report["test_in_budget"]["this_model"]
    assert test["average_precision"] >= 0.41
    assert test["roc_auc"] >= 0.89
    assert (budget["transactions"], budget["all_frauds"]) == (133, 22)
    assert budget["frauds"] >= 15
