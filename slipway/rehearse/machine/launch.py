"""Becomes a container's process: ``launch.py SPECIFICATION COMMAND…``. Standard library only.

It reports its process to the reaper before anything can go wrong, so the reaper knows every process, and then
becomes the command. SIGTERM is ignored unless the command handles it, as Linux does for process 1 of a container.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import platform
import signal
import socket
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Importing them takes as long as all else before the command begins.
    from collections.abc import Mapping, Sequence
    from typing import Any

START_ERROR = 128
"""Exit code that containerd reports for a command that cannot be started."""

LANDLOCK = 2
"""The version of Landlock that is needed, of Linux 5.19: before, no file could be renamed into another folder."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of system calls: equal for all processors (Linux, include/uapi/asm-generic/unistd.h)."""

_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_WRITES = _WRITE_FILE | sum(1 << bit for bit in range(4, 14)) | _TRUNCATE
"""LANDLOCK_ACCESS_FS_*: all that changes files (Linux, include/uapi/linux/landlock.h, Linux 6.18)."""

_WITH_TRUNCATE = 3
"""The version of Landlock that knows truncation."""

_NO_NEW_PRIVILEGES = 38
_PARENT_DEATH_SIGNAL = 1
"""PR_SET_NO_NEW_PRIVS and PR_SET_PDEATHSIG of prctl(2)."""

_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
"""CLONE_NEWNS and CLONE_NEWUSER of unshare(2)."""

_BIND, _RECURSIVE, _SLAVE, _DETACH = 0x1000, 0x4000, 0x80000, 2
"""MS_BIND, MS_REC and MS_SLAVE of mount(2), MNT_DETACH of umount2(2)."""

_MOUNT_SETATTR, _READ_ONLY, _RECURSIVELY, _HERE = 442, 1, 0x8000, -100
"""Constants of mount_setattr(2): its number, MOUNT_ATTR_RDONLY, AT_RECURSIVE and AT_FDCWD (Linux 5.12)."""

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
"""The number of pivot_root(2) by processor."""

_TMP = "/tmp"

_OWN = ("dev", "proc", "tmp")
"""Folders at the root that are not as this machine has them, or to which programs write."""

BIND = {"x86_64": (317, 49, 0xC000003E), "aarch64": (277, 200, 0xC00000B7)}
"""By processor: the numbers of seccomp(2) and bind(2), and the AUDIT_ARCH of its programs."""


def main() -> None:
    """Does not return."""
    settings, command = json.loads(sys.argv[1]), sys.argv[2:]
    os.write(settings["reaper"], f"+{os.getpid()}\n".encode())
    os.close(settings["reaper"])
    if settings["nice"]:
        os.nice(settings["nice"])
    if settings["cpus"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, settings["cpus"])
    boxed = settings["box"] is not None and enter_box(settings["box"], settings["writable"])
    if settings["writable"] is not None and not boxed:
        hold_files(settings["writable"])
    if settings["binds"] is not None:
        _report_binds(settings["binds"])
    _reset_signals()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_with(settings["parent"])
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"StartError: exec: {command[0]!r}: {error.strerror}", file=sys.stderr, flush=True)
        sys.exit(START_ERROR)


