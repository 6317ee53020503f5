"""The workflows that a team copies: linted, pinned, and with every step a target of the Makefile."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from slipway.command.reference import shipped
from slipway.infra.clouds.registry import CLOUDS
from slipway.policies.jobs import LOGIN
from tests.support.checkout import ROOT

BIN = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
FORMS = [path for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) if path.stem != "config"]

CI = ".ci/run"
NOT_A_TARGET = {f"bash {CI}"}
"""Commands of a step that are no target: what runs the linters and every test, here as there."""

READS_ONLY = {"test.yml", "preview.yml"}
"""Workflows that run the code of anybody's pull request."""


def load(path: Path) -> dict[str, Any]:
    # YAML 1.1 takes the key `on` for a boolean, which is of no matter here.
    return cast("dict[str, Any]", yaml.safe_load(path.read_text(encoding="utf-8")))


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return load(path)["jobs"]


def steps(path: Path) -> Iterator[dict[str, Any]]:
    content = load(path)
    for job in content.get("jobs", {"": content.get("runs")}).values():
        yield from job["steps"]


def commands() -> Iterator[tuple[str, str]]:
    for path in (*WORKFLOWS, *ACTIONS):
        for step in steps(path):
            if "run" in step:
                yield path.name, step["run"]


def run(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-actions", ACTIONS),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [ROOT / ".github/ISSUE_TEMPLATE/config.yml"]),
    ],
    ids=["workflows", "actions", "forms", "issues"],
)
def test_the_files_are_what_their_schema_allows(schema: str, files: list[Path]) -> None:
    assert files
    run(BIN / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)


def test_zizmor_finds_nothing() -> None:
    run(BIN / "zizmor", "--offline", "--no-progress", "--persona", "pedantic", ROOT / ".github")


