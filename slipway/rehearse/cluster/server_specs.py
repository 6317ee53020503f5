"""Reads StatefulSets and Deployments as far as a rehearsal can run them, and the Services that lead to them."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from slipway.engine.provider_outputs import kind_of, namespace_of, object_name
from slipway.evaluated.workloads import CRON_JOB, DEPLOYMENT, STATEFUL_SET
from slipway.infra.kubernetes.labels import APP, PEOPLE
from slipway.infra.pipelines import valkey
from slipway.infra.placed import DATA
from slipway.infra.review.stack import Properties, Resource, mapping, mappings, strings, text, texts
from slipway.rehearse.cluster.cluster_objects import Namespace, cluster_of
from slipway.rehearse.cluster.pods import PodSpec, UnsupportedError, pod_spec

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

DEPLOYMENT_KEYS = frozenset(
    {
        "minReadySeconds",
        "progressDeadlineSeconds",
        "replicas",
        "revisionHistoryLimit",
        "selector",
        "strategy",
        "template",
    }
)

HTTP = "http"
"""The name of the port at which people reach an app."""


@dataclass(frozen=True)
class Probe:
    """How the kubelet finds out whether a container is ready: by HTTP at ``path``, by the command PING with the
    password of the environment variable ``ping``, or by connecting."""

    port: int
    path: str | None = None
    ping: str = ""


@dataclass(frozen=True)
class ServerSpec:
    """A StatefulSet of one pod, or a Deployment, of whose ``replicas`` a rehearsal runs one; of 0 none.

    ``ports`` are its container's by name, ``claims`` the names of its own volumes, and ``app`` is the name of the
    app that it runs; empty where it is none.
    """

    name: str
    namespace: str
    cluster: str
    template: Properties
    pod: PodSpec
    ports: Mapping[str, int]
    probe: Probe | None
    claims: Sequence[str] = ()
    replicas: int = 1
    app: str = ""


@dataclass(frozen=True)
class Address:
    """An address by which pods of the namespace reach a port of the container."""

    pattern: re.Pattern[str]
    port: int


@dataclass(frozen=True)
class FirstPage:
    """What people open of an app: its title, the port of the container, and the path, which may hold its token."""

    title: str
    port: int
    path: str = "/"


def app_of(resource: Resource) -> str:
    """The name of the app that a StatefulSet or a Deployment runs; empty for any other resource."""
    if resource.type not in {STATEFUL_SET, DEPLOYMENT}:
        return ""
    metadata = mapping(mapping(mapping(resource.inputs.get("spec")).get("template")).get("metadata"))
    return strings(metadata.get("labels")).get(APP, "")


def server_spec(resource: Resource) -> ServerSpec:
    """What ``resource``, a StatefulSet or a Deployment, declares. Raises UnsupportedError."""
    spec, kind = mapping(resource.inputs.get("spec")), resource.type.rpartition(":")[2]
    if unknown := sorted(spec.keys() - (DEPLOYMENT_KEYS if resource.type == DEPLOYMENT else STATEFUL_SET_KEYS)):
        raise UnsupportedError(f"a rehearsal does not act on {', '.join(unknown)} of a {kind}")
    replicas = int(spec.get("replicas", 1))
    if replicas > 1 and resource.type == STATEFUL_SET:
        raise UnsupportedError(f"replicas {spec['replicas']}: a rehearsal knows a StatefulSet of 1")
    template = mapping(spec.get("template"))
    pod = pod_spec(template, restarts=True)
    container = mappings(mapping(template.get("spec")).get("containers"))[0]
    numbers = [int(port["containerPort"]) for port in mappings(container.get("ports"))]
    names = [str(port.get("name") or port["containerPort"]) for port in mappings(container.get("ports"))]
    ports = dict(zip(names, numbers, strict=True))
    return ServerSpec(
        name=object_name(resource),
        namespace=namespace_of(resource),
        cluster=cluster_of(resource),
        template=template,
        pod=pod,
        ports=ports,
        probe=_probe(mapping(container.get("readinessProbe")), ports),
        claims=[
            *(
                str(mapping(volume_claim_template.get("metadata")).get("name"))
                for volume_claim_template in mappings(spec.get("volumeClaimTemplates"))
            ),
            # The store is shared, and called otherwise.
            *(name for name, volume in pod.volumes.items() if name == DATA and "persistentVolumeClaim" in volume),
        ],
        replicas=replicas,
        app=pod.labels.get(APP, ""),
    )


def addresses(spec: ServerSpec, namespace: Namespace) -> Iterator[Address]:
    """How pods of ``namespace`` reach ``spec``: by the Services that select its pods."""
    for name, service in _leading_to(spec, namespace):
        host = rf"{re.escape(name)}(?:\.{re.escape(namespace.name)}(?:\.svc(?:\.cluster\.local)?)?)?"
        for entry in mappings(mapping(service.inputs.get("spec")).get("ports")):
            port = int(entry["port"])
            yield Address(
                re.compile(rf"(?<![\w.-]){host}:{port}(?!\w)"),
                _number(entry.get("targetPort") or port, spec.ports),
            )


def first_page(spec: ServerSpec, namespace: Namespace) -> FirstPage | None:
    """What people open of ``spec``, as the annotation of a Service that leads to it says; None where none does."""
    for name, service in _leading_to(spec, namespace):
        annotation = strings(service.metadata.get("annotations")).get(PEOPLE)
        if annotation is None:
            continue
        try:
            page: Any = json.loads(annotation)
        except ValueError:
            page = {}
        described = cast("Mapping[str, object]", page) if isinstance(page, dict) else dict[str, object]()
        declared = mappings(mapping(service.inputs.get("spec")).get("ports"))
        port = next((entry for entry in declared if entry.get("name") == HTTP), declared[0] if declared else None)
        if port is not None:
            number = _number(port.get("targetPort") or port["port"], spec.ports)
            return FirstPage(str(described.get("title") or name), number, str(described.get("path") or "/"))
    return None


def _leading_to(spec: ServerSpec, namespace: Namespace) -> Iterator[tuple[str, Resource]]:
    """The Services that select its pods, with their names."""
    for name, service in namespace.objects.all_of(namespace.cluster, "Service", namespace.name):
        selector = strings(mapping(service.inputs.get("spec")).get("selector"))
        if selector and selector.items() <= spec.pod.labels.items():
            yield name, service


def _probe(declared: Properties, ports: Mapping[str, int]) -> Probe | None:
    """Raises UnsupportedError for a probe by other means than a connection and HTTP."""
    if "tcpSocket" in declared:
        return Probe(_number(mapping(declared["tcpSocket"]).get("port"), ports))
    if "httpGet" in declared:
        http_get = mapping(declared["httpGet"])
        return Probe(_number(http_get.get("port"), ports), str(http_get.get("path") or "/"))
    if probe_settings := valkey.probe_settings(texts(mapping(declared.get("exec")).get("command"))):
        variable, port = probe_settings
        return Probe(port, ping=variable)
    if declared:
        raise UnsupportedError(
            "readinessProbe: a rehearsal knows tcpSocket, httpGet, and the PING of a Valkey server"
        )
    return None


def _number(port: object, ports: Mapping[str, int]) -> int:
    text = str(port)
    return ports[text] if text in ports else int(text)


_DAILY = re.compile(r"(?P<minute>\d+) (?P<hour>\d+) \* \* \*")


def only_said(resources: Iterable[Resource]) -> list[str]:
    """When schedules run, how many pods an app may have, which are left alone, and where people come in."""
    sentences: list[str] = []
    for resource in resources:
        say = _SENTENCES.get(resource.type) or _OF_KIND.get(kind_of(resource.type) or "")
        sentence = say(resource) if say else None
        if sentence and sentence not in sentences:
            sentences.append(sentence)
    return sentences


def _schedule(resource: Resource) -> str:
    spec = mapping(resource.inputs.get("spec"))
    daily = _DAILY.fullmatch(str(spec.get("schedule")))
    when = f"at {int(daily['hour']):02}:{int(daily['minute']):02}" if daily else f"at `{spec.get('schedule')}`"
    zone = spec.get("timeZone") or "in the time zone of the cluster"
    return f"{resource.name} runs {when} {zone}; a rehearsal runs its Jobs once, now"


def _autoscaler(resource: Resource) -> str:
    spec = mapping(resource.inputs.get("spec"))
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas")
    return f"{resource.name} has {least} to {most} pods, as they are busy; a rehearsal runs 1"


def _budget(resource: Resource) -> str | None:
    spec = mapping(resource.inputs.get("spec"))
    if "maxUnavailable" not in spec:
        return None
    count = spec["maxUnavailable"]
    return f"{resource.name}: nodes are drained of at most {count} of its pods at a time; a rehearsal drains none"


def _deployment(resource: Resource) -> str | None:
    if app_of(resource):
        return None
    return f"{resource.name} runs in the cluster beside the apps (Deployment); a rehearsal does not run it"


def _describe_opening(resource: Resource) -> str:
    rules = mappings(mapping(resource.inputs.get("spec")).get("rules"))
    hosts = dict.fromkeys(text(rule.get("host")) for rule in rules if rule.get("host"))
    where = " and ".join(f"https://{host}" for host in hosts) or "an address of the cluster"
    return f"{where} leads people to {resource.name}; a rehearsal opens nothing beyond this machine"


_Say = Callable[[Resource], str | None]

_SENTENCES: Mapping[str, _Say] = {CRON_JOB: _schedule, DEPLOYMENT: _deployment}

_OF_KIND: Mapping[str, _Say] = {
    "HorizontalPodAutoscaler": _autoscaler,
    "PodDisruptionBudget": _budget,
    "Ingress": _describe_opening,
}
"""By kind, whichever version of its API declares it."""
