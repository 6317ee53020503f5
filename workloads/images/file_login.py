"""The login of a registry in a Docker configuration, as `docker login` leaves it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from workloads.images.errors import LoginError


def of_file(file: str, host: str) -> tuple[str, str] | None:
    """User and password that a Docker configuration, the JSON of ``file``, has for ``host``; None where it has
    none.

    Raises:
        LoginError: where it is no such configuration.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise LoginError(f"the secret with the registry's login cannot be read: {error}") from error
    return of_text(text, host)


def of_text(text: str, host: str) -> tuple[str, str] | None:
    """What `of_file` says, of the configuration itself."""
    try:
        found = json.loads(text).get("auths", {})
        entry = next((each for name, each in found.items() if _host(name) == host), None)
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
