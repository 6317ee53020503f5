"""Secrets in places that everybody can read.

The policy about the stack file needs no resources, so it also covers stacks whose program fails.
"""

import re
from collections.abc import Iterator

from infra.review.policy import Harm, Policy, Severity, Violation
from infra.review.properties import Properties, items, json_document, leaves, mapping, mappings
from infra.review.stack import CONFIG_MAP, Stack
from infra.schema.secret_values import MASK, OF_CLIENT, looks_like, secret, words
from offline.policies.images import CHARTS
from offline.policies.workloads import Workload, workloads

SECRET_TYPE = "kubernetes:core/v1:Secret"

OBJECT_NAME = re.compile(r"(?:^|_)(?:secret|credentials?)$")
"""Names whose value in charts and arguments is often that of a Secret: `existingSecret`, `tls-secret`."""

REFERENCE = re.compile(r"(?<!\$)\$\((\w+)\)")
"""Kubernetes' reference to a variable in commands and arguments, which the kubelet replaces by its value."""

OPTION = re.compile(r"--?([A-Za-z][\w.-]*)=(.*)", re.DOTALL)
"""An argument with its value: `--password=…`."""


def _within(value: object) -> str | None:
    """The kind of secret in a text that is JSON, as `pulumi config set` writes structured values."""
    return next((what for place, each in leaves(json_document(value)) if (what := secret(place, each))), None)


def _plain(stack: Stack) -> Iterator[Violation]:
    for key, whole in stack.configuration.items():
        for place, value in leaves(whole, key):
            if what := secret(place, value) or _within(value):
                named = place.endswith(OF_CLIENT)
                path, then = ("slipway:secrets.<name>", "; here stands that name") if named else (place, "")
                yield Violation(
                    place,
                    f"{what} stands in clear in the stack file and so in every clone",
                    f"withdraw it, and set the new one with `pulumi config set --secret --path '{path}'`{then}",
                )


def _objects(stack: Stack) -> Iterator[Violation]:
    for each in stack.of_type(SECRET_TYPE):
        plain = [
            key
            for part in ("data", "stringData")
            for key, value in mapping(each.properties.get(part)).items()
            if isinstance(value, str) and value not in {"", MASK}
        ]
        if plain:
            yield Violation(
                each.urn,
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
            for place, what in _told(container):
                yield Violation(
                    workload.resource.urn,
                    f"{what} stands in clear in {place} of {_called(container, workload)}",
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


def _called(container: Properties, workload: Workload) -> str:
    """The container, by a name only where it has to be told from others: one line then says it of all variants."""
    return f"the container {container.get('name')}" if len(workload.containers) > 1 else "its container"


def _told(container: Properties) -> Iterator[tuple[str, str]]:
    """Each place in a container's command, arguments and environment with a secret, and the kind of secret.

    An argument may say in which variable one is.
    """
    variables = {str(each.get("name")) for each in mappings(container.get("env"))}
    for key in ("command", "args"):
        before = ""
        for index, each in enumerate(items(container.get(key))):
            if not isinstance(each, str):
                before = ""
                continue
            option = OPTION.fullmatch(each)
            name, value = (option[1], option[2]) if option else (before, each)
            if value not in variables and (what := looks_like(each) or _in_object(name, value)):
                yield f"{key}[{index}]", what
            before = each.lstrip("-") if each.startswith("-") and not option else ""
    for each in mappings(container.get("env")):
        if what := secret(str(each.get("name")), each.get("value")):
            yield f"the variable {each.get('name')}", what


def _in_object(place: str, value: object) -> str | None:
    """`secret` for the names that charts, arguments and files use."""
    if OBJECT_NAME.search(words(re.split(r"[.\[]", place)[-1])):
        return looks_like(value)
    return secret(place, value)


def _expanded(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack):
        for container in workload.containers:
            of_secrets = {
                str(each.get("name"))
                for each in mappings(container.get("env"))
                if "secretKeyRef" in mapping(each.get("valueFrom"))
            }
            texts = [each for key in ("command", "args") for each in items(container.get(key))]
            named = {name for each in texts if isinstance(each, str) for name in REFERENCE.findall(each)}
            for name in sorted(named & of_secrets):
                yield Violation(
                    workload.resource.urn,
                    f"the value of {name}, which comes from a Secret, stands in the command line of "
                    f"{_called(container, workload)}: whoever sees the processes of its node can read it",
                    f"let the program read the variable {name} from its environment",
                )


POLICIES = (
    Policy(
        "secret-in-plain-config",
        Severity.ERROR,
        "No secret stands in clear in the stack file.",
        _plain,
        "Withdraw it, and set the new one with `pulumi config set --secret`.",
        harm=Harm.OPENING,
    ),
    Policy(
        "secret-in-plain-object",
        Severity.ERROR,
        "No Kubernetes object holds a secret in clear: the data of Secrets are Pulumi secrets, and ConfigMaps, "
        "arguments, variables and the values of charts have none.",
        _objects,
        "Take it from a secret configuration value, and let pods read it from a Secret.",
        harm=Harm.OPENING,
    ),
    Policy(
        "secret-in-command-line",
        Severity.WARNING,
        "No command line has the value of a variable that comes from a Secret, such as a service's `{password}`.",
        _expanded,
        "Let the program read the variable from its environment.",
    ),
)
