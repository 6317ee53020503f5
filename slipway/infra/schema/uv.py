"""What uv makes of requirements: the versions of all that they need, and installed packages."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

FOR_ALL_PLATFORMS = ("--universal", "--python-version", "3.11")
"""Options for a file that holds on every platform and from the package's oldest Python on."""

BY_DIGESTS = "--generate-hashes"


class UvError(Exception):
    """uv failed. The message is its reason, on one line."""


def compile_pins(
    requirements: Path | Iterable[str], *options: str, folder: Path, preferred: Iterable[str] = ()
) -> str:
    """What `uv pip compile` writes for ``requirements``, a file or its lines: a line for each package.

    ``options`` are uv's own, and ``preferred`` the pins that stay where they fit. uv runs in ``folder``, where it
    reads its settings and where relative paths of the lines begin; in the root folder there are no settings.
    Raises UvError.
    """
    source, text = (str(requirements), "") if isinstance(requirements, Path) else ("-", "\n".join(requirements))
    words = ["pip", "compile", "--no-annotate", *options, source]
    if not (pins := "\n".join(preferred)):
        return _run(words, text, folder)
    with tempfile.TemporaryDirectory() as scratch:
        # uv keeps to what the file that it writes has already.
        file = Path(scratch) / "pins.txt"
        file.write_text(pins, encoding="utf-8")
        _run([*words, "--output-file", str(file)], text, folder)
        return file.read_text(encoding="utf-8")


def _run(words: Iterable[str], text: str, folder: Path) -> str:
    command = [sys.executable, "-m", "uv", "--quiet", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=text, cwd=folder)
    if done.returncode:
        raise UvError(reason(done.stderr.splitlines()) or f"uv ended with exit code {done.returncode}")
    return done.stdout


def reason(output: Iterable[str]) -> str:
    """Why uv failed, on one line: its ``error:`` and ``cause:`` lines, or the last ones of its ``output``."""
    lines = list(output)
    reasons, goes_on = list[str](), False
    for line in lines:
        text = line.strip()
        if text.startswith(("error: ", "cause: ")):
            reasons.append(text.partition(": ")[2])
            goes_on = True
        elif goes_on := goes_on and bool(text) and line[0].isspace() and not text.startswith("hint: "):
            # It breaks its lines where COLUMNS says how wide the terminal is.
            reasons[-1] += f" {text}"
    return ": ".join(reasons or filter(None, map(str.strip, lines[-3:]))).removesuffix(".")
