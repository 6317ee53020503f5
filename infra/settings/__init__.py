"""Settings of a stack: its shape, its checks, and the one error that lists everything wrong with it."""

from infra.settings.errors import Problem, SettingsError
from infra.settings.loading import lay_over, load
from infra.settings.model import Settings
from infra.settings.quantity import cpu_millicores, mebibytes, seconds

__all__ = ["Problem", "Settings", "SettingsError", "cpu_millicores", "lay_over", "load", "mebibytes", "seconds"]
