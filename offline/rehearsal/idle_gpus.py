"""GPUs that Jobs held and left idle, with what that costs on their pools at list prices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.review.stack import JOB, Stack
from offline.policies.workloads import workload_of
from offline.preview.phrasing import money
from offline.preview.run_cost import node_rate, pod_rate
from offline.rehearsal.job_usage import GpuTime, UsedBy


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
    for each in used:
        by_job.setdefault(each.job, []).append(each)
    found = [
        _of_job(job, [time for each in pods for time in each.gpu_times], len(pods), rates.get(job))
        for job, pods in by_job.items()
        if any(each.gpu_times for each in pods)
    ]
    worth = [each for each in found if 100 * each.idle > share]
    return sorted(worth, key=lambda each: (-(each.dollars or 0.0), -each.idle * each.seconds * each.gpus))


def _of_job(job: str, times: Sequence[GpuTime], pods: int, rate: float | None) -> IdleGpus:
    """``rate`` is dollars for an hour of one GPU."""
    whole = sum(each.gpus * each.seconds for each in times)
    idle = sum(each.gpus * each.seconds * each.idle for each in times)
    return IdleGpus(
        job,
        pods * max(each.gpus for each in times),
        idle / whole if whole else 0.0,
        max(each.seconds for each in times),
        None if rate is None else rate * idle / 3600,
    )


def _rates(stack: Stack) -> Mapping[str, float]:
    """What an hour of one GPU of each Job costs, by the Job's name: its part of the node, or of the pod."""
    found: dict[str, float] = {}
    for job in stack.of_type(JOB):
        workload = workload_of(job, stack)
        pool = workload.pool(stack)
        if pool is None or workload.requests is None:
            continue
        rate = pod_rate(stack, job) if pool.bills_pods else node_rate(stack, pool)
        gpus = workload.requests.gpus if pool.bills_pods else pool.allocatable.gpus
        if rate is not None and gpus:
            found[job.name] = rate / gpus
    return found
