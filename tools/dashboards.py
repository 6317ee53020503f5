"""Writes the dashboards that stacks declare, in Grafana's JSON model.

python -m slipway.tools.dashboards            # write them
python -m slipway.tools.dashboards --check    # exit 1 where one is out of date

That is grafana.com/docs/grafana/latest/visualizations/dashboards/build-dashboards/view-dashboard-json-model, seen
November 2026. Queries are PromQL. A cloud that shows metrics in a service of its own makes its dashboards from
these.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.infra.places import LIBRARY
from slipway.offline.files import write_or_check

FOLDER = LIBRARY / "infra" / "data" / "dashboards"

NAMESPACE = "$namespace"
"""Stands in queries for a regular expression of namespaces."""

SCHEMA_VERSION = 39
"""Of Grafana's JSON model, which newer versions migrate by themselves (11.0 writes 39)."""

WIDTH, HEIGHT = 12, 8
"""Of a panel: two stand side by side on the grid of 24 columns."""

IN_NAMESPACE = f'namespace=~"{NAMESPACE}"'

WINDOW = "[5m]"

STEP = r'"step", "$1", "pod", "(.+)-[0-9a-f]{10}(?:-[0-9]+)?-[a-z0-9]{5}"'
"""Takes from a pod's name what its Job keeps from run to run (`slipway.infra.kubernetes.run.Run.job_name`)."""


EXPORTER = ".*dcgm-exporter.*"
"""Pods of the exporter, whose name a GPU has that no pod asked for."""


@dataclass(frozen=True)
class Query:
    """What is drawn, and how each line is called: its labels in double braces."""

    promql: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A chart. ``unit`` is Grafana's name of it, ``most`` the end of its axis where that is known."""

    title: str
    unit: str
    queries: Sequence[Query]
    says: str
    most: float | None = None


@dataclass(frozen=True)
class Dashboard:
    """Panels with one name and place."""

    uid: str
    title: str
    panels: Sequence[Panel]


def _of_gpus(metric: str) -> str:
    """A metric of the GPU exporter, with what has the GPU in the labels `namespace` and `step`.

    The pod that has the GPU is in the label `pod`, or in `exported_pod` where the collector kept its own there.
    What belongs to no step has its pod's name.
    """
    honoured = f'{metric}{{{IN_NAMESPACE}, exported_namespace="", pod!~"{EXPORTER}"}}'
    moved = f'{metric}{{exported_namespace=~"{NAMESPACE}"}}'
    for label in ("pod", "namespace"):
        moved = f'label_replace({moved}, "{label}", "$1", "exported_{label}", "(.+)")'
    named = f'label_replace({honoured} or {moved}, "step", "$1", "pod", "(.+)")'
    return f"label_replace({named}, {STEP})"


