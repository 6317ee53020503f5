"""Secrets where everybody can read them.

The policy about the stack file needs no resource, so it holds for stacks whose program fails, too.
"""

import json
import re
from collections.abc import Iterator
from functools import lru_cache

from infra.review.policy import Policy, Severity, Violation
from infra.review.properties import items
from infra.review.stack import Stack
from stacks.documents import Document, document, documents
from stacks.policies.images import CHARTS
from stacks.policies.values import hidden, leaves
from stacks.policies.workloads import workloads

SECRET_TYPE = "kubernetes:core/v1:Secret"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"

CERTAIN_NAME = re.compile(r"(?:^|_)(?:password|passwd|passphrase|pwd)$")
"""Last words of names whose value is a secret whatever it is, be it a number."""

SECRET_NAME = re.compile(
    r"(?:^|_)(?:password|passwd|passphrase|pwd|secret|token|credentials?|"
    r"(?:private|secret|api|access|account|client)_?key)$"
)
"""Last words of names whose value is a secret. `secret_name`, `token_url` and the like only speak of one."""

NO_VALUE = re.compile(r"\$\{.*\}|\$\(.*\)|<.*>|\[.*\]|true|false|yes|no|", re.IGNORECASE)
"""Values that are a reference, a gap to fill, or a switch."""

ELSEWHERE = re.compile(r"[~./].*|arn:.*|projects/.*")
"""Values that say where a secret is."""

OBJECT_NAME = re.compile(r"(?:^|_)(?:secret|credentials?)$")
"""Names whose value in charts and arguments is often that of a Secret: `existingSecret`, `tls-secret`."""

OPTION = re.compile(r"--?([A-Za-z][\w.-]*)=(.*)", re.DOTALL)
"""An argument with its value: `--password=…`."""

