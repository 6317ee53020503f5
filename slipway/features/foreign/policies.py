"""Mistakes of programs that Pulumi lets pass: outputs in texts, and objects that every API server refuses.

Of an object it is what Kubernetes' published schemas say, and its most common rules. Only what a program declares
by itself is held against them: what a stack file asks for has its own checks. Fields and types are those of the
models of the `kubernetes` client, which are generated from Kubernetes' OpenAPI document; the rules are those of
pkg/apis/*/validation of Kubernetes 1.37. A value that only an update knows breaks none.
"""

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from slipway.engine.provider_outputs import NOTICE
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import (
    Properties,
    Resource,
    Stack,
    at,
    known,
    leaves,
    mapping,
    mappings,
    strings,
    text,
    whole,
)
from slipway.infra.schema.cron import times_a_month
from slipway.infra.schema.names import DNS_SUBDOMAIN, LABEL_NAME, key_problem
from slipway.infra.schema.quantities import number_of

Refusal = tuple[str, str]
"""Where in the object, and why."""

KINDS: Mapping[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "bool": (bool,), "float": (int, float)}
AMOUNTS = {"limits", "requests", "capacity", "hard", "sizeLimit", "divisor", "podFixed", "min", "max", "default"}
"""Fields that are quantities, which may also be written as numbers."""


def refusals(resource: Resource) -> list[Refusal]:
    """Why an API server would not take the object; nothing for a kind that is not Kubernetes' own."""
    model = _model_of(resource.type)
    return [] if model is None else [*_structure(resource.properties, model, "")]


@cache
def _model_of(type_: str) -> Any:
    """The client's class of a resource type; None where the API of the type is not Kubernetes' own."""
    package, _, rest = type_.partition(":")
    group, _, version_kind = rest.rpartition("/")
    version, _, kind = version_kind.partition(":")
    if package != "kubernetes" or ("." in group and not group.endswith(".k8s.io")):
        return None
    return _model(version.capitalize() + kind)


@cache
def _model(name: str) -> Any:
    return getattr(importlib.import_module("kubernetes.client.models"), name, None)


def _structure(value: Properties, model: Any, place: str) -> Iterator[Refusal]:
    """What is wrong with an object of this model, and with all that is in it."""
    types = {written: model.openapi_types[name] for name, written in model.attribute_map.items()}
    for key, member in value.items():
        if key not in types:
            yield f"{place}{key}", "Kubernetes knows no such field"
        elif key in CHOICES and type(member) is str and member not in {*CHOICES[key], ""}:
            yield f"{place}{key}", f"{member!r} is not one of {', '.join(CHOICES[key])}"
        elif type(member) is int and member < 0 and key in NEVER_NEGATIVE:
            yield f"{place}{key}", f"{member} is negative"
        else:
            yield from _typed(member, types[key], f"{place}{key}", key)
    try:
        model(**{name: value.get(written) for name, written in model.attribute_map.items()})
    except ValueError as error:
        yield place.removesuffix("."), str(error)
    for models, below, breaks, reason in RULES:
        if model.__name__ in models.split() and (wrong := breaks(value)):
            named = f"{wrong!r} " if isinstance(wrong, str) else ""
            yield f"{place}{below}".removesuffix("."), named + reason


def _typed(value: Any, declared: str, place: str, key: str) -> Iterator[Refusal]:
    list_, mapping_ = declared.startswith("list["), declared.startswith(("dict(", "V"))
    wanted = (list,) if list_ else (dict,) if mapping_ else KINDS.get(declared, ())
    # An unknown value, and a secret, is of a type of its own; quantities may be written as numbers.
    if type(value) not in {str, int, float, bool, list, dict} or not wanted:
        return
    if type(value) not in wanted:
        if not (key in AMOUNTS and type(value) in {int, float}):
            yield place, f"it is no {'list' if list_ else 'mapping' if mapping_ else declared}"
    elif list_:
        for index, member in enumerate(value):
            yield from _typed(member, declared[5:-1], f"{place}[{index}]", key)
    elif model := _model(declared):
        yield from _structure(value, model, f"{place}.")
    elif mapping_:
        for name, member in value.items():
            yield from _typed(member, declared.removeprefix("dict(str, ")[:-1], f"{place}.{name}", key)


