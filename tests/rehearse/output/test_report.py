"""The report shows what happened and fetches nothing."""

import base64
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.infra.kubernetes.labels import RESULTS_ANNOTATION, RUN_ANNOTATION
from slipway.infra.pipelines.results import Column, Curves, Number, Picture, Table
from slipway.infra.review.stack import Resource
from slipway.rehearse.output import charts
from slipway.rehearse.output.report import code, cost_of, stack_of, template_values
from slipway.rehearse.output.results import CollectedResults, ShownCurves, collect, decimals, format_value
from slipway.rehearse.session import configure
from tests.rehearse.toy import Toys, rehearse
from tests.support.browser import chromium
from tests.support.checkout import ROOT
from tests.support.rehearsing import rehearse_file, stack_file

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63606060000000040001"
    "f61738550000000049454e44ae426082"
)

WRITER = """
import base64, json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True)
image = {"path": str(folder / "<b>3.png"), "digit": 3, "confidence": 0.9, "label": 3}
wrong = {"path": str(folder / "4.png"), "digit": 5, "confidence": 0.5, "label": 4}
errors = [{"path": "/x/bad.png", "reason": "it is no PNG"}]
(folder / "predictions.json").write_text(json.dumps({"images": [image, wrong], "errors": errors}))
epoch = {"accuracy": 0.5, "val_accuracy": 0.6, "loss": 1.2, "val_loss": 1.1, "learning_rate": 0.001}
history = [epoch, {**epoch, "accuracy": 0.9, "learning_rate": 0.0001}]
(folder / "metrics.json").write_text(json.dumps({"history": history, "test": {"accuracy": 0.93}}))
(folder / "sheet.png").write_bytes(base64.b64decode(sys.argv[2]))
fast = {"run": "eight-<b>", "xla": True, "speed": 12345.67, "plus": 98.7}
slow = {"run": "one", "xla": False, "speed": 1000, "plus": 2.5}
(folder / "results.json").write_text(json.dumps([fast, slow]))
"""

RESULTS = (
    Number(name="accuracy", title="Accuracy", path="metrics.json", select="/test/accuracy", format="percent"),
    Curves(
        name="training",
        title="Training",
        path="metrics.json",
        select="/history",
        curves=("accuracy", "loss"),
    ),
    Table(
        name="digits",
        title="Digits",
        path="predictions.json",
        select="/images",
        columns=(
            Column(key="path", title="Image", format="file"),
            Column(key="digit", title="Digit", format="integer"),
            Column(key="confidence", title="Confidence", format="percent"),
            Column(key="label", title="Label", format="integer"),
        ),
        compare=("digit", "label"),
    ),
    Table(
        name="unreadable",
        title="Unreadable",
        path="predictions.json",
        select="/errors",
        columns=(Column(key="path", title="Image", format="file"), Column(key="reason", title="Reason")),
    ),
    Table(
        name="speed",
        title="Speed",
        path="results.json",
        columns=(
            Column(key="run", title="Run"),
            Column(key="xla", title="XLA"),
            Column(key="speed", title="Images/s", format="number"),
            Column(key="watts", title="Watts that nobody measured", format="number"),
        ),
    ),
    Picture(name="sheet", title="All of <them>", path="sheet.png"),
)
"""Results of all four kinds."""


class Page(HTMLParser):
    """What a page would fetch, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetches: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if (tag, name) == ("a", "href"):
                self.links.append(value or "")
            elif name in {"src", "href", "xlink:href", "srcset", "data", "action", "poster"}:
                self.fetches.append(value or "")
        if tag not in {"meta", "img", "br", "rect", "line", "path", "circle", "polyline"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and tag == self.open[-1]:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which a Job left results of all four kinds and another one failed, and what was printed."""
    folder = tmp_path_factory.mktemp("report")

    def program() -> None:
        toys = Toys()
        writer = toys.job(
            "writer",
            WRITER,
            "/store/digits/1",
            base64.b64encode(PNG).decode(),
            pipeline="digits",
            run="digits/1",
            results=RESULTS,
        )
        broken = toys.job(
            "broken", "print('</pre><script>alert(1)</script>'); raise SystemExit(5)", after=[writer]
        )
        toys.job("after", "print('never')", after=[broken])

    _, printed = rehearse(program, folder)
    return folder, printed


@pytest.fixture(scope="module")
def report(rehearsal: tuple[Path, str]) -> tuple[Path, str]:
    folder, _ = rehearsal
    return folder, (folder / "report.html").read_text(encoding="utf-8")


