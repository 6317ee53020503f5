"""A pipeline with everything that a ``pipeline.yaml`` says of apps, and its section."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from slipway.infra.schema.secret_values import MASK
from tests.support.stack_values import GCP, changed

IMAGE = f"registry.example.com/team/app@sha256:{'0' * 64}"

SHOP: dict[str, Any] = {
    "description": "Trains what a shop recommends, and shows it.",
    "parameters": {"colour": {"type": "string", "default": "red"}},
    "services": {"cache": {"kind": "valkey"}},
    "steps": {
        "prepare": {"run": ["python", "prepare.py", "--output", "{output}"], "connects": ["cache"]},
        "train": {"run": ["python", "train.py", "{prepare}", "--output", "{output}"]},
    },
    "apps": {
        "model": {
            "kind": "program",
            "image": IMAGE,
            "run": ["serve", "--model={train}", "--port", "{port}", "--log", "{pipeline}/log"],
            "port": 9000,
            "ports": {"grpc": 9001},
            "people": False,
            "probe": {"path": "/healthz"},
            "metrics": {"path": "/numbers"},
            "resources": {"cpu": "500m", "memory": "1Gi"},
        },
        "shop": {
            "kind": "program",
            "run": ["python", "shop.py", "--port", "{port}", "--colour", "{colour}"],
            "port": 8080,
            "title": "The shop",
            "path": "/start",
            "connects": ["model"],
            "after": ["prepare"],
            "environment": {"TITLE": "{{shop}} in {colour}"},
            "secrets": {"KEY": "shop-key"},
            "grace": "1m",
        },
        "notes": {
            "kind": "program",
            "image": IMAGE,
            "run": ["notes", "--dir", "{data}", "--token", "{token}", "--port", "{port}"],
            "port": 8888,
            "storage": "2Gi",
        },
    },
}
SECTION: dict[str, Any] = {
    "steps": {name: {"pool": "cpu"} for name in SHOP["steps"]},
    "services": {"cache": {"pool": "cpu"}},
    "apps": {name: {"pool": "cpu"} for name in SHOP["apps"]},
}


def written(folder: Path, content: object = SHOP) -> Path:
    """``folder`` with the pipeline and all that it ships."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    for name in ("prepare.py", "train.py", "shop.py"):
        (folder / name).write_text("", encoding="utf-8")
    return folder


def stack(folder: Path, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A stack that runs the pipeline of ``folder`` as `shop`, with ``changes`` to its section by dotted path."""
    section = changed({**SECTION, "uses": str(folder)}, changes or {})
    return changed(GCP, {"pipelines": {"shop": section}, "secrets": {"shop-key": MASK}})