# fmt: off
NEVER_NEGATIVE = {
    "activeDeadlineSeconds", "backoffLimit", "completions", "initialDelaySeconds", "minReadySeconds",
    "parallelism", "replicas", "revisionHistoryLimit", "terminationGracePeriodSeconds", "ttlSecondsAfterFinished",
}
CHOICES: Mapping[str, Sequence[str]] = {
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"), "restartPolicy": ("Always", "Never", "OnFailure"),
    "terminationMessagePolicy": ("File", "FallbackToLogsOnError"), "completionMode": ("Indexed", "NonIndexed"),
    "concurrencyPolicy": ("Allow", "Forbid", "Replace"), "protocol": ("TCP", "UDP", "SCTP"),
    "effect": ("NoExecute", "NoSchedule", "PreferNoSchedule"),
    "pathType": ("Exact", "ImplementationSpecific", "Prefix"),
}
# fmt: on
LABEL = re.compile(r"(?=.{1,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?")
PORT_NAME = re.compile(r"(?=.{1,15}$)(?=.*[a-z])[a-z0-9](-?[a-z0-9])*")
SERVICE_NAME = re.compile(r"(?=.{1,63}$)[a-z]([a-z0-9-]*[a-z0-9])?")
DATA_KEY = re.compile(r"(?!\.{1,2}$)[-._a-zA-Z0-9]{1,253}")
EXPONENT = re.compile(r"[0-9.]+[eE][-+]?[0-9]+")
EXTENDED = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9._-]+")
"""The name of an extended resource, such as ``nvidia.com/gpu``."""


def _other(value: object, pattern: re.Pattern[str]) -> str:
    """``value`` where it is a text that does not match."""
    return value if type(value) is str and not pattern.fullmatch(value) else ""


def _name(metadata: object, pattern: re.Pattern[str]) -> str:
    return _other(at(metadata, "metadata", "name"), pattern)


def _no_label(metadata: Properties) -> str:
    values = [value for value in strings(metadata.get("labels")).values() if value]
    return _first(value for value in values if not LABEL_NAME.fullmatch(value))


def _first(values: Iterable[str]) -> str:
    return next(iter(values), "")


def _twice(entries: object, key: str) -> str:
    """The first value of ``key`` that two of the entries have: server-side apply answers 500 to some of these."""
    counts = Counter(text(entry.get(key)) for entry in mappings(entries))
    return _first(value for value, count in counts.items() if value and count > 1)


def _unmounted(controller: Properties) -> str:
    spec = mapping(at(controller, "template", "spec"))
    volumes = {text(volume.get("name")) for volume in mappings(spec.get("volumes"))}
    containers = [*mappings(spec.get("containers")), *mappings(spec.get("initContainers"))]
    mounts = [mount for container in containers for mount in mappings(container.get("volumeMounts"))]
    names = [mount["name"] for mount in mounts if type(mount.get("name")) is str]
    return _first(name for name in names if name not in volumes) if known(spec.get("volumes")) else ""


def _amounts(resources: Properties, kind: str) -> dict[str, Fraction | None]:
    """The amounts that are known, by name; None for what is no quantity."""
    listed = mapping(resources.get(kind)).items()
    written = {name: str(amount) for name, amount in listed if type(amount) in {str, int, float}}
    return {
        name: Fraction(amount) if EXPONENT.fullmatch(amount) else number_of(amount)
        for name, amount in written.items()
    }


def _no_amount(resources: Properties) -> str:
    both = [
        (name, amount) for kind in ("limits", "requests") for name, amount in _amounts(resources, kind).items()
    ]
    return _first(name for name, amount in both if amount is None or (EXTENDED.fullmatch(name) and amount % 1))


