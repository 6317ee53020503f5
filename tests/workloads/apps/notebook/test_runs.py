"""What a notebook finds of its pipeline's results, and how it runs a step by hand."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from slipway.workloads.apps.notebook.runs import NothingThereError, Runs, StepInfo
from slipway.workloads.runtime.store import publish

COUNT = """\
import json, pathlib, sys
words = pathlib.Path(sys.argv[sys.argv.index("--words") + 1], "words.txt").read_text().split()
out = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
(out / "count.json").write_text(json.dumps({"words": len(words), "rate": float(sys.argv[-1])}))
print("counted")
"""


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    store = tmp_path / "store"
    results = [{"kind": "number", "title": "Share", "path": "count.json", "select": "/share"}]
    steps = {
        "split": StepInfo("split", ["python", "split.py", "--output", "{output}"]),
        **{
            f"train-{rate}": StepInfo(
                f"train-{rate}",
                ["python", "train.py", "--words", "{split}", "--output", "{output}", "--rate", "0.1"],
                {"split": ["split"]},
                results=results,
            )
            for rate in ("fast", "slow")
        },
        "test": StepInfo(
            "test",
            [
                "python3",
                "-c",
                COUNT,
                "--words",
                "{split}",
                "--braces",
                "{{}}",
                "--output",
                "{output}",
                "--rate",
                "1",
            ],
            {"split": ["split"], "train": ["train-fast", "train-slow"]},
        ),
        "choose": StepInfo(
            "choose",
            ["choose", "--model={train}", "--store", "{store}/x"],
            {"train": ["train-fast", "train-slow"]},
            {"train": {"path": "count.json", "select": "/share", "of": "max"}},
        ),
        "compare": StepInfo("compare", ["compare", "{train}"], {"train": ["train-fast", "train-slow"]}),
    }
    return Runs(store, store / "lines", steps, tmp_path / "kept")


def leave(runs: Runs, step: str, digest: str, at: float, **files: object) -> Path:
    staged = runs.store.parent / f"staged-{step}-{digest}"
    staged.mkdir(parents=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (staged / name.replace("_", ".")).write_text(text)
    directory = runs.directory / step / digest
    publish(staged, directory, step=step, inputs={}, settings={}, summary={})
    os.utime(directory / "manifest.json", (at, at))
    return directory


def test_the_newest_whole_result_is_found(runs: Runs) -> None:
    first = leave(runs, "split", "aaaa", 1000, words_txt="a b")
    second = leave(runs, "split", "bbbb", 2000, words_txt="a b c")
    (runs.directory / "split" / "cccc").mkdir()
    (runs.directory / "split" / "cccc" / "manifest.json").write_text("half of i")
    assert [result.directory for result in runs.results("split")] == [second, first]
    assert runs.result("split", "aa").directory == first
    with pytest.raises(NothingThereError, match="none of zz; there are bbbb, aaaa"):
        runs.result("split", "zz")
    with pytest.raises(NothingThereError, match="none yet"):
        runs.result("test")
    with pytest.raises(LookupError, match="no step 'spilt'; it has split, train-fast"):
        runs.results("spilt")


def test_going_back_to_earlier_settings_makes_their_result_the_newest(runs: Runs) -> None:
    first = leave(runs, "split", "aaaa", 1000, words_txt="a b")
    leave(runs, "split", "bbbb", 2000, words_txt="a b c")
    record = runs.store / ".runs" / "lines" / "split" / "aaaa" / "1"
    record.parent.mkdir(parents=True)
    record.touch()
    os.utime(record, (3000, 3000))
    assert runs.result("split").directory == first


def test_a_command_line_has_the_newest_inputs(runs: Runs) -> None:
    split = leave(runs, "split", "aaaa", 1000, words_txt="a b")
    fast = leave(runs, "train-fast", "aaaa", 1000, count_json={"share": 0.5})
    slow = leave(runs, "train-slow", "aaaa", 1000, count_json={"share": 0.7})
    assert runs.command("compare") == ["compare", str(fast), str(slow)]
    assert runs.command("choose") == ["choose", f"--model={slow}", "--store", f"{runs.store}/x"]
    words = runs.command("train-fast", rate=0.3)
    assert words[2:] == ["--words", str(split), "--output", str(runs.by_hand("train-fast")), "--rate", "0.3"]
    with pytest.raises(LookupError, match="no --epochs; it has --words, --output, --rate"):
        runs.command("train-fast", epochs=1)
    assert runs.numbers() == [("train-fast", "Share", 0.5), ("train-slow", "Share", 0.7)]
    assert runs.files("{split}/*.txt") == [split / "words.txt"]


def test_a_step_runs_by_hand_and_the_store_stays_as_it_is(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    leave(runs, "split", "aaaa", 1000, words_txt="a b c")
    before = {path: path.stat().st_mtime_ns for path in runs.store.rglob("*")}
    output = runs.run("test", rate=2)
    assert output == runs.folder / "by-hand" / "test"
    assert json.loads((output / "count.json").read_text()) == {"words": 3, "rate": 2.0}
    assert "counted" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in runs.store.rglob("*")} == before


def test_a_step_that_fails_by_hand_says_so(runs: Runs) -> None:
    leave(runs, "split", "aaaa", 1000, other_txt="a")
    with pytest.raises(subprocess.CalledProcessError):
        runs.run("test")


def test_elsewhere_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_STORE", raising=False)
    with pytest.raises(LookupError, match="SLIPWAY_STORE"):
        Runs.here()
