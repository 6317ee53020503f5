"""Keys that are pressed while a screen is shown."""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Generator
from enum import StrEnum


class Key(StrEnum):
    """What a key means."""

    UP = "up"
    DOWN = "down"
    QUIT = "quit"


_MEANINGS = {
    b"k": Key.UP,
    b"j": Key.DOWN,
    b"q": Key.QUIT,
    b"\x1b[A": Key.UP,
    b"\x1b[B": Key.DOWN,
    b"\x1bOA": Key.UP,
    b"\x1bOB": Key.DOWN,
    b"\x03": Key.QUIT,
}


@contextlib.contextmanager
def pressed() -> Generator["Keys"]:
    """The keys of the terminal that is standard input, one by one and not shown."""
    if not sys.stdin.isatty():
        yield Keys(-1)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Keys:
    """``wait`` gives the next key, or None after so many seconds."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._left = b""

    def wait(self, seconds: float) -> Key | None:
        """The next key that means something."""
        if self._descriptor < 0:
            select.select([], [], [], seconds)
            return None
        if not self._left and select.select([self._descriptor], [], [], seconds)[0]:
            self._left = os.read(self._descriptor, 64)
            if not self._left:
                # The terminal is gone.
                return Key.QUIT
        return self._next()

    def _next(self) -> Key | None:
        for code, key in _MEANINGS.items():
            if self._left.startswith(code):
                self._left = self._left[len(code) :]
                return key
        # An unknown sequence is passed over whole.
        self._left = b"" if self._left.startswith(b"\x1b") else self._left[1:]
        return None