def test_actionlint_finds_nothing() -> None:
    program = shutil.which("actionlint") or shutil.which(ROOT / "build" / "ci" / "bin" / "actionlint")
    if program is None:
        pytest.skip("actionlint is not on PATH; `make ci-actionlint` installs it where there is Go")
    run(program)


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: path.stem)
def test_every_action_is_pinned_by_a_commit_and_says_its_version(path: Path) -> None:
    used = re.findall(r"uses:\s*(.*)", path.read_text(encoding="utf-8"))
    assert used
    pinned = re.compile(r"\./\.github/actions/[\w-]+|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [action for action in used if not pinned.fullmatch(action)] == []


def test_one_version_of_an_action_is_used_everywhere() -> None:
    versions: dict[str, set[str]] = {}
    for path in (*WORKFLOWS, *ACTIONS):
        for name, version in re.findall(r"uses:\s*([\w/-]+)@(.*)", path.read_text(encoding="utf-8")):
            versions.setdefault(name, set()).add(version)
    assert {name: pins for name, pins in versions.items() if len(pins) > 1} == {}


@pytest.mark.parametrize(("where", "command"), list(commands()), ids=lambda part: str(part)[:50])
def test_every_step_is_one_target_of_make(where: str, command: str) -> None:
    if command in NOT_A_TARGET:
        return
    words = shlex.split(command)
    assert words[0] == "make", f"{where}: {command}"
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    [target] = [word for word in words[1:] if "=" not in word]
    assert target in targets
    # An expression in a command would let what it holds be run; variables are for that.
    assert "${{" not in command


def test_ci_runs_every_test_once() -> None:
    makefile, script = ((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", CI))
    lanes = dict(re.findall(r"^(test[a-z-]*):.*\n.*?-m (.+) \$\$TESTS", makefile, flags=re.MULTILINE))
    (targets,) = re.findall(r"^make --keep-going (.+)$", script, flags=re.MULTILINE)
    assert [lanes[target].strip('"') for target in targets.split()] == ["not long", "long"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_has_a_limit_and_keeps_no_credentials(path: Path) -> None:
    assert [name for name, job in jobs(path).items() if "timeout-minutes" not in job] == []
    checkouts = [step for step in steps(path) if str(step.get("uses", "")).startswith("actions/checkout@")]
    assert checkouts
    assert [step for step in checkouts if step["with"]["persist-credentials"] is not False] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_workflow_holds_a_secret(path: Path) -> None:
    assert "secrets." not in path.read_text(encoding="utf-8")


def test_every_variable_of_the_page_reaches_a_workflow() -> None:
    section = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8").split("### Variables")[1].split("\n### ")[0]
    cells = re.findall(r"^\| (`[^|]*`) \|", section, flags=re.MULTILINE)
    variables = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert "PULUMI_BACKEND_URL" in variables
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    assert [name for name in variables if f"vars.{name}" not in text] == []


def test_what_runs_anybodys_code_may_only_read() -> None:
    for name in READS_ONLY:
        path = ROOT / ".github" / "workflows" / name
        assert load(path)["permissions"] == {"contents": "read"}
        assert [job for job in jobs(path).values() if "permissions" in job or "environment" in job] == []


def test_what_may_write_runs_the_default_branch_alone() -> None:
    path = ROOT / ".github" / "workflows" / "preview-comment.yml"
    [checkout] = [step for step in steps(path) if str(step.get("uses", "")).startswith("actions/checkout@")]
    assert set(checkout["with"]) == {"persist-credentials"}
    assert [step["run"] for step in steps(path) if "run" in step] == ["make ci-comment"]


def test_what_signs_in_to_a_cloud_cannot_write_to_the_repository() -> None:
    for path in WORKFLOWS:
        for name, job in jobs(path).items():
            permissions = job.get("permissions", {})
            writes = {key for key, value in permissions.items() if value == "write"}
            # What is attested is signed by the same token.
            assert "id-token" not in writes or writes - {"attestations"} == {"id-token"}, f"{path.name}: {name}"
            assert ("id-token" in writes) == ("environment" in job), f"{path.name}: {name}"


def test_a_stack_is_deployed_once_at_a_time_and_never_cut_short() -> None:
    deploy = load(ROOT / ".github" / "workflows" / "deploy.yml")
    assert "inputs.stack" in deploy["concurrency"]["group"]
    assert deploy["concurrency"]["cancel-in-progress"] is False


def test_the_stacks_that_can_be_chosen_are_those_in_a_cloud() -> None:
    deploy = load(ROOT / ".github" / "workflows" / "deploy.yml")
    # The key `on`, as YAML 1.1 reads it.
    chosen = cast("Any", deploy)[True]["workflow_dispatch"]["inputs"]["stack"]["options"]
    kinds = tuple(f"{name}-" for name, cloud in CLOUDS.items() if cloud.sdk)
    stacks = [path.stem.removeprefix("Pulumi.") for path in (ROOT / "stacks").glob("Pulumi.*.yaml")]
    # A project may add its own stacks.
    users = set(stacks) - set(shipped.stacks())
    assert set(chosen) - users == {stack for stack in shipped.stacks() if stack.startswith(kinds)}


def test_what_holds_a_token_runs_on_the_standard_library() -> None:
    wrong = [
        f"{path.name} imports {name}"
        for path in sorted((ROOT / "ci").glob("*.py"))
        for name in re.findall(r"^(?:from|import) (\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if name != "ci" and name not in sys.stdlib_module_names
    ]
    assert wrong == []


def test_the_preview_warns_of_jobs_that_outlast_the_login() -> None:
    apply = jobs(ROOT / ".github" / "workflows" / "deploy.yml")["apply"]
    signed_in = next(step["with"] for step in apply["steps"] if "aws-seconds" in step.get("with", {}))
    minutes = re.search(r"'(\d+)'", apply["timeout-minutes"])
    assert signed_in["aws-seconds"] == LOGIN
    assert minutes is not None
    assert int(minutes[1]) * 60 == LOGIN
