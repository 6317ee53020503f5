"""What the pods of Jobs used, as `workloads.runtime.usage.measure` kept it in the rehearsal's store."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from infra.kubernetes.labels import USAGE_ANNOTATION
from infra.review.stack import JOB, Resource, Stack, strings
from offline.evaluated.cost import node_rate, pod_rate
from offline.evaluated.phrasing import money
from offline.evaluated.workloads import workload_of
from offline.rehearsal.records import JobRecord


@dataclass(frozen=True)
class GpuTime:
    """How long a pod held ``gpus``, and the share of that time, from 0 to 1, that they were idle."""

    gpus: int
    seconds: float
    idle: float


@dataclass(frozen=True)
class UsedBy:
    """What one pod of a Job used: cores and MiB, and what is known of its GPUs, in words.

    ``gpu_times`` are the known times of its GPUs, including those in evicted pods that it replaced.
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
    usages: list[UsedBy] = []
    for record in records:
        resource = resources.get(record.urn)
        folder = strings(resource.metadata.get("annotations")).get(USAGE_ANNOTATION) if resource else None
        if not folder or not record.phase.good:
            continue
        files = sorted((store / folder).glob("*.json"), key=lambda path: (len(path.stem), path.stem))
        for file in files:
            if (content := _read(file)) is not None:
                usages.append(_usage_of_pod(record.name, file.stem if files[1:] else "", content))
    return tuple(usages)


def _read(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", content) if isinstance(content, dict) else None


def _usage_of_pod(job: str, pod: str, content: Mapping[str, Any]) -> UsedBy:
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
    times: list[GpuTime] = []
    for usage in (cast("Mapping[str, Any]", pod) for pod in pods if isinstance(pod, dict)):
        gpus, seconds, idle = usage.get("gpus_asked"), usage.get("seconds"), usage.get("gpu_idle")
        if isinstance(gpus, int) and gpus and isinstance(seconds, float | int) and isinstance(idle, float | int):
            times.append(GpuTime(gpus, float(seconds), float(idle)))
    return tuple(times)


# GPUs that Jobs held and left idle, with what that costs on their pools at list prices.


@dataclass(frozen=True)
class IdleGpus:
    """The GPUs of one Job. ``idle`` is the share of ``seconds``, the time of its longest pod, from 0 to 1.

    ``dollars`` is what the idle time of all its pods costs on its pool; None where no price is known.
    """

    job: str
    gpus: int
    idle: float
    seconds: float
    dollars: float | None

    @property
    def says(self) -> str:
        """One line: ``mnist-train: 2 GPUs idle 80 % of 12 min: about $0.35 for nothing, at list prices``."""
        count = f"{self.gpus} GPU{'s' * (self.gpus != 1)}"
        time = f"{self.seconds / 60:.0f} min" if self.seconds >= 60 else f"{self.seconds:.0f} s"
        lost = "" if self.dollars is None else f": about {money(self.dollars)} for nothing, at list prices"
        return f"{self.job}: {count} idle {100 * self.idle:.0f} % of {time}{lost}"


def idle_gpus(stack: Stack, used: Sequence[UsedBy], share: int) -> list[IdleGpus]:
    """The Jobs whose GPUs were idle for more than ``share`` percent of their time, the dearest first.

    A pod pays for its part of a node's GPUs, also in the attempts that were taken away.
    """
    rates = _rates(stack)
    by_job: dict[str, list[UsedBy]] = {}
    for usage in used:
        by_job.setdefault(usage.job, []).append(usage)
    idle = [
        _of_job(job, [time for pod in pods for time in pod.gpu_times], len(pods), rates.get(job))
        for job, pods in by_job.items()
        if any(pod.gpu_times for pod in pods)
    ]
    worth = [entry for entry in idle if 100 * entry.idle > share]
    return sorted(worth, key=lambda gpus: (-(gpus.dollars or 0.0), -gpus.idle * gpus.seconds * gpus.gpus))


def _of_job(job: str, times: Sequence[GpuTime], pods: int, rate: float | None) -> IdleGpus:
    """``rate`` is dollars for an hour of one GPU."""
    whole = sum(time.gpus * time.seconds for time in times)
    idle = sum(time.gpus * time.seconds * time.idle for time in times)
    return IdleGpus(
        job,
        pods * max(time.gpus for time in times),
        idle / whole if whole else 0.0,
        max(time.seconds for time in times),
        None if rate is None else rate * idle / 3600,
    )


def _rates(stack: Stack) -> Mapping[str, float]:
    """What an hour of one GPU of each Job costs, by the Job's name: its part of the node, or of the pod."""
    rates: dict[str, float] = {}
    for job in stack.of_type(JOB):
        workload = workload_of(job, stack)
        pool = workload.pool(stack)
        if pool is None or workload.requests is None:
            continue
        rate = pod_rate(stack, job) if pool.bills_pods else node_rate(stack, pool)
        gpus = workload.requests.gpus if pool.bills_pods else pool.allocatable.gpus
        if rate is not None and gpus:
            rates[job.name] = rate / gpus
    return rates
