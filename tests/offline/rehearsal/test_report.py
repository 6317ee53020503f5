"""The report shows what happened and fetches nothing."""

import base64
import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.engine.resources import Resource
from offline.rehearsal import charts
from offline.rehearsal.cost import priced
from offline.rehearsal.graph import HEIGHT, draw
from offline.rehearsal.session import configure
from tests.offline.rehearsal.toy import ROOT, Toys, rehearse

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63606060000000040001"
    "f61738550000000049454e44ae426082"
)

WRITER = """
import base64, json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
folder.mkdir()
image = {"path": str(folder / "<b>3.png"), "digit": 3, "confidence": 0.9, "label": 3}
wrong = {"path": str(folder / "4.png"), "digit": 5, "confidence": 0.5, "label": 4}
errors = [{"path": "/x/bad.png", "reason": "it is no PNG"}]
(folder / "predictions.json").write_text(json.dumps({"images": [wrong, image], "errors": errors}))
epoch = {"accuracy": 0.5, "val_accuracy": 0.6, "loss": 1.2, "val_loss": 1.1, "learning_rate": 0.001}
history = [epoch, {**epoch, "accuracy": 0.9, "learning_rate": 0.0001}]
(folder / "metrics.json").write_text(json.dumps({"history": history, "test": {"accuracy": 0.93}}))
(folder / "contact_sheet.png").write_bytes(base64.b64decode(sys.argv[2]))
measured = {"run": "eight-<b>", "device": "Tesla T4", "gpus": 8, "precision": "bf16"}
figures = {"xla": True, "data": "stored", "images_per_second": 12345.67, "uncertainty": 8.9, "reduced": True}
(folder / "results.json").write_text(json.dumps({"results": [{**measured, **figures}]}))
(folder / "throughput.png").write_bytes(base64.b64decode(sys.argv[2]))
"""


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
        self.text += data


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("report")

    def program() -> None:
        toys = Toys()
        writer = toys.job("writer", WRITER, "/store/results", base64.b64encode(PNG).decode())
        broken = toys.job(
            "broken", "print('</pre><script>alert(1)</script>'); raise SystemExit(5)", after=[writer]
        )
        toys.job("after", "print('never')", after=[broken])

    rehearse(program, folder)
    return folder, (folder / "report.html").read_text(encoding="utf-8")


def test_it_fetches_nothing(report: tuple[Path, str]) -> None:
    _, text = report
    page = Page(text)
    assert page.fetches
    assert [each for each in page.fetches if not each.startswith("data:image/png;base64,")] == []
    assert not re.search(r"@import|url\(|<script|<link|<iframe", text)


def test_it_is_well_formed(report: tuple[Path, str]) -> None:
    assert Page(report[1]).open == []


def test_it_shows_results_failures_and_places(report: tuple[Path, str]) -> None:
    text = Page(report[1]).text
    for shown in ("1/2", "93.0%", "<b>3.png", "bad.png could not be read: it is no PNG", "local-cpu-0"):
        assert shown in text, shown
    for shown in ("broken failed", "exited with 5", "</pre><script>alert(1)</script>", "not run", "rate 0.0001"):
        assert shown in text, shown


def test_every_job_that_ran_leads_to_its_log(report: tuple[Path, str]) -> None:
    folder, text = report
    links = set(Page(text).links)
    assert {"logs/writer.log", "logs/broken.log"} <= links
    assert (folder / "logs" / "broken.log").read_text(encoding="utf-8").count("alert(1)") == 1
    assert all(each.startswith("logs/") for each in links)


def test_it_says_that_nothing_was_created_and_what_the_run_would_cost() -> None:
    resources = {
        "urn:node": Resource(
            "urn:node",
            "gcp:container/nodePool:NodePool",
            "pool",
            True,
            {},
            {"nodeConfig": {"machineType": "n1-standard-4"}, "nodeCount": 1, "location": "us-central1-a"},
        )
    }
    bill = priced("gcp-dev", resources, configure("gcp-dev", ROOT), [])
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


def test_it_shows_throughput_and_that_a_cpu_measured_it_and_charts_nothing(report: tuple[Path, str]) -> None:
    text = " ".join(Page(report[1]).text.split())
    assert "ResNet-50 training throughput on this CPU" in text
    assert "In place of" in text
    assert "Tesla T4 8 bf16, XLA, stored data 12,345.7 ± 8.9 eight-<b>" in text
    assert "say nothing about the GPUs" in text
    assert len([each for each in Page(report[1]).fetches if each.startswith("data:image/png")]) == 1


def test_artifacts_lie_beside_it(report: tuple[Path, str]) -> None:
    folder, _ = report
    assert (folder / "contact_sheet.png").read_bytes() == PNG
    assert not (folder / "throughput.png").exists(), "a chart of GPUs that a CPU stood in for"
    stored = (folder / "store" / "results" / "predictions.json").read_bytes()
    assert (folder / "predictions.json").read_bytes() == stored
    assert json.loads(stored)["images"][0]["label"] == 4


def resource(name: str, *needs: str) -> Resource:
    return Resource(name, f"p:m:{name}", name, True, {}, {}, dependencies=frozenset(needs))


@given(st.lists(st.sets(st.integers(0, 11)), max_size=12))
def test_boxes_of_the_graph_do_not_overlap_and_edges_lead_down(needs: list[set[int]]) -> None:
    resources = {str(i): resource(str(i), *(str(n) for n in found if n < i)) for i, found in enumerate(needs)}
    drawn = draw(resources, frozenset())
    assert {each.key for each in drawn.vertices} == {each.token for each in resources.values()}
    layers: dict[int, list[float]] = {}
    for each in drawn.vertices:
        layers.setdefault(each.layer, []).append(each.x)
        assert each.x - each.width / 2 >= -0.01
        assert each.x + each.width / 2 <= drawn.width + 0.01
        assert each.y + HEIGHT <= drawn.height
    for row in layers.values():
        row.sort()
        assert all(right - left >= 200 for left, right in itertools.pairwise(row))
    layer = {each.key: each.layer for each in drawn.vertices}
    assert all(layer[start] < layer[end] for start, end, _ in drawn.edges)


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
    for chart in charts.curves(history):
        for line in chart.lines:
            assert all(-1e-6 <= x <= 1 + 1e-6 and -1e-6 <= y <= 1 + 1e-6 for x, y, _ in line.points)
        assert all(-1e-6 <= tick.at <= 1 + 1e-6 for tick in (*chart.x_ticks, *chart.y_ticks))
