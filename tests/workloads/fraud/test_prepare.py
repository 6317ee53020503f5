"""What ``prepare.py`` reads, what it leaves out and names, and which files a new day changes."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workloads.fraud.programs import COLUMNS, content, read_day, run, write_day

Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four whole days."""
    output = tmp_path_factory.mktemp("simulated")
    run("prepare.py", "--customers", 60, "--terminals", 100, "--days", 4, "--output", output)
    return output / "transactions"


@pytest.fixture
def source(simulated: Path, tmp_path: Path) -> Path:
    """A copy of it, to change at will."""
    folder = tmp_path / "source"
    folder.mkdir()
    for path in simulated.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def prepare(source: Path, output: Path, *arguments: object, expect: int = 0) -> str:
    return run("prepare.py", "--source", source, "--output", output, *arguments, expect=expect)


def files(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (*(output / "days").iterdir(), output / "test.npz")}


def problems(output: Path) -> list[dict[str, Any]]:
    return content(output / "problems.json")


def days(output: Path) -> list[str]:
    return [row["day"] for row in content(output / "data.json")["days"]]


@pytest.mark.slow
def test_compressed_files_with_other_names_and_iso_times_are_the_same_days(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "plain")
    for number, path in enumerate(sorted(source.iterdir())):
        rows = read_day(path)
        for row in rows:
            time = np.datetime64(int(row["TX_DATETIME"]), "ns")
            row["TX_DATETIME"] = str(time.astype("datetime64[s]")).replace("T", " ")
        write_day(source / f"export-{number}.csv.gz", rows, [*COLUMNS[:5], "TX_FRAUD", "TX_FRAUD_SCENARIO"])
        path.unlink()
    prepare(source, tmp_path / "other")
    assert problems(tmp_path / "other") == []
    assert files(tmp_path / "plain") == files(tmp_path / "other")


@pytest.mark.slow
def test_labels_stand_apart_from_features_and_change_none(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "before")
    for path in source.iterdir():
        rows = read_day(path)
        write_day(path, [{**row, "TX_FRAUD": str(1 - int(row["TX_FRAUD"]))} for row in rows])
    prepare(source, tmp_path / "after")
    for name in files(tmp_path / "before"):
        where = name if name == "test.npz" else f"days/{name}"
        with np.load(tmp_path / "before" / where) as one, np.load(tmp_path / "after" / where) as other:
            assert (one["features"] == other["features"]).all()
            assert (one["fraud"] != other["fraud"]).all()


@pytest.mark.slow
def test_a_new_day_changes_the_files_of_no_other(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "before", "--until", "2018-04-03")
    prepare(source, tmp_path / "after", "--until", "2018-04-04")
    before, after = files(tmp_path / "before"), files(tmp_path / "after")
    assert set(before) == {"2018-04-01.npz", "2018-04-02.npz", "test.npz"}
    assert after["2018-04-03.npz"] == before["test.npz"], "the day that was tested on is learnt now"
    assert all(after[name] == before[name] for name in before if name != "test.npz")


@pytest.mark.parametrize("named", ["2018-04-03", "other"])
def test_the_day_to_test_on_can_be_named_by_its_date_or_file(named: str, source: Path, tmp_path: Path) -> None:
    (source / "2018-04-03.csv").rename(source / "other.csv")
    prepare(source, tmp_path / "out", "--test-day", named)
    assert days(tmp_path / "out") == ["2018-04-01", "2018-04-02", "2018-04-03"]


def test_features_of_the_days_are_scaled_by_the_first(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "out")
    with np.load(tmp_path / "out" / "days" / "2018-04-01.npz") as first:
        assert first["features"].mean(axis=0) == pytest.approx(0, abs=0.1)
        assert np.abs(first["features"]).max() <= 10


WRONG = {
    "TX_AMOUNT": ["many", "-5.00", "nan", ""],
    "TX_DATETIME": ["yesterday", "1522454400000000000", ""],
    "TX_FRAUD": ["2", "True"],
    "CUSTOMER_ID": [""],
}


