"""What Prometheus is told of a page."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """The metrics of one page, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "slipway_page_requests", "Requests answered.", ("route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "slipway_page_request_seconds",
            "Seconds from a request's header to its answer.",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.predictions = Counter(
            "slipway_page_predictions", "Predictions shown.", ("source", "version"), registry=self.registry
        )
        self.serving_seconds = Histogram(
            "slipway_page_serving_seconds",
            "Seconds that the model server took for a prediction.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.refused = Counter(
            "slipway_page_refused", "Requests refused, by the reason.", ("reason",), registry=self.registry
        )
        self.up = Gauge("slipway_page_serving_up", "Whether predictions are to be had.", registry=self.registry)
        self.version = Gauge(
            "slipway_page_model_version", "The version that answers; 0: none.", registry=self.registry
        )
        self.waiting = Gauge(
            "slipway_page_waiting", "Predictions that wait for the model server.", registry=self.registry
        )
        self.clients = Gauge("slipway_page_clients", "Clients whose rate is remembered.", registry=self.registry)
