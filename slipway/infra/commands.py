"""How messages name the commands and pages that help: as they are where the message is read."""

import re
import shlex
from collections.abc import Callable

from slipway.infra.places import LIBRARY, PACKAGE, PROJECT

VARIABLES = {"kubeconfig": "KUBECONFIG_FILE", "context": "KUBE_CONTEXT"}
"""The Makefile's variables that are not an option's name in capitals."""

POSITIONAL = frozenset({"app", "manifest"})
"""Options of `command` that the command line has as words, and the Makefile as variables."""


def command(verb: str, *words: str, **options: str | bool) -> str:
    """The command line of ``slipway VERB`` with ``options``; True stands for an option without a value.

    In the repository of the package it is the Makefile's target of that name, with a variable for each option:
    there the package need not be installed.
    """
    given = {name: value for name, value in options.items() if value is not False}
    if LIBRARY == PROJECT:
        variables = [option(name, "1" if value is True else str(value)) for name, value in given.items()]
        return " ".join(["make", verb, *variables, *words])
    words = (*words, *(str(given.pop(name)) for name in POSITIONAL & given.keys()))
    parts = [option(name, None if value is True else str(value)) for name, value in given.items()]
    return " ".join([PACKAGE, verb, *words, *parts])


def page(name: str) -> str:
    """Where the page ``name`` of the documentation is: that of the clone, or of the installed package."""
    return f"docs/{name}" if LIBRARY == PROJECT else str(LIBRARY / PACKAGE / "docs" / name)


def shared_page(name: str) -> str:
    """The page ``name`` in a file that other machines have, too, where the package lies in other folders."""
    return f"docs/{name}" if LIBRARY == PROJECT else f"{name} (`{PACKAGE} --help` says where)"


def with_pages(text: str, named: Callable[[str], str] = page) -> str:
    """``text`` with each page that it names as ``docs/…`` as `page` or `shared_page` names it."""
    return re.sub(r"(?<![\w./-])docs/([\w-]+\.md)", lambda match: named(match[1]), text)


def uv(*words: str) -> str:
    """A command line of uv, which is installed with the package: as `command`, beside that of ``slipway``."""
    return " ".join([".venv/bin/uv" if LIBRARY == PROJECT else "uv", *words])


def option(name: str, value: str | None = None) -> str:
    """An option as it is typed there, alone or with its value: `--step train`, or `STEP=train`."""
    if LIBRARY == PROJECT:
        typed, between = VARIABLES.get(name, name.upper()), "="
    else:
        typed, between = name.upper() if name in POSITIONAL else f"--{name}", " "
    return typed if value is None else f"{typed}{between}{shown(value)}"


def shown(value: str) -> str:
    """``value`` as a shell takes it; a placeholder, ``<name>`` or ``…``, stays as it is."""
    return value if "…" in value or value.startswith(("<", "{")) else shlex.quote(value)
