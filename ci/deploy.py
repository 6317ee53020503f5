"""Plans an update, and applies the plan that was approved: ``python -m ci.deploy plan|apply``.

``STACK`` names the stack. The plan, build/ci/deploy/<stack>/plan.json, binds the update to the operations that
were shown: an update that would do anything else fails at that point. What Pulumi knows as a secret is encrypted
in it with the stack's own key; everything else that the resources are declared with is in clear
(https://www.pulumi.com/docs/iac/concepts/update-plans/ and pkg/resource/stack/plan.go of Pulumi, November 2026).

A plan says nothing of the state that it starts from, so an old one takes back what a later update did wherever the
operations are the same. The digest of the state lies beside it, and has to be the same when the plan is applied.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from ci.github import append, fence

UNCHANGING = {"same", "read", "refresh"}
"""Steps of a plan that do nothing to a resource."""


def pulumi(*arguments: str, log: Path | None = None) -> int:
    """The exit code of the Pulumi CLI; what it prints is shown as it comes, and kept in ``log``."""
    command = ["pulumi", *arguments, "--non-interactive", "--color", "never"]
    # `up --plan` is behind this switch: https://www.pulumi.com/docs/iac/cli/commands/pulumi_up/ (November 2026).
    environment = {**os.environ, "PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_UPDATE_CHECK": "true"}
    text: list[str] = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            text.append(line)
    if log is not None:
        log.write_text("".join(text), encoding="utf-8")
    return process.returncode


def export_state(stack: str) -> str:
    """The state as JSON, with its secrets encrypted. Raises CalledProcessError."""
    command = ["pulumi", "stack", "export", "--stack", stack, "--non-interactive"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def digest(state: str) -> str:
    """Another one after every update, refresh and import."""
    return hashlib.sha256(state.encode()).hexdigest()


def changes(plan: Path, state: str) -> bool:
    """Whether the plan does anything at all, be it to the stack's outputs or to a resource's protection alone."""
    content = cast("dict[str, Any]", json.loads(plan.read_text(encoding="utf-8")))
    planned = cast("dict[str, dict[str, Any]]", content.get("resourcePlans", {}))
    deployment = cast("dict[str, Any]", json.loads(state)["deployment"] or {})
    protected = {resource["urn"] for resource in deployment.get("resources", ()) if resource.get("protect")}
    return any(
        any(step not in UNCHANGING for step in resource.get("steps", ()))
        or any((goal := resource.get("goal", {})).get("outputDiff", {}).values())
        or goal.get("protect", False) != (urn in protected)
        for urn, resource in planned.items()
    )


def plan(stack: str, folder: Path) -> int:
    """Saves the plan, shows the preview in the run's summary, and says whether there is something to approve.

    There is no plan of a stack in which a policy finds an error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file, log = folder / "plan.json", folder / "preview.txt"
    file.unlink(missing_ok=True)
    check = [sys.executable, "-m", "slipway", "check", "--stack", stack]
    if code := subprocess.run(check, check=False).returncode:
        return code
    state = export_state(stack)
    (folder / "state").write_text(digest(state), encoding="utf-8")
    code = pulumi("preview", "--stack", stack, "--save-plan", str(file), log=log)
    shown = log.read_text(encoding="utf-8")
    append("GITHUB_STEP_SUMMARY", f"### `pulumi preview` of {stack}\n\n{fence(shown)}")
    if code:
        return code
    pending = changes(file, state)
    append("GITHUB_OUTPUT", f"changes={str(pending).lower()}")
    print("The plan is saved." if pending else "There is nothing to change.")
    return 0


def apply(stack: str, folder: Path) -> int:
    """Applies the saved plan, and nothing but it."""
    file = folder / "plan.json"
    if not file.is_file():
        print(f"There is no plan at {file}: it was never saved, or its artifact has expired.", file=sys.stderr)
        return 1
    state = export_state(stack)
    if digest(state) != (folder / "state").read_text(encoding="utf-8"):
        print(f"{stack} has been updated since this plan was made: make and approve a new one.", file=sys.stderr)
        return 1
    if not changes(file, state):
        print("There is nothing to change.")
        return 0
    return pulumi("up", "--stack", stack, "--plan", str(file), "--yes", "--skip-preview")


def main() -> int:
    """Exits as the Pulumi CLI does: https://www.pulumi.com/docs/iac/cli/exit-codes/"""
    stack = os.environ["STACK"]
    action = {"plan": plan, "apply": apply}[sys.argv[1]]
    try:
        return action(stack, Path("build/ci/deploy") / stack)
    except subprocess.CalledProcessError as error:
        return error.returncode


if __name__ == "__main__":
    sys.exit(main())
