"""Checkpoints that verify themselves: `epoch-0003-<digest>.keras`, the digest being that of the content.

A checkpoint is a Keras archive (weights, optimizer state, network) with one more member, `slipway.json`: which
run it belongs to and the history so far. It is written under another name and renamed, so it is whole or
absent; a name never changes its content, so two trainings in one directory cannot damage each other's. Any of
them opens with keras.models.load_model(path, compile=False).
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workloads.runtime.store import copy_atomically, digest_of, remove_stale, staging, store_errors

if TYPE_CHECKING:
    import keras

KEEP = 3
"""Newest checkpoints that stay; older ones are deleted."""
_MEMBER = "slipway.json"
_NAME = re.compile(r"epoch-(\d{4,})-([0-9a-f]{16})\.keras")


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: how many epochs are done, its file, and the history of each epoch."""

    epochs_done: int
    path: Path
    history: list[dict[str, float]]


def save(model: keras.Model, directory: Path, epochs_done: int, run: str, history: list[dict[str, float]]) -> Path:
    """Write the complete state after `epochs_done` epochs and delete old checkpoints; returns the new file.

    `run` identifies what the state depends on: data, seed, batch size, learning rates, augmentation.

    Raises:
        StoreError: the store cannot be written.
    """
    with staging() as scratch:
        local = scratch / "model.keras"
        model.save(local)
        with zipfile.ZipFile(local, "a") as archive:
            archive.writestr(_MEMBER, json.dumps({"run": run, "epochs_done": epochs_done, "history": history}))
        target = directory / f"epoch-{epochs_done:04d}-{digest_of(local).sha256[:16]}.keras"
        with store_errors(directory):
            copy_atomically(local, target)
            remove_stale(directory)
            for path in _newest_first(directory)[KEEP:]:
                if path != target:
                    path.unlink(missing_ok=True)
    return target


def restore(model: keras.Model, directory: Path, run: str, epochs: int) -> Checkpoint | None:
    """Load the newest whole checkpoint of `run` with at most `epochs` epochs into `model`, optimizer state
    included.

    Says on standard output for each newer one that is passed over why; returns None where there is none to load.

    Raises:
        StoreError: the directory is there and cannot be read.
    """
    for path in _newest_first(directory):
        match = _NAME.fullmatch(path.name)
        assert match is not None
        if int(match[1]) > epochs:
            print(f"Checkpoint {path.name} skipped: it is past the {epochs} epochs asked for", flush=True)
            continue
        with store_errors(directory):
            try:
                found = digest_of(path)
                if found.sha256[:16] != match[2]:
                    reason = f"truncated or altered, its {found.size} bytes do not have the digest in its name"
                    print(f"Checkpoint {path.name} skipped: {reason}", flush=True)
                    continue
                state = _read_member(path)
                if state.get("run") != run:
                    reason = "other data, seed, batch size, learning rates or augmentation"
                    print(f"Checkpoint {path.name} skipped: {reason}", flush=True)
                    continue
                model.load_weights(path)
            except (FileNotFoundError, KeyError, ValueError, zipfile.BadZipFile) as error:
                print(f"Checkpoint {path.name} skipped: {' '.join(str(error).split())[:200]}", flush=True)
                continue
        return Checkpoint(int(match[1]), path, list(state["history"]))
    return None


def _read_member(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(_MEMBER))


def _newest_first(directory: Path) -> list[Path]:
    with store_errors(directory):
        if not directory.is_dir():
            return []
        files = [path for path in directory.iterdir() if path.is_file()]
    found = [(match, path) for path in files if (match := _NAME.fullmatch(path.name))]
    return [path for match, path in sorted(found, key=lambda item: (int(item[0][1]), item[1].name), reverse=True)]
