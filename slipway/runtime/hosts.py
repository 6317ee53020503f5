"""Which names a server answers by. Standard library only, Python 3.9.

A web site can have its own name lead to an address that only its visitor reaches, such as their own machine or a
forwarded port (DNS rebinding). The browser then lets that site read what the server there answers. It sends the
site's name as `Host`, so a server that does not know this name refuses it.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

HOSTS = "SLIPWAY_HOSTS"
"""The environment variable with further names that the servers of a pod answer by, separated by commas."""

REFUSED = "This server does not answer by this name.\n"

IN_CLUSTER = (".localhost", ".svc", ".cluster.local")
"""Endings of names that nobody can register."""


def configured(environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The names that `HOSTS` has, in lower case."""
    return frozenset(filter(None, (name.strip().lower() for name in environment.get(HOSTS, "").split(","))))


def is_known(host: str | None, names: Iterable[str] = ()) -> bool:
    """Whether a request with the header `Host: host` may be answered; ``names`` are further names, in lower case.

    Addresses pass, and so does a request without the header: a browser sends the name of the site. Names without a
    dot pass, since nobody can register one.
    """
    if not host:
        return True
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.endswith(IN_CLUSTER) or name in set(names)
    return True


class KnownHosts:
    """A WSGI application that answers 421 where `Host` is no known name, else as ``app`` does."""

    def __init__(self, app: Callable[..., Iterable[bytes]], names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = frozenset(names)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if is_known(environ.get("HTTP_HOST"), self._names):
            return self._app(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [REFUSED.encode()]
