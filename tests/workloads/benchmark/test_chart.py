from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from slipway.workloads.runtime.exits import BAD_INPUT
from slipway.workloads.runtime.store import MANIFEST, check, publish
from tests.workloads.steps import only_error, run
from workloads.benchmark.chart import _panel
from workloads.benchmark.resnet50 import REMARK, RESULT, STEP
from workloads.benchmark.results import Result, collect, newest

DEFAULTS = {
    "device": "Tesla T4",
    "gpus": 1,
    "virtual_devices": False,
    "reduced": False,
    "precision": "fp32",
    "tensor_float_32": False,
    "xla": False,
    "data": "synthetic",
    "image_size": 224,
    "batch_size_per_gpu": 64,
    "images_per_second": 130.0,
    "images_per_second_per_gpu": 130.0,
    "uncertainty": 0.5,
    "jitter": 1.5,
    "compile_seconds": 20.0,
    "peak_gpu_memory_bytes": 8 * 2**30,
    "finished": "2026-11-20T12:00:00Z",
}
SEVERAL = {
    "one": {"nodes": 1, "gpus": 4, "images_per_second": 400.0, "images_per_second_per_gpu": 100.0},
    "two": {"nodes": 2, "gpus": 8, "images_per_second": 720.0, "images_per_second_per_gpu": 90.0},
    "two-small": {"nodes": 2, "gpus": 4, "images_per_second": 360.0, "images_per_second_per_gpu": 90.0},
}
"""One node of four GPUs, two of them, and two of two, which were measured on no single node."""
SIZE_OF_PNG = slice(16, 24)
"""Where a PNG has its width and height, four bytes each."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store" / "benchmark"


def write(store: Path, run_name: str, digest: str = "0123456789", **changes: Any) -> Path:
    content = {**DEFAULTS, **changes}
    staged = store.parent / "staged"
    staged.mkdir(parents=True, exist_ok=True)
    (staged / RESULT).write_text(json.dumps(content))
    folder = store / run_name / digest
    publish(staged, folder, step=STEP, inputs={}, settings={"run": run_name, **changes}, summary={})
    return folder


def test_runs_are_found_with_their_names_and_all_else_is_left_alone(store: Path) -> None:
    write(store, "t4-fp32")
    write(store, "t4-fp16", precision="fp16", finished="2026-11-20T13:00:00Z")
    publish(store.parent / "staged", store / "chart" / "ab", step="other", inputs={}, settings={}, summary={})
    (store / "t4-fp32" / "unfinished").mkdir()
    assert [result.run for result in collect([store])] == ["t4-fp32", "t4-fp16"]


def test_a_run_named_twice_counts_once(store: Path) -> None:
    folder = write(store, "t4-fp32")
    assert len(collect([store, store / "t4-fp32", folder])) == 1


def test_of_one_configuration_the_last_measurement_counts(store: Path) -> None:
    write(store, "before", images_per_second=100.0)
    write(store, "after", images_per_second=140.0, finished="2026-11-21T12:00:00Z")
    write(store, "larger", batch_size_per_gpu=128)
    last = newest(collect([store]))
    assert [(result.run, result["batch_size_per_gpu"]) for result in last] == [("after", 64), ("larger", 128)]


@pytest.mark.slow
def test_several_nodes_are_compared_with_one_that_has_as_many_gpus(store: Path, tmp_path: Path) -> None:
    for name, changes in SEVERAL.items():
        write(store, name, **changes)
    write(store, "old-fp16", precision="fp16", gpus=4)

    output = run("benchmark.chart", "--results", store, "--output", tmp_path / "chart")

    rows = {row["run"]: row for row in csv.DictReader((tmp_path / "chart" / "results.csv").open())}
    assert {name: (row["nodes"], row["efficiency"]) for name, row in rows.items()} == {
        "one": ("1", ""),
        "two": ("2", "0.9"),
        "two-small": ("2", ""),
        "old-fp16": ("1", ""),
    }
    lines = {line.split("|")[-2].strip(): line for line in output.splitlines() if line.startswith("|")}
    assert [name for name, line in lines.items() if "90%" in line] == ["two"]
    shown = json.loads((tmp_path / "chart" / "results.json").read_text())["results"]
    assert {result["run"]: result["efficiency"] for result in shown}["two"] == pytest.approx(0.9)


def test_the_bars_of_several_nodes_say_how_much_is_left(store: Path) -> None:
    for name, changes in SEVERAL.items():
        write(store, name, **changes)
    axes = Figure().subplots()
    _panel(axes, newest(collect([store])))
    said = [text.get_text() for text in axes.texts]
    assert "90% of one\n720" in said
    assert {"400", "360"} < set(said)
    labels = {label.get_text() for label in axes.get_xticklabels()}
    assert {"Tesla T4\n4 GPUs", "Tesla T4\n2 nodes, each 4 GPUs", "Tesla T4\n2 nodes, each 2 GPUs"} == labels


@pytest.mark.parametrize("other", [{"xla": True}, {"data": "stored"}, {"image_size": 299}, {"reduced": True}])
def test_another_configuration_replaces_none(store: Path, other: dict[str, Any]) -> None:
    write(store, "one")
    write(store, "other", finished="2026-11-21T12:00:00Z", **other)
    assert {result.run for result in newest(collect([store]))} == {"one", "other"}


def test_a_damaged_result_is_left_out_and_named(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(store, "good")
    damaged = write(store, "damaged", precision="fp16")
    (damaged / RESULT).write_text("{}")
    incomplete = write(store, "incomplete", precision="bf16")
    entry = json.loads((incomplete / MANIFEST).read_text())
    (incomplete / RESULT).write_text("{}")
    staged = store.parent / "empty"
    staged.mkdir()
    (staged / RESULT).write_text("{}")
    publish(staged, incomplete, step=STEP, inputs={}, settings=entry["settings"], summary={})

    assert [result.run for result in collect([store])] == ["good"]
    said = capsys.readouterr().out
    assert str(damaged) in said
    assert str(incomplete) in said


@pytest.mark.slow
def test_the_chart_has_every_configuration_and_its_tables_agree(store: Path, tmp_path: Path) -> None:
    write(store, "t4-fp32")
    write(store, "t4-fp16", precision="fp16", xla=True, images_per_second=390.0)
    write(store, "h100", device="NVIDIA H100 80GB HBM3", gpus=8, tensor_float_32=True, images_per_second=9000.0)
    write(store, "old", images_per_second=1.0, finished="2020-01-01T00:00:00Z")

    output = run("benchmark.chart", "--results", store, "--output", tmp_path / "chart")

    assert "3 of 4 run(s)" in output
    assert REMARK not in output
    files = check(tmp_path / "chart").files
    assert set(files) == {"throughput.png", "results.json", "results.csv", "results.md"}
    content = json.loads((tmp_path / "chart" / "results.json").read_text())
    assert {result["run"] for result in content["results"]} == {"t4-fp32", "t4-fp16", "h100"}
    assert [result["run"] for result in content["earlier"]] == ["old"]
    with (tmp_path / "chart" / "results.csv").open(newline="") as stream:
        rows = {result["run"]: float(result["images_per_second"]) for result in csv.DictReader(stream)}
    assert rows == {"t4-fp32": 130.0, "t4-fp16": 390.0, "h100": 9000.0}
    table = (tmp_path / "chart" / "results.md").read_text()
    assert "| fp32 (TF32) |" in table
    assert table.strip() in output
    png = (tmp_path / "chart" / "throughput.png").read_bytes()
    width, height = (int.from_bytes(png[SIZE_OF_PNG][at : at + 4]) for at in (0, 4))
    assert width > height > 400


@pytest.mark.parametrize("speed", [1.9, 19.2, 390.0, 9000.0])
def test_the_axis_says_what_its_lines_are(speed: float) -> None:
    axes = Figure().subplots()
    _panel(axes, [Result("t4", "0" * 10, {**DEFAULTS, "images_per_second": speed})])
    shown = {float(label.get_text().replace(",", "")) for label in axes.get_yticklabels()}
    assert shown == {round(float(tick), 6) for tick in axes.get_yticks()}


def test_a_bar_is_as_high_as_the_throughput_of_all_gpus_and_shows_how_sure_that_is() -> None:
    axes = Figure().subplots()
    one = Result("one", "0" * 10, {**DEFAULTS, "images_per_second": 400.0, "uncertainty": 20.0})
    both = {"gpus": 2, "images_per_second": 760.0, "images_per_second_per_gpu": 380.0, "xla": True}
    _panel(axes, [one, Result("two", "1" * 10, {**one.content, **both})])
    assert [bars.patches[0].get_height() for bars in axes.containers if hasattr(bars, "patches")] == [400.0, 760.0]
    assert sorted(float(line.get_ydata()[0]) for line in axes.lines) == [380.0, 420.0, 740.0, 780.0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["Tesla T4\n1 GPU", "Tesla T4\n2 GPUs"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["fp32", "fp32, XLA"]
    assert not any(REMARK[1:] in text.get_text() for text in axes.texts)


def test_the_chart_of_a_cpu_says_so() -> None:
    axes = Figure().subplots()
    _panel(axes, [Result("t4", "0" * 10, {**DEFAULTS, "reduced": True, "virtual_devices": True})])
    assert any(REMARK[1:] in text.get_text() for text in axes.texts)
    assert axes.get_xticklabels()[0].get_text().endswith("(a CPU in its place)")


@pytest.mark.slow
def test_figures_of_a_cpu_are_marked(store: Path, tmp_path: Path) -> None:
    write(store, "rehearsed", device="nvidia-tesla-t4", reduced=True, virtual_devices=True, images_per_second=40.0)
    output = run("benchmark.chart", "--results", store, "--output", tmp_path / "chart")
    assert "nvidia-tesla-t4 *" in output
    assert f"* {REMARK}" in output
    assert REMARK in (tmp_path / "chart" / "results.md").read_text()


@pytest.mark.slow
def test_a_chart_is_drawn_again_only_for_other_results(store: Path, tmp_path: Path) -> None:
    write(store, "t4-fp32")
    first = run("benchmark.chart", "--results", store, "--output", tmp_path / "chart")
    assert "Drew" in first
    assert "Nothing to do" in run("benchmark.chart", "--results", store, "--output", tmp_path / "chart")
    write(store, "t4-fp16", precision="fp16", finished="2026-11-21T12:00:00Z")
    assert "Drew 2 of 2" in run("benchmark.chart", "--results", store, "--output", tmp_path / "chart")


@pytest.mark.slow
def test_no_result_at_all_is_refused(tmp_path: Path) -> None:
    output = run("benchmark.chart", "--results", tmp_path, "--output", tmp_path / "chart", code=BAD_INPUT)
    assert "no result of benchmark.resnet50" in only_error(output)
    missing = run("benchmark.chart", "--results", tmp_path / "no", "--output", tmp_path / "chart", code=BAD_INPUT)
    assert "there is no such folder" in only_error(missing)
