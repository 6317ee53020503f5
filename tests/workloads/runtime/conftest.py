"""A real server for queues, and real workers."""

from tests.support.servers.valkey import valkey_server
from tests.workloads.runtime.workers import queued, step

__all__ = ["queued", "step", "valkey_server"]