DASHBOARDS = (
    Dashboard(
        "slipway-jobs",
        "Slipway: Jobs",
        (
            Panel(
                "GPUs: busy",
                "percent",
                [
                    Query(
                        f"avg by (pipeline, step, gpu) (slipway_step_gpu_busy_percent{{{IN_NAMESPACE}}})",
                        "{{pipeline}}.{{step}} GPU {{gpu}}",
                    )
                ],
                "Share of the last sample in which a kernel ran, as the driver says it. A line near zero is money "
                "for nothing.",
                100,
            ),
            Panel(
                "GPUs: idle since the start",
                "percentunit",
                [
                    Query(
                        f"sum by (pipeline, step) (slipway_step_gpu_idle_seconds_total{{{IN_NAMESPACE}}}) / "
                        f"(sum by (pipeline, step) (slipway_step_seconds_total{{{IN_NAMESPACE}}}) * "
                        f"(count by (pipeline, step) (slipway_step_gpu_idle_seconds_total{{{IN_NAMESPACE}}}) / "
                        f"count by (pipeline, step) (slipway_step_seconds_total{{{IN_NAMESPACE}}})))",
                        "{{pipeline}}.{{step}}",
                    )
                ],
                "Share of the time that a Job held its GPUs and they did next to nothing.",
                1,
            ),
            Panel(
                "GPUs: memory",
                "bytes",
                [
                    Query(
                        f"sum by (pipeline, step, gpu) (slipway_step_gpu_memory_used_bytes{{{IN_NAMESPACE}}})",
                        "{{pipeline}}.{{step}} GPU {{gpu}}",
                    ),
                    Query(
                        f"max by (pipeline, step) (slipway_step_gpu_memory_total_bytes{{{IN_NAMESPACE}}})",
                        "{{pipeline}}.{{step}}: there is",
                    ),
                ],
                "In use on each GPU of a Job, and how much each has.",
            ),
            Panel(
                "Speed",
                "none",
                [
                    Query(
                        f"sum by (pipeline, step, unit) (slipway_step_rate{{{IN_NAMESPACE}}})",
                        "{{pipeline}}.{{step}} {{unit}}",
                    )
                ],
                "What programs last wrote of their speed in their logs: images/s, steps/s.",
            ),
            Panel(
                "CPU",
                "suffix:cores",
                [
                    Query(
                        "sum by (pipeline, step) "
                        f"(rate(slipway_step_cpu_seconds_total{{{IN_NAMESPACE}}}{WINDOW}))",
                        "{{pipeline}}.{{step}}",
                    )
                ],
                "Cores that the processes of a step use.",
            ),
            Panel(
                "Memory",
                "bytes",
                [
                    Query(
                        f"sum by (pipeline, step) (slipway_step_memory_bytes{{{IN_NAMESPACE}}})",
                        "{{pipeline}}.{{step}}",
                    )
                ],
                "Memory that the processes of a step hold; what they share counts anew with each.",
            ),
        ),
    ),
    Dashboard(
        "slipway-gpus",
        "Slipway: GPUs",
        (
            Panel(
                "Busy, by Job",
                "percent",
                [Query(f"avg by (namespace, step) ({_of_gpus('DCGM_FI_DEV_GPU_UTIL')})", "{{step}}")],
                "Of the exporter on the node, also for pods that no step of a pipeline is: apps, notebooks.",
                100,
            ),
            Panel(
                "Memory in use, by Job",
                "mbytes",
                [Query(f"sum by (namespace, step) ({_of_gpus('DCGM_FI_DEV_FB_USED')})", "{{step}}")],
                "Framebuffer memory in MiB.",
            ),
            Panel(
                "GPUs that nobody has",
                "none",
                [
                    Query(
                        f'count(DCGM_FI_DEV_GPU_UTIL{{pod=~"|{EXPORTER}", exported_pod=""}}) or vector(0)',
                        "GPUs on nodes without a pod",
                    )
                ],
                "They are paid for, and no pod asked for them.",
            ),
            Panel(
                "Power",
                "watt",
                [
                    Query(
                        "sum by (modelName) (DCGM_FI_DEV_POWER_USAGE)",
                        "{{modelName}}",
                    )
                ],
                "Watts of all GPUs of a model, where the exporter says it.",
            ),
        ),
    ),
    Dashboard(
        "slipway-services",
        "Slipway: queues, serving and pages",
        (
            Panel(
                "Queue: items that wait",
                "none",
                [
                    Query(
                        f'sum by (namespace, key) (redis_key_size{{{IN_NAMESPACE}, key=~"slipway:.+:ready"}})',
                        "{{key}}",
                    )
                ],
                "Length of each item queue.",
            ),
            Panel(
                "Queue: items at work, done, set aside",
                "none",
                [
                    Query(
                        f"sum by (namespace, key) "
                        f'(redis_key_size{{{IN_NAMESPACE}, key=~"slipway:.+:(leases|done|aside)"}})',
                        "{{key}}",
                    )
                ],
                "A line of `aside` that rises is work that failed for good.",
            ),
            Panel(
                "Queue: memory",
                "bytes",
                [
                    Query(f"sum by (pod) (redis_memory_used_bytes{{{IN_NAMESPACE}}})", "{{pod}}: in use"),
                    Query(f"sum by (pod) (redis_memory_max_bytes{{{IN_NAMESPACE}}})", "{{pod}}: limit"),
                ],
                "At its limit the server refuses to write.",
            ),
            Panel(
                "Serving: requests",
                "reqps",
                [
                    Query(
                        "sum by (model_name, status) "
                        f"(rate(:tensorflow:serving:request_count{{{IN_NAMESPACE}}}{WINDOW}))",
                        "{{model_name}} {{status}}",
                    )
                ],
                "Requests by what became of them; all but OK are errors.",
            ),
            Panel(
                "Serving: latency",
                "µs",
                [
                    Query(
                        f"histogram_quantile({share}, sum by (le, model_name) "
                        f"(rate(:tensorflow:serving:request_latency_bucket{{{IN_NAMESPACE}}}{WINDOW})))",
                        f"{{{{model_name}}}} {words}",
                    )
                    for share, words in ((0.5, "half"), (0.95, "95 %"), (0.99, "99 %"))
                ],
                "So many of the requests took at most so long in the server.",
            ),
            Panel(
                "Page: requests",
                "reqps",
                [
                    Query(
                        f"sum by (pod, status) (rate(slipway_page_requests_total{{{IN_NAMESPACE}}}{WINDOW}))",
                        "{{status}}",
                    )
                ],
                "Requests of visitors by the status that they got.",
            ),
            Panel(
                "Page: latency",
                "s",
                [
                    Query(
                        f"histogram_quantile({share}, sum by (le) "
                        f"(rate(slipway_page_request_seconds_bucket{{{IN_NAMESPACE}}}{WINDOW})))",
                        words,
                    )
                    for share, words in ((0.5, "half"), (0.95, "95 %"), (0.99, "99 %"))
                ],
                "So many of the requests took at most so long in the page's server.",
            ),
            Panel(
                "Page: refused",
                "reqps",
                [
                    Query(
                        f"sum by (reason) (rate(slipway_page_refused_total{{{IN_NAMESPACE}}}{WINDOW}))",
                        "{{reason}}",
                    )
                ],
                "Requests beyond a bound: too large, too many, not asked for by the page.",
            ),
        ),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Writes the files; returns 1 where ``--check`` finds one that differs."""
    return max(
        write_or_check(
            FOLDER / f"{dashboard.uid}.json", text(grafana(dashboard)), "slipway.tools.dashboards", arguments
        )
        for dashboard in DASHBOARDS
    )


def text(content: Mapping[str, Any]) -> str:
    """A dashboard as its file has it."""
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def grafana(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard in Grafana's JSON model."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels: list[dict[str, Any]] = []
    for number, panel in enumerate(dashboard.panels):
        defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
        if panel.most is not None:
            defaults["max"] = panel.most
        panels.append(
            {
                "id": number + 1,
                "type": "timeseries",
                "title": panel.title,
                "description": panel.says,
                "datasource": source,
                "gridPos": {
                    "x": number % 2 * WIDTH,
                    "y": number // 2 * HEIGHT,
                    "w": WIDTH,
                    "h": HEIGHT,
                },
                "fieldConfig": {"defaults": defaults, "overrides": []},
                "options": {
                    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
                    "tooltip": {"mode": "multi", "sort": "desc"},
                },
                "targets": [
                    {
                        "refId": chr(ord("A") + index),
                        "datasource": source,
                        "expr": query.promql,
                        "legendFormat": query.legend,
                    }
                    for index, query in enumerate(panel.queries)
                ],
            }
        )
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["slipway"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "panels": panels,
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "label": "Prometheus", "query": "prometheus"},
                {
                    "name": "namespace",
                    "type": "query",
                    "label": "Namespace",
                    "datasource": source,
                    "query": "label_values(up, namespace)",
                    "refresh": 2,
                    "includeAll": True,
                    "allValue": ".+",
                    "multi": True,
                    "sort": 1,
                },
            ]
        },
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
