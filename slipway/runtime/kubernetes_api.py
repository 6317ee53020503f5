"""The Kubernetes API as the service account of a pod may use it. Standard library only, Python 3.9."""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER = 30.0
"""Seconds that a server has for one answer."""

PAGE = 500
"""Objects per answer of a list."""

CONFLICT = 409
REFUSED = frozenset({401, 403})
"""HTTP codes that say that the service account may not."""


class ExistsError(OSError):
    """There is an object of that name already."""


@dataclass(frozen=True)
class Api:
    """`folder` has the service account's token and the API's certificate.

    All methods raise OSError where there was no answer, or one that is an error; PermissionError where the service
    account may not.
    """

    url: str
    folder: Path

    def get(self, path: str) -> dict[str, Any]:
        """The object at `path`, which begins with a slash."""
        return self._send("GET", path)

    def items(self, path: str, labels: str = "") -> list[dict[str, Any]]:
        """All objects of the list at `path`, or those that a selector of labels takes."""
        query = {"limit": str(PAGE), **({"labelSelector": labels} if labels else {})}
        objects: list[dict[str, Any]] = []
        while True:
            page = self._send("GET", f"{path}?{urllib.parse.urlencode(query)}")
            objects.extend(page["items"])
            query["continue"] = page.get("metadata", {}).get("continue", "")
            if not query["continue"]:
                return objects

    def create(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create an object in the list at `path`. Raises ExistsError where there is one of that name."""
        return self._send("POST", path, manifest)

    def patch(self, path: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Merge `changes` into the object at `path`."""
        return self._send("PATCH", path, changes, "application/merge-patch+json")

    def _send(
        self, method: str, path: str, content: dict[str, Any] | None = None, kind: str = "application/json"
    ) -> dict[str, Any]:
        # Read each time: the kubelet renews the token.
        token = (self.folder / "token").read_text(encoding="utf-8").strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=body, headers=headers, method=method)
        certificate = self.folder / "ca.crt"
        trusted = ssl.create_default_context(cafile=str(certificate)) if self.url.startswith("https:") else None
        try:
            return read_json(request, trusted)
        except urllib.error.HTTPError as error:
            message = f"the Kubernetes API answered {error.code}: {_message(error)}"
            if error.code == CONFLICT:
                raise ExistsError(message) from error
            raise (PermissionError if error.code in REFUSED else OSError)(message) from error
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(f"no answer of the Kubernetes API: {error}") from error


def persist(
    request: Callable[[], Any], patience: float, pause: float, sleep: Callable[[float], None] = time.sleep
) -> Any:
    """What `request` returns, once the API server answers: one of a single zone is away while it is upgraded.

    Raises PermissionError at once, and any other OSError after `patience` seconds.
    """
    began = time.monotonic()
    while True:
        try:
            return request()
        except OSError as error:
            if isinstance(error, PermissionError) or time.monotonic() - began > patience:
                raise
            print(f"Waiting: {error}", flush=True)
            sleep(pause)


def read_json(request: urllib.request.Request, trusted: ssl.SSLContext | None = None) -> Any:
    """The JSON that a server within the cluster answers. Raises OSError, HTTPException, ValueError."""
    # A proxy of the pod's environment is for the way out of the cluster.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
    )
    with opener.open(request, timeout=ANSWER) as answer:
        return json.load(answer)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a program that uses the API: `api_of` reads them."""
    parser.add_argument("--api", default="https://kubernetes.default.svc", help="address of the Kubernetes API")
    parser.add_argument(
        "--service-account",
        type=Path,
        default=Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        help="folder with the token and the API's certificate",
    )


def api_of(options: argparse.Namespace) -> Api:
    """The API that the options name."""
    return Api(options.api.rstrip("/"), options.service_account)


def _message(error: urllib.error.HTTPError) -> str:
    """The API server's own words, from the Status object that it answers with."""
    text = error.read(4096).decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip() or error.reason
