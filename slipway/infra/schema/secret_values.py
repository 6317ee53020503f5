"""What secrets look like, and how a value is shown without those in it."""

import re
import reprlib
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, SecretStr

from slipway.infra.schema.base import refuse

MASK = "[secret]"
"""What is shown instead of a secret. A configuration that is read without the key to its secrets has it in their
place."""


class InClear(SecretStr):
    """A text that was to be encrypted and is not."""


def _protected(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value
    if not isinstance(value, str | int | float):
        raise refuse("not text", "set it with `pulumi config set --secret --path 'slipway:secrets.<name>'`")
    return SecretStr(MASK) if value == MASK else InClear(str(value))


SecretText = Annotated[SecretStr, BeforeValidator(_protected)]
"""A secret of the configuration: what `protected` made of it, or `MASK`. From any other text, `InClear`."""


def protected(value: object) -> object:
    """``value`` with its texts as ``SecretStr``, which no message, representation or JSON shows."""
    if isinstance(value, Mapping):
        return {key: protected(element) for key, element in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list):
        return [protected(element) for element in cast("list[Any]", value)]
    return value if value is None or isinstance(value, SecretStr) else SecretStr(str(value))


CERTAIN_NAME = re.compile(r"(?:password|passwd|passphrase|pwd)s?$|(?:^|_)pass$")
"""Last words of names whose value is always a secret, even where it is a number."""

SECRET_NAME = re.compile(
    r"(?:^|_)(?:password|passwd|passphrase|pwd|secret|token|credentials?|"
    r"(?:private|secret|api|access|account|client)_?key)$"
)
"""Last words of names whose value is a secret. `secret_name`, `token_url` and the like only speak of one."""

NO_VALUE = re.compile(r"\$\{.*\}|\$\(.*\)|<.*>|\[.*\]|true|false|yes|no|", re.IGNORECASE)
"""Values that are a reference, a gap to fill, or a switch."""

ELSEWHERE = re.compile(r"[~./].*|arn:.*|projects/.*")
"""Values that say where a secret is."""

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
    ("a password in a URL", "://", re.compile(r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@]*:(?![$<{])[^\s/@]+@")),
)
"""What secrets look like: a text that is quickly looked for, and the whole as its issuer writes it.

Prefixes of access keys: docs.aws.amazon.com/STS/latest/APIReference/API_GetAccessKeyInfo.html, November 2026; of
GitHub: github.blog/changelog/2021-03-31-authentication-token-format-updates-are-generally-available, March 2021.
"""

FORM = re.compile(
    r"(?i)(?:password|passwd|passphrase|pwd|secret|token|credential|(?:private|api|access|account)[_-]?key)s?[\"']?\s*[=:]"
    r"\s*[\"']?[^\s\"'$<{\[]|\b(?:bearer|basic)\s+[\w.~+/-]{8,}"
)
"""What a text with a secret in it may look like: `host=db password=…`, `?token=…`. Too little for a policy, it
is enough not to quote the text."""

NAMED = "what its name calls a secret"

NAME_OF_SECRET = re.compile(r"(?=.{1,40}$)[a-z][a-z0-9]{0,19}(?:-[a-z0-9]{1,20})*")
"""A name below `slipway:secrets` where a section refers to it: short words with hyphens. What providers issue as
the secret of a client is longer, or has capital letters."""

OF_STACK = re.compile(r"slipway:(?:se(?!rvice)[a-z]*|(?!pipelines|clusters)\w+\.secrets)(?:[.\[].*)?", re.DOTALL)
"""Keys of a stack file below which everything is a secret: `secrets`, and what may be a misspelling of it."""

STORED = "a secret of the stack"

OF_CLIENT = ".login.oidc.client_secret"
"""End of the keys of a stack file that name one of `slipway:secrets`, the client's of a login."""

SHORTEST = 4
"""Characters of the shortest secret that is looked for in texts; any shorter one is part of many words."""

DEPTH, KEYS, ELEMENTS, CHARACTERS = 3, 4, 6, 80
"""How much of a value is shown: levels, keys of a mapping, elements of a list, characters of anything else."""


def secret(place: str, value: object) -> str | None:
    """What secret ``value`` is, by its looks or by the name at the end of ``place``; None where it is none."""
    if OF_STACK.fullmatch(place) and value is not None and str(value) != MASK:
        return STORED
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if what := looks_like(value):
        return what
    name = words(re.split(r"[.:\[]", place)[-1])
    if NO_VALUE.fullmatch(str(value)):
        return None
    if CERTAIN_NAME.search(name):
        return NAMED
    named = isinstance(value, str) and SECRET_NAME.search(name) and not ELSEWHERE.fullmatch(value)
    return NAMED if named and not _known_reference(place, str(value)) else None


def looks_like(value: object) -> str | None:
    """What secret ``value`` is by its looks alone."""
    return _looks(value) if isinstance(value, str) else None


def words(name: str) -> str:
    """`apiKey`, `api-key` and `API_KEY` as `api_key`."""
    return re.sub(r"[-\s]", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower()


def shown(place: str, value: object) -> str:
    """``value`` as Python writes it, shortened, with `MASK` for each secret; ``not set`` for None.

    ``place`` is its key in the stack file.
    """
    if value is None:
        return "not set"
    short = reprlib.Repr()
    short.maxlevel, short.maxdict, short.maxlist = DEPTH, KEYS, ELEMENTS
    short.maxstring = short.maxother = CHARACTERS
    return short.repr(_without_secrets(place, value, set(), DEPTH))


def hidden(text: str, place: str, value: object) -> str:
    """``text`` with `MASK` for each secret of ``value``, which it may quote."""
    secrets = set[str]()
    _without_secrets(place, value, secrets, DEPTH)
    for quoted in sorted(secrets, key=len, reverse=True):
        text = text.replace(quoted, MASK)
    return text


class _Masked(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _without_secrets(place: str, value: object, secrets: set[str], depth: int) -> object:
    """As much of ``value`` as is shown, without its secrets; those of them that are texts are added to ``found``.

    A value of a few hundred bytes of YAML can have billions of elements, so no more of it is looked at.
    """
    if isinstance(value, Mapping):
        if not depth:
            return cast("object", value)
        items = islice(cast("Mapping[Any, Any]", value).items(), KEYS + 1)
        return {key: _without_secrets(f"{place}.{key}", element, secrets, depth - 1) for key, element in items}
    if isinstance(value, list):
        if not depth:
            return cast("object", value)
        elements = list(islice(cast("list[Any]", value), ELEMENTS + 1))
        # The value of an option follows it.
        options = [element if isinstance(element, str) and element.startswith("-") else "" for element in elements]
        places = [f"{place}.{option.lstrip('-')}" if option else place for option in ["", *options]]
        return [_without_secrets(*pair, secrets, depth - 1) for pair in zip(places, elements, strict=False)]
    if not _may_be_secret(place, value):
        return value
    if isinstance(value, str) and len(value) >= SHORTEST:
        secrets.add(value)
    return _Masked(MASK)


def _may_be_secret(place: str, value: object) -> bool:
    """Whether ``value`` is better not shown: it is a secret, or one by its form or by any name in ``place``."""
    if isinstance(value, SecretStr) or secret(place, value):
        return True
    if not isinstance(value, str | int | float) or NO_VALUE.fullmatch(text := str(value)):
        return False
    names = [words(part) for part in re.split(r"[^\w-]+", place)]
    named = "secrets" in names and not NAME_OF_SECRET.fullmatch(text)
    return named or bool(FORM.search(text)) or any(map(CERTAIN_NAME.search, names))


@lru_cache(maxsize=4096)
def _looks(text: str) -> str | None:
    # The same files are shipped with one Job after another.
    return next((what for what, part, pattern in LOOKS if part in text and pattern.search(text)), None)


def _known_reference(place: str, value: str) -> bool:
    """Keys of the settings that name a Secret of the cluster, or one of `slipway:secrets`."""
    if not place.startswith("slipway:"):
        return False
    return place.endswith((".secret", ".secrets_key")) or (
        place.endswith(OF_CLIENT) and NAME_OF_SECRET.fullmatch(value) is not None
    )
