"""Lets the processes of pods listen on this machine's loopback alone, whatever addresses their programs ask for.

In a cluster a NetworkPolicy stands before a pod's ports; on this machine nothing does. Some programs listen on all
addresses and have no option for another: TensorFlow's servers do, whatever TF_CONFIG names.
"""

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

_RECEIVE, _SEND, _STILL_THERE = 0xC0502100, 0xC0182101, 0x40082102
"""SECCOMP_IOCTL_NOTIF_RECV, _SEND and _ID_VALID (Linux, include/uapi/linux/seccomp.h)."""

_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_CONTINUE = 1
"""SECCOMP_USER_NOTIF_FLAG_CONTINUE, since Linux 5.5."""

_PIDFD_GETFD = 438

POLL = 0.2
"""Seconds between two looks at whether the process has ended."""

IPV4 = socket.inet_aton("127.0.0.1")
IPV6 = socket.inet_pton(socket.AF_INET6, "::1")
MAPPED = socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1")
"""Where a socket listens that would take connections of both kinds at ``::``: those to 127.0.0.1."""

_ADDRESS = 24
"""Bytes of an address that are read: family, port, for IPv6 its flow, and the address."""


class Loopback:
    """Answers what the processes of one container ask: ``descriptor`` is for `launch.py`.

    ``unheld`` is called once where they listen wherever they want.
    """

    def __init__(self, unheld: Callable[[], None]) -> None:
        self._own, self._other = socket.socketpair()
        self._unheld = unheld
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="binds", daemon=True)

    @property
    def descriptor(self) -> int:
        """The socket through which the launcher sends the listener."""
        return self._other.fileno()

    def begin(self) -> None:
        """Called when the launcher runs."""
        self._other.close()
        self._thread.start()

    def end(self) -> None:
        """Called when all of the container's processes have ended."""
        self._ended.set()
        self._thread.join()

    def _serve(self) -> None:
        with self._own:
            try:
                _, descriptors, _, _ = socket.recv_fds(self._own, 1, 1)
            except OSError:
                descriptors = []
        if not descriptors:
            self._unheld()
            return
        [listener] = descriptors
        try:
            poll = select.poll()
            poll.register(listener, select.POLLIN)
            while not self._ended.is_set():
                for _, event in poll.poll(POLL * 1000):
                    if event & (select.POLLHUP | select.POLLERR):
                        return
                    self._answer(listener)
        finally:
            os.close(listener)

    def _answer(self, listener: int) -> None:
        request = bytearray(_NOTIFICATION.size)
        try:
            ioctl(listener, _RECEIVE, request)
        except OSError:
            # The process ended meanwhile.
            return
        number, process, _, _, _, _, descriptor, address, length, *_ = _NOTIFICATION.unpack(request)
        try:
            with Path(f"/proc/{process}/mem").open("r+b", buffering=0) as memory:
                # The number of a process that has ended may be another's by now.
                ioctl(listener, _STILL_THERE, struct.pack("=Q", number))
                memory.seek(address)
                memory_address = memory.read(min(length, _ADDRESS))
                place, new = _replace_address(memory_address, lambda: _take_socket(process, descriptor))
                if new:
                    memory.seek(address + place)
                    memory.write(new)
        except ProcessLookupError:
            return
        except OSError:
            self._unheld()
        with contextlib.suppress(OSError):
            ioctl(listener, _SEND, bytearray(_ANSWER.pack(number, 0, 0, _CONTINUE)))


def _replace_address(address: bytes, taken: Callable[[], socket.socket]) -> tuple[int, bytes]:
    """The bytes that replace a part of a socket's address, and their offset; no bytes if the address can stay.

    ``taken`` returns a copy of the socket.
    """
    family = int.from_bytes(address[:2], sys.byteorder)
    ipv4 = family == socket.AF_INET and address[4:8] == bytes(4)
    ipv6 = family == socket.AF_INET6 and address[8:24] == bytes(16)
    if not (ipv4 or ipv6):
        return 0, b""
    with taken() as copy:
        # A datagram socket that is bound may be one that only sends.
        if copy.type != socket.SOCK_STREAM:
            return 0, b""
        if ipv4:
            return 4, IPV4
        return 8, IPV6 if copy.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) else MAPPED


def _take_socket(process: int, descriptor: int) -> socket.socket:
    """A copy of a socket of another process. Raises OSError."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    leader = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Tgid:"))
    handle = os.pidfd_open(leader)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        copy = libc.syscall(_PIDFD_GETFD, handle, ctypes.c_int(descriptor), ctypes.c_uint(0))
        if copy < 0:
            raise OSError(ctypes.get_errno() or errno.EPERM, os.strerror(ctypes.get_errno()))
        return socket.socket(fileno=copy)
    finally:
        os.close(handle)
