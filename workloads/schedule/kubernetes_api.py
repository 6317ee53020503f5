"""The Kubernetes API as the service account of a pod may use it. Standard library only."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER = 30.0
"""Seconds that the API server has for one answer."""

CONFLICT = 409
REFUSED = frozenset({401, 403})
"""HTTP codes that say that the service account may not."""


class ExistsError(OSError):
    """There is an object of that name already."""


@dataclass(frozen=True)
class Api:
    """`folder` has the service account's token and the API's certificate."""

    url: str
    folder: Path

    def get(self, path: str) -> dict[str, Any]:
        """The object or list at `path`, which begins with a slash.

        Raises:
            OSError: there was no answer, or one that is an error; PermissionError where the service account may
            not.
        """
        return self._send("GET", path, None)

    def create(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create an object in the list at `path`.

        Raises:
            ExistsError: there is one of that name.
            OSError: as `get` does.
        """
        return self._send("POST", path, json.dumps(manifest).encode())

    def _send(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        # Read each time: the kubelet renews the token.
        token = (self.folder / "token").read_text(encoding="utf-8").strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data=body, headers=headers, method=method)
        certificate = self.folder / "ca.crt"
        trusted = ssl.create_default_context(cafile=str(certificate)) if self.url.startswith("https:") else None
        # A proxy of the pod's environment is for the way out of the cluster.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
        )
        try:
            with opener.open(request, timeout=ANSWER) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            message = f"the Kubernetes API answered {error.code}: {_message(error)}"
            if error.code == CONFLICT:
                raise ExistsError(message) from error
            raise (PermissionError if error.code in REFUSED else OSError)(message) from error
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(f"no answer of the Kubernetes API: {error}") from error


def _message(error: urllib.error.HTTPError) -> str:
    """The API server's own words, from the Status object that it answers with."""
    text = error.read(4096).decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip() or error.reason
