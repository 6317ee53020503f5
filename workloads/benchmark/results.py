"""The results of benchmark runs, wherever in the store they lie. Standard library only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.workloads.runtime.exits import BAD_INPUT, StepError
from slipway.workloads.runtime.store import MANIFEST, NotWholeError, check, load_manifest, store_errors
from workloads.benchmark.resnet50 import RESULT
from workloads.benchmark.resnet50 import STEP as MEASURES

DEEPEST = 2
"""A run is a folder given, or one this many levels below: `benchmark/<run>/<digest>`."""
COLUMNS = (
    *("run", "device", "nodes", "gpus", "precision", "xla", "data"),
    *("image_size", "batch_size_per_gpu", "images_per_second"),
    *("uncertainty", "jitter", "images_per_second_per_gpu", "compile_seconds", "peak_gpu_memory_bytes"),
    *("efficiency", "reduced", "finished"),
)
"""Keys of a row in results.csv."""


@dataclass(frozen=True)
class Result:
    """One finished run: the name its folder has, the digest of its manifest, and what result.json says."""

    run: str
    digest: str
    content: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    @property
    def nodes(self) -> int:
        """How many nodes trained together; one where the result does not say."""
        return int(self.content.get("nodes", 1))

    @property
    def configuration(self) -> tuple[Any, ...]:
        """What has to be equal for two results to be two measurements of one thing."""
        return self.nodes, self["gpus"], *self.alike

    @property
    def alike(self) -> tuple[Any, ...]:
        """What of the configuration is left, where nodes and GPUs do not count."""
        keys = ("device", "precision", "xla", "data", "image_size", "batch_size_per_gpu", "reduced")
        return tuple(self.content[key] for key in keys)

    @property
    def precision(self) -> str:
        """The precision; fp32 with the word for what newer GPUs make of it in convolutions."""
        return f"{self['precision']} (TF32)" if self["tensor_float_32"] else str(self["precision"])

    @property
    def group(self) -> tuple[str, int, int]:
        """Device, how many nodes, and how many of it on all of them."""
        return str(self["device"]), self.nodes, int(self["gpus"])

    def row(self, among: Iterable[Result]) -> dict[str, Any]:
        """The values of COLUMNS, where `among` are the results beside it."""
        known = {"run": self.run, "nodes": self.nodes, "efficiency": efficiency(self, among)}
        return {**known, **{name: self.content[name] for name in COLUMNS if name not in known}}


def collect(folders: Iterable[Path]) -> list[Result]:
    """Every whole result in `folders` and below, oldest first. Says which ones are left out and why.

    Raises:
        StepError: with BAD_INPUT where a folder is missing or there is no result at all; StoreError.
    """
    results: dict[Path, Result] = {}
    searched = list(folders)
    for folder in searched:
        with store_errors(folder):
            if not folder.is_dir():
                raise StepError(BAD_INPUT, f"--results {folder}: there is no such folder")
            for place in _places(folder):
                try:
                    manifest = load_manifest(place)
                    if manifest.step != MEASURES:
                        continue
                    check(place)
                    content = json.loads((place / RESULT).read_text(encoding="utf-8"))
                    result = Result(_name(place), manifest.digest, content)
                    _ = result.row([]), result.configuration, result.precision
                except (NotWholeError, ValueError, KeyError, TypeError) as error:
                    print(f"Left out: {place}: {error!r}" if isinstance(error, KeyError) else f"Left out: {error}")
                    continue
                results[place.resolve()] = result
    if not results:
        raise StepError(BAD_INPUT, f"no result of {MEASURES} in {', '.join(map(str, searched))} or below")
    return sorted(results.values(), key=lambda result: (result["finished"], result.run))


def newest(results: Iterable[Result]) -> list[Result]:
    """The last measurement of each configuration, sorted by device, count and precision."""
    last = {result.configuration: result for result in results}
    order = {"fp32": 0, "bf16": 1, "fp16": 2}
    return sorted(
        last.values(),
        key=lambda result: (
            result["reduced"],
            *result.group,
            order.get(result["precision"], 3),
            result["xla"],
            result["data"],
            result["batch_size_per_gpu"],
        ),
    )


def efficiency(result: Result, among: Iterable[Result]) -> float | None:
    """Images per second and GPU on several nodes, as a share of those on one with as many GPUs.

    None on one node, and where `among` has no such measurement. The last one counts.
    """
    if result.nodes == 1:
        return None
    on_one = [
        other
        for other in among
        if other.nodes == 1 and other.alike == result.alike and other["gpus"] * result.nodes == result["gpus"]
    ]
    return result["images_per_second_per_gpu"] / on_one[-1]["images_per_second_per_gpu"] if on_one else None


def _places(folder: Path) -> Iterator[Path]:
    """Folders with a manifest; what steps keep below those is none of our business."""
    level = [folder]
    for _ in range(DEEPEST + 1):
        yield from (place for place in level if (place / MANIFEST).is_file())
        level = [
            inner
            for place in level
            if not (place / MANIFEST).is_file()
            for inner in sorted(place.iterdir())
            if inner.is_dir() and not inner.name.startswith(".")
        ]


def _name(place: Path) -> str:
    """The run's name: a pipeline's folders are called after the digest, and the one above after the run."""
    resolved = place.resolve()
    return resolved.parent.name if re.fullmatch(r"[0-9a-f]{8,64}", resolved.name) else resolved.name
