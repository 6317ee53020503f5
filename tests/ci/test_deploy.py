"""What was planned and shown is what is applied."""

import json
from pathlib import Path

import pytest

from tests.ci.conftest import Cli, Make

STACK = {"STACK": "gcp-dev"}
URN = "urn:pulumi:gcp-dev::slipway::gcp:storage/bucket:Bucket::data"


def plan_of(*steps: str) -> str:
    return json.dumps({"resourcePlans": {URN: {"steps": list(steps)}, f"{URN}2": {"steps": ["same"]}}})


@pytest.fixture
def plan(checkout: Path) -> Path:
    file = checkout / "build" / "ci" / "deploy" / "gcp-dev" / "plan.json"
    file.unlink(missing_ok=True)
    return file


@pytest.mark.slow
def test_the_saved_plan_is_applied(make: Make, pulumi: Cli, plan: Path, tmp_path: Path) -> None:
    outputs, summary = tmp_path / "outputs", tmp_path / "summary"
    done = make(
        "ci-deploy-preview",
        **STACK,
        PATH=pulumi.path,
        PULUMI_PLAN=plan_of("update"),
        PULUMI_SAYS="~ bucket data",
        GITHUB_OUTPUT=str(outputs),
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert done.returncode == 0, done.stderr
    assert "~ bucket data" in done.stdout
    assert "~ bucket data" in summary.read_text(encoding="utf-8")
    assert outputs.read_text(encoding="utf-8") == "changes=true\n"
    assert make("ci-deploy-up", **STACK, PATH=pulumi.path).returncode == 0
    preview, up = (json.loads(call) for call in pulumi.calls)
    assert preview[0] == "preview"
    assert up[0] == "up"
    saved, applied = preview[preview.index("--save-plan") + 1], up[up.index("--plan") + 1]
    assert saved == applied
    for call in (preview, up):
        assert call[call.index("--stack") + 1] == "gcp-dev"
        assert "--non-interactive" in call
        assert "--show-secrets" not in call


@pytest.mark.slow
def test_a_plan_without_changes_needs_no_approval(make: Make, pulumi: Cli, plan: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    variables = {**STACK, "PATH": pulumi.path, "PULUMI_PLAN": plan_of("same"), "GITHUB_OUTPUT": str(outputs)}
    assert make("ci-deploy-preview", **variables).returncode == 0
    assert outputs.read_text(encoding="utf-8") == "changes=false\n"
    assert make("ci-deploy-up", **variables).returncode == 0
    assert len(pulumi.calls) == 1


NEW_OUTPUT = {"outputDiff": {"adds": {"predictions": "gs://data/predictions.json"}}}


@pytest.mark.parametrize(
    ("goal", "protected", "changes"),
    [
        ({"inputDiff": {}, **NEW_OUTPUT}, False, "true"),
        pytest.param({"protect": True}, False, "true", marks=pytest.mark.slow),
        pytest.param({"protect": True}, True, "false", marks=pytest.mark.slow),
    ],
)
def test_an_output_and_a_protection_are_changes(
    make: Make,
    pulumi: Cli,
    plan: Path,
    tmp_path: Path,
    goal: dict[str, object],
    protected: bool,
    changes: str,
) -> None:
    outputs = tmp_path / "outputs"
    saved = json.dumps({"resourcePlans": {URN: {"steps": ["same"], "goal": goal}}})
    state = json.dumps({"deployment": {"resources": [{"urn": URN, "protect": protected}]}})
    variables = {**STACK, "PATH": pulumi.path, "PULUMI_PLAN": saved, "PULUMI_STATE": state}
    assert make("ci-deploy-preview", **variables, GITHUB_OUTPUT=str(outputs)).returncode == 0
    assert outputs.read_text(encoding="utf-8") == f"changes={changes}\n"


def test_a_plan_is_not_applied_to_a_state_that_has_changed_since(make: Make, pulumi: Cli, plan: Path) -> None:
    variables = {**STACK, "PATH": pulumi.path, "PULUMI_PLAN": plan_of("update")}
    assert make("ci-deploy-preview", **variables).returncode == 0
    done = make("ci-deploy-up", **variables, PULUMI_STATE='{"deployment": {"manifest": {"time": "later"}}}')
    assert done.returncode != 0
    assert "make and approve a new one" in done.stderr
    assert [json.loads(call)[0] for call in pulumi.calls] == ["preview"]


def test_a_state_that_cannot_be_read_fails(make: Make, pulumi: Cli, plan: Path) -> None:
    done = make("ci-deploy-preview", **STACK, PATH=pulumi.path, PULUMI_EXPORT_EXITS="6")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert pulumi.calls == []


def test_a_stack_that_its_policies_refuse_is_not_planned(make: Make, pulumi: Cli, plan: Path) -> None:
    done = make("ci-deploy-preview", STACK="no-such-stack", PATH=pulumi.path)
    assert done.returncode != 0
    assert pulumi.calls == []


def test_a_preview_that_fails_saves_nothing_to_apply(make: Make, pulumi: Cli, plan: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.write_text(plan_of("create"), encoding="utf-8")
    variables = {**STACK, "PATH": pulumi.path, "PULUMI_EXITS": "5", "GITHUB_OUTPUT": str(outputs)}
    assert make("ci-deploy-preview", **variables).returncode != 0
    assert not outputs.exists()
    assert not plan.exists()


def test_nothing_is_applied_without_a_plan(make: Make, pulumi: Cli, plan: Path) -> None:
    done = make("ci-deploy-up", **STACK, PATH=pulumi.path)
    assert done.returncode != 0
    assert "There is no plan" in done.stderr
    assert pulumi.calls == []


@pytest.mark.slow
def test_a_failed_update_fails(make: Make, pulumi: Cli, plan: Path) -> None:
    variables = {**STACK, "PATH": pulumi.path, "PULUMI_PLAN": plan_of("create")}
    assert make("ci-deploy-preview", **variables).returncode == 0
    done = make("ci-deploy-up", **STACK, PATH=pulumi.path, PULUMI_EXITS="4", PULUMI_SAYS="error: violates plan")
    assert done.returncode != 0
    assert "violates plan" in done.stdout