LOOKS = (
    ("a private key", "-----BEGIN ", re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")),
    ("the key of a service account", '"private_key', re.compile(r'"private_key(?:_id)?"\s*:')),
    ("an access key", "AKIA", re.compile(r"\bAKIA[0-9A-Z]{16}\b")),
    ("a temporary access key", "ASIA", re.compile(r"\bASIA[0-9A-Z]{16}\b")),
    ("an API key", "AIza", re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b")),
    ("a GitHub token", "gh", re.compile(r"\bgh[pousr]_[0-9A-Za-z]{36,}\b")),
    ("a GitHub token", "github_pat_", re.compile(r"\bgithub_pat_\w{60,}\b")),
    ("a GitLab token", "glpat-", re.compile(r"\bglpat-[\w.-]{20,}")),
    ("a Slack token", "xox", re.compile(r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}")),
    ("a Hugging Face token", "hf_", re.compile(r"\bhf_[0-9A-Za-z]{30,}\b")),
    ("a JSON Web Token", "eyJ", re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}")),
    ("a kubeconfig with its key", "client-key-data", re.compile(r"\bclient-key-data:\s*\S{20,}")),
    ("a kubeconfig with its token", "users:", re.compile(r"\busers:\s.*?\btoken:\s*[\"']?[\w.-]{16,}", re.DOTALL)),
    ("a Slack webhook", "hooks.slack.com", re.compile(r"\bhooks\.slack\.com/services/T\w+/B\w+/\w{16,}")),
    ("a password in a URL", "://", re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/:@$<{]{3,}@")),
)
"""What secrets look like: a text that is quickly looked for, and the whole as its issuer writes it.

Prefixes of access keys: docs.aws.amazon.com/STS/latest/APIReference/API_GetAccessKeyInfo.html, November 2026; of
GitHub: github.blog/changelog/2021-03-31-authentication-token-format-updates-are-generally-available, March 2021.
"""


def _looks_like(value: object) -> str | None:
    return _looks(value) if isinstance(value, str) else None


@lru_cache(maxsize=4096)
def _looks(text: str) -> str | None:
    # The same files are shipped with one Job after another.
    return next((what for what, part, pattern in LOOKS if part in text and pattern.search(text)), None)


NAMED = "what its name calls a secret"


def secret(place: str, value: object) -> str | None:
    """What secret ``value`` is, by its looks or by the name at the end of ``place``; None where it is none."""
    if hidden(value) or isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if what := _looks_like(value):
        return what
    name = _words(re.split(r"[.:\[]", place)[-1])
    if NO_VALUE.fullmatch(str(value)):
        return None
    if CERTAIN_NAME.search(name):
        return NAMED
    named = isinstance(value, str) and SECRET_NAME.search(name) and not ELSEWHERE.fullmatch(value)
    return NAMED if named and not _known_reference(place) else None


def _within(value: object) -> str | None:
    """What secret stands in a text that is JSON, as `pulumi config set` writes what is no text."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return None
    try:
        whole = json.loads(value)
    except ValueError:
        return None
    return next((what for place, each in leaves(whole) if (what := secret(place, each))), None)


def _plain(stack: Stack) -> Iterator[Violation]:
    for key, whole in stack.configuration.items():
        for place, value in leaves(whole, key):
            if what := secret(place, value) or _within(value):
                yield Violation(
                    place,
                    f"{what} stands in clear in the stack file and so in every clone",
                    f"withdraw it, and set the new one with `pulumi config set --secret --path '{place}'`",
                )


def _known_reference(place: str) -> bool:
    """Keys of the settings that name a Secret of the cluster."""
    return place.startswith("slipway:") and place.endswith((".secret", ".secrets_key"))


def _words(name: str) -> str:
    """`apiKey`, `api-key` and `API_KEY` as `api_key`."""
    return re.sub(r"[-\s]", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower()


def _objects(stack: Stack) -> Iterator[Violation]:
    for secret in stack.of_type(SECRET_TYPE):
        plain = [
            key
            for part in ("data", "stringData")
            for key, value in document(secret.properties.get(part)).items()
            if isinstance(value, str) and value and not hidden(value)
        ]
        if plain:
            yield Violation(
                secret.urn,
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
                    f"{what} stands in clear in {place} of the container {container.get('name')}",
                    "withdraw it, and take the new one from a Secret with valueFrom.secretKeyRef",
                )
    for chart in stack.of_type(*CHARTS):
        for place, value in leaves(chart.properties.get("values")):
            if what := _in_object(place, value):
                yield Violation(
                    chart.urn,
                    f"{what} stands in clear in the chart's values, in {place}",
                    "withdraw it, and take the new one from a secret configuration value or an existing Secret",
                )


def _told(container: Document) -> Iterator[tuple[str, str]]:
    """Each place of a container's command, arguments and environment with the secret that stands there."""
    for key in ("command", "args"):
        before = ""
        for index, each in enumerate(items(container.get(key))):
            if not isinstance(each, str):
                before = ""
                continue
            option = OPTION.fullmatch(each)
            name, value = (option[1], option[2]) if option else (before, each)
            if what := _looks_like(each) or _in_object(name, value):
                yield f"{key}[{index}]", what
            before = each.lstrip("-") if each.startswith("-") and not option else ""
    for each in documents(container.get("env")):
        if what := secret(str(each.get("name")), each.get("value")):
            yield f"the variable {each.get('name')}", what


def _in_object(place: str, value: object) -> str | None:
    """The same as `secret` of what charts, arguments and files call their values."""
    if OBJECT_NAME.search(_words(re.split(r"[.\[]", place)[-1])):
        return _looks_like(value)
    return secret(place, value)


POLICIES = (
    Policy(
        "secret-in-plain-config",
        Severity.ERROR,
        "No secret stands in clear in the stack file.",
        _plain,
        "Withdraw it, and set the new one with `pulumi config set --secret`.",
    ),
    Policy(
        "secret-in-plain-object",
        Severity.ERROR,
        "No Kubernetes object holds a secret in clear: the data of Secrets are Pulumi secrets, and ConfigMaps, "
        "arguments, variables and the values of charts have none.",
        _objects,
        "Take it from a secret configuration value, and let pods read it from a Secret.",
    ),
)
