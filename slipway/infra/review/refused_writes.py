"""What to do where a container was kept from writing somewhere, or SELinux keeps it from files."""

import re
from collections.abc import Sequence

REFUSED = re.compile(r"Permission denied|Read-only file system|EACCES|EROFS|not available for writes")
"""What programs say where they may not write; the last is LightGBM's."""

_PATH = re.compile(r"""(?P<quote>['"])(?P<path>.+?)(?P=quote)|(?P<bare>/[^\s:,;'"]+)""")
"""A path in what a program says: in quotes, or one that begins with `/`."""

KEYS = (
    'A step whose program writes where it starts needs `directory: "{output}"`, one whose program has a path '
    'built in a mount: `mounts: {/data: "{output}"}`. What only this attempt needs belongs into $TMPDIR'
)


def refused_path(lines: Sequence[str]) -> tuple[bool, str]:
    """Whether one of ``lines`` says that a write was refused, and the path that the last of them names, if any."""
    line = next((line for line in reversed(lines) if REFUSED.search(line)), None)
    path = _PATH.search(line or "")
    return line is not None, path["path"] or path["bare"] if path else ""


def places_of_writes(writable: Sequence[str]) -> str:
    """A clause about the paths of the volumes that a container may write to."""
    return f"this container may write to {', '.join(writable) or 'nothing'} alone"


def labels_of_files(level: str) -> str:
    """A clause about the labels that pods with this level may use.

    Files need the type ``container_file_t`` and the pod's level, or a level without categories
    (container_selinux(8), read in November 2026).
    """
    return f"the type container_file_t and the level {level} or s0"


def command_of_denials(node: str) -> str:
    """The command that shows what SELinux refused on a node."""
    return f"oc debug node/{node} -- chroot /host grep denied /var/log/audit/audit.log"
