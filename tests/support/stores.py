"""Stores with results, as steps publish them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipway.runtime.store import MANIFEST, Manifest, publish


def add_result(
    store: Path,
    path: str,
    files: Mapping[str, Any],
    *,
    made: float = 0.0,
    inputs: Mapping[str, Manifest] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Manifest:
    """Publishes JSON ``files`` as the result in ``path`` below the store, made at a time since the epoch."""
    staged = store.parent / "staged" / path
    for name, content in files.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_text(json.dumps(content), encoding="utf-8")
    digests = {name: manifest.digest for name, manifest in (inputs or {}).items()}
    step = ".".join(path.split("/")[:2])
    manifest = publish(staged, store / path, step=step, inputs=digests, settings=settings or {}, summary={})
    os.utime(store / path / MANIFEST, (made, made))
    return manifest
