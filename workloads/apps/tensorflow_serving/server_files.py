"""What a server reads once when it starts, beside the versions of its model. Standard library only."""

from __future__ import annotations

from pathlib import Path

from workloads.runtime.store import store_errors, write_atomically

MONITORING = "monitoring.config"


def leave(folder: Path, largest: int | None, wait: int, queued: int) -> None:
    """Write the file that lets Prometheus read servers and, with ``largest``, the one about batches.

    Text protobufs of the messages `MonitoringConfig` and `BatchingParameters` (TensorFlow Serving 2.21). ``wait``
    is in microseconds. An unchanged file is left alone. Raises StoreError.
    """
    files = {MONITORING: 'prometheus_config { enable: true path: "/monitoring/prometheus/metrics" }\n'}
    if largest is not None:
        files[f"batching-{largest}-{wait}-{queued}.config"] = (
            f"max_batch_size {{ value: {largest} }}\n"
            f"batch_timeout_micros {{ value: {wait} }}\n"
            f"max_enqueued_batches {{ value: {queued} }}\n"
        )
    with store_errors(folder):
        for name, content in files.items():
            path = folder / name
            if not (path.is_file() and path.read_bytes() == content.encode()):
                write_atomically(path, content.encode())
