"""What a kubeconfig on this machine says."""

import re
import shlex
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

import yaml

UNREAD: ContextVar[bool] = ContextVar("unread", default=False)
"""Whether the program is evaluated without its clusters, and so the same on every machine."""


class KubeconfigError(Exception):
    """A kubeconfig that cannot be used; the text says which and why."""


def as_argument(kubeconfig: str) -> str:
    """The path as one word of a shell command, which still expands ``~`` or ``~name`` at its beginning."""
    home, slash, rest = kubeconfig.partition("/")
    if slash and re.fullmatch(r"~[A-Za-z0-9_.-]*", home):
        return f"{home}/{shlex.quote(rest)}"
    return shlex.quote(kubeconfig)


def context_of(kubeconfig: str, context: str | None) -> str:
    """The context to use: ``context`` where the file has it, else the file's current one.

    Raises KubeconfigError where the file or the context is not there.
    """
    try:
        loaded: Any = yaml.safe_load(Path(kubeconfig).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise KubeconfigError(f"{kubeconfig} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise KubeconfigError(f"{kubeconfig} is no YAML: {error}") from error
    content = cast("dict[str, Any]", loaded if isinstance(loaded, dict) else {})
    contexts: list[dict[str, Any]] = content.get("contexts") or []
    names = [str(each["name"]) for each in contexts]
    wanted = context or str(content.get("current-context") or "")
    if wanted not in names:
        have = ", ".join(names) or "none"
        raise KubeconfigError(f"{kubeconfig} has no context {wanted!r}; its contexts: {have}")
    return wanted
