"""Look once whether anybody uses a notebook, and stop it where nobody did for long enough.

The pod of a CronJob starts it. The notebook itself cannot do this: it has no access to the Kubernetes API, since
whoever uses it runs what they like there. Run as `python -m slipway.workloads.apps.notebook.idle --app
mnist-notebook:8888 --kind statefulset --scale mnist-notebook --namespace slipway --notes mnist-notebook-idle
--after 3600`, with its token in APP_TOKEN. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import datetime
from functools import partial
from typing import Any

from slipway.workloads.runtime.apps.idle import Use, add_look_options, look, read
from slipway.workloads.runtime.exits import run

TOKEN = "APP_TOKEN"


def use(token: str, address: str, now: datetime) -> Use | None:
    """When somebody used the notebook server at `address`, host and port, last: now while a kernel computes; None
    where it does not answer.

    Jupyter does not count as use what open pages ask by themselves, such as the state of kernels
    (jupyter_server 2.21, `_track_activity` and `no_track_activity`).

    Raises:
        StepError: it refuses the token.
    """
    try:
        status = _get(address, token, "/api/status")
        kernels = _get(address, token, "/api/kernels?no_track_activity=1")
    except ValueError:
        return None
    if status is None or kernels is None:
        return None
    if any(kernel.get("execution_state") == "busy" for kernel in kernels):
        return Use(last=now)
    # As Jupyter writes it: `2026-11-22T23:14:12.345678Z`.
    return Use(last=datetime.fromisoformat(status["last_activity"].replace("Z", "+00:00")))


def _get(address: str, token: str, path: str) -> Any:
    content = read(address, path, {"Authorization": f"token {token}"})
    return None if content is None else json.loads(content)


def main(arguments: list[str] | None = None) -> int:
    """Look once; returns the exit code. Raises StepError, see `slipway.workloads.runtime.apps.idle.look`."""
    parser = argparse.ArgumentParser(prog="python -m slipway.workloads.apps.notebook.idle", description=__doc__)
    add_look_options(parser)
    return look(partial(use, os.environ.get(TOKEN, "")), parser.parse_args(arguments))


if __name__ == "__main__":
    run(main)
