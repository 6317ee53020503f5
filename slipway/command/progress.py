"""Run a command that writes much and takes long, and show one line about it.

The line has the seconds so far and the last line of the command. All that it wrote is printed where it fails.
It runs before anything is installed, so it imports the standard library alone.
"""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

TERMINAL_SECONDS = 0.2
"""Between two versions of the line on a terminal."""

LOG_SECONDS = 15.0
"""Between two lines where there is no terminal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``TITLE COMMAND [ARGUMENT ...]``. Returns the command's exit code, or 2 where the words are too few.

    Ctrl-C ends the command, and the code is then 130.
    """
    title, *command = sys.argv[1:] if arguments is None else arguments
    if not command:
        print("usage: python -m slipway.command.progress TITLE COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: list[str] = []
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    terminal = sys.stderr.isatty()
    try:
        while reader.is_alive():
            reader.join(TERMINAL_SECONDS if terminal else LOG_SECONDS)
            if reader.is_alive():
                _show(title, time.monotonic() - begin, lines, terminal=terminal)
        code = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        print(file=sys.stderr)
        return 130
    if terminal:
        print("\r\x1b[K", end="", file=sys.stderr)
    if code:
        print(*lines, sep="\n", file=sys.stderr)
        return code
    print(f"{title}: done in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return 0


def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    lines.extend(line.rstrip() for line in process.stdout)


def _show(title: str, seconds: float, lines: Sequence[str], *, terminal: bool) -> None:
    last = lines[-1].strip() if lines else ""
    line = f"{title}: {seconds:.0f} s{f', {last}' if last else ''}"
    if terminal:
        print(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
