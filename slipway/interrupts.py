"""How a command ends at Ctrl-C.

A command that is interrupted with Ctrl-C ends quietly, also while it still imports. So this file imports nothing
but small modules of the standard library: it is in place before a command's own imports begin.
"""

import signal
import sys
import threading
from types import TracebackType

INTERRUPTED = 128 + signal.SIGINT


def end_quietly() -> None:
    """Lets a Ctrl-C that nothing handles end this process with exit code 130, without a traceback."""
    hook, shown_unraisable = sys.excepthook, sys.unraisablehook

    def end(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if _is_interrupt(error):
            sys.exit(INTERRUPTED)
        hook(kind, error, traceback)

    def interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
        # Python drops what a callback or a finalizer raises, and imports have such callbacks.
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            shown_unraisable(unraisable)
        elif not sys.is_finalizing():
            again = threading.Timer(0.01, signal.raise_signal, [signal.SIGINT])
            again.daemon = True
            again.start()

    sys.excepthook, sys.unraisablehook = end, interrupt_again


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether ``error`` is a Ctrl-C, or what Python 3.11 makes of one while it creates a class."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


# While `python -m` imports the packages of a command, `sys.argv[0]` is `-m`: only the process of a command is
# changed.
if sys.argv[:1] == ["-m"]:
    end_quietly()
