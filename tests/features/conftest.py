"""A real server for queues, and real workers."""

from tests.features.items.workers import queued, step
from tests.support.servers.valkey import valkey_server

__all__ = ["queued", "step", "valkey_server"]
