"""Refuses pods as the API server does: by the *restricted* Pod Security Standard and by quotas."""

from collections.abc import Mapping, Sequence

from infra.platform import GPU_RESOURCE, Resources
from infra.review.properties import Properties, mapping
from infra.schema.quantities import cpu_millicores, mebibytes
from offline.engine.pod_security import breaches, words
from offline.rehearsal.cluster_objects import Namespace, RefusedError
from offline.rehearsal.pods import Container, PodSpec

ENFORCE = "pod-security.kubernetes.io/enforce"

MANDATORY = {"requests.cpu": "cpu", "requests.memory": "memory"}
"""What every container must ask for once a quota counts it: kubernetes.io/docs/concepts/policy/resource-quotas."""


def admit(namespace: Namespace, template: Properties, pod: PodSpec, requests: Resources) -> None:
    """Raises RefusedError where the pod of ``template`` would not be created in ``namespace``.

    ``requests`` are those of the whole pod, with what a cloud injects. Volumes are checked when they are mounted.
    """
    account = pod.service_account
    if account != "default" and not namespace.find("ServiceAccount", account):
        raise RefusedError(
            f'error looking up service account {namespace.name}/{account}: serviceaccount "{account}" not found'
        )
    if namespace.labels.get(ENFORCE) == "restricted" and (found := breaches(mapping(template.get("spec")))):
        raise RefusedError(f'pod is forbidden: violates PodSecurity "restricted": {words(found)}')
    for name, hard in namespace.quotas():
        if exceeded := quota_violations(hard, pod, requests):
            raise RefusedError(f"pod is forbidden: quota {name}: {'; '.join(exceeded)}")


def quota_violations(hard: Mapping[str, str], pod: PodSpec, requests: Resources) -> list[str]:
    """The limits of a quota (``hard``) that a pod exceeds alone; what other pods use is not counted."""
    containers: Sequence[Container] = (*pod.init_containers, pod.container)
    found = [
        f"must specify {key} for: {container.name}"
        for key, field in MANDATORY.items()
        if key in hard
        for container in containers
        if getattr(container.requests, field) == 0
    ]
    limits = {
        "requests.cpu": (cpu_millicores, requests.cpu, "m"),
        "requests.memory": (mebibytes, requests.memory, "Mi"),
        "requests.ephemeral-storage": (mebibytes, requests.ephemeral_storage, "Mi"),
        f"requests.{GPU_RESOURCE}": (int, requests.gpus, ""),
    }
    found += [
        f"exceeded, requested: {key}={wanted}{unit}, limited: {key}={hard[key]}"
        for key, (parse, wanted, unit) in limits.items()
        if key in hard and wanted > parse(hard[key])
    ]
    return found