def test_it_is_well_formed_and_fetches_nothing(report: tuple[Path, str]) -> None:
    _, text = report
    page = Page(text)
    assert page.open == []
    assert page.fetches
    assert [fetch for fetch in page.fetches if not re.match(r"data:image/(png|svg\+xml);base64,", fetch)] == []
    assert not re.search(r"@import|url\(|<script|<link|<iframe", text)


def test_it_shows_failures_and_places(report: tuple[Path, str]) -> None:
    text = Page(report[1]).text
    for shown in ("broken failed", "(exit code 5)", "</pre><script>alert(1)</script>", "not run", "local-cpu-0"):
        assert shown in text, shown


def test_it_shows_the_results_that_jobs_declare(report: tuple[Path, str]) -> None:
    page = Page(report[1])
    text = " ".join(page.text.split())
    for shown in (
        "Results of digits",
        "Accuracy 93.0 % digits",
        "Digits 1/2 right, digits",
        "Digits, 1 of 2 right Image Digit Confidence Label <b>3.png 3 90.0 % 3 4.png 5 ✗ 50.0 % 4",
        "Unreadable Image Reason bad.png it is no PNG",
        "Speed Run XLA Images/s eight-<b> yes 12,345.7 one no 1,000.0",
        "Accuracy training validation",
        "Loss training validation",
        "All of <them>",
    ):
        assert shown in text, shown
    assert "nobody measured" not in text
    assert f"data:image/png;base64,{base64.b64encode(PNG).decode()}" in page.fetches


def test_the_terminal_shows_them_too(rehearsal: tuple[Path, str]) -> None:
    _, printed = rehearsal
    rows = [re.sub(r" +", " ", line).strip() for line in printed.split("Results of digits\n", 1)[1].splitlines()]
    for shown in (
        "Accuracy: 93.0 %",
        "Digits, 1 of 2 right",
        "4.png 5 50.0 % 4 ✗",
        "<b>3.png 3 90.0 % 3",
        "bad.png it is no PNG",
        "eight-<b> yes 12,345.7",
        "one no 1,000.0",
    ):
        assert shown in rows, shown


def test_pipelines_do_not_hide_each_other(tmp_path: Path) -> None:
    script = "import os, sys; os.mkdir(sys.argv[1]); open(sys.argv[1] + '/m.json', 'w').write(sys.argv[2])"
    accuracy = Number(name="accuracy", title="Accuracy", path="m.json", select="/accuracy")

    def program() -> None:
        toys = Toys()
        for number, pipeline in enumerate(("cats", "dogs", "dogs"), 1):
            run, name = f"run-{number}", f"{pipeline}-{number}"
            content = json.dumps({"accuracy": number / 8})
            toys.job(name, script, f"/store/{run}", content, pipeline=pipeline, run=run, results=[accuracy])

    _, printed = rehearse(program, tmp_path)
    assert "Results of cats\nAccuracy: 0.125\n" in printed
    assert "Results of dogs\nAccuracy of dogs-2: 0.250\nAccuracy of dogs-3: 0.375\n" in printed
    text = " ".join(Page((tmp_path / "report.html").read_text(encoding="utf-8")).text.split())
    assert "Accuracy dogs-2 0.250 Accuracy dogs-3 0.375" in text
    copies = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("results/*/*")}
    assert copies == {"results/cats-1/m.json", "results/dogs-2/m.json", "results/dogs-3/m.json"}


@pytest.mark.parametrize(
    ("content", "declared", "reason"),
    [
        ("{", {}, "it is no JSON"),
        ("{}", {}, "there is no /rows"),
        ('{"rows": 3}', {}, "/rows: Input should be a valid list"),
        ('{"rows": [{"share": NaN}]}', {}, "/rows/0/share is nan, and results are finite"),
        ('{"rows": [{"share": 2}]}', {}, "/rows/0/share: Input should be less than or equal to 1"),
        ("{}", {"path": "other.json"}, "No such file"),
        ("{}", {"path": "../../secret"}, "../../secret leads out of"),
    ],
)
def test_a_result_that_cannot_be_understood_is_one_line(
    tmp_path: Path, content: str, declared: dict[str, str], reason: str
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rows.json").write_text(content, encoding="utf-8")
    column = Column(key="share", title="Share", format="percent")
    table = Table(name="rows", title="Rows", path="rows.json", select="/rows", columns=(column,))
    table = table.model_copy(update=declared)
    results = job_results(tmp_path, RESULTS_ANNOTATION, f"[{table.model_dump_json()}]")
    assert results.jobs[0].tables == []
    assert results.jobs[0].files == ()
    (problem,) = results.problems
    assert problem.startswith("writer: result rows: ")
    assert reason in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (RESULTS_ANNOTATION, '[{"kind": "film"}]', "0: Input tag 'film'"),
        (RUN_ANNOTATION, "../elsewhere", "../elsewhere leads out of"),
    ],
)
def test_an_annotation_that_cannot_be_understood_is_one_line(
    tmp_path: Path, annotation: str, value: str, reason: str
) -> None:
    (problem,) = job_results(tmp_path, annotation, value).problems
    assert problem.startswith(f"writer: its results cannot be shown: {reason}")


