"""What goes wrong before BuildKit starts."""


class LoginError(Exception):
    """There is no login of the registry. The text says why."""
