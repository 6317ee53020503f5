"""A real server for queues, and real workers."""

from tests.runtime.workers import queued, step
from tests.support.servers.valkey import valkey_server

__all__ = ["queued", "step", "valkey_server"]
