"""The dashboards of `tools.dashboards` in Cloud Monitoring, which takes PromQL as it is.

Format: cloud.google.com/monitoring/api/ref_v3/rest/v1/projects.dashboards (seen November 2026).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
import pulumi_gcp as gcp

FOLDER = Path(__file__).parents[2] / "data" / "dashboards"
"""Dashboards in Grafana's JSON model."""

NAMESPACE = "$namespace"
"""Stands in their queries for a regular expression of namespaces."""

SCALE = 2
"""Cloud Monitoring's grid has 48 columns, and Grafana's 24."""

COLUMNS = 24 * SCALE


def declare_dashboards(
    project: str, namespace: str, services: Sequence[pulumi.Resource]
) -> list[gcp.monitoring.Dashboard]:
    """Declares each dashboard, with what runs in ``namespace`` on all clusters of the project."""
    return [
        gcp.monitoring.Dashboard(
            path.stem,
            project=project,
            dashboard_json=json.dumps(
                converted(json.loads(path.read_text(encoding="utf-8")), namespace), sort_keys=True
            ),
            opts=pulumi.ResourceOptions(depends_on=list(services)),
        )
        for path in sorted(FOLDER.glob("*.json"))
    ]


def converted(dashboard: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """The dashboard as Cloud Monitoring's API takes it, of one namespace."""
    tiles = [
        {
            "xPos": panel["gridPos"]["x"] * SCALE,
            "yPos": panel["gridPos"]["y"] * SCALE,
            "width": panel["gridPos"]["w"] * SCALE,
            "height": panel["gridPos"]["h"] * SCALE,
            "widget": {
                "title": panel["title"],
                "xyChart": {
                    "dataSets": [
                        {
                            "timeSeriesQuery": {"prometheusQuery": target["expr"].replace(NAMESPACE, namespace)},
                            "plotType": "LINE",
                        }
                        for target in panel["targets"]
                    ]
                },
            },
        }
        for panel in dashboard["panels"]
    ]
    return {
        "displayName": f"{dashboard['title']} ({namespace})",
        "mosaicLayout": {"columns": COLUMNS, "tiles": tiles},
    }
