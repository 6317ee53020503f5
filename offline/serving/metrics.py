"""What Prometheus reads of the server, under the names that TensorFlow Serving has.

From servables/tensorflow/util.cc and util/prometheus_exporter.cc of 2.21, and TensorFlow's
cc/saved_model/loader.cc.
"""

import threading
from bisect import bisect_left
from collections.abc import Mapping

_LIMITS = [10 * 1.8**power for power in range(33)]
"""Microseconds: the limits of the buckets of a latency."""


class Metrics:
    """Counts and latencies of a server's requests. Its methods may be called from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}
        self._latencies: dict[tuple[str, str, str], list[float]] = {}

    def count(self, model: str, code: str) -> None:
        """A request to ``model`` that ended with ``code``."""
        with self._lock:
            self._counts[model, code] = self._counts.get((model, code), 0) + 1

    def took(self, model: str, api: str, entrypoint: str, seconds: float) -> None:
        """A request to ``model`` that was answered."""
        with self._lock:
            # The counts of the buckets, and behind them the sum.
            found = self._latencies.setdefault((model, api, entrypoint), [0.0] * (len(_LIMITS) + 2))
            found[bisect_left(_LIMITS, seconds * 1e6)] += 1
            found[-1] += seconds * 1e6

    def page(self, loads: Mapping[tuple[str, str], int]) -> str:
        """The text that Prometheus reads; ``loads`` are attempts to load by path and status."""
        with self._lock:
            lines = ["# TYPE :tensorflow:cc:saved_model:load_attempt_count counter"]
            lines += [
                f':tensorflow:cc:saved_model:load_attempt_count{{model_path="{path}",status="{status}"}} {count}'
                for (path, status), count in sorted(loads.items())
            ]
            lines.append("# TYPE :tensorflow:serving:request_count counter")
            lines += [
                f':tensorflow:serving:request_count{{model_name="{model}",status="{code}"}} {count}'
                for (model, code), count in sorted(self._counts.items())
            ]
            lines.append("# TYPE :tensorflow:serving:request_latency histogram")
            for (model, api, entrypoint), found in sorted(self._latencies.items()):
                labels = f'model_name="{model}",API="{api}",entrypoint="{entrypoint}"'
                total = 0
                for place, many in enumerate(found[:-1]):
                    total += int(many)
                    limit = f"{_LIMITS[place]:g}" if place < len(_LIMITS) else "+Inf"
                    lines.append(f':tensorflow:serving:request_latency_bucket{{{labels},le="{limit}"}} {total}')
                lines.append(f":tensorflow:serving:request_latency_sum{{{labels}}} {found[-1]:g}")
                lines.append(f":tensorflow:serving:request_latency_count{{{labels}}} {total}")
        return "\n".join(lines) + "\n"