def _above(resources: Properties) -> str:
    limits = _amounts(resources, "limits")
    requests = _amounts(resources, "requests").items()
    return _first(name for name, amount in requests if amount and (most := limits.get(name)) and amount > most)


def _unlimited(resources: Properties) -> str:
    limits = mapping(resources.get("limits"))
    return _first(
        name for name in mapping(resources.get("requests")) if EXTENDED.fullmatch(name) and name not in limits
    )


def _restarts(*allowed: str) -> Callable[[Properties], str]:
    def rule(spec: Properties) -> str:
        pod = at(spec, "template", "spec")
        policy = at(pod, "restartPolicy") or "Always"
        return policy if pod and type(policy) is str and policy not in allowed else ""

    return rule


def _unselected(spec: Properties) -> str:
    labels = mapping(at(spec, "template", "metadata", "labels"))
    selector = strings(at(spec, "selector", "matchLabels")).items()
    return _first(key for key, value in selector if type(labels.get(key, "")) is str and labels.get(key) != value)


def _no_schedule(spec: Properties) -> str:
    schedule = text(spec.get("schedule"))
    try:
        times_a_month(schedule if schedule and not schedule.startswith("@") else "* * * * *")
    except ValueError:
        return schedule
    return ""


def _entries(object_: Properties) -> list[tuple[str, Any]]:
    return [*mapping(object_.get("data")).items(), *mapping(object_.get("stringData")).items()]


def _indexed(spec: Properties) -> bool:
    return spec.get("completionMode") == "Indexed"


def _unnamed(spec: Properties) -> bool:
    ports = mappings(spec.get("ports"))
    return len(ports) > 1 and not all(port.get("name") for port in ports)


def _bytes(object_: Properties) -> int:
    return sum(len(text(value).encode()) for _, value in _entries(object_))


NAMED = "V1ConfigMap V1CronJob V1DaemonSet V1Deployment V1Ingress V1Job V1PersistentVolumeClaim V1Pod V1Secret"
CONTROLLERS = "V1DeploymentSpec V1StatefulSetSpec V1DaemonSetSpec V1ReplicaSetSpec"
CLAIM, DATA = "V1PersistentVolumeClaimSpec", "V1ConfigMap V1Secret"
HANDLERS = {"exec", "grpc", "httpGet", "tcpSocket"}

Rule = tuple[str, str, Callable[[Properties], object], str]
"""The models that it is about, where below them, what is wrong (nothing where it is empty), and the reason."""

