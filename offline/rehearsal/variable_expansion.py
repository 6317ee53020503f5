"""Kubernetes' ``$(VAR)`` references in commands, arguments and environment, and the paths in them."""

import re
from collections.abc import Mapping
from pathlib import Path

_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """``text`` with each ``$(NAME)`` replaced by its variable and each ``$$`` by ``$``.

    A reference to a variable that there is not stays as it is, like a ``$`` that begins no reference
    (kubernetes/third_party/forked/golang/expansion, Kubernetes 1.34).
    """

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "$"
        return variables.get(name, match[0])

    return _REFERENCE.sub(replace, text)


def localize(text: str, mounts: Mapping[str, Path]) -> str:
    """``text`` with every path at or below a mount path replaced by where that mount is on this machine.

    A mount path counts where it begins a path: at the start, or after a character that no path component has. The
    longest mount path that fits wins, and what was replaced is not looked at again.
    """
    if not mounts:
        return text
    paths = sorted((path.rstrip("/") for path in mounts), key=len, reverse=True)
    pattern = rf"(?<![\w./-])(?P<path>{'|'.join(map(re.escape, paths))})(?![\w.-])"
    places = {path.rstrip("/"): str(place) for path, place in mounts.items()}
    return re.sub(pattern, lambda match: places[match["path"]], text)
