"""Stop a notebook that nobody uses: scale its StatefulSet to no pod, so that its node, and a GPU there, are free.

The pod of a CronJob starts it. The notebook itself cannot do this: it has no access to the Kubernetes API, since
whoever uses it runs what they like there. Run as `python -m slipway.workloads.apps.notebook.idle --app
mnist-notebook:8888 --scale mnist-notebook --namespace slipway --after 3600`, with its token in APP_TOKEN.
Standard library only.
"""

from __future__ import annotations

import argparse
import http.client
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slipway.workloads.runtime.exits import OK, UNEXPECTED, StepError, run
from slipway.workloads.runtime.kubernetes_api import add_options, api_of, read_json

TOKEN = "APP_TOKEN"


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
        return max((now - _parse_time(status["last_activity"])).total_seconds(), 0.0)

    def _get(self, path: str) -> Any:
        request = urllib.request.Request(
            f"http://{self.address}{path}", headers={"Authorization": f"token {self.token}"}
        )
        return read_json(request)


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
        path = f"/apis/apps/v1/namespaces/{options.namespace}/statefulsets/{options.scale}/scale"
        try:
            api_of(options).patch(path, {"spec": {"replicas": 0}})
        except OSError as error:
            raise StepError(UNEXPECTED, f"{error} ({path})") from error
        print(f"Stopped, after {unused:.0f} s of no use. What starts it again:")
        print(f"  kubectl --namespace {options.namespace} scale statefulset/{options.scale} --replicas=1")
    return OK


def _parse_time(text: str) -> datetime:
    """A time as Jupyter writes it: `2026-11-22T23:14:12.345678Z`."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.workloads.apps.notebook.idle", description=__doc__)
    parser.add_argument("--app", required=True, metavar="HOST:PORT", help="where it is asked")
    parser.add_argument("--after", type=int, required=True, help="seconds of no use")
    parser.add_argument("--scale", required=True, metavar="NAME", help="its StatefulSet")
    parser.add_argument("--namespace", required=True)
    add_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
