"""Wait until no PersistentVolume of a storage class is left, and so no disk behind one.

Helm runs it in a pod before it uninstalls the release that stands between the disks' driver and what uses disks.
The driver deletes the PersistentVolume after the disk. Run as `python wait.py --storage-class slipway-gp3
--limit 600`. Standard library only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

ANSWER = 20.0
"""Seconds that the API server has for one answer."""

PAUSE = 3.0
"""Seconds between two looks."""


def left(api: str, folder: Path, storage_class: str) -> list[str]:
    """The volumes of the class that there are, with their phases and claims; `folder` has the account's token.

    Raises:
        OSError: the Kubernetes API does not answer, or refuses.
    """
    token = (folder / "token").read_text(encoding="utf-8").strip()
    request = urllib.request.Request(
        f"{api.rstrip('/')}/api/v1/persistentvolumes", headers={"Authorization": f"Bearer {token}"}
    )
    trusted = ssl.create_default_context(cafile=str(folder / "ca.crt")) if api.startswith("https:") else None
    # A proxy of the pod's environment is for the way out of the cluster.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
    )
    with opener.open(request, timeout=ANSWER) as answer:
        volumes: list[dict[str, Any]] = json.load(answer)["items"]
    return [_described(volume) for volume in volumes if volume["spec"].get("storageClassName") == storage_class]


def main() -> int:
    """Returns 0 once no volume is left, and 1 where one still is when the time is over."""
    options = _parse()
    end = time.monotonic() + options.limit
    while True:
        try:
            volumes = left(options.api, options.service_account, options.storage_class)
            if not volumes:
                print(f"No volume of the class {options.storage_class} is left")
                return 0
            said = "These volumes are left, and their disks are billed: " + ", ".join(volumes)
        except (OSError, http.client.HTTPException, ValueError) as error:
            said = f"No answer of the Kubernetes API: {error}"
        print(said, flush=True)
        if time.monotonic() + PAUSE > end:
            return 1
        time.sleep(PAUSE)


def _described(volume: dict[str, Any]) -> str:
    claim: dict[str, Any] = volume["spec"].get("claimRef") or {}
    phase = volume.get("status", {}).get("phase", "unknown")
    return f"{volume['metadata']['name']} ({phase}, claim {claim.get('namespace')}/{claim.get('name')})"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage-class", required=True)
    parser.add_argument("--limit", type=float, required=True, help="seconds")
    parser.add_argument("--api", default="https://kubernetes.default.svc")
    parser.add_argument(
        "--service-account", type=Path, default=Path("/var/run/secrets/kubernetes.io/serviceaccount")
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
