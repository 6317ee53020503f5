"""What autoscalers, schedulers, kubelets and Kueue say, turned into one plain clause with what mends it.

The words that are known are data: ``data/waiting.toml`` beside this module, and a file of that name among each
cloud's data. Words that no row knows are shown as they are: nothing is guessed.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from infra import clouds
from infra.clouds.registry import CLOUDS
from tools.watch.states import Reason

FILE = Path("data") / "waiting.toml"


@dataclass(frozen=True)
class Known:
    """Words that are known: those that ``pattern`` finds. Its named groups may stand in ``says`` and ``fix``."""

    kind: str
    pattern: str
    says: str
    fix: str
    source: str


DISRUPTIONS: Mapping[str, str] = {
    "EvictionByEvictionAPI": "its node was drained",
    "PreemptionByScheduler": "a pod of higher priority took its place",
    "DeletionByTaintManager": "its node was lost, or may not run it any more",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node was shut down or ran short of something",
    "DeletionByClusterAutoscaler": "the autoscaler removed its node",
}
"""By the reason of the condition DisruptionTarget (kubernetes.io/docs/concepts/workloads/pods/disruptions,
seen November 2026). What its message says more exactly is in the table `taken`."""

_OTHERWISE = {
    "image": "the image",
    "where": "the region",
    "count": "a node is",
    "claim": "its claim",
    "queue": "its queue",
}
"""What stands in where the words name none."""


def files() -> list[Path]:
    """The files with the words that are known, those of clouds first."""
    packages = Path(clouds.__file__).parent
    found = [packages / name / FILE for name in CLOUDS]
    return [*(path for path in found if path.is_file()), Path(__file__).parent / FILE]


@cache
def table(name: str) -> Sequence[Known]:
    """The rows of one name of all files: ``scale_up``, ``scheduling``, ``images``. The first that knows counts."""
    return [
        Known(**{key: str(value) for key, value in row.items() if key != "read"})
        for content in _contents()
        for row in content.get(name, ())
    ]


@cache
def sidecars() -> frozenset[str]:
    """The names of containers that clouds add to a pod."""
    return frozenset(str(each) for content in _contents() for each in content.get("sidecars", ()))


@cache
def _contents() -> Sequence[dict[str, Any]]:
    return [tomllib.loads(path.read_text(encoding="utf-8")) for path in files()]


def explained(words: str, rows: Sequence[Known], **more: str) -> Reason | None:
    """The first of ``rows`` that knows ``words``; None where none does. ``more`` fills in what rows name."""
    for row in rows:
        if found := re.search(row.pattern, words):
            groups = {name: value for name, value in found.groupdict().items() if value}
            filled = {**_OTHERWISE, **more, **groups}
            return Reason(row.says.format_map(filled), row.fix.format_map(filled), words, row.kind)
    return None