@pytest.mark.slow
def test_wrong_rows_are_left_out_and_named_with_their_lines(source: Path, tmp_path: Path) -> None:
    path = source / "2018-04-02.csv"
    rows = read_day(path)
    wrong = [{**rows[0], column: value} for column, values in WRONG.items() for value in values]
    again = [rows[3], rows[4]]
    write_day(path, [*rows, *wrong, *again])
    with path.open("a", encoding="utf-8") as file:
        file.write("1234,half a row\n")
    prepare(source, tmp_path / "out")
    left_out = problems(tmp_path / "out")
    assert {row["file"] for row in left_out} == {path.name}
    assert sum(row["rows"] for row in left_out) == len(wrong) + len(again) + 1
    by = {row["problem"]: row for row in left_out}
    assert by["a row has a negative amount"]["example"] == f"line {len(rows) + 3}: -5.00"
    assert by["a row has a time outside of 2018-04-02"]["rows"] == 1
    assert by["a row has the number of an earlier row"]["rows"] == 2
    assert by["a row has a TX_FRAUD that is neither 0 nor 1"]["rows"] == 2
    write_day(path, rows)
    prepare(source, tmp_path / "whole")
    assert files(tmp_path / "whole") == files(tmp_path / "out")


@pytest.mark.slow
def test_files_that_are_no_new_day_are_left_out_and_named(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "whole")
    first = read_day(source / "2018-04-01.csv")
    write_day(source / "2018-04-05.csv", [])
    write_day(
        source / "2018-04-06.csv", first, [name for name in COLUMNS if name not in ("TERMINAL_ID", "TX_AMOUNT")]
    )
    write_day(source / "copy-of-the-first.csv", first)
    (source / "2018-04-07.csv.gz").write_bytes(gzip.compress(b"TRANSACTION_ID," * 1000)[:-20])
    (source / "2018-04-08.csv").write_bytes(b"\xff\xfe\x00")
    (source / "2018-04-09.csv").write_bytes(b"")
    (source / "notes.txt").write_text("not a table", encoding="utf-8")
    said = prepare(source, tmp_path / "out")
    rows = {problem["file"]: problem["problem"] for problem in problems(tmp_path / "out")}
    assert rows == {
        "2018-04-05.csv": "is empty: left out",
        "2018-04-06.csv": "has no column TERMINAL_ID, TX_AMOUNT: left out",
        "2018-04-07.csv.gz": "cannot be read: left out",
        "2018-04-08.csv": "cannot be read: left out",
        "2018-04-09.csv": f"has no column {', '.join(('TRANSACTION_ID', *COLUMNS[1:5], 'TX_FRAUD'))}: left out",
        "copy-of-the-first.csv": "is 2018-04-01 once more, which 2018-04-01.csv has: left out",
    }
    assert all(f"{name}: {what}" in said for name, what in rows.items())
    assert files(tmp_path / "out") == files(tmp_path / "whole"), "the other days go on"


def test_a_day_without_frauds_is_a_day(source: Path, tmp_path: Path) -> None:
    rows = [row for row in read_day(source / "2018-04-02.csv") if row["TX_FRAUD"] == "0"]
    write_day(source / "2018-04-02.csv", rows)
    prepare(source, tmp_path / "out")
    assert (problems(tmp_path / "out"), len(days(tmp_path / "out"))) == ([], 4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--test-day", "2018-04-09"),
            "no day to test on is '2018-04-09'; usable days",
        ),
        (("--until", "2018-04-02"), "two days to learn from and one to test on are needed"),
        (("--until", "April"), "--until April: not a day; write YYYY-MM-DD"),
        (("--store", "/nowhere", "--source", "days"), "/nowhere/days: there is no such folder"),
    ],
)
def test_what_cannot_be_prepared_is_said(
    arguments: tuple[str, ...], said: str, source: Path, tmp_path: Path
) -> None:
    code = 2 if "April" in arguments else 1
    output = prepare(source, tmp_path / "out", *arguments, expect=code)
    assert said in output
    assert "Traceback" not in output
