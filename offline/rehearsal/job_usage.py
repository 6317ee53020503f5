"""What the pods of Jobs used, as `workloads.runtime.measure` kept it in the rehearsal's store."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from infra.kubernetes.labels import USAGE_ANNOTATION
from infra.review.properties import strings
from infra.review.stack import Resource
from offline.rehearsal.job_records import JobRecord


@dataclass(frozen=True)
class GpuTime:
    """How long a pod held ``gpus``, and the share of that time, from 0 to 1, that they were idle."""

    gpus: int
    seconds: float
    idle: float


@dataclass(frozen=True)
class UsedBy:
    """What one pod of a Job used: cores and MiB, and what is known of its GPUs, in words.

    ``gpu_times`` are those of its GPUs of which something is known, also in pods before it that had its place and
    were taken away.
    """

    job: str
    pod: str
    seconds: float
    cores: float | None
    memory: int
    gpus: str
    rate: str
    gpu_times: Sequence[GpuTime] = ()


def usage_of(records: Sequence[JobRecord], resources: Mapping[str, Resource], store: Path) -> tuple[UsedBy, ...]:
    """The use of all Jobs that are measured and left something, in the order of ``records``."""
    found: list[UsedBy] = []
    for record in records:
        resource = resources.get(record.urn)
        folder = strings(resource.metadata.get("annotations")).get(USAGE_ANNOTATION) if resource else None
        if not folder or not record.phase.good:
            continue
        files = sorted((store / folder).glob("*.json"), key=lambda path: (len(path.stem), path.stem))
        for file in files:
            if (content := _read(file)) is not None:
                found.append(_used(record.name, file.stem if files[1:] else "", content))
    return tuple(found)


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _used(job: str, pod: str, content: Mapping[str, Any]) -> UsedBy:
    busy, idle = content.get("gpu_busy"), content.get("gpu_idle")
    gpus = ""
    if isinstance(busy, float | int) and isinstance(idle, float | int):
        gpus = f"busy {100 * busy:.0f} %, idle {100 * idle:.0f} %"
    elif emulated := content.get("gpus_emulated"):
        gpus = f"emulated: {emulated}, nothing is known of its use"
    elif content.get("gpus_asked"):
        gpus = f"unknown: {content.get('gpus_unknown')}"
    rate = content.get("rate")
    return UsedBy(
        job,
        pod,
        float(content.get("seconds") or 0),
        content.get("cpu_cores"),
        int(content.get("memory_peak_mib") or 0),
        gpus,
        f"{rate:,g} {content.get('rate_unit', '')}" if isinstance(rate, float | int) else "",
        _gpu_times(content),
    )


def _gpu_times(content: Mapping[str, Any]) -> tuple[GpuTime, ...]:
    before = content.get("before")
    pods = [content, *(cast("list[Any]", before) if isinstance(before, list) else [])]
    found: list[GpuTime] = []
    for each in (cast("Mapping[str, Any]", pod) for pod in pods if isinstance(pod, dict)):
        gpus, seconds, idle = each.get("gpus_asked"), each.get("seconds"), each.get("gpu_idle")
        if isinstance(gpus, int) and gpus and isinstance(seconds, float | int) and isinstance(idle, float | int):
            found.append(GpuTime(gpus, float(seconds), float(idle)))
    return tuple(found)
