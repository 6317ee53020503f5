"""Answers Prometheus with the use of a step while it runs. Standard library only, Python 3.9.

The text is Prometheus's exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats, November
2026).
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable

from workloads.runtime.hosts import configured, is_known
from workloads.runtime.usage.figures import Usage

PATH = "/metrics"

GAUGE, COUNTER = "gauge", "counter"

METRICS = {
    "slipway_step_seconds_total": (COUNTER, "Seconds that the step's pod was measured."),
    "slipway_step_cpu_seconds_total": (COUNTER, "Seconds of CPU that its processes used."),
    "slipway_step_memory_bytes": (GAUGE, "Memory that its processes hold."),
    "slipway_step_rate": (GAUGE, "What the program last wrote of its speed, in the unit of the label."),
    "slipway_step_gpu_busy_percent": (GAUGE, "Percent of the last sample in which a kernel ran on the GPU."),
    "slipway_step_gpu_idle_seconds_total": (COUNTER, "Seconds in which the GPU was idle."),
    "slipway_step_gpu_memory_used_bytes": (GAUGE, "Memory in use on the GPU."),
    "slipway_step_gpu_memory_total_bytes": (GAUGE, "Memory that the GPU has."),
    "slipway_step_gpu_watts": (GAUGE, "Power that the GPU draws."),
}
"""Type and help of each metric by its name."""


def text(usage: Usage) -> str:
    """All metrics of ``usage``."""
    pipeline, _, step = usage.step.partition(".")
    of_step = {"pipeline": pipeline, "step": step}
    values: list[tuple[str, dict[str, str], float]] = [("slipway_step_seconds_total", of_step, usage.seconds)]
    if usage.cpu_seconds is not None:
        values.append(("slipway_step_cpu_seconds_total", of_step, usage.cpu_seconds))
        values.append(("slipway_step_memory_bytes", of_step, usage.memory))
    if usage.rate is not None:
        values.append(("slipway_step_rate", {**of_step, "unit": usage.rate_unit}, usage.rate))
    for index, gpu in enumerate(usage.gpus):
        labels = {**of_step, "gpu": str(index), "model": gpu.name}
        if gpu.busy_now is not None:
            values.append(("slipway_step_gpu_busy_percent", labels, gpu.busy_now))
            values.append(("slipway_step_gpu_idle_seconds_total", labels, gpu.idle_seconds))
        values.append(("slipway_step_gpu_memory_used_bytes", labels, gpu.memory_now))
        values.append(("slipway_step_gpu_memory_total_bytes", labels, gpu.memory_total))
        if gpu.watts_now is not None:
            values.append(("slipway_step_gpu_watts", labels, gpu.watts_now))
    lines: list[str] = []
    for name, (kind, words) in METRICS.items():
        of_name = [(labels, value) for metric, labels, value in values if metric == name]
        if of_name:
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{_labels(labels)}}} {value!r}" for labels, value in of_name]
    return "\n".join([*lines, ""])


def serve(address: str, port: int, current: Callable[[], str]) -> http.server.ThreadingHTTPServer:
    """Answer at ``port`` of ``address`` alone, in threads of their own. Raises OSError."""
    names = configured()

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            if not is_known(self.headers.get("Host"), names):
                self.send_error(421)
                return
            if self.path.partition("?")[0] != PATH:
                self.send_error(404)
                return
            content = current().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """A log of a step has no room for who asked."""

    server = http.server.ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