def job_results(store: Path, annotation: str, value: str) -> CollectedResults:
    annotations = {RUN_ANNOTATION: "run", annotation: value}
    inputs = {"metadata": {"annotations": annotations}}
    return collect([Resource("urn", "kubernetes:batch/v1:Job", "writer", inputs, inputs=inputs)], store)


def test_a_page_is_shown_without_its_scripts_and_of_a_failed_job_too(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    page = '<h1 title="a">Cells</h1><script>alert(1)</script>'
    (tmp_path / "run" / "train.html").write_text(page, encoding="utf-8")
    declared = [{"kind": "page", "name": "notebook", "title": "<b>", "path": "train.html"}]
    declared += [{"kind": "file", "name": "model", "title": "Model", "path": "no"}]
    annotations = {RUN_ANNOTATION: "run", RESULTS_ANNOTATION: json.dumps(declared)}
    inputs = {"metadata": {"annotations": annotations}}
    job = Resource("urn", "kubernetes:batch/v1:Job", "writer", inputs, inputs=inputs)
    collected = collect([], tmp_path, failed=[job])
    assert not collected.problems
    assert collected.jobs[0].files == ("train.html",)
    (title, _, shown), *others = template_values(collected.jobs[0])["pages"]
    assert (title, others) == ("<b>", [])
    assert shown.endswith(page)
    assert "default-src 'none'" in shown
    frames = re.findall(r"<iframe[^>]*>", (ROOT / "slipway/rehearse/output/report.html.j2").read_text())
    assert [frame for frame in frames if " sandbox " not in frame] == []


@given(st.lists(st.floats(0, 1e9) | st.integers(0, 10**6), min_size=1))
def test_numbers_beside_each_other_have_the_same_digits_and_say_enough(values: list[float]) -> None:
    digits = decimals(values)
    shown = [format_value(value, "number", digits) for value in values]
    assert len({len(text.partition(".")[2]) for text in shown}) == 1
    largest = max(values)
    assert float(shown[values.index(largest)].replace(",", "")) == pytest.approx(largest, rel=0.01, abs=1e-9)


def test_every_job_that_ran_leads_to_its_log(report: tuple[Path, str]) -> None:
    folder, text = report
    links = set(Page(text).links)
    assert {"logs/writer.log", "logs/broken.log"} <= links
    assert (folder / "logs" / "broken.log").read_text(encoding="utf-8").count("alert(1)") == 1
    assert all(link.startswith("logs/") for link in links)


def test_it_says_that_nothing_was_created_and_what_the_run_would_cost() -> None:
    resources = {
        "urn:node": Resource(
            "urn:node",
            "gcp:container/nodePool:NodePool",
            "pool",
            {"nodeConfig": {"machineType": "n1-standard-4"}, "nodeCount": 1, "location": "us-central1-a"},
        )
    }
    bill = cost_of(stack_of("gcp-dev", resources, configure("gcp-dev", ROOT)), [])
    assert bill.idle_hourly is not None
    assert 0.15 < bill.idle_hourly < 0.25, "an n1-standard-4 is $0.19 an hour"


def test_its_verdict_claims_no_more_than_a_rehearsal(tmp_path: Path) -> None:
    rehearse(lambda: Toys().job("job", "print('done')"), tmp_path)
    text = " ".join(Page((tmp_path / "report.html").read_text(encoding="utf-8")).text.split())
    assert "Rehearsed on this CPU: every Job succeeded" in text
    assert "declared, none created" in text
    assert "was created" not in text
    assert "Cost on the cloud" not in text, "nothing on nodes that are there has a price"


def test_the_timeline_is_as_wide_as_the_page(report: tuple[Path, str]) -> None:
    timeline = report[1].split("<h2>Timeline</h2>", 1)[1].split("</section>", 1)[0]
    assert "<svg" not in timeline
    assert "scroll" not in timeline
    bars = re.findall(r'class="bar [a-z-]+" style="left:([\d.]+)%;width:([\d.]+)%"', timeline)
    assert len(bars) == 4, "waiting and running, of the two Jobs that ran"
    assert all(float(left) + float(width) <= 100.1 for left, width in bars)


@pytest.mark.long
def test_on_a_phone_yaml_keeps_its_lines_and_the_page_its_width(tmp_path: Path) -> None:
    runs = {f"train-{number}": f"https://storage.example.org/{'folder/' * 20}{number}" for number in range(3)}

    def program() -> None:
        Toys().job("job", "print('done')")
        pulumi.export("digits", {"runs": runs, "accuracy": 0.5})

    rehearse(program, tmp_path)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.goto((tmp_path / "report.html").as_uri())
        outputs = page.locator("section", has_text="Stack outputs")
        lines = outputs.locator("code", has_text="runs:").evaluate(
            "found => [found.textContent.split('\\n').length,"
            " new Set([...found.getClientRects()].map(rectangle => rectangle.top)).size]"
        )
        assert lines == [5, 5], "of the text, and of what is drawn"
        box = outputs.locator(".scroll").evaluate("found => [found.scrollWidth, found.clientWidth]")
        assert box[0] > box[1], "what is beside the screen can be scrolled to"
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        rows = page.locator(".wide tr").evaluate_all("found => found.map(row => row.offsetHeight)")
        assert max(rows) <= 60, "two lines of text"


def test_what_a_rehearsal_lays_over_stands_there_as_yaml(tmp_path: Path) -> None:
    file = stack_file(tmp_path / "stack.yaml", rehearsal={"pipelines": {"mnist": {"epochs": 3}}})
    rehearse_file(tmp_path / "made", file, lambda: Toys().job("job", "print('done')"))
    text = Page((tmp_path / "made" / "report.html").read_text(encoding="utf-8")).text
    assert "pipelines:\n  mnist:\n    epochs: 3" in text


def test_copies_of_the_results_lie_beside_it(report: tuple[Path, str]) -> None:
    folder, _ = report
    stored, copies = folder / "store" / "digits" / "1", folder / "results" / "writer"
    assert {path.name for path in copies.iterdir()} == {
        "predictions.json",
        "metrics.json",
        "results.json",
        "sheet.png",
    }
    for copy in copies.iterdir():
        assert copy.read_bytes() == (stored / copy.name).read_bytes()


def test_it_has_the_architecture_as_mermaid(report: tuple[Path, str]) -> None:
    source = html.unescape(report[1].partition('<pre class="mermaid">')[2].partition("</pre>")[0])
    assert source.startswith("flowchart TD\n")
    assert "writer" in source


@given(st.floats(1e-6, 1e6))
def test_axis_steps_are_round_and_big_enough(at_least: float) -> None:
    step = charts.nice_step(at_least)
    assert at_least * 0.99 <= step <= at_least * 2.6
    assert float(f"{step:.2g}") == pytest.approx(step)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"accuracy": st.floats(0, 1), "loss": st.floats(0, 10), "val_loss": st.floats(0, 10)}
        ),
        min_size=1,
        max_size=40,
    )
)
def test_curves_stay_inside_their_chart(history: list[dict[str, float]]) -> None:
    declared = Curves(name="training", title="Training", path="metrics.json")
    drawn = charts.curves(ShownCurves(declared, history))
    assert {chart.title for chart in drawn} == {"Accuracy", "Loss"}
    for chart in drawn:
        for line in chart.lines:
            assert all(-1e-6 <= x <= 1 + 1e-6 and -1e-6 <= y <= 1 + 1e-6 for x, y, _ in line.points)
        assert all(-1e-6 <= tick.at <= 1 + 1e-6 for tick in (*chart.x_ticks, *chart.y_ticks))


def test_titles_of_curves_keep_acronyms_and_capitals() -> None:
    declared = Curves(name="training", title="Training", path="metrics.json")
    drawn = charts.curves(ShownCurves(declared, [{"auc": 0.5, "roc_auc": 0.5, "recall_at_F1": 0.5, "loss": 1.0}]))
    assert [chart.title for chart in drawn] == ["AUC", "ROC AUC", "Recall at F1", "Loss"]


def test_backticks_become_code_and_html_stays_text() -> None:
    assert code("run `make <b>`") == "run <code>make &lt;b&gt;</code>"
