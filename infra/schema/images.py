"""Container images by digest, as the registries' grammar has them."""

import re
from contextvars import ContextVar
from typing import Annotated

from pydantic import AfterValidator

from infra.schema.base import refuse

# The grammar of github.com/distribution/reference (reference.go and regexp.go, v0.6.0), which container runtimes
# parse images with. What stands before the first slash is a host where it has a dot or a port, or is `localhost`.
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
REFERENCE = re.compile(
    rf"(?P<name>(?:(?P<host>{_HOST})(?::(?P<port>[0-9]{{1,5}}))?/)?{_PART}(?:/{_PART})*)"
    r"(?::\w[\w.-]{0,127})?@sha256:[0-9a-f]{64}",
    re.ASCII,
)
LONGEST_NAME = 255
LAST_PORT = 65535


def _by_digest(value: str) -> str:
    fix = (
        "write `<registry>/<name>@sha256:<64 hexadecimal digits>`; `docker buildx imagetools inspect <image>` "
        "shows the digest"
    )
    if not re.search(r"@sha256:[0-9a-f]{64}$", value):
        raise refuse(
            "not an image by digest: a tag can be moved, and then the same step runs other code",
            fix,
        )
    match = REFERENCE.fullmatch(value)
    if match is None or len(match["name"]) > LONGEST_NAME:
        raise refuse("no registry can have an image of this name", fix)
    if match["port"] and not 0 < int(match["port"]) <= LAST_PORT:
        raise refuse(f"`{match['port']}` is no port: ports are 1 to {LAST_PORT}", fix)
    return value


Image = Annotated[str, AfterValidator(_by_digest)]
"""A container image by its digest."""


# Whether the program is evaluated without its image registries, and so the same on every machine.
#
# A module of its own: whoever sets it does not load what asks registries.


UNREAD: ContextVar[bool] = ContextVar("unread", default=False)
"""True where no registry is asked."""
