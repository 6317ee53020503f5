"""The dashboards that `tools.dashboards` wrote, as Grafana's sidecar takes them up."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.kubernetes.labels import PART_OF
from infra.kubernetes.prometheus_release import DASHBOARD_LABEL

FOLDER = Path(__file__).parents[1] / "data" / "dashboards"
"""A file for each, of the name of its ``uid``."""


@cache
def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards by their ``uid``, in Grafana's JSON model."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def config_maps(name: str, namespace: str, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """Declares a ConfigMap for each dashboard."""
    return [
        k8s.core.v1.ConfigMap(
            f"{name}-dashboard-{uid}",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=uid, namespace=namespace, labels={**PART_OF, **DASHBOARD_LABEL}
            ),
            data={f"{uid}.json": json.dumps(content, sort_keys=True)},
            opts=opts,
        )
        for uid, content in dashboards().items()
    ]
