"""Pods that their namespace refuses, open services, secrets in the open, and data without protection."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slipway.evaluated.pod_rules import breaches, words
from slipway.evaluated.workloads import Workload, as_patched, workloads
from slipway.infra.kubernetes.review import CLIENT_SERVICE
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.facts import Holding
from slipway.infra.review.stack import (
    CONFIG_MAP,
    PROTECT,
    Properties,
    Resource,
    Stack,
    at,
    items,
    json_document,
    known,
    leaves,
    mapping,
    mappings,
    strings,
    texts,
    whole_internet,
)
from slipway.infra.schema.secret_values import MASK, OF_CLIENT, looks_like, secret
from slipway.infra.schema.secret_values import words as secret_values_words
from slipway.policies.pods import CHARTS

NAMESPACE = "kubernetes:core/v1:Namespace"

ENFORCED = "pod-security.kubernetes.io/enforce"
"""The label of a namespace with the standard that its pods have to keep
(kubernetes.io/docs/concepts/security/pod-security-admission, November 2026)."""


def _find_refused(stack: Stack) -> Iterator[Violation]:
    enforcing = {
        (resource.provider, at(resource.properties, "metadata", "name"))
        for resource in stack.of_type(NAMESPACE)
        if strings(at(resource.properties, "metadata", "labels")).get(ENFORCED) == "restricted"
    }
    for workload in workloads(stack):
        violations = breaches(workload.spec)
        if violations and (workload.resource.provider, workload.namespace) in enforcing:
            yield Violation(
                workload.resource.urn,
                f"its namespace refuses its pods, which break the restricted standard: {words(violations)}",
                "set what is missing; or place it in a namespace of its own with another standard",
            )


def _find_public(stack: Stack) -> Iterator[Violation]:
    for service in as_patched(stack, CLIENT_SERVICE):
        spec = mapping(service.properties.get("spec"))
        kind = spec.get("type")
        if kind == "LoadBalancer" and not _internal(service) and not _from_few(spec):
            reason = "a Service of type LoadBalancer has a public address, and anyone may connect to it"
        elif kind == "NodePort":
            reason = "a Service of type NodePort opens a port on every node of the cluster"
        elif texts(spec.get("externalIPs")):
            reason = "externalIPs take traffic for addresses that nobody checks (CVE-2020-8554)"
        else:
            continue
        yield Violation(
            service.urn,
            reason,
            "use ClusterIP and `kubectl port-forward`; or an internal load balancer, or loadBalancerSourceRanges",
        )


def _internal(service: Resource) -> bool:
    """Whether an annotation makes the load balancer an internal one; each cloud has its own, all alike.

    Also where only an update can tell.
    """
    annotations = at(service.properties, "metadata", "annotations")
    return not known(annotations) or any(
        "load-balancer" in key and (value.lower() == "internal" or (key.endswith("internal") and value == "true"))
        for key, value in strings(annotations).items()
    )


def _from_few(spec: Mapping[str, Any]) -> bool:
    ranges = spec.get("loadBalancerSourceRanges")
    return not known(ranges) or (bool(ranges) and not whole_internet(texts(ranges)))


# The policy about the stack file needs no resources, so it also covers stacks whose program fails.
SECRET_TYPE = "kubernetes:core/v1:Secret"

OBJECT_NAME = re.compile(r"(?:^|_)(?:secret|credentials?)$")
"""Names whose value in charts and arguments is often that of a Secret: `existingSecret`, `tls-secret`."""

REFERENCE = re.compile(r"(?<!\$)\$\((\w+)\)")
"""Kubernetes' reference to a variable in commands and arguments, which the kubelet replaces by its value."""

OPTION = re.compile(r"--?([A-Za-z][\w.-]*)=(.*)", re.DOTALL)
"""An argument with its value: `--password=…`."""


def _within(value: object) -> str | None:
    """The kind of secret in a text that is JSON, as `pulumi config set` writes structured values."""
    return next((what for place, leaf in leaves(json_document(value)) if (what := secret(place, leaf))), None)


def _find_plain(stack: Stack) -> Iterator[Violation]:
    for key, section in stack.configuration.items():
        for place, value in leaves(section, key):
            if what := secret(place, value) or _within(value):
                named = place.endswith(OF_CLIENT)
                path, then = ("slipway:secrets.<name>", "; here stands that name") if named else (place, "")
                yield Violation(
                    place,
                    f"{what} stands in clear in the stack file and so in every clone",
                    f"withdraw it, and set the new one with `pulumi config set --secret --path '{path}'`{then}",
                )


