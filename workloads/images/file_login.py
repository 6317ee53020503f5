"""The login of a registry in a Docker configuration, as `docker login` leaves it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from workloads.images.errors import LoginError


def of_file(file: str, host: str) -> tuple[str, str] | None:
    """User and password that a Docker configuration, the JSON of ``file``, has for ``host``; None where it has
    none."""
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8")).get("auths", {})
        entry = next((each for name, each in found.items() if _host(name) == host), None)
        if entry is None:
            return None
        if "auth" in entry:
            user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
            return user, password
        return entry["username"], entry["password"]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise LoginError(
            f"the secret with the registry's login is no configuration of Docker's: {error}"
        ) from error


def _host(name: str) -> str:
    """``docker login`` writes Docker Hub's as an address of the first version of its API."""
    place = name.rpartition("://")[2].partition("/")[0]
    return "docker.io" if place == "index.docker.io" else place
