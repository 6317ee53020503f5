"""Becomes a container's process: ``launch.py SPECIFICATION COMMAND…``. Standard library only.

It reports its process to the reaper before anything can go wrong, so the reaper knows every process, and then
becomes the command. SIGTERM is ignored unless the command handles it, as Linux does for process 1 of a container.
"""

import array
import ctypes
import json
import os
import platform
import signal
import socket
import struct
import sys

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
    if settings["writable"] is not None:
        hold_files(settings["writable"])
    if settings["binds"] is not None:
        _report_binds(settings["binds"])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"StartError: exec: {command[0]!r}: {error.strerror}", file=sys.stderr, flush=True)
        sys.exit(START_ERROR)


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
