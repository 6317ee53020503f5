"""The Jobs that run in a cluster now: on some of its nodes, whosever they are, or in a namespace."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from slipway.infra.api_server import ApiServer
from slipway.infra.kubernetes.pods.pod import checkpoint_interval
from slipway.infra.review.stack import Properties, at, mappings, text, texts, whole

GOING = "status.phase!=Succeeded,status.phase!=Failed"
"""Selects the pods that have not ended (kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors,
seen November 2026)."""


@dataclass(frozen=True)
class RunningJob:
    """A Job with pods on ``nodes``, of which the first began at ``since``; None where none has begun.

    At least ``interval`` seconds are between two checkpoints that are copied beside its program; 0 where each one
    is, None where none is.
    """

    namespace: str
    name: str
    pods: int
    nodes: frozenset[str]
    since: datetime | None
    interval: int | None = None

    def hours(self, now: datetime) -> float:
        """How long its oldest pod there runs."""
        return max(now - self.since, timedelta(0)) / timedelta(hours=1) if self.since else 0.0


def jobs_on(server: ApiServer, selector: str) -> list[RunningJob]:
    """The Jobs with pods on the nodes that ``selector`` selects by their labels, all where it is empty.

    Raises `slipway.infra.api_server.UnreadableError`.
    """
    listed = server.get("/api/v1/nodes", **({"labelSelector": selector} if selector else {}))
    nodes = {text(at(node, "metadata", "name")) for node in mappings((listed or {}).get("items"))}
    pods: dict[tuple[str, str], list[Properties]] = {}
    for pod in mappings((server.get("/api/v1/pods", fieldSelector=GOING) or {}).get("items") if nodes else None):
        job = _job(pod)
        if job and text(at(pod, "spec", "nodeName")) in nodes and text(at(pod, "status", "phase")) in _PHASES:
            pods.setdefault((text(at(pod, "metadata", "namespace")), job), []).append(pod)
    return [_running(namespace, name, of_job) for (namespace, name), of_job in sorted(pods.items())]


def jobs_in(server: ApiServer, namespace: str) -> list[RunningJob]:
    """The Jobs with pods in a namespace. Raises `slipway.infra.api_server.UnreadableError`."""
    listed = server.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")
    return [
        RunningJob(
            namespace,
            text(at(job, "metadata", "name")),
            pods,
            frozenset(),
            time_of(at(job, "status", "startTime")),
            _interval(at(job, "spec", "template", "spec")),
        )
        for job in mappings((listed or {}).get("items"))
        if (pods := whole(at(job, "status", "active")))
    ]


_PHASES = frozenset({"Pending", "Running"})


def _running(namespace: str, name: str, pods: Sequence[Properties]) -> RunningJob:
    begun = [moment for pod in pods if (moment := time_of(at(pod, "status", "startTime")))]
    nodes = frozenset(text(at(pod, "spec", "nodeName")) for pod in pods)
    interval = _interval(pods[0].get("spec"))
    return RunningJob(namespace, name, len(pods), nodes, min(begun, default=None), interval)


def _interval(pod: object) -> int | None:
    """As `RunningJob.interval`, of the spec of a pod."""
    words = ([*texts(of.get("command")), *texts(of.get("args"))] for of in mappings(at(pod, "containers")))
    intervals = (interval for of in words if (interval := checkpoint_interval(of)) is not None)
    return next(intervals, None)


def _job(pod: Properties) -> str:
    """The name of the Job that owns the pod; empty where none does."""
    owners = mappings(at(pod, "metadata", "ownerReferences"))
    return next((text(owner.get("name")) for owner in owners if owner.get("kind") == "Job"), "")


def time_of(value: object) -> datetime | None:
    """A time of the API (RFC 3339); None for anything else."""
    try:
        moment = datetime.fromisoformat(text(value))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
