"""Reads StatefulSets as far as a rehearsal can run them, and the Services that lead to their pods."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.review.properties import Properties, mapping, mappings, strings
from infra.review.stack import Resource
from offline.engine.provider_outputs import namespace_of, object_name
from offline.rehearsal.cluster_objects import Namespace, cluster_of
from offline.rehearsal.pods import PodSpec, UnsupportedError, pod_spec

STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"

STATEFUL_SET_KEYS = frozenset(
    {
        "minReadySeconds",
        "persistentVolumeClaimRetentionPolicy",
        "podManagementPolicy",
        "replicas",
        "revisionHistoryLimit",
        "selector",
        "serviceName",
        "template",
        "updateStrategy",
        "volumeClaimTemplates",
    }
)


@dataclass(frozen=True)
class Probe:
    """How the kubelet finds out whether a container is ready: by HTTP at ``path``, or by connecting."""

    port: int
    path: str | None = None


@dataclass(frozen=True)
class StatefulSetSpec:
    """A StatefulSet of one pod. ``ports`` are its container's by name, ``claims`` the names of its own volumes."""

    name: str
    namespace: str
    cluster: str
    template: Properties
    pod: PodSpec
    ports: Mapping[str, int]
    probe: Probe | None
    claims: Sequence[str]


@dataclass(frozen=True)
class Address:
    """An address by which pods of the namespace reach a port of the container."""

    pattern: re.Pattern[str]
    port: int


def stateful_set_spec(resource: Resource) -> StatefulSetSpec:
    """What ``resource`` (a ``kubernetes:apps/v1:StatefulSet``) declares. Raises UnsupportedError."""
    spec = mapping(resource.inputs.get("spec"))
    if unknown := sorted(spec.keys() - STATEFUL_SET_KEYS):
        raise UnsupportedError(f"a rehearsal does not act on {', '.join(unknown)} of a StatefulSet")
    if spec.get("replicas", 1) != 1:
        raise UnsupportedError(f"replicas {spec['replicas']}: a rehearsal knows a StatefulSet of 1")
    template = mapping(spec.get("template"))
    pod = pod_spec(template, restarts=True)
    container = mappings(mapping(template.get("spec")).get("containers"))[0]
    numbers = [int(each["containerPort"]) for each in mappings(container.get("ports"))]
    names = [str(each.get("name") or each["containerPort"]) for each in mappings(container.get("ports"))]
    ports = dict(zip(names, numbers, strict=True))
    return StatefulSetSpec(
        name=object_name(resource),
        namespace=namespace_of(resource),
        cluster=cluster_of(resource),
        template=template,
        pod=pod,
        ports=ports,
        probe=_probe(mapping(container.get("readinessProbe")), ports),
        claims=[
            str(mapping(each.get("metadata")).get("name")) for each in mappings(spec.get("volumeClaimTemplates"))
        ],
    )


def addresses(spec: StatefulSetSpec, namespace: Namespace) -> Iterator[Address]:
    """How pods of ``namespace`` reach ``spec``: by the Services that select its pods."""
    for name, service in namespace.objects.all_of(namespace.cluster, "Service", namespace.name):
        declared = mapping(service.inputs.get("spec"))
        selector = strings(declared.get("selector"))
        if not selector or not selector.items() <= spec.pod.labels.items():
            continue
        host = rf"{re.escape(name)}(?:\.{re.escape(namespace.name)}(?:\.svc(?:\.cluster\.local)?)?)?"
        for each in mappings(declared.get("ports")):
            port = int(each["port"])
            yield Address(
                re.compile(rf"(?<![\w.-]){host}:{port}(?!\w)"), _number(each.get("targetPort") or port, spec.ports)
            )


def _probe(declared: Properties, ports: Mapping[str, int]) -> Probe | None:
    """Raises UnsupportedError for a probe by other means than a connection and HTTP."""
    if "tcpSocket" in declared:
        return Probe(_number(mapping(declared["tcpSocket"]).get("port"), ports))
    if "httpGet" in declared:
        asked = mapping(declared["httpGet"])
        return Probe(_number(asked.get("port"), ports), str(asked.get("path") or "/"))
    if declared:
        raise UnsupportedError("readinessProbe: a rehearsal knows tcpSocket and httpGet")
    return None


def _number(port: object, ports: Mapping[str, int]) -> int:
    text = str(port)
    return ports[text] if text in ports else int(text)
