"""Looks for drift in a stack, and keeps one issue about it: ``python -m ci.drift check|issue``.

``STACK`` names the stack. ``check`` writes build/ci/drift/<stack>/outcome (none, drift or error) and report.md;
``issue`` opens, updates or closes the issue. Only the names of resources and of their properties are reported, and
no values.
"""

import os
import re
import sys
from enum import StrEnum
from pathlib import Path

from ci.deploy import pulumi
from ci.forge import Forge, ForgeError, append, fence, forge

LABEL = "drift"

CHANGES_FOUND = 7
"""The CLI's exit code where ``--expect-no-changes`` is not met: https://www.pulumi.com/docs/iac/cli/exit-codes/
(since 3.226.1; November 2026). Every other one that is not 0 is an error."""

REPORT_LIMIT = 60_000
"""Characters of Pulumi's output in an issue; GitHub takes 65,536 in all."""


QUIET = re.compile(r"@ |.{4}\S+ \S+ refreshing\b|    \S+:\S+ \S+( running)?\s*$")
"""Lines of Pulumi's output about what is being looked at, and what is as it was."""


class Outcome(StrEnum):
    """What a check found."""

    NONE = "none"
    DRIFT = "drift"
    ERROR = "error"


def marker(stack: str) -> str:
    """What the issue's text begins with."""
    return f"<!-- slipway:drift:{stack} -->"


def check(stack: str, folder: Path) -> int:
    """Exits 1 where the check itself failed."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "refresh.txt"
    code = pulumi("refresh", "--stack", stack, "--preview-only", "--expect-no-changes", log=log)
    outcome = {0: Outcome.NONE, CHANGES_FOUND: Outcome.DRIFT}.get(code, Outcome.ERROR)
    lines = log.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not QUIET.match(line))[-REPORT_LIMIT:]
    said = {
        Outcome.NONE: f"{stack} is as its last update left it.",
        Outcome.DRIFT: f"{stack} is no longer as its last update left it.",
        Outcome.ERROR: f"{stack} could not be checked for drift: Pulumi exited with {code}.",
    }[outcome]
    report = f"{said}\n\n{fence(text)}"
    (folder / "report.md").write_text(report + "\n", encoding="utf-8")
    (folder / "outcome").write_text(f"{outcome}\n", encoding="utf-8")
    append("GITHUB_STEP_SUMMARY", report)
    print(said)
    return 1 if outcome is Outcome.ERROR else 0


def keep_issue(forge: Forge, stack: str, outcome: Outcome, report: str, run: str) -> str:
    """Brings the one issue about ``stack`` in line with ``outcome``; says what it did."""
    opened = next((issue for issue in forge.issues(LABEL) if issue.body.startswith(marker(stack))), None)
    if outcome is Outcome.ERROR:
        return f"Whether {stack} has drifted is not known; its issue stays as it is."
    if outcome is Outcome.NONE:
        if opened is None:
            return f"{stack} has no drift, and no issue about any."
        forge.close_issue(opened.number, f"No drift any more. {run}".rstrip())
        return f"Closed the issue about {stack}."
    body = "\n\n".join(
        [
            f"{marker(stack)}\n{report}",
            f"`pulumi up --refresh -s {stack}` brings back what the stack file says. "
            "An update without `--refresh` does not see the drift.",
            run,
        ]
    ).rstrip()
    if opened is None:
        forge.open_issue(f"Drift in {stack}", body, LABEL)
        return f"Opened an issue about {stack}."
    forge.edit_issue(opened.number, body)
    return f"Updated the issue about {stack}."


def issue(stack: str, folder: Path) -> int:
    """Exits 1 where the forge refuses."""
    try:
        outcome = Outcome((folder / "outcome").read_text(encoding="utf-8").strip())
        report = (folder / "report.md").read_text(encoding="utf-8").strip()
        where = forge()
        if where is None:
            print("There is no token to open an issue with; the report is in the job's artifact.")
            return 0
        print(keep_issue(where, stack, outcome, report, os.environ.get("RUN_URL", "")))
    except (OSError, ValueError, ForgeError) as error:
        print(f"The issue about {stack} was not kept: {error}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """Runs ``check`` or ``issue``."""
    stack = os.environ["STACK"]
    action = {"check": check, "issue": issue}[sys.argv[1]]
    return action(stack, Path("build/ci/drift") / stack)


if __name__ == "__main__":
    sys.exit(main())
