"""Variants of a step are compared: in the report, on the terminal, with those that failed."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.kubernetes.labels import RESULTS_ANNOTATION
from slipway.infra.pipelines.results import RESULTS, Column, File, Number, Table
from slipway.infra.placed_model import PlacedStep
from slipway.infra.review.stack import Resource
from slipway.rehearse.output.charts import draw
from slipway.rehearse.output.comparison import Comparison, compare
from slipway.rehearse.output.results import CollectedResults, JobResults, ShownNumber
from slipway.rehearse.output.terminal import times
from slipway.rehearse.state import JobRecord, Phase
from tests.rehearse.toy import Toys, rehearse

ACCURACY = Number(name="accuracy", title="Accuracy", path="metrics.json", select="/accuracy", format="percent")
LOSS = Number(name="loss", title="Loss", path="metrics.json", select="/loss")
RARE = Table(
    name="rare", title="Rare", path="metrics.json", select="/rare", columns=(Column(key="name", title="Name"),)
)
MODEL = File(name="model", title="Model", path="model.pkl")

WRITER = """
import json, pathlib, sys
folder, accuracy, loss = pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
folder.mkdir(parents=True)
content = {"accuracy": accuracy, "loss": loss, "rare": [{"name": f"of {sys.argv[2]}"}]}
(folder / "metrics.json").write_text(json.dumps(content))
(folder / "model.pkl").write_bytes(b"model")
"""

MEASURED = {100: (0.91, 0.4), 300: (0.95, 0.2), 1000: (0.95, 0.25)}


def compare_jobs(
    measured: Mapping[str, tuple[Mapping[str, Any], Mapping[str, float]]],
    best: Mapping[str, str] | None = None,
    order: list[str] | None = None,
    phases: Mapping[str, Phase] | None = None,
) -> Comparison:
    """The comparison of Jobs with these values and numbers, by name."""
    declared = RESULTS.dump_json((ACCURACY, LOSS)).decode()
    jobs, steps, records, results = [], [], {}, []
    for name, (values, numbers) in measured.items():
        variant = {"of": "train", "values": values, **({"best": best} if best else {})}
        steps.append(PlacedStep(name, "churn", name, "", "", variant=variant))
        metadata = {"annotations": {RESULTS_ANNOTATION: declared}}
        jobs.append(Resource(f"urn:{name}", "job", name, {}, inputs={"metadata": metadata}))
        phase = (phases or {}).get(name, Phase.SUCCEEDED)
        accelerator = "nvidia-tesla-t4" if values.get("pool") == "t4" else ""
        records[f"urn:{name}"] = JobRecord(f"urn:{name}", name, phase=phase, accelerator=accelerator)
        shown = [ShownNumber(number, number, value, "number", str(value)) for number, value in numbers.items()]
        if phase.good:
            results.append(JobResults(name, "churn", Path(name), numbers=shown))
    (comparison,) = compare(jobs, steps, records, CollectedResults(tuple(results)), order or [])
    return comparison


def test_the_order_is_the_declaration_s_and_so_is_the_best_of_equals() -> None:
    measured = {
        "b": ({"trees": 300}, {"loss": 0.2}),
        "a": ({"trees": 100}, {"loss": 0.5}),
        "c": ({"trees": 200}, {"loss": 0.2}),
    }
    comparison = compare_jobs(measured, {"by": "loss", "of": "min"}, ["c", "a", "b"])
    assert [variant.record.name for variant in comparison.variants] == ["c", "a", "b"]
    assert comparison.best is comparison.variants[0]
    largest = compare_jobs(measured, {"by": "loss"}).best
    assert largest is not None
    assert largest.record.name == "a"
    assert compare_jobs(measured).best is None


def test_numbers_beside_each_other_have_as_many_digits() -> None:
    comparison = compare_jobs({"a": ({"x": 1}, {"loss": 0.5}), "b": ({"x": 2}, {"loss": 0.0123})})
    assert [comparison.cell(variant, "loss") for variant in comparison.variants] == ["0.500", "0.012"]
    assert comparison.cell(comparison.variants[0], "accuracy") == ""


def test_one_axis_of_numbers_gives_points_in_its_order() -> None:
    measured = {f"v{x}": ({"trees": x}, {"loss": y}) for x, y in ((300, 0.2), (100, 0.4), (200, 0.3))}
    charts, bars = draw(compare_jobs(measured, {"by": "loss", "of": "min"}))
    (chart,) = charts
    assert bars == []
    assert (chart.title, chart.unit) == ("Loss", "trees")
    assert [(x, value) for x, _, value in chart.lines[0].points] == [(0.0, 0.4), (0.5, 0.3), (1.0, 0.2)]
    assert [x_tick.text for x_tick in chart.x_ticks] == ["100", "200", "300"]
    assert chart.ring == chart.lines[0].points[-1][:2]


def test_a_wide_axis_is_logarithmic_and_says_so() -> None:
    measured = {f"v{x}": ({"rate": x}, {"loss": x}) for x in (0.0001, 0.001, 0.01)}
    ((chart,), _) = draw(compare_jobs(measured))
    assert chart.unit == "rate (logarithmic)"
    assert [x for x, _, _ in chart.lines[0].points] == pytest.approx([0, 0.5, 1])


def test_a_second_axis_of_names_gives_a_line_each() -> None:
    measured = {
        f"{pool}-{x}": ({"pool": pool, "batch": x}, {"loss": x / 100}) for pool in ("t4", "h100") for x in (32, 64)
    }
    ((chart,), _) = draw(compare_jobs(measured))
    assert [line.name for line in chart.lines] == ["h100", "t4 (nvidia-tesla-t4)"]
    assert {len(line.points) for line in chart.lines} == {2}


@pytest.mark.parametrize(("trees", "unit"), [((100, 300, 900), "trees"), ((100, 300), "depth")])
def test_of_two_axes_of_numbers_the_longer_is_drawn_and_the_other_gives_lines(
    trees: tuple[int, ...], unit: str
) -> None:
    measured = {
        f"{count}-{depth}": ({"trees": count, "depth": depth}, {"loss": count * depth})
        for count in trees
        for depth in (1, 3)
    }
    ((chart,), bars) = draw(compare_jobs(measured))
    assert bars == []
    assert chart.unit == unit
    assert [line.name for line in chart.lines] == (
        ["depth 1", "depth 3"] if unit == "trees" else ["trees 100", "trees 300"]
    )


@pytest.mark.parametrize(
    ("values", "zero", "spans"),
    [
        ({"a": 2.0, "b": 1.0}, 0.0, [(0, 1), (0, 0.5)]),
        ({"a": -1.0, "b": -2.0}, 1.0, [(0.5, 1), (0, 1)]),
        ({"a": -1.0, "b": 1.0}, 0.5, [(0, 0.5), (0.5, 1)]),
        ({"a": 0.0, "b": 0.0}, 0.0, [(0, 0), (0, 0)]),
    ],
)
def test_bars_begin_at_zero(values: Mapping[str, float], zero: float, spans: list[tuple[float, float]]) -> None:
    measured = {name: ({"model": name}, {"loss": value}) for name, value in values.items()}
    _, (bars,) = draw(compare_jobs(measured))
    assert bars.zero == zero
    assert [(bar.start, bar.end) for bar in bars.bars] == spans


def test_a_variant_without_a_number_is_a_row_without_a_bar() -> None:
    measured: Mapping[str, Any] = {
        "good": ({"model": "small"}, {"loss": 0.5}),
        "failed": ({"model": "large"}, {}),
        "lost": ({"model": "huge"}, {}),
    }
    phases = {"failed": Phase.FAILED, "lost": Phase.NOT_RUN}
    comparison = compare_jobs(measured, {"by": "loss"}, phases=phases)
    _, (bars,) = draw(comparison)
    assert [(bar.label, bar.text, bar.drawn) for bar in bars.bars] == [
        ("model huge", "not run", False),
        ("model large", "failed", False),
        ("model small", "0.500", True),
    ]
    assert "2 of 3 left none" in comparison.rule


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which three variants left results and a fourth failed, and what was printed."""
    folder = tmp_path_factory.mktemp("comparison")

    def program() -> None:
        toys = Toys()
        for trees, (accuracy, loss) in MEASURED.items():
            toys.job(
                f"churn-train-{trees}",
                WRITER,
                f"/store/churn/train-{trees}",
                str(accuracy),
                str(loss),
                pipeline="churn",
                run=f"churn/train-{trees}",
                results=(ACCURACY, LOSS, RARE, MODEL),
                variant=variant(trees),
            )
        toys.job("churn-train-9", "raise SystemExit(9)", pipeline="churn", results=(ACCURACY,), variant=variant(9))

    def variant(trees: int) -> Mapping[str, Any]:
        return {"of": "train", "values": {"trees": trees}, "best": {"by": "accuracy", "of": "max"}}

    return folder, rehearse(program, folder)[1]


