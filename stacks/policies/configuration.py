"""Secrets where everybody can read them.

The policy about the stack file needs no resource, so it holds for stacks whose program fails, too.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from infra.review import Policy, Severity, Stack, Violation
from stacks.documents import document
from stacks.policies.values import hidden, leaves
from stacks.policies.workloads import workloads

SECRET_TYPE = "kubernetes:core/v1:Secret"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"

SECRET_NAME = re.compile(
    r"(?:^|_)(?:password|passwd|passphrase|secret|token|credentials?|(?:private|secret|api|access|account|client)_key)$"
)
"""Last words of names whose value is a secret. `secret_name`, `token_url` and the like only speak of one."""

NO_SECRET = re.compile(r"(?:[~./].*|arn:.*|projects/.*|\$\{.*\}|<.*>|)")
"""Values that are a path, a reference, or a gap to fill."""

CERTAIN_NAME = re.compile(r"(?:^|_)(?:password|passwd|passphrase)$")
"""Names whose value is a secret whatever it is."""

LOOKS = (
    ("a private key", "-----BEGIN ", re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")),
    ("the key of a service account", '"private_key', re.compile(r'"private_key(?:_id)?"\s*:')),
    ("an access key", "AKIA", re.compile(r"\bAKIA[0-9A-Z]{16}\b")),
    ("a temporary access key", "ASIA", re.compile(r"\bASIA[0-9A-Z]{16}\b")),
    ("an API key", "AIza", re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b")),
    ("a GitHub token", "gh", re.compile(r"\bgh[pousr]_[0-9A-Za-z]{36,}\b")),
    ("a GitHub token", "github_pat_", re.compile(r"\bgithub_pat_\w{60,}\b")),
    ("a Slack token", "xox", re.compile(r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}")),
    ("a Hugging Face token", "hf_", re.compile(r"\bhf_[0-9A-Za-z]{30,}\b")),
    ("a JSON Web Token", "eyJ", re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}")),
    ("a kubeconfig with its key", "client-key-data", re.compile(r"\bclient-key-data:\s*\S{20,}")),
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


def secret(place: str, value: object) -> str | None:
    """What secret ``value`` is, by its looks or by the name at the end of ``place``; None where it is none."""
    if hidden(value) or not isinstance(value, str):
        return None
    name = _words(re.split(r"[.:\[]", place)[-1])
    named = SECRET_NAME.search(name) and not NO_SECRET.fullmatch(value) and not _known_reference(place)
    return _looks_like(value) or ("what its name calls a secret" if named or CERTAIN_NAME.search(name) else None)


def _plain(stack: Stack) -> Iterator[Violation]:
    for key, whole in stack.configuration.items():
        for place, value in leaves(whole, key):
            if what := secret(place, value):
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
            if what := _looks_like(value):
                yield Violation(
                    config_map.urn,
                    f"{what} stands in clear in a ConfigMap, in {place}",
                    "withdraw it, and put the new one into a Secret whose value Pulumi knows as a secret",
                )
    for workload in workloads(stack):
        for container in workload.containers:
            told = {key: container.get(key) for key in ("command", "args", "env")}
            for place, value in leaves(told):
                if what := _looks_like(value):
                    yield Violation(
                        workload.resource.urn,
                        f"{what} stands in clear in {place} of the container {container.get('name')}",
                        "withdraw it, and take the new one from a Secret with valueFrom.secretKeyRef",
                    )


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
        "arguments and variables have none.",
        _objects,
        "Take it from a secret configuration value, and let pods read it from a Secret.",
    ),
)
