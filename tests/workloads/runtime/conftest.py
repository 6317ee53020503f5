"""A real server for queues."""

from tests.support.valkey import valkey_server

__all__ = ["valkey_server"]