def test_the_terminal_compares_them(rehearsal: tuple[Path, str]) -> None:
    _, printed = rehearsal
    table = printed.split("4 variants of train", 1)[1].split("★ the largest Accuracy", 1)[0]
    assert re.search(r"trees +Accuracy +Loss +Waited +Ran for", table)
    rows = {row.split()[0]: row for row in table.splitlines() if re.match(r" *\d", row)}
    assert list(rows) == ["9", "100", "300", "1000"]
    assert re.search(r"91\.0 % +0\.400 +\d", rows["100"])
    # Of equal ones the first.
    assert [name for name, row in rows.items() if "★ best" in row] == ["300"]
    assert "failed, exit code 9" in rows["9"]
    assert "Accuracy of churn-train-100" not in printed


def test_what_is_no_number_is_shown_of_the_best(rehearsal: tuple[Path, str]) -> None:
    folder, printed = rehearsal
    assert "Rare (trees 300)" in printed
    assert "Rare (trees 100)" not in printed
    assert "Model (trees 300): results/churn-train-300/model.pkl" in printed
    assert (folder / "results/churn-train-100/model.pkl").read_bytes() == b"model"


def test_the_end_says_where_the_results_are(rehearsal: tuple[Path, str]) -> None:
    folder, printed = rehearsal
    assert printed.splitlines()[-2:] == [f"Results: {folder / 'results'}", f"Report: {folder / 'report.html'}"]


