"""Say what the model is worth on days that were new to it, beside two that know nothing.

A day is scored by what was learnt of the days before it. The threshold is the one with the least cost on the days
before the test day, which has no part in it.
"""

import argparse
import json
from pathlib import Path

import jinja2
import keras
import numpy as np
from charts import draw
from measures import costs, first, flagged, ranking
from model import averaged, load_day, scores
from scipy.stats import binomtest

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, required=True, help="what prepare.py wrote")
parser.add_argument("--days", type=Path, required=True, help="items.json, and what train_day.py wrote")
parser.add_argument("--combine", choices=("last", "average"), default="last", help="the model of several days")
parser.add_argument("--budget", type=int, default=100, help="transactions that can be reviewed in a day")
parser.add_argument("--review-cost", type=float, default=5.0, help="of one flagged transaction")
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

RANDOM_RANKINGS = 30
THIS, NONE, RANDOM = "this model", "no fraud", "random ranking"

data = json.loads((options.data / "data.json").read_text())
items = json.loads((options.days / "items.json").read_text())
trained = {row["item"]: options.days / row["path"] for row in items if row["state"] == "done"}


def model_before(day: str) -> keras.Model | None:
    """What was learnt of the days before ``day``."""
    earlier = [path / "model.keras" for name, path in sorted(trained.items()) if name < day]
    chosen = earlier if options.combine == "average" else earlier[-1:]
    models = [keras.models.load_model(path) for path in chosen]
    return averaged(models) if models else None


def rows_of(name: str, day: dict[str, np.ndarray], score: np.ndarray, chosen: np.ndarray) -> list[dict]:
    """The figures of a day, and those of two that know nothing: one flags nothing, one as many by chance."""
    random = np.random.default_rng(0)
    draws = [random.random(len(score)) for _ in range(RANDOM_RANKINGS)]
    by_chance = [
        {**ranking(day["fraud"], draw), **flagged(day, first(draw, int(chosen.sum())), options.review_cost)}
        for draw in draws
    ]
    figures = {
        THIS: {**ranking(day["fraud"], score), **flagged(day, chosen, options.review_cost)},
        NONE: {
            **ranking(day["fraud"], np.zeros(len(score))),
            **flagged(day, np.zeros(len(score), dtype=bool), options.review_cost),
        },
        RANDOM: {
            key: None if by_chance[0][key] is None else float(np.mean([row[key] for row in by_chance]))
            for key in by_chance[0]
        },
    }
    known = {"day": name, "all_transactions": len(score), "all_frauds": int(day["fraud"].sum())}
    return [{**known, "by": by, **row} for by, row in figures.items()]


def interval(of: dict) -> list[float] | None:
    """Where the share of frauds found is on other days like this one, 19 times out of 20."""
    if not of["all_frauds"]:
        return None
    share = binomtest(of["frauds"], of["all_frauds"]).proportion_ci(method="wilson")
    return [float(share.low), float(share.high)]


def round_all(value: object) -> object:
    """``value`` with six decimals: more differ from one processor to another."""
    if isinstance(value, dict):
        return {key: round_all(part) for key, part in value.items()}
    if isinstance(value, list):
        return [round_all(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value


names = [row["day"] for row in data["days"]]
days = {name: load_day(options.data / "days" / f"{name}.npz") for name in names[:-1]}
days[names[-1]] = load_day(options.data / "test.npz")
scored = {name: scores(model, day) for name, day in days.items() if (model := model_before(name)) is not None}
*validation, test = [name for name in names if name in scored]

together = {key: np.concatenate([days[name][key] for name in validation]) for key in ("fraud", "amount")}
ranked = np.concatenate([scored[name] for name in validation])
cheapest = int(np.argmin(costs(together, ranked, options.review_cost)))
threshold = float(np.sort(ranked)[-cheapest]) if cheapest else float(ranked.max()) + 1

figures = [
    row
    for name in (*validation, test)
    for row in rows_of(name, days[name], scored[name], scored[name] >= threshold)
]
budget = rows_of(test, days[test], scored[test], first(scored[test], options.budget))
scenarios = [
    {
        "scenario": int(scenario),
        "frauds": int(of.sum()),
        "found": int((of & (scored[test] >= threshold)).sum()),
        "found_in_budget": int((of & first(scored[test], options.budget)).sum()),
    }
    for scenario in np.unique(days[test]["scenario"])
    if scenario and (of := days[test]["scenario"] == scenario).any()
]
report = round_all(
    {
        "test": {row["by"].replace(" ", "_"): row for row in figures[-3:]},
        "recall_interval": interval(figures[-3]),
        "test_in_budget": {row["by"].replace(" ", "_"): row for row in budget},
        "days": figures,
        "scenarios": scenarios,
        "threshold": threshold,
        "validation_days": validation,
        "budget": options.budget,
        "review_cost": options.review_cost,
        "combine": options.combine,
        "data": {key: data[key] for key in ("source", "days")},
        "read": f"{'simulated' if data['source'] == 'simulate' else data['source']}, {len(names)} days",
        "set_aside": [
            {"day": row["item"], "reason": row.get("reason") or ""} for row in items if row["state"] != "done"
        ],
        "problems": json.loads((options.data / "problems.json").read_text()),
    }
)
options.output.mkdir(parents=True, exist_ok=True)
(options.output / "report.json").write_text(json.dumps(report, indent=1, allow_nan=False))
pictures = draw(options.output, report, days, scored, threshold)
page = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
)
text = page.get_template("report.html.j2").render(**report, pictures=pictures)
(options.output / "report.html").write_text(text, encoding="utf-8")
of = report["test"]["this_model"]
print(
    f"{test}: {of['frauds']} of {of['all_frauds']} frauds found among {of['transactions']} flagged transactions, "
    f"average precision {of['average_precision']}, area under the ROC curve {of['roc_auc']}"
)