# fmt: off
RULES: Sequence[Rule] = (
    ("V1Service", "metadata.name", lambda it: _name(it, SERVICE_NAME), "is no DNS label with a letter first"),
    ("V1Namespace", "metadata.name", lambda it: _name(it, LABEL), "is no DNS label: a-z, 0-9, -, at most 63"),
    (NAMED, "metadata.name", lambda it: _name(it, DNS_SUBDOMAIN), "is no DNS name: a-z, 0-9, - and ."),
    ("V1ObjectMeta", "labels", lambda it: _first(filter(key_problem, strings(it.get("labels")))), "no label key"),
    ("V1ObjectMeta", "labels", _no_label, "is no label value: at most 63 letters, digits, - _ and ."),
    ("V1PodSpec", "containers", lambda it: it.get("containers") == [], "a pod needs at least one"),
    ("V1PodSpec", "containers", lambda it: _twice(it.get("containers"), "name"), "stands there twice"),
    ("V1PodSpec", "volumes", lambda it: _twice(it.get("volumes"), "name"), "stands there twice"),
    ("V1JobSpec V1DeploymentSpec", "template.spec.volumes", _unmounted, "is mounted and not there"),
    ("V1Volume", "", lambda it: len([key for key in it if key != "name"]) > 1, "it has more than one source"),
    ("V1Container", "name", lambda it: _other(it.get("name"), LABEL), "is no DNS label"),
    ("V1Container", "image", lambda it: it.get("image") in {None, ""}, "it is required"),
    ("V1Container", "env", lambda it: _twice(it.get("env"), "name"), "stands there twice"),
    ("V1Container", "ports", lambda it: _twice(it.get("ports"), "name"), "stands there twice"),
    ("V1Container", "volumeMounts", lambda it: _twice(it.get("volumeMounts"), "mountPath"), "stands there twice"),
    ("V1EnvVar", "", lambda it: bool(it.get("value") and it.get("valueFrom")), "it has a value and a `valueFrom`"),
    ("V1ContainerPort", "name", lambda it: _other(it.get("name"), PORT_NAME), "is no name of a port"),
    ("V1ContainerPort", "", lambda it: not 0 < whole(it.get("containerPort"), 1) < 65536, "no port"),
    ("V1ServicePort", "", lambda it: not 0 < whole(it.get("port"), 1) < 65536, "not 1 to 65535"),
    ("V1ResourceRequirements", "", _no_amount, "is given no quantity, or no whole number of devices"),
    ("V1ResourceRequirements", "requests", _above, "is more than its limit"),
    ("V1ResourceRequirements", "limits", _unlimited, "is requested, and so needs the same limit"),
    ("V1Probe", "", lambda it: len(it.keys() & HANDLERS) != 1, "it needs one of exec, grpc, httpGet, tcpSocket"),
    ("V1Toleration", "value", lambda it: it.get("operator") == "Exists" and it.get("value"), "has to be empty"),
    ("V1Toleration", "operator", lambda it: it.get("operator") != "Exists" and not it.get("key"), "not Exists"),
    ("V1JobSpec", "template.spec.restartPolicy", _restarts("Never", "OnFailure"), "has to be Never or OnFailure"),
    ("V1JobSpec", "completions", lambda it: _indexed(it) and it.get("completions") is None, "it is required"),
    ("V1JobSpec", "completionMode", lambda it: "backoffLimitPerIndex" in it and not _indexed(it), "not Indexed"),
    ("V1CronJobSpec", "schedule", _no_schedule, "is no schedule"),
    (CONTROLLERS, "template.spec.restartPolicy", _restarts("Always"), "has to be Always"),
    (CONTROLLERS, "selector.matchLabels", _unselected, "is not so in `template.metadata.labels`"),
    ("V1ServiceSpec", "ports", _unnamed, "each needs a name where there is more than one"),
    (CLAIM, "accessModes", lambda it: not it.get("accessModes"), "at least one is needed"),
    (CLAIM, "resources.requests.storage", lambda it: not at(it, "resources", "requests", "storage"), "needed"),
    (DATA, "data", lambda it: _first(key for key, _ in _entries(it) if _other(key, DATA_KEY)), "no file name"),
    (DATA, "data", lambda it: _bytes(it) > 2**20, "it has more than 1,048,576 bytes"),
)
# fmt: on


def _find_outputs_in_texts(stack: Stack) -> Iterator[Violation]:
    for resource in stack.resources.values():
        for place, value in leaves(resource.properties):
            if isinstance(value, str) and NOTICE in value:
                yield Violation(
                    resource.urn,
                    f"{place} has the text of an error in it: an output is unknown while the program runs, and "
                    "cannot be put into an f-string, `%` or `.format`",
                    f"write `pulumi.Output.concat(…)`, `pulumi.Output.format(…)` or `.apply(…)` for {place}",
                )


def _find_refused(stack: Stack) -> Iterator[Violation]:
    for resource in stack.resources.values():
        # What a stack file asks for has no place in a program.
        if resource.place and resource.custom and not resource.read:
            for place, reason in refusals(resource):
                yield Violation(resource.urn, f"the API server refuses it: {place}: {reason}", "correct it there")


POLICIES = policies_of(
    Path(__file__).parent / "data" / "policies.toml",
    {
        "output-as-text": _find_outputs_in_texts,
        "refused-by-kubernetes": _find_refused,
    },
)
