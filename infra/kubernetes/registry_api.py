"""Reading from a container registry that no provider of the stack knows: which digest a tag has.

The API is that of github.com/opencontainers/distribution-spec, 1.1.1. Registries of this machine speak HTTP, as
container runtimes take it; all others HTTPS.
"""

import base64
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from contextvars import ContextVar
from typing import Any

UNREAD: ContextVar[bool] = ContextVar("unread", default=False)
"""Whether the program is evaluated without its registry, and so the same on every machine."""

KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
SECONDS = 30
"""For each answer."""

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
DOCKER_HUB = "docker.io"

_LOCAL = re.compile(r"(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?")
_PART = re.compile(r'([a-zA-Z]+)="([^"]*)"')


class RegistryError(Exception):
    """The registry names no digest. The text says why."""


def digest_of(reference: str, login: str = "") -> str:
    """The digest of ``<host>/<repository>:<tag>``; ``login`` is a Docker configuration, JSON, or empty.

    Raises RegistryError, also where there is no such image.
    """
    host, _, rest = reference.partition("/")
    repository, _, tag = rest.rpartition(":")
    scheme = "http" if _LOCAL.fullmatch(host) else "https"
    url = f"{scheme}://{'registry-1.docker.io' if host == DOCKER_HUB else host}/v2/{repository}/manifests/{tag}"
    try:
        try:
            return _asked(url, {})
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            challenge = error.headers.get("WWW-Authenticate", "")
        return _asked(url, {"Authorization": _authorization(challenge, repository, basic_login(login, host))})
    except urllib.error.HTTPError as error:
        raise RegistryError(f"{host} answered {error.code} when it was asked for {reference}") from error
    except (OSError, ValueError, KeyError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise RegistryError(f"{host} cannot be asked for {reference}: {reason}") from error


def basic_login(configuration: str, host: str) -> str:
    """User and password of ``host`` in a Docker configuration, as HTTP has them; empty where there are none.

    Raises ValueError where it is no such configuration.
    """
    if not configuration:
        return ""
    try:
        auths: dict[str, Any] = json.loads(configuration)["auths"]
        for name, entry in auths.items():
            place = name.rpartition("://")[2].partition("/")[0]
            if (DOCKER_HUB if place == "index.docker.io" else place) == host:
                given = (
                    entry.get("auth")
                    or base64.b64encode(f"{entry['username']}:{entry['password']}".encode()).decode()
                )
                return f"Basic {given}"
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise ValueError("the login is no configuration of Docker's") from error
    return ""


def _asked(url: str, headers: dict[str, str]) -> str:
    request = urllib.request.Request(url, headers={"Accept": ", ".join(KINDS), **headers}, method="HEAD")
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        digest = str(answer.headers.get("Docker-Content-Digest", ""))
    if not DIGEST.fullmatch(digest):
        raise ValueError(f"it says that the image has the digest {digest!r}")
    return digest


def _authorization(challenge: str, repository: str, basic: str) -> str:
    kind, _, rest = challenge.partition(" ")
    if kind.lower() == "basic":
        return basic
    said = dict(_PART.findall(rest))
    query = {"scope": f"repository:{repository}:pull", **{key: said[key] for key in ("service",) if key in said}}
    request = urllib.request.Request(f"{said['realm']}?{urllib.parse.urlencode(query)}")
    if basic:
        request.add_header("Authorization", basic)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        found = json.load(answer)
    return f"Bearer {found.get('token') or found['access_token']}"
