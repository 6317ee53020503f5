"""The report: what the model is worth, beside two that know nothing, and the same each time."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from tests.workloads.fraud.programs import content, run

pytestmark = pytest.mark.slow


def test_each_figure_stands_beside_those_of_two_that_know_nothing(reported: Path, prepared: Path) -> None:
    test = content(reported / "report.json")["test"]
    with np.load(prepared / "test.npz") as day:
        fraud = day["fraud"]
    nothing, chance, model = test["no_fraud"], test["random_ranking"], test["this_model"]
    assert (nothing["transactions"], nothing["frauds"], nothing["recall"], nothing["precision"]) == (0, 0, 0, None)
    assert nothing["accuracy"] == pytest.approx(1 - fraud.mean(), abs=1e-6)
    assert (nothing["roc_auc"], nothing["average_precision"]) == (0.5, pytest.approx(fraud.mean(), abs=1e-6))
    assert chance["transactions"] == model["transactions"]
    assert chance["precision"] == pytest.approx(fraud.mean(), abs=0.01)
    assert model["average_precision"] > 10 * chance["average_precision"]
    assert nothing.keys() == chance.keys() == model.keys()


def test_the_figures_are_those_of_the_last_days_model(reported: Path, prepared: Path, learnt: Path) -> None:
    import model

    day = model.load_day(prepared / "test.npz")
    scores = model.scores(model.keras.models.load_model(learnt / "2018-04-03" / "1" / "model.keras"), day)
    report = content(reported / "report.json")
    figures = report["test"]["this_model"]
    assert figures["average_precision"] == pytest.approx(average_precision_score(day["fraud"], scores), abs=1e-5)
    assert figures["roc_auc"] == pytest.approx(roc_auc_score(day["fraud"], scores), abs=1e-5)
    flagged = scores >= report["threshold"]
    assert figures["transactions"] == flagged.sum()
    assert figures["frauds"] == (flagged & day["fraud"]).sum()
    assert figures["cards"] == len(set(day["customer"][flagged]))


def test_the_page_says_first_what_predicting_no_fraud_is_worth(reported: Path) -> None:
    page = (reported / "report.html").read_text(encoding="utf-8")
    first = " ".join(page.split('<p class="first">')[1].split("</p>")[0].split())
    assert "<h1>Card fraud on 2018-04-04 among simulated transactions</h1>" in page
    figures = content(reported / "report.json")["test"]
    accuracy = figures["no_fraud"]["accuracy"]
    assert first.startswith(
        f"“No fraud”, said of every transaction, is right for {100 * accuracy:.3f} % of the test day"
    )
    assert f"finds 0 of {figures['this_model']['all_frauds']} frauds" in first
    assert page.count("<svg") == 4
    assert not {"http://", "https://", "<script", "src="} & {
        word for word in ("https://", "<script", "src=") if word in page.replace("http://www.w3.org", "")
    }, "a page that needs nothing else"
    for name in ("precision_recall", "roc", "cost", "cards"):
        assert (reported / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_labels_of_the_test_day_choose_nothing(
    reported: Path, prepared: Path, learnt: Path, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(prepared, tmp_path / "data"))
    with np.load(data / "test.npz") as day:
        changed = {**day, "fraud": np.roll(day["fraud"], 7)}
    np.savez(data / "test.npz", **changed)
    run("evaluate.py", "--data", data, "--days", learnt, "--output", tmp_path / "report", loaded=True)
    before, after = content(reported / "report.json"), content(tmp_path / "report" / "report.json")
    assert before["threshold"] == after["threshold"]
    assert before["test"]["this_model"]["transactions"] == after["test"]["this_model"]["transactions"]


def test_the_same_pipeline_makes_the_same_report_to_the_byte(
    reported: Path, prepared: Path, learnt: Path, tmp_path: Path
) -> None:
    """The first days are learnt once more in test_train_day.py. By command lines: with other hashes, too."""
    days, last = Path(shutil.copytree(learnt, tmp_path / "days")), "2018-04-03"
    shutil.rmtree(days / last)
    run("train_day.py", "--day", prepared / "days" / f"{last}.npz", "--previous", days / "2018-04-02" / "1",
        "--epochs", 3, "--output", days / last / "1")  # fmt: skip
    rows = content(days / "items.json")
    assert content(days / last / "1" / "summary.json").items() <= rows[-1].items()
    rows[0] |= {"attempts": 3, "seconds": 99.5}
    (days / "items.json").write_text(json.dumps(rows), encoding="utf-8")
    run("evaluate.py", "--data", prepared, "--days", days, "--output", tmp_path / "report")
    assert {path.name: path.read_bytes() for path in reported.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()
    }


@pytest.fixture(scope="module")
def averaged(prepared: Path, learnt: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The days, each learnt on its own but for the last one, which was set aside; a report of their average."""
    folder = tmp_path_factory.mktemp("averaged")
    rows = content(learnt / "items.json")
    # The first day has none before it anyway.
    shutil.copytree(learnt / "2018-04-01", folder / "2018-04-01")
    run("train_day.py", "--day", prepared / "days" / "2018-04-02.npz", "--epochs", 3,
        "--output", folder / "2018-04-02" / "1", loaded=True)  # fmt: skip
    rows[2] = {"item": "2018-04-03", "state": "failed", "attempts": 3, "reason": "exit code 1 <b>"}
    (folder / "items.json").write_text(json.dumps(rows), encoding="utf-8")
    run("evaluate.py", "--data", prepared, "--days", folder, "--combine", "average",
        "--output", folder / "report", loaded=True)  # fmt: skip
    return folder


def test_a_day_that_was_set_aside_is_said_at_the_top(averaged: Path) -> None:
    report = averaged / "report"
    assert content(report / "report.json")["set_aside"] == [{"day": "2018-04-03", "reason": "exit code 1 <b>"}]
    page = (report / "report.html").read_text(encoding="utf-8")
    assert "2018-04-03: exit code 1 &lt;b&gt;" in page.split('class="tiles"')[0]


def test_days_on_their_own_are_averaged(averaged: Path, prepared: Path) -> None:
    import model

    day = model.load_day(prepared / "test.npz")
    models = [model.keras.models.load_model(path) for path in sorted(averaged.glob("*/1/model.keras"))]
    # The model has no hidden layer, so the average of the weights gives the average of the scores.
    of_models = [model.scores(one, day) for one in models]
    assert len(of_models) == 2
    precision = content(averaged / "report" / "report.json")["test"]["this_model"]["average_precision"]
    assert precision == pytest.approx(average_precision_score(day["fraud"], np.mean(of_models, axis=0)), abs=1e-4)
    assert abs(precision - average_precision_score(day["fraud"], of_models[-1])) > 1e-3, "it is not the last one's"