def _find_objects(stack: Stack) -> Iterator[Violation]:
    for resource in stack.of_type(SECRET_TYPE):
        plain = [
            key
            for part in ("data", "stringData")
            for key, value in mapping(resource.properties.get(part)).items()
            if isinstance(value, str) and value not in {"", MASK}
        ]
        if plain:
            yield Violation(
                resource.urn,
                f"{', '.join(sorted(plain))} of this Secret stands in clear in the state and in previews",
                "take the value from a secret configuration value, or wrap it in pulumi.Output.secret",
            )
    for config_map in stack.of_type(CONFIG_MAP):
        for place, value in leaves(config_map.properties.get("data")):
            if what := _in_object(place, value):
                yield Violation(
                    config_map.urn,
                    f"{what} stands in clear in a ConfigMap, in {place}",
                    "withdraw it, and put the new one into a Secret whose value Pulumi knows as a secret",
                )
    for workload in workloads(stack):
        for container in workload.containers:
            for place, what in _find_secrets(container):
                yield Violation(
                    workload.resource.urn,
                    f"{what} stands in clear in {place} of {_describe_container(container, workload)}",
                    "withdraw it; set a new one under `slipway:secrets`, and name it in `secrets` of the program",
                )
    for chart in stack.of_type(*CHARTS):
        for place, value in leaves(chart.properties.get("values")):
            if what := _in_object(place, value):
                yield Violation(
                    chart.urn,
                    f"{what} stands in clear in the chart's values, in {place}",
                    "withdraw it, and take the new one from a secret configuration value or an existing Secret",
                )


def _describe_container(container: Properties, workload: Workload) -> str:
    """The container, with its name only if the pod has several: then one line covers all variants."""
    return f"the container {container.get('name')}" if len(workload.containers) > 1 else "its container"


def _find_secrets(container: Properties) -> Iterator[tuple[str, str]]:
    """Each place in a container's command, arguments and environment with a secret, and the kind of secret.

    An argument may say in which variable one is.
    """
    variables = {str(variable.get("name")) for variable in mappings(container.get("env"))}
    for key in ("command", "args"):
        before = ""
        for index, text_ in enumerate(items(container.get(key))):
            if not isinstance(text_, str):
                before = ""
                continue
            option = OPTION.fullmatch(text_)
            name, value = (option[1], option[2]) if option else (before, text_)
            if value not in variables and (what := looks_like(text_) or _in_object(name, value)):
                yield f"{key}[{index}]", what
            before = text_.lstrip("-") if text_.startswith("-") and not option else ""
    for variable in mappings(container.get("env")):
        if what := secret(str(variable.get("name")), variable.get("value")):
            yield f"the variable {variable.get('name')}", what


def _in_object(place: str, value: object) -> str | None:
    """`secret` for the names that charts, arguments and files use."""
    if OBJECT_NAME.search(secret_values_words(re.split(r"[.\[]", place)[-1])):
        return looks_like(value)
    return secret(place, value)


def _find_expanded(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack):
        for container in workload.containers:
            of_secrets = {
                str(variable.get("name"))
                for variable in mappings(container.get("env"))
                if "secretKeyRef" in mapping(variable.get("valueFrom"))
            }
            texts = [argument for key in ("command", "args") for argument in items(container.get(key))]
            named = {name for text in texts if isinstance(text, str) for name in REFERENCE.findall(text)}
            for name in sorted(named & of_secrets):
                yield Violation(
                    workload.resource.urn,
                    f"the value of {name}, which comes from a Secret, stands in the command line of "
                    f"{_describe_container(container, workload)}: whoever sees the processes of its node can "
                    "read it",
                    f"let the program read the variable {name} from its environment",
                )


OF_OTHERS = re.compile(
    r":(?:Bucket|BucketV2|Cluster|Database|DatabaseInstance|Dataset|Disk|[A-Za-z]*FileSystem|PersistentVolumeClaim|"
    r"Repository|Table|Volume|(?:filestore|rds)/instance:Instance)$"
)
"""Types that hold data in clouds without a review here."""


def find_holding(resource: Resource, stack: Stack) -> Holding | None:
    """The data that is lost with a resource of ``stack``; None if it holds none or is not managed."""
    if not resource.custom or resource.read or resource.package == "pulumi":
        return None
    if data := stack.holdings.get(resource.urn):
        return data
    return Holding("it and everything in it") if OF_OTHERS.search(resource.type) else None


def _find_unprotected(stack: Stack) -> Iterator[Violation]:
    if not stack.production:
        return
    if stack.switched_off:
        yield Violation(
            PROTECT,
            f"the stack {stack.name} is for production, and `pulumi destroy` would delete it, data included",
            f"set `{PROTECT}: true`",
        )
        return
    for resource in stack.resources.values():
        held = find_holding(resource, stack)
        if held and not (held.kept or held.meant or resource.protect):
            yield Violation(
                resource.urn,
                "it holds data of a stack for production, and nothing keeps Pulumi from deleting or replacing it",
                "set the resource option protect",
            )


POLICIES = policies_of(
    Path(__file__).with_name("policies.toml"),
    {
        "pod-refused": _find_refused,
        "public-service": _find_public,
        "secret-in-plain-config": _find_plain,
        "secret-in-plain-object": _find_objects,
        "secret-in-command-line": _find_expanded,
        "production-unprotected": _find_unprotected,
    },
)