def _reset_signals() -> None:
    """Has each signal do what it does by default, as in a container.

    Ignored ones stay so whatever a process becomes: SIGINT where a script started the rehearsal in the background,
    SIGPIPE by this interpreter.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _end_with(parent: int) -> None:
    """Has Linux kill this process, whatever it becomes, with ``parent``: the reaper may be killed, too."""
    if sys.platform == "linux":
        _libc().prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def landlock() -> int:
    """The version of Landlock that this machine has; 0 where it has none."""
    if sys.platform != "linux":
        return 0
    return max(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1)), 0)


def hold_files(writable: list[str]) -> bool:
    """Lets this process and all that it starts write below these folders alone; False where that cannot be had."""
    version = landlock()
    if version < LANDLOCK:
        return False
    handled = _WRITES if version >= _WITH_TRUNCATE else _WRITES & ~_TRUNCATE
    attributes = struct.pack("=Q", handled)
    libc = _libc()
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    # Devices and a process's own settings are files, too.
    rules = {"/dev": _WRITE_FILE | _TRUNCATE, "/proc": _WRITE_FILE | _TRUNCATE, "/dev/shm": _WRITES}
    for folder, access in (*rules.items(), *((path, _WRITES) for path in writable)):
        try:
            place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rule = struct.pack("=Qi", access & handled, place)
        libc.syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
        os.close(place)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    held = libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0
    os.close(ruleset)
    return held


def enter_box(box: Mapping[str, Any], writable: Sequence[str]) -> bool:
    """Gives this process and all that it starts a view of the file system of their own.

    All that is there can be read, and written below the folders ``writable`` alone. The folder ``tmp`` of ``box``
    is `/tmp`, where of this machine's only the paths ``visible`` are left. ``mounts`` are further folders: where
    they are here, at which path they are there, and whether they can be written. Folders ``protected`` can
    only be read, though they are below ``writable``. `/dev/shm` has ``shared_memory`` MiB. ``root`` is an empty
    folder.

    Returns False, and says why, where the machine does not let this user do so: for an ordinary user it takes user
    namespaces, for root the capability CAP_SYS_ADMIN or user namespaces, and for both Linux 5.12. Ends the process
    where that is so and the box is ``required``.
    """
    folder = os.getcwd()
    try:
        _unshare()
        _build(box, writable)
        os.chdir(folder)
    except OSError as error:
        if box["required"]:
            print(f"StartError: its mounts cannot be made: {error}", file=sys.stderr, flush=True)
            sys.exit(START_ERROR)
        print(f"note: it has no view of the file system of its own: {error}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):
            os.chdir(folder)
        return False
    return True


def _unshare() -> None:
    """Enters a mount namespace, and for that a user namespace where root's rights are missing. Raises OSError."""
    libc = _libc()
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_MOUNTS) != 0:
        _check(libc.unshare(_NEW_MOUNTS | _NEW_USER), "unshare")
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    # What is mounted here is not seen outside. What is unmounted there is gone here, too: nothing keeps it busy.
    _mount("none", "/", _RECURSIVE | _SLAVE)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _build(box: Mapping[str, Any], writable: Sequence[str]) -> None:
    """Makes the view of the file system, and enters it. Raises OSError."""
    root, tmp = box["root"], box["tmp"]
    mounts: Sequence[tuple[str, str, bool]] = box["mounts"]
    _mount("tmpfs", root, 0, "tmpfs")
    places: dict[str, Any] = {}
    for _, path, _ in mounts:
        place = places
        for part in path.strip("/").split("/"):
            place = place.setdefault(part, {})
    _mirror("/", root, {**places, **{name: {} for name in _OWN}})
    _protect(root)
    for name in _OWN:
        _bind(tmp if name == "tmp" else f"/{name}", f"{root}/{name}")
    if os.path.isdir(f"{root}/dev/shm"):
        _mount("tmpfs", f"{root}/dev/shm", 0, "tmpfs", f"size={box['shared_memory']}m")
    inside = f"{_TMP}/"
    for path in dict.fromkeys([*box["visible"], *(path for path in writable if path.startswith(inside))]):
        if path.startswith(inside) and os.path.exists(path):
            _make_place(path, f"{root}{path}")
            _bind(path, f"{root}{path}")
            _protect(f"{root}{path}")
    for path in writable:
        if path != _TMP and os.path.isdir(path):
            _bind(path, f"{root}{path}")
    for path in box["protected"]:
        if os.path.isdir(path):
            _bind(path, f"{root}{path}")
            _protect(f"{root}{path}")
    for source, path, may_write in mounts:
        _bind(source, f"{root}{path}")
        if not may_write:
            _protect(f"{root}{path}")
    os.chdir(root)
    libc = _libc()
    _check(libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    # The new root lies over the old one, which is taken away.
    _check(libc.umount2(b".", _DETACH), "umount2")
    os.chdir("/")


def _mirror(source: str, target: str, places: Mapping[str, Any]) -> None:
    """Makes the folder ``target`` look like ``source``, with empty folders at ``places``, a tree of names."""
    try:
        entries = list(os.scandir(source))
    except OSError:
        entries = []
    for entry in entries:
        if entry.name in places:
            continue
        copy = os.path.join(target, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), copy)
            continue
        _make_place(entry.path, copy)
        # What this user cannot see, such as another user's FUSE mount, is an empty folder.
        with contextlib.suppress(OSError):
            _bind(entry.path, copy)
    for name, below in places.items():
        os.mkdir(os.path.join(target, name))
        if below:
            _mirror(os.path.realpath(os.path.join(source, name)), os.path.join(target, name), below)


def _make_place(path: str, target: str) -> None:
    """Makes an empty file or folder ``target`` at which ``path`` can be mounted."""
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        # One that is there is seen by a mount above it: a program that runs cannot be opened for writing.
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _bind(source: str, target: str) -> None:
    _mount(source, target, _BIND | _RECURSIVE)


def _mount(source: str, target: str, flags: int, kind: str = "", options: str = "") -> None:
    names = (os.fsencode(source), os.fsencode(target), kind.encode() or None)
    arguments = (*names, ctypes.c_ulong(flags), options.encode() or None)
    _check(_libc().mount(*arguments), target)


def _protect(path: str) -> None:
    """Makes a mount, and all below it, read-only."""
    attributes = struct.pack("=QQQQ", _READ_ONLY, 0, 0, 0)
    arguments = (ctypes.c_int(_HERE), os.fsencode(path), ctypes.c_uint(_RECURSIVELY))
    _check(_libc().syscall(_MOUNT_SETATTR, *arguments, attributes, ctypes.c_size_t(len(attributes))), path)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _report_binds(descriptor: int) -> None:
    """Lets the reader of the socket answer each bind(2) of this process and its children.

    Sends the listener of seccomp_unotify(2), or nothing where that cannot be had.
    """
    with socket.socket(fileno=descriptor) as other:
        if sys.platform != "linux" or platform.machine() not in BIND:
            return
        seccomp, bind, architecture = BIND[platform.machine()]
        # seccomp_data: the number at 0, the architecture at 4. BPF: load a word, jump if equal, return.
        program = b"".join(
            struct.pack("=HBBI", *instruction)
            for instruction in (
                (0x20, 0, 0, 4),
                (0x15, 0, 2, architecture),
                (0x20, 0, 0, 0),
                (0x15, 1, 0, bind),
                (0x06, 0, 0, 0x7FFF0000),
                (0x06, 0, 0, 0x7FC00000),
            )
        )
        held = ctypes.create_string_buffer(program, len(program))
        filters = struct.pack("@HP", len(program) // 8, ctypes.addressof(held))
        libc = _libc()
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        # SECCOMP_SET_MODE_FILTER with SECCOMP_FILTER_FLAG_NEW_LISTENER.
        listener = libc.syscall(seccomp, ctypes.c_uint(1), ctypes.c_uint(8), filters)
        if listener >= 0:
            other.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])
            os.close(listener)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


if __name__ == "__main__":
    main()
