"""How a request fails: a code of TensorFlow Serving, and what it becomes in HTTP and gRPC."""

from typing import NoReturn

HTTP = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "NOT_FOUND": 404,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "UNKNOWN": 500,
    "INTERNAL": 500,
}
"""The HTTP status of each code (`ToHTTPStatusCode` in model_servers/http_server.cc of 2.21)."""


class ServingError(Exception):
    """A request that fails with ``code``, such as `NOT_FOUND`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> NoReturn:
    """Raise a ServingError with INVALID_ARGUMENT."""
    raise ServingError("INVALID_ARGUMENT", message)
