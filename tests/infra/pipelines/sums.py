"""A pipeline folder with a training on several nodes that needs no framework, as several tests write it."""

import copy
from pathlib import Path
from typing import Any

import yaml

from tests.support.stack_values import GCP, changed

SUMS: dict[str, Any] = {
    "description": "Adds numbers up on several nodes.",
    "parameters": {"rate": {"type": "number", "default": 0.1}},
    "steps": {
        "prepare": {"run": ["python", "prepare.py", "{output}"]},
        "train": {
            "run": ["python", "train.py", "{prepare}", "{rate}", "{output}"],
            "nodes": 2,
            "results": {"loss": "metrics.json#/loss"},
        },
        "report": {"run": ["python", "report.py", "{train}", "{output}"]},
    },
}
SECTION: dict[str, Any] = {"steps": {name: {"pool": "cpu"} for name in SUMS["steps"]}}


def written(folder: Path, changes: dict[str, Any] | None = None) -> Path:
    """``folder`` with the pipeline, with ``changes`` to its file by dotted path."""
    folder.mkdir(parents=True, exist_ok=True)
    content = changed(SUMS, changes or {})
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    for name in ("prepare.py", "train.py", "report.py"):
        (folder / name).write_text("", encoding="utf-8")
    return folder


def stack(folder: Path, changes: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A stack that runs the pipeline of ``folder`` as `sums`, with ``changes`` to its section by dotted path.

    ``more`` are changes to the rest of the stack, with `__` for dots.
    """
    section = changed({**SECTION, "uses": str(folder)}, copy.deepcopy(changes or {}))
    rest = {key.replace("__", "."): value for key, value in more.items()}
    return changed(GCP, {"pipelines": {"sums": section}, **rest})
