"""Run the pipeline's programs as the steps do, and read what they write."""

import csv
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.loaded import Loaded

ROOT = Path(__file__).resolve().parents[3]
CODE = ROOT / "workloads" / "fraud"
REAL_FILES = os.environ.get("SLIPWAY_FRAUD_DIR", "")
COLUMNS = [
    "TRANSACTION_ID",
    "TX_DATETIME",
    "CUSTOMER_ID",
    "TERMINAL_ID",
    "TX_AMOUNT",
    "TX_TIME_SECONDS",
    "TX_TIME_DAYS",
    "TX_FRAUD",
    "TX_FRAUD_SCENARIO",
]
SMALL = ("--customers", 800, "--terminals", 1600, "--days", 4)
"""A simulation of which all programs together take seconds."""


def start(program: str, *arguments: object, loaded: bool = False) -> subprocess.Popen[str] | Loaded:
    """The program; ``loaded``: where TensorFlow is imported already."""
    words = [program, *map(str, arguments)]
    if loaded:
        return Loaded(words, CODE, os.environ)
    words = [sys.executable, *words]
    return subprocess.Popen(words, cwd=CODE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(program: str, *arguments: object, expect: int = 0, loaded: bool = False) -> str:
    """What the program printed. It has to end with the exit code ``expect``."""
    process = start(program, *arguments, loaded=loaded)
    output = process.communicate()[0]
    assert process.returncode == expect, output
    return output


def learn(data: Path, days: Path, *arguments: object) -> None:
    """Run ``train_day.py`` for each day, and write the `items.json` that a worker would."""
    rows, previous = [], None
    for path in sorted((data / "days").glob("*.npz")):
        output = days / path.stem / "1"
        earlier = ("--previous", previous) if previous else ()
        run("train_day.py", "--day", path, *earlier, "--output", output, *arguments, loaded=True)
        summary = content(output / "summary.json")
        rows.append({"item": path.stem, "state": "done", "path": f"{path.stem}/1", "attempts": 1, **summary})
        previous = output
    (days / "items.json").write_text(json.dumps(rows), encoding="utf-8")


def content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write_day(path: Path, rows: Iterable[Mapping[str, object]], columns: Sequence[str] = COLUMNS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)


def read_day(path: Path) -> list[dict[str, str]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