def test_the_report_compares_them(rehearsal: tuple[Path, str]) -> None:
    page = (rehearsal[0] / "report.html").read_text(encoding="utf-8")
    section = page.split("<h3>4 variants of train</h3>", 1)[1].split("</section>", 1)[0]
    (best,) = re.findall(r'<tr class="best">(.*?)</tr>', section, re.DOTALL)
    assert re.findall(r"<td[^>]*>([^<]*)</td>", best)[:3] == ["300", "95.0 %", "0.200"]
    assert 'href="logs/churn-train-9.log">failed, exit code 9</a>' in section
    charts = re.findall(r"<svg.*?</svg>", section, re.DOTALL)
    assert len(charts) == 2
    for chart in charts:
        drawing = ET.fromstring(chart)
        assert len(drawing.findall(".//circle[@class='dot0']")) == 3
        assert len(drawing.findall(".//circle[@class='ring']")) == 1
    assert '<a href="results/churn-train-300/model.pkl">' in section


def test_a_folder_among_the_results_is_named_where_it_is_and_one_that_is_not_there_is_said(tmp_path: Path) -> None:
    lost = File(name="lost", title="Lost", path="lost.bin")
    saved = File(name="saved", title="Saved", path="saved")

    def program() -> None:
        script = "import pathlib, sys; pathlib.Path(sys.argv[1], 'saved').mkdir(parents=True)"
        results = (saved, lost)
        Toys().job("churn", script, "/store/churn/1", pipeline="churn", run="churn/1", results=results)

    folder = tmp_path / "out"
    outcome, printed = rehearse(program, folder)
    assert outcome.exit_code == 0
    assert f"Saved: {folder}/store/churn/1/saved" in printed
    assert f"{folder}/store/churn/1/lost.bin cannot be read: No such file" in printed
    assert not (folder / "results").exists()


def test_what_a_job_waited_is_not_in_what_it_ran() -> None:
    assert times(JobRecord("urn", "n", started=100, finished=130, pending=10)) == ("10.0 s", "20.0 s")
