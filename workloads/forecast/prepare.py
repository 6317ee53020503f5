"""Simulate two years of daily sales: a trend, a week, a year and chance, others for each shop."""

import argparse
from pathlib import Path

import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--shops", type=int, default=12)
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

folder = options.output / "sales"
folder.mkdir(parents=True, exist_ok=True)
days = np.arange(np.datetime64("2024-01-01"), np.datetime64("2026-01-01"))
age = np.arange(len(days))
for number in range(1, options.shops + 1):
    # Of a shop's own, so that more shops change none that is there.
    random = np.random.default_rng(number)
    trend = random.uniform(50, 200) * (1 + random.uniform(-0.2, 0.5) * age / len(age))
    week = 1 + random.uniform(-0.4, 0.4, 7)[age % 7]
    year = 1 + random.uniform(0, 0.3) * np.sin(2 * np.pi * (age / 365.25 + random.random()))
    sales = random.poisson(trend * week * year)
    rows = [f"{day},{count}" for day, count in zip(days, sales, strict=True)]
    (folder / f"shop-{number:03}.csv").write_text("\n".join(["day,sales", *rows]) + "\n")
print(f"{options.shops} shops, {len(days)} days each")
