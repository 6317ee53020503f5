"""Read a folder of CSV files, one a day, and name what is wrong in them."""

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from math import isfinite
from pathlib import Path
from typing import NamedTuple

COLUMNS = ("TRANSACTION_ID", "TX_DATETIME", "CUSTOMER_ID", "TERMINAL_ID", "TX_AMOUNT", "TX_FRAUD")
"""The columns that are read; ``TX_FRAUD_SCENARIO`` is shown in the report where a file has it."""
SCENARIOS = ("1", "2", "3")
ENDINGS = (".csv", ".csv.gz")


class Transaction(NamedTuple):
    """One row: seconds since 1970 in UTC, who paid where and how much, and what is known of it afterwards."""

    time: int
    number: str
    customer: str
    terminal: str
    amount: float
    fraud: bool
    scenario: int


class Problem(NamedTuple):
    """What is wrong in a file, with how many of its rows were left out for it."""

    file: str
    problem: str
    rows: int
    example: str = ""


@dataclass
class Day:
    """The transactions of a day, in the order of their time."""

    date: date
    file: str
    rows: list[Transaction] = field(default_factory=list)


def read(folder: Path) -> tuple[list[Day], list[Problem]]:
    """The days that files of ``folder`` have, in order, and every problem of these files.

    A row that is wrong is left out, and so is a file that is not a table of transactions of one new day.
    """
    days: dict[date, Day] = {}
    problems: list[Problem] = []
    for path in sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS)):
        try:
            day, wrong = _day(path)
            problems += wrong
            if day is None:
                continue
            if day.date in days:
                what = f"is {day.date} once more, which {days[day.date].file} has"
                problems.append(Problem(path.name, f"{what}: left out", len(day.rows)))
            else:
                days[day.date] = day
        except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
            problems.append(Problem(path.name, "cannot be read: left out", 0, str(error)))
    return [day for _, day in sorted(days.items())], problems


def stem(file: str) -> str:
    """``file`` without the ending that it has as a table."""
    return file.removesuffix(".gz").removesuffix(".csv")


def _day(path: Path) -> tuple[Day | None, list[Problem]]:
    with (gzip.open if path.name.endswith(".gz") else open)(path, "rt", encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        missing = [column for column in COLUMNS if column not in (table.fieldnames or ())]
        if missing:
            return None, [Problem(path.name, f"has no column {', '.join(missing)}: left out", 0)]
        rows = list(_rows(table))
    named = _date(stem(path.name))
    dates = Counter(_utc(row.time) for _, row in rows if isinstance(row, Transaction))
    day = named or max(sorted(dates), key=dates.__getitem__, default=None)
    wrong: dict[str, list[str]] = {}
    kept: dict[str, Transaction] = {}
    for line, row in rows:
        if isinstance(row, str):
            problem, example = row.split(": ", 1)
        elif _utc(row.time) != day:
            problem, example = f"has a time outside of {day}", str(_utc(row.time))
        elif row.number in kept:
            problem, example = "has the number of an earlier row", row.number
        else:
            kept[row.number] = row
            continue
        wrong.setdefault(problem, []).append(f"line {line}: {example}")
    problems = [Problem(path.name, f"a row {what}", len(at), at[0]) for what, at in wrong.items()]
    if day is None or not kept:
        return None, [*problems, Problem(path.name, "is empty: left out", 0)]
    return Day(day, path.name, sorted(kept.values())), problems


def _rows(table: Iterable[dict[str, str]]) -> Iterator[tuple[int, Transaction | str]]:
    """Each row with its line: a transaction, or what is wrong with it, a colon, and its value."""
    for line, row in enumerate(table, start=2):
        texts = {name: (row[name] or "").strip() for name in COLUMNS}
        empty = [name for name in COLUMNS if not texts[name]]
        amount, when = _number(texts["TX_AMOUNT"]), _time(texts["TX_DATETIME"])
        if empty:
            yield line, f"lacks {', '.join(empty)}: {','.join(texts.values())}"
        elif amount is None:
            yield line, f"has an amount that is no number: {texts['TX_AMOUNT']}"
        elif amount < 0:
            yield line, f"has a negative amount: {texts['TX_AMOUNT']}"
        elif when is None:
            yield line, f"has a time that is none: {texts['TX_DATETIME']}"
        elif texts["TX_FRAUD"] not in ("0", "1"):
            yield line, f"has a TX_FRAUD that is neither 0 nor 1: {texts['TX_FRAUD']}"
        else:
            scenario = (row.get("TX_FRAUD_SCENARIO") or "").strip()
            ids = texts["TRANSACTION_ID"], texts["CUSTOMER_ID"], texts["TERMINAL_ID"]
            yield (
                line,
                Transaction(
                    when, *ids, amount, texts["TX_FRAUD"] == "1", int(scenario) if scenario in SCENARIOS else 0
                ),
            )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _time(text: str) -> int | None:
    """Seconds since 1970 of nanoseconds since then, as the write-up's files have them, or of an ISO 8601 text."""
    try:
        seconds = int(text) // 1_000_000_000 if text.isdigit() else _seconds(datetime.fromisoformat(text))
        _utc(seconds)
    except (ValueError, OverflowError, OSError):
        return None
    return seconds


def _seconds(when: datetime) -> int:
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


def _utc(seconds: int) -> date:
    return datetime.fromtimestamp(seconds, UTC).date()


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
