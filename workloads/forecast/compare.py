"""Compare forecasts with taking last week's sales again, and draw them."""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--forecasts", type=Path, required=True, help="`items.json`, and what forecast.py wrote")
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()

rows = json.loads((options.forecasts / "items.json").read_text())
shops = sorted((row for row in rows if row["state"] == "done"), key=lambda row: row["item"])
errors = np.array([[shop["error"], shop["error_of_last_week"]] for shop in shops])
better = float((errors[:, 0] < errors[:, 1]).mean())
error, last_week = errors.mean(axis=0)
options.output.mkdir(parents=True, exist_ok=True)
metrics = {"error": round(error, 3), "error_of_last_week": round(last_week, 3), "better": better}
(options.output / "metrics.json").write_text(json.dumps(metrics))

figure, all_axes = plt.subplots(
    -(-len(shops) // 3), 3, figsize=(12, 2 * -(-len(shops) // 3)), layout="constrained"
)
for axes in all_axes.flat[len(shops) :]:
    axes.remove()
for axes, shop in zip(all_axes.flat, shops, strict=False):
    series = np.load(options.forecasts / shop["path"] / "forecast.npz")
    before, days = series["before"][-56:], np.arange(len(series["truth"]))
    axes.plot(np.arange(-len(before), 0), before, color="#8a94a0", linewidth=1)
    axes.plot(days, series["truth"], color="#8a94a0", linewidth=1, label="sales")
    axes.plot(days, series["forecast"], color="#1b4f8f", label="forecast")
    axes.set_title(shop["item"], fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
all_axes.flat[0].legend(fontsize=8, frameon=False, loc="upper left")
figure.savefig(options.output / "forecasts.png", dpi=100)
print(f"{better:.0%} of {len(shops)} shops are forecast better than by last week's sales")
