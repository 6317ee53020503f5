"""Refuses pods as the API server does: by the *restricted* Pod Security Standard and by quotas.

A Job whose pods find no room in a quota waits until other Jobs have ended.
"""

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from slipway.evaluated.pod_rules import breaches, words
from slipway.infra.platform import GPU_RESOURCE, Resources, add
from slipway.infra.review.stack import Properties, mapping
from slipway.infra.schema.quantities import cpu_millicores, mebibytes
from slipway.rehearse.cluster.cluster_objects import Namespace, RefusedError
from slipway.rehearse.cluster.pods import Container, PodSpec

ENFORCE = "pod-security.kubernetes.io/enforce"

MANDATORY = {"requests.cpu": "cpu", "requests.memory": "memory"}
"""What every container must ask for once a quota counts it: kubernetes.io/docs/concepts/policy/resource-quotas."""

FIRST_TRY, LONGEST_TRY = 1.0, 60.0
"""Seconds until the Job controller tries again to make pods that a quota refused, twice as many each time, and the
most of them (DefaultJobApiBackOff and MaxJobApiBackOff, pkg/controller/job/job_controller.go, Kubernetes 1.37.2).
Room that is free meanwhile stays unused."""


def admit(namespace: Namespace, template: Properties, pod: PodSpec, requests: Resources) -> None:
    """Raises RefusedError where the pod of ``template`` would not be created in ``namespace``.

    ``requests`` are those of the whole pod, with what a cloud injects. Volumes are checked when they are mounted.
    """
    account = pod.service_account
    if account != "default" and not namespace.find("ServiceAccount", account):
        raise RefusedError(
            f'error looking up service account {namespace.name}/{account}: serviceaccount "{account}" not found'
        )
    if namespace.labels.get(ENFORCE) == "restricted" and (violations := breaches(mapping(template.get("spec")))):
        raise RefusedError(f'pod is forbidden: violates PodSecurity "restricted": {words(violations)}')
    for name, hard in namespace.quotas():
        if exceeded := quota_violations(hard, pod, requests):
            raise RefusedError(f"pod is forbidden: quota {name}: {'; '.join(exceeded)}")


def quota_violations(hard: Mapping[str, str], pod: PodSpec, requests: Resources) -> list[str]:
    """The limits of a quota (``hard``) that a pod exceeds alone; what other pods use is not counted."""
    containers: Sequence[Container] = (*pod.init_containers, pod.container)
    violations = [
        f"must specify {key} for: {container.name}"
        for key, field in MANDATORY.items()
        if key in hard
        for container in containers
        if getattr(container.requests, field) == 0
    ]
    violations += [
        f"exceeded, requested: {key}={wanted}{unit}, limited: {key}={hard[key]}"
        for key, (wanted, limit, unit) in _counted(hard, requests).items()
        if wanted > limit
    ]
    return violations


def _counted(hard: Mapping[str, str], requests: Resources) -> dict[str, tuple[int, int, str]]:
    """The part of ``requests`` that a quota counts: amount, most of it, and unit, by the quota's key."""
    amounts: dict[str, tuple[Callable[[str], int], int, str]] = {
        "requests.cpu": (cpu_millicores, requests.cpu, "m"),
        "requests.memory": (mebibytes, requests.memory, "Mi"),
        "requests.ephemeral-storage": (mebibytes, requests.ephemeral_storage, "Mi"),
        f"requests.{GPU_RESOURCE}": (int, requests.gpus, ""),
    }
    return {key: (wanted, parse(hard[key]), unit) for key, (parse, wanted, unit) in amounts.items() if key in hard}


@dataclass
class Quotas:
    """What Jobs take of the quotas of their namespaces while they run. Usable from several threads."""

    _taken: dict[tuple[str, str], list[Resources]] = field(default_factory=dict[tuple[str, str], list[Resources]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def hold(
        self, namespace: Namespace, wanted: Resources, wait: Callable[[float], None], say: Callable[[str], None]
    ) -> Generator[None]:
        """Waits until the quotas of ``namespace`` have room for a Job's pods, which want so much, and takes it.

        Where a quota is less than that, the Job takes all of it. ``wait`` gets the seconds of a cluster until the
        next try, and ``say`` why there is no room.
        """
        taken = self._taken.setdefault((namespace.cluster, namespace.name), [])
        pause, last = FIRST_TRY, ""
        while reason := self._take(namespace, wanted, taken):
            if reason != last:
                say(f"Pending: {reason}")
            last = reason
            wait(pause)
            pause = min(2 * pause, LONGEST_TRY)
        try:
            yield
        finally:
            with self._lock:
                taken.remove(wanted)

    def _take(self, namespace: Namespace, wanted: Resources, taken: list[Resources]) -> str:
        """Takes ``wanted`` of the quotas, or says why there is no room."""
        with self._lock:
            used = add(*taken)
            for name, hard in namespace.quotas():
                counted = _counted(hard, used)
                for key, (amount, limit, unit) in _counted(hard, wanted).items():
                    if amount and min(amount, limit) + counted[key][0] > limit:
                        return (
                            f"exceeded quota: {name}, requested: {key}={amount}{unit}, "
                            f"used: {key}={counted[key][0]}{unit}, limited: {key}={hard[key]}"
                        )
            taken.append(wanted)
            return ""
