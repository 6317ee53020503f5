"""A pipeline with everything that a ``pipeline.yaml`` says of services, items and workers, and its section."""

from pathlib import Path
from typing import Any

import yaml

from tests.support.stack_values import GCP, changed

IMAGE = f"registry.example.com/team/cache@sha256:{'0' * 64}"
LOCK = f"flask==3.1.0 --hash=sha256:{'0' * 64}\n"

DAYS: dict[str, Any] = {
    "description": "Trains on one day after the other.",
    "parameters": {
        "seed": {"type": "integer", "default": 1},
        "folder": {"type": "string", "default": "days"},
    },
    "services": {
        "queue": {"kind": "valkey", "storage": "2Gi", "resources": {"cpu": "500m", "memory": "1Gi"}},
        "feature-cache": {
            "description": "Keeps features that two days share.",
            "image": IMAGE,
            "run": ["cached", "--port", "{port}", "--dir", "{data}", "--key={password}", "--seed", "{seed}"],
            "port": 7000,
            "probe": {"path": "/healthz"},
            "resources": {"memory": "512Mi"},
            "rehearsal": {"run": ["python", "cached.py", "{port}"], "requirements": "cache.txt"},
        },
    },
    "steps": {
        "prepare": {"run": ["python", "prepare.py", "--output", "{output}"]},
        "days": {
            "run": ["python", "train_day.py", "--day", "{item}", "--output", "{output}", "--seed", "{seed}"],
            "items": {
                "files": "{prepare}/{folder}/*.csv",
                "queue": "queue",
                "attempts": 2,
                "allow_failed": 1,
                "lease": "2m",
                "columns": {"average_precision": "number"},
            },
            "workers": 4,
            "connects": ["feature-cache"],
        },
        "report": {"run": ["python", "report.py", "--days", "{days}", "--output", "{output}"]},
    },
}
SECTION: dict[str, Any] = {
    "steps": {name: {"pool": "cpu"} for name in DAYS["steps"]},
    "services": {name: {"pool": "cpu"} for name in DAYS["services"]},
}


def written(folder: Path, content: object = DAYS) -> Path:
    """``folder`` with the pipeline and all that it ships."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    for name in ("prepare.py", "train_day.py", "report.py", "cached.py"):
        (folder / name).write_text("", encoding="utf-8")
    (folder / "cache.txt").write_text(LOCK, encoding="utf-8")
    return folder


def stack(folder: Path, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """A stack that runs the pipeline of ``folder`` as `days`, with ``changes`` to its section by dotted path."""
    return changed(GCP, {"pipelines": {"days": changed({**SECTION, "uses": str(folder)}, changes or {})}})
