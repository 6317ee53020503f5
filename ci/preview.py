"""The preview of a change, as files for a summary, a comment and machines: ``python -m ci.preview``.

``BASE`` is the revision to compare with, ``FAIL_ON`` the severity that fails, ``NUMBER`` the pull
request. Writes preview.md, preview.json, number and status into build/ci/preview. Exits 0 whatever the preview
found, so that its files can be published first; ``python -m ci.preview verdict`` then exits with what it found.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ci.github import append

FOLDER = Path("build/ci/preview")

CLEAN, FINDINGS, NOT_EVALUATED = 0, 1, 2
"""The exit codes of `slipway preview`."""

VERDICTS = {
    CLEAN: "No findings.",
    FINDINGS: "There are findings: see the preview.",
    NOT_EVALUATED: "At least one stack could not be evaluated: see the preview.",
}


def commit(revision: str) -> str:
    """Raises CalledProcessError where there is none of that name."""
    command = ["git", "rev-parse", "--short=12", "--verify", "--end-of-options", f"{revision}^{{commit}}"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout.strip()


def main() -> int:
    """Exits with the preview's own code where it wrote nothing."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    (FOLDER / "number").write_text(os.environ.get("NUMBER", ""), encoding="utf-8")
    markdown = FOLDER / "preview.md"
    command = [sys.executable, "-m", "slipway", "preview", "--format", "markdown", "--output", str(markdown)]
    command += ["--json", str(FOLDER / "preview.json")]
    base = os.environ.get("BASE", "")
    try:
        if base:
            command += ["--base", commit(base)]
    except subprocess.CalledProcessError:
        print(f"There is no commit {base!r} here to compare with.", file=sys.stderr)
        return NOT_EVALUATED
    if fail_on := os.environ.get("FAIL_ON"):
        command += ["--fail-on", fail_on]
    code = subprocess.run(command, check=False).returncode
    if code not in VERDICTS or not markdown.is_file():
        return code or 1
    (FOLDER / "status").write_text(f"{code}\n", encoding="utf-8")
    append("GITHUB_STEP_SUMMARY", markdown.read_text(encoding="utf-8"))
    print(markdown.read_text(encoding="utf-8"))
    return 0


def verdict() -> int:
    """Exits with what the preview found."""
    try:
        code = int((FOLDER / "status").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        print("The preview did not finish: see its log.", file=sys.stderr)
        return NOT_EVALUATED
    print(VERDICTS[code])
    return code


if __name__ == "__main__":
    sys.exit(verdict() if sys.argv[1:] == ["verdict"] else main())
