"""The forecasts of shops, each by itself, beside taking last week's sales again."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CODE = Path(__file__).resolve().parents[3] / "workloads" / "forecast"


def run(program: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, program, *map(str, arguments)], cwd=CODE, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("forecast")
    run("prepare.py", "--shops", 4, "--output", output)
    return output / "sales"


@pytest.mark.slow
def test_the_forecast_knows_nothing_of_the_days_that_it_forecasts(sales: Path, tmp_path: Path) -> None:
    lines = (sales / "shop-001.csv").read_text(encoding="utf-8").splitlines()
    changed = [*lines[:-28], *(f"{line.split(',')[0]},0" for line in lines[-28:])]
    (tmp_path / "changed.csv").write_text("\n".join(changed), encoding="utf-8")
    run("forecast.py", "--sales", sales / "shop-001.csv", "--output", tmp_path / "one")
    run("forecast.py", "--sales", tmp_path / "changed.csv", "--output", tmp_path / "other")
    with np.load(tmp_path / "one" / "forecast.npz") as one, np.load(tmp_path / "other" / "forecast.npz") as other:
        assert len(one["forecast"]) == 28
        assert (one["forecast"] == other["forecast"]).all()
        assert other["truth"].sum() == 0


def test_more_shops_change_none_that_is_there(sales: Path, tmp_path: Path) -> None:
    run("prepare.py", "--shops", 5, "--output", tmp_path)
    assert len(list((tmp_path / "sales").iterdir())) == 5
    for path in sales.iterdir():
        assert (tmp_path / "sales" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_shops_are_compared_with_last_weeks_sales_and_one_that_failed_is_left_out(
    sales: Path, tmp_path: Path
) -> None:
    rows: list[dict[str, object]] = [{"item": "shop-000", "state": "failed", "reason": "exit code 1"}]
    for path in sorted(sales.iterdir()):
        run("forecast.py", "--sales", path, "--output", tmp_path / path.stem / "1")
        summary = content(tmp_path / path.stem / "1" / "summary.json")
        rows.append({"item": path.stem, "state": "done", "path": f"{path.stem}/1", **summary})
    (tmp_path / "items.json").write_text(json.dumps(rows), encoding="utf-8")
    said = run("compare.py", "--forecasts", tmp_path, "--output", tmp_path / "out")
    metrics = content(tmp_path / "out" / "metrics.json")
    assert "of 4 shops" in said
    assert metrics["better"] >= 0.75
    assert metrics["error"] < metrics["error_of_last_week"]
    assert (tmp_path / "out" / "forecasts.png").read_bytes().startswith(b"\x89PNG")
