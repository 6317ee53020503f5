"""Asks a container registry which image has a tag (github.com/opencontainers/distribution-spec, 1.1.1).

Registries of this machine are asked by HTTP, as container runtimes do; all others by HTTPS. The pod of a build
ships this file, so that both mean the same image: standard library only, Python 3.9.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.parse
import urllib.request

KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""The media types of images that have a digest of their own."""

SECONDS = 30
"""For each answer."""

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

_LOCAL = re.compile(r"(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?")
_PART = re.compile(r'([a-zA-Z]+)="([^"]*)"')

DOCKER_HUB = "docker.io"
"""What images of Docker Hub are named by; its API is at another host."""


class RegistryError(Exception):
    """The registry gave no answer that says whether there is an image. The text says why."""


class LoginError(RegistryError):
    """There is no login of the registry. The text says why."""


def parts(reference: str) -> tuple[str, str, str]:
    """Host, repository and tag of ``<host>/<repository>:<tag>``."""
    host, _, rest = reference.partition("/")
    repository, _, tag = rest.rpartition(":")
    return host, repository, tag


def digest_of(reference: str, configuration: str = "") -> str:
    """The digest of ``<host>/<repository>:<tag>``; ``configuration`` is Docker's, JSON with a login, or empty.

    Raises RegistryError, also where there is no such image.
    """
    host, _, _ = parts(reference)
    digest = find_digest(reference, login_of(configuration, host) if configuration else None)
    if digest is None:
        raise RegistryError(f"{host} has no image {reference}")
    return digest


def find_digest(reference: str, login: tuple[str, str] | None = None) -> str | None:
    """The digest of the image that is called ``reference``; None where there is none.

    ``login`` are a user and a password. Raises RegistryError where the registry does not say.
    """
    host, repository, tag = parts(reference)
    scheme = "http" if _LOCAL.fullmatch(host) else "https"
    place = "registry-1.docker.io" if host == DOCKER_HUB else host
    url = f"{scheme}://{place}/v2/{repository}/manifests/{tag}"
    try:
        try:
            return _ask(url, None)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            challenge = error.headers.get("WWW-Authenticate", "")
            return _ask(url, _authorization(challenge, (scheme, repository), login))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise RegistryError(
            f"{host} answered {error.code} {error.reason} when it was asked for {reference}"
        ) from error
    except (OSError, ValueError, KeyError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise RegistryError(f"{host} cannot be asked for {reference}: {reason}") from error


def _ask(url: str, authorization: str | None) -> str:
    request = urllib.request.Request(url, headers={"Accept": ", ".join(KINDS)}, method="HEAD")
    if authorization:
        # Where the registry sends people on to, the login does not go along.
        request.add_unredirected_header("Authorization", authorization)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        digest = answer.headers.get("Docker-Content-Digest", "")
    if not DIGEST.fullmatch(digest):
        raise ValueError(f"it says that the image has the digest {digest!r}")
    return digest


def _authorization(challenge: str, target: tuple[str, str], login: tuple[str, str] | None) -> str:
    """What the registry asks for, as the distribution project describes it
    (distribution.github.io/distribution/spec/auth/token, seen November 2026).

    ``target`` are the scheme by which the registry is spoken to, and the repository. A registry that is asked by
    HTTPS is given no login by HTTP.
    """
    scheme, repository = target
    kind, _, rest = challenge.partition(" ")
    basic = None
    if login:
        basic = "Basic " + base64.b64encode(f"{login[0]}:{login[1]}".encode()).decode()
    if kind.lower() == "basic":
        if basic is None:
            raise ValueError("it wants a login, and has none")
        return basic
    parameters = dict(_PART.findall(rest))
    query = {"scope": f"repository:{repository}:pull"}
    if "service" in parameters:
        query["service"] = parameters["service"]
    if scheme == "https" and not parameters["realm"].startswith("https://"):
        raise ValueError(f"it gives its tokens at {parameters['realm']}, which is not HTTPS")
    request = urllib.request.Request(f"{parameters['realm']}?{urllib.parse.urlencode(query)}")
    if basic:
        request.add_unredirected_header("Authorization", basic)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        token = json.load(answer)
    return f"Bearer {token.get('token') or token['access_token']}"


def login_of(configuration: str, host: str) -> tuple[str, str] | None:
    """User and password that a Docker configuration, JSON as `docker login` writes it, has for ``host``.

    None where it has none. Raises LoginError where it is no such configuration.
    """
    try:
        logins = json.loads(configuration).get("auths", {})
        entry = next((entry for name, entry in logins.items() if _host(name) == host), None)
        if entry is None:
            return None
        if "auth" in entry:
            user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
            return user, password
        return entry["username"], entry["password"]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        # What stands in it is not shown: it is the login.
        reason = f"the secret with the registry's login is no configuration of Docker's ({type(error).__name__})"
        raise LoginError(reason) from None


def _host(name: str) -> str:
    """``docker login`` writes Docker Hub's as an address of the first version of its API."""
    place = name.rpartition("://")[2].partition("/")[0]
    return "docker.io" if place == "index.docker.io" else place
