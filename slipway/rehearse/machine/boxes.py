"""A container's own view of this machine's file system, and whether this machine lets a process have one."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.infra.commands import page

NEEDED = (
    "Linux 5.12 that lets you make mounts in a namespace of your own (`unshare --user --mount true` fails here): "
    f"{page('rehearsal.md')} says how that is allowed"
)
"""What it takes."""


SHARED_MEMORY = 64
"""MiB of `/dev/shm` that a container has by default under containerd and CRI-O (November 2026)."""


@dataclass(frozen=True)
class BoxMount:
    """A folder ``source`` of this machine that the container has at ``path``."""

    source: Path
    path: str
    writable: bool


@dataclass(frozen=True)
class Box:
    """The view of this machine that a container has for itself: ``tmp`` is its `/tmp`.

    ``root`` is an empty folder. ``visible`` are paths that it sees though they are below `/tmp`. Without
    ``required`` it starts outside where the box cannot be made. ``protected`` are folders that it only reads,
    though it may write around them. ``shared_memory`` are the MiB of its `/dev/shm`.
    """

    root: Path
    tmp: Path
    visible: Sequence[Path]
    mounts: Sequence[BoxMount] = ()
    required: bool = False
    protected: Sequence[Path] = ()
    shared_memory: int = SHARED_MEMORY

    def specification(self) -> Mapping[str, object]:
        """The box as `launch.py` takes it."""
        visible = dict.fromkeys(place for path in self.visible for place in (path, path.resolve()))
        shown = {*visible, self.tmp}
        return {
            "root": str(self.root),
            "tmp": str(self.tmp),
            # What is below another one is seen with it. Mounted by itself, nothing could be renamed over it.
            "visible": [str(path) for path in visible if shown.isdisjoint(path.parents)],
            "mounts": [[str(mount.source), mount.path, mount.writable] for mount in self.mounts],
            "required": self.required,
            "protected": [str(path) for path in self.protected],
            "shared_memory": self.shared_memory,
        }


@functools.cache
def available() -> bool:
    """Whether a process of this user can have one: tried once, with one that does nothing."""
    if sys.platform != "linux":
        return False
    with tempfile.TemporaryDirectory(prefix="slipway-box-") as name, Path(os.devnull).open("w") as sink:
        root, tmp = Path(name, "root"), Path(name, "tmp")
        root.mkdir()
        tmp.mkdir()
        specification = {
            **{"reaper": sink.fileno(), "parent": os.getpid(), "nice": 0, "cpus": [], "binds": None},
            "writable": [str(tmp)],
            "box": Box(
                root, tmp, (), (BoxMount(tmp, "/slipway/box", writable=False),), required=True
            ).specification(),
        }
        launcher = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py"))]
        # Python itself and the current directory may be below `/tmp`, which the box hides.
        command = [*launcher, json.dumps(specification), "/bin/sh", "-c", "test -d /slipway/box"]
        ended = subprocess.run(
            command, check=False, cwd="/", pass_fds=[sink.fileno()], stdin=subprocess.DEVNULL, stderr=sink
        )
        return ended.returncode == 0
