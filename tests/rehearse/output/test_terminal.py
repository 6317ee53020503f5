"""A rehearsal can be followed on a terminal and in a log."""

import io
from pathlib import Path

from rich.console import Console

from slipway.infra.review.stack import Resource
from slipway.rehearse.output.results import Row, ShownTable
from slipway.rehearse.output.terminal import LiveDisplay, PlainDisplay, failures, jobs_table, result_table
from slipway.rehearse.state import JobRecord, Phase


def record(name: str, phase: Phase, **more: object) -> JobRecord:
    made = JobRecord(urn=name, name=name, phase=phase, pool="train", accelerator="nvidia-tesla-t4")
    for key, value in more.items():
        setattr(made, key, value)
    return made


def test_without_a_terminal_there_is_a_line_per_change_and_few_per_training() -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=200))
    train = record("mnist-train", Phase.PENDING)
    display.job(train)
    train.phase = Phase.RUNNING
    display.job(train)
    for done in range(1, 101):
        train.epochs = (done, 100)
        display.job(train)
    train.phase, train.started, train.finished = Phase.SUCCEEDED, 100.0, 112.0
    display.job(train)
    lines = [line.split("s  ", 1)[1] for line in out.getvalue().splitlines()]
    assert lines == [
        "mnist-train: running on train (nvidia-tesla-t4)",
        *(f"mnist-train: epoch {done}/100" for done in (25, 50, 75, 100)),
        "mnist-train: succeeded on train (nvidia-tesla-t4) in 12.0 s",
    ]
    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_a_tree_with_a_bar_for_the_training() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True)
    with LiveDisplay(console, "gcp-dev") as display:
        urn = "urn:pulumi:s::p::slipway:gcp:GkeCluster$gcp:container/cluster:Cluster::dev"
        display.resource(Resource(urn, "gcp:container/cluster:Cluster", "dev", {}))
        display.job(record("mnist-prepare", Phase.SUCCEEDED, started=1.0, finished=3.5))
        display.job(record("mnist-train", Phase.RUNNING, epochs=(5, 12)))
        display.job(record("mnist-predict", Phase.NOT_RUN, reason="needs mnist-train"))
        display.note(record("mnist-train", Phase.RUNNING), "pod evicted")
    shown = out.getvalue()
    for text in (
        "GkeCluster",
        "2.5 s",
        "epoch 5/12",
        "━",
        "not run: needs mnist-train",
        "mnist-train: pod evicted",
    ):
        assert text in shown, text


def test_on_a_narrow_terminal_each_job_keeps_to_one_line() -> None:
    out = io.StringIO()
    with LiveDisplay(Console(file=out, width=80, force_terminal=True), "gcp-prod") as display:
        display.job(record("benchmark-model-h100-training", Phase.SUCCEEDED, started=1.0, finished=3.5))
        display.job(record("mnist-train", Phase.RUNNING, pool="model-training", epochs=(11, 12)))
    last = out.getvalue().rsplit("├─", 1)[1]
    assert "benchmark-model-h100-training" in last
    assert "epoch 11/12" in last
    assert "…" in last
    assert last.index("└─") < last.index("mnist-train") < last.index("epoch 11/12")
    assert last[: last.index("epoch 11/12")].count("\n") == 1


def test_a_narrow_table_keeps_the_names_of_jobs_whole() -> None:
    out = io.StringIO()
    name = "benchmark-model-h100-training"
    rows = [record(name, Phase.UNCHANGED, pool="model-training", started=100.0, finished=128.0)]
    Console(file=out, width=80).print(jobs_table(rows))
    line = next(line for line in out.getvalue().splitlines() if "28.0 s" in line)
    assert line.split()[0] == name
    assert line.split()[-1] == "unchanged"


HOSTILE = "\x1b[31m[bold]\u202e\x07.png"
ESCAPED = r"\x1b[31m[bold]\u202e\x07.png"


def test_names_and_logs_are_written_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, width=200, force_terminal=True, color_system=None)
    failed = record("mnist-train", Phase.FAILED, accelerator=HOSTILE, reason=HOSTILE, started=1.0, attempts=1)
    log = tmp_path / "log"
    log.write_text(f"first\nread {HOSTILE}\n", encoding="utf-8")
    console.print(jobs_table([failed]))
    console.print(result_table(ShownTable("t", HOSTILE, (HOSTILE,), (False,), (Row((HOSTILE,)),), "")))
    failures(console, [failed], {"mnist-train": log}, {"bucket": HOSTILE})
    display = PlainDisplay(console)
    display.say(HOSTILE)
    display.note(failed, HOSTILE)
    shown = out.getvalue()
    assert shown.count(ESCAPED) == 9
    assert not {"\x1b", "\u202e", "\x07"} & set(shown)
