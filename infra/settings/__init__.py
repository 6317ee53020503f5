"""Settings of a stack: its shape, its checks, and the one error that lists everything wrong with it."""

from infra.settings.model import Settings

__all__ = ["Settings"]
