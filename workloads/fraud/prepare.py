"""Make of a folder of transactions one file a day to learn from, and one for the test.

The folder has CSV files with the columns that `transactions.py` names, or is simulated. What is wrong in it is
named in `problems.json`, and the other days go on. Features of a transaction know only those before it; they are
scaled by the first day, so that a new day's file changes no other.
"""

import argparse
import json
import sys
from datetime import date
from pathlib import Path

import numpy as np
from features import NAMES, History, features
from simulator import simulate
from transactions import read, stem

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--source", default="simulate", help="`simulate`, or a folder of --store")
parser.add_argument("--store", type=Path, default=Path(), help="where --source is")
parser.add_argument("--until", default="", help="the last day that is read, as YYYY-MM-DD; default: all")
parser.add_argument("--test-day", default="last", help="the day to test on: `last`, a date, or a file's name")
parser.add_argument("--customers", type=int, default=1500, help="simulated customers")
parser.add_argument("--terminals", type=int, default=3000, help="simulated terminals")
parser.add_argument("--days", type=int, default=5, help="simulated days, the one to test on included")
parser.add_argument("--seed", type=int, default=0, help="of the simulation")
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()
try:
    until = date.fromisoformat(options.until) if options.until else date.max
except ValueError:
    parser.error(f"--until {options.until}: not a day; write YYYY-MM-DD")

if options.source == "simulate":
    folder = options.output / "transactions"
    simulate(folder, options.customers, options.terminals, options.days, options.seed)
else:
    folder = options.store / options.source.removeprefix("store:")
    if not folder.is_dir():
        sys.exit(f"{folder}: there is no such folder; copy the CSV files of the days there, or correct `source`")

days, problems = read(folder)
for problem in problems:
    print(f"{problem.file}: {problem.problem} ({problem.rows} rows) {problem.example}".rstrip())
days = [day for day in days if day.date <= until]
named = [at for at, day in enumerate(days) if options.test_day in ("last", str(day.date), stem(day.file))]
if not named:
    known = ", ".join(f"{day.date} ({day.file})" for day in days) or "none"
    sys.exit(f"{folder}: no day to test on is {options.test_day!r}; usable days up to {until}: {known}")
days = days[: named[-1] + 1]
if len(days) < 3:
    known = ", ".join(str(day.date) for day in days)
    sys.exit(f"{folder}: two days to learn from and one to test on are needed; usable up to the test's: {known}")

history, mean, deviation = History(), np.zeros(len(NAMES)), np.ones(len(NAMES))
table = []
(options.output / "days").mkdir(parents=True, exist_ok=True)
for day in days:
    known = features(day.rows, history)
    if day is days[0]:
        mean, deviation = known.mean(axis=0), np.maximum(known.std(axis=0), 0.05)
    name = "test.npz" if day is days[-1] else f"days/{day.date}.npz"
    np.savez_compressed(
        options.output / name,
        features=np.clip((known - mean) / deviation, -10, 10).astype(np.float32),
        customer=np.array([row.customer for row in day.rows]),
        terminal=np.array([row.terminal for row in day.rows]),
        amount=np.array([row.amount for row in day.rows]),
        fraud=np.array([row.fraud for row in day.rows]),
        scenario=np.array([row.scenario for row in day.rows], dtype=np.int8),
    )
    frauds = sum(row.fraud for row in day.rows)
    use = "test" if day is days[-1] else "training"
    table.append(
        {"day": str(day.date), "file": day.file, "use": use, "transactions": len(day.rows), "frauds": frauds}
    )
    print(f"{day.date} ({use}): {len(day.rows)} transactions, {frauds} frauds")

scaling = [
    {"feature": name, "mean": float(centre), "deviation": float(spread)}
    for name, centre, spread in zip(NAMES, mean, deviation, strict=True)
]
data = {"source": options.source, "days": table, "scaling": scaling}
(options.output / "data.json").write_text(json.dumps(data, indent=1))
(options.output / "problems.json").write_text(json.dumps([problem._asdict() for problem in problems], indent=1))
