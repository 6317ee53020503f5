"""Stop a notebook that nobody uses: scale its StatefulSet to no pod, so that its node, and a GPU there, are free.

The pod of a CronJob starts it. The notebook itself cannot do this: it has no access to the Kubernetes API, since
whoever uses it runs what they like there. Run as `python -m workloads.apps.notebook.idle --app mnist-notebook:8888
--scale mnist-notebook --namespace slipway --after 3600`, with its token in APP_TOKEN.
Standard library only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workloads.runtime.exits import OK, UNEXPECTED, StepError, run

TOKEN = "APP_TOKEN"
ANSWER = 20.0
"""Seconds that a server has for one answer."""


@dataclass(frozen=True)
class Notebook:
    """A notebook server at `address`, host and port."""

    address: str
    token: str

    def unused(self, now: datetime) -> float | None:
        """For how many seconds nobody has used it; 0 while a kernel computes, None where it does not answer.

        Jupyter does not count as use what open pages ask by themselves, such as the state of kernels
        (jupyter_server 2.21, `_track_activity` and `no_track_activity`).

        Raises:
            StepError: it refuses the token.
        """
        try:
            status = self._get("/api/status")
            kernels = self._get("/api/kernels?no_track_activity=1")
        except urllib.error.HTTPError as error:
            raise StepError(UNEXPECTED, f"{self.address} answered {error.code}; is it its token?") from error
        except (OSError, http.client.HTTPException, ValueError):
            return None
        if any(kernel.get("execution_state") == "busy" for kernel in kernels):
            return 0.0
        return max((now - _moment(status["last_activity"])).total_seconds(), 0.0)

    def _get(self, path: str) -> Any:
        request = urllib.request.Request(
            f"http://{self.address}{path}", headers={"Authorization": f"token {self.token}"}
        )
        return _opened(request, None)


@dataclass(frozen=True)
class Api:
    """The Kubernetes API; `folder` has the service account's token and the API's certificate."""

    url: str
    folder: Path

    def stop(self, namespace: str, stateful_set: str) -> None:
        """Scale a StatefulSet to no pod.

        Raises:
            StepError: the API refuses, or does not answer.
        """
        path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{stateful_set}/scale"
        token = (self.folder / "token").read_text(encoding="utf-8").strip()
        request = urllib.request.Request(
            f"{self.url}{path}",
            data=json.dumps({"spec": {"replicas": 0}}).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
            method="PATCH",
        )
        certificate = self.folder / "ca.crt"
        trusted = ssl.create_default_context(cafile=str(certificate)) if self.url.startswith("https:") else None
        try:
            _opened(request, trusted)
        except urllib.error.HTTPError as error:
            raise StepError(UNEXPECTED, f"the Kubernetes API answered {error.code} to {path}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise StepError(UNEXPECTED, f"no answer of the Kubernetes API: {error}") from error


def main(arguments: list[str] | None = None) -> int:
    """Look once, and stop the notebook where it was unused for long enough; returns the exit code.

    Raises:
        StepError: with UNEXPECTED where the notebook or the Kubernetes API refuses.
    """
    options = _parse(arguments)
    unused = Notebook(options.app, os.environ.get(TOKEN, "")).unused(datetime.now(UTC))
    if unused is None:
        print(f"{options.app} does not answer: stopped, or starting")
    elif unused < options.after:
        print(f"Unused for {unused:.0f} s of {options.after}")
    else:
        Api(options.api.rstrip("/"), options.service_account).stop(options.namespace, options.scale)
        print(f"Stopped, after {unused:.0f} s of no use. What starts it again:")
        print(f"  kubectl --namespace {options.namespace} scale statefulset/{options.scale} --replicas=1")
    return OK


def _opened(request: urllib.request.Request, trusted: ssl.SSLContext | None) -> Any:
    # A proxy of the pod's environment is for the way out of the cluster.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
    )
    with opener.open(request, timeout=ANSWER) as answer:
        return json.load(answer)


def _moment(text: str) -> datetime:
    """A time as Jupyter writes it: `2026-11-22T23:14:12.345678Z`."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.apps.notebook.idle", description=__doc__)
    parser.add_argument("--app", required=True, metavar="HOST:PORT", help="where it is asked")
    parser.add_argument("--after", type=int, required=True, help="seconds of no use")
    parser.add_argument("--scale", required=True, metavar="NAME", help="its StatefulSet")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--api", default="https://kubernetes.default.svc", help="address of the Kubernetes API")
    parser.add_argument(
        "--service-account",
        type=Path,
        default=Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        help="folder with the token and the API's certificate",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
