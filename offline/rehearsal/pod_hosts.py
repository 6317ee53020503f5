"""The names by which the pods of one Job find one another, and what is there for them on this machine."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.review.properties import mapping, strings
from infra.review.stack import Stack
from offline.policies.network_policies import refuses
from offline.policies.workloads import Workload
from offline.rehearsal.cluster_objects import Namespace, RefusedError
from offline.rehearsal.job_controller import JobSpec, host_name, pod_of
from offline.rehearsal.kubelet import expand, labelled
from offline.rehearsal.pods import PodSpec
from offline.rehearsal.ports import LOOPBACK, free_ports

HEADLESS = "None"
"""The ``clusterIP`` of a Service whose name stands for its pods
(kubernetes.io/docs/concepts/services-networking/service, seen November 2026)."""


@dataclass(frozen=True)
class Host:
    """A port of the pod with this ``index``, as the pods name it by ``pattern``."""

    index: int
    port: int
    pattern: re.Pattern[str]


def pod_addresses(job: JobSpec, client: Workload, namespace: Namespace) -> Mapping[str, re.Pattern[str]]:
    """For each port of a host that the pods of ``job`` name, by its address on this machine, what names it.

    The addresses are those of all the Job's pods, and of the pods that take their places. ``client`` is the Job,
    in ``namespace``. Raises RefusedError where a name would lead to no pod in a cluster, or a NetworkPolicy stands
    in the way.
    """
    hosts = list(_hosts(job, namespace))
    if not hosts:
        return {}
    _require_service(job, namespace)
    for each in hosts:
        if each.index >= job.workers:
            host = host_name(job.name, each.index)
            raise RefusedError(f"it names the host {host}, and its pods have the indexes 0 to {job.workers - 1}")
    if job.workers > 1:
        for port in sorted({each.port for each in hosts}):
            _require_connection(client, namespace, port)
    here = (f"{LOOPBACK}:{port}" for port in free_ports(len(hosts)))
    return dict(zip(here, (each.pattern for each in hosts), strict=True))


def _hosts(job: JobSpec, namespace: Namespace) -> Iterator[Host]:
    """The ports of hosts that the pods name, each once."""
    service = job.pod.subdomain
    if not (service and job.indexed):
        return
    domain = rf"{re.escape(service)}(?:\.{re.escape(namespace.name)}(?:\.svc(?:\.cluster\.local)?)?)?"
    named = re.compile(rf"(?<![\w.-]){re.escape(job.name)}-(?P<index>\d+)\.{domain}:(?P<port>\d+)(?!\w)")
    pods = (pod_of(job, "", index) for index in range(job.workers))
    texts = dict.fromkeys(text for pod in pods for text in _completed(pod))
    found = {(int(match["index"]), int(match["port"])) for text in texts for match in named.finditer(text)}
    for index, port in sorted(found):
        host = re.escape(host_name(job.name, index))
        yield Host(index, port, re.compile(rf"(?<![\w.-]){host}\.{domain}:{port}(?!\w)"))


def _completed(pod: PodSpec) -> Iterator[str]:
    """What of a pod may name a host, with the variables in it that the pod's declaration tells."""
    for container in (*pod.init_containers, pod.container):
        variables: dict[str, str] = {}
        for entry in container.env:
            path = mapping(mapping(entry.get("valueFrom")).get("fieldRef")).get("fieldPath")
            value = labelled(pod, str(path)) if path else entry.get("value")
            if value is not None:
                variables[str(entry["name"])] = expand(str(value), variables)
        yield from variables.values()
        yield from (expand(word, variables) for word in (*container.command, *container.args))


def _require_service(job: JobSpec, namespace: Namespace) -> None:
    name = job.pod.subdomain
    found = namespace.find("Service", name)
    spec = mapping(found.inputs.get("spec") if found else None)
    selector, labels = strings(spec.get("selector")), pod_of(job, "", 0).labels
    if not found or spec.get("clusterIP") != HEADLESS:
        reason = "it is not headless" if found else f"there is no Service {name} in {namespace.name}"
    elif not selector or not selector.items() <= labels.items():
        reason = f"the Service {name} selects other pods"
    else:
        return
    raise RefusedError(f"its pods do not find one another by names below {name}: {reason}")


def _require_connection(client: Workload, namespace: Namespace, port: int) -> None:
    policies = namespace.objects.all_of(namespace.cluster, "NetworkPolicy", namespace.name)
    stack = Stack("", {each.urn: each for _, each in policies}, {})
    if side := refuses(stack, client, client, port):
        raise RefusedError(
            f"its pods name port {port} of one another, and no NetworkPolicy lets them connect ({side.lower()})"
        )
