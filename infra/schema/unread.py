"""Whether the program is evaluated without its image registries, and so the same on every machine.

A module of its own: whoever sets it does not load what asks registries.
"""

from contextvars import ContextVar

UNREAD: ContextVar[bool] = ContextVar("unread", default=False)
"""True where no registry is asked."""
