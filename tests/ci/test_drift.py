"""One issue about each stack that has drifted, and none about those that have not."""

from pathlib import Path

import pytest

from ci.drift import LABEL, marker
from tests.ci.conftest import Cli, Make
from tests.ci.forges import SOMEBODY, Repository, issue

STACK = {"STACK": "gcp-dev"}


def check(make: Make, pulumi: Cli, code: int, says: str = "~ gcp:container:NodePool train") -> int:
    return make("ci-drift", **STACK, PATH=pulumi.path, PULUMI_EXITS=str(code), PULUMI_SAYS=says).returncode


@pytest.mark.slow
def test_the_check_changes_nothing(make: Make, pulumi: Cli) -> None:
    assert check(make, pulumi, 0) == 0
    [call] = pulumi.calls
    assert '"refresh"' in call
    assert '"--preview-only"' in call
    assert '"--stack", "gcp-dev"' in call
    assert "--yes" not in call


def test_drift_opens_an_issue(make: Make, pulumi: Cli, github: dict[str, str], repository: Repository) -> None:
    repository.issues = [
        issue(1, marker("gcp-prod")),
        issue(2, marker("gcp-dev"), SOMEBODY),
        issue(3, marker("gcp-dev"), pull_request={}),
    ]
    assert check(make, pulumi, 7) == 0
    done = make("ci-drift-issue", **STACK, **github, RUN_URL="https://example.org/run/1")
    assert done.returncode == 0, done.stderr
    [(method, path, sent)] = repository.requests
    assert (method, path) == ("POST", "/repos/team/slipway/issues")
    assert sent["title"] == "Drift in gcp-dev"
    assert sent["labels"] == [LABEL]
    assert sent["body"].startswith(marker("gcp-dev"))
    assert "~ gcp:container:NodePool train" in sent["body"]
    assert "`pulumi up --refresh -s gcp-dev`" in sent["body"]
    assert "https://example.org/run/1" in sent["body"]


SAYS = """Previewing refresh (local):
@ previewing refresh....
 ~  pulumi:pulumi:Stack slipway-local refreshing
    pulumi:pulumi:Stack slipway-local running
 ~  kubernetes:batch/v1:Job train refreshing Waiting for Job "slipway/train" to start
 -  kubernetes:networking.k8s.io/v1:NetworkPolicy local-deny-ingress delete
 ~  gcp:container/nodePool:NodePool train update [diff: ~autoscaling]
    kubernetes:batch/v1:Job train
    pulumi:pulumi:Stack slipway-local
Resources:
    ~ 1 to update
    - 1 to delete
    18 unchanged"""


def test_what_is_as_it_was_is_left_out(make: Make, pulumi: Cli, checkout: Path) -> None:
    assert check(make, pulumi, 7, SAYS) == 0
    report = (checkout / "build" / "ci" / "drift" / "gcp-dev" / "report.md").read_text(encoding="utf-8")
    said = report.split("```text\n")[1].split("\n```")[0]
    assert said.splitlines() == [SAYS.splitlines()[line] for line in (0, 5, 6, 9, 10, 11, 12)]


@pytest.mark.slow
def test_more_drift_updates_it(make: Make, pulumi: Cli, github: dict[str, str], repository: Repository) -> None:
    repository.issues = [issue(9, f"{marker('gcp-dev')}\nold")]
    assert check(make, pulumi, 7, says="``` a fence in the output\n" + "x" * 90_000) == 0
    assert make("ci-drift-issue", **STACK, **github).returncode == 0
    [(method, path, sent)] = repository.requests
    assert (method, path) == ("PATCH", "/repos/team/slipway/issues/9")
    assert len(sent["body"]) <= 65_536


def test_no_drift_any_more_closes_it(
    make: Make, pulumi: Cli, github: dict[str, str], repository: Repository
) -> None:
    repository.issues = [issue(9, f"{marker('gcp-dev')}\nold")]
    assert check(make, pulumi, 0) == 0
    assert make("ci-drift-issue", **STACK, **github).returncode == 0
    assert [(method, path) for method, path, _ in repository.requests] == [
        ("POST", "/repos/team/slipway/issues/9/comments"),
        ("PATCH", "/repos/team/slipway/issues/9"),
    ]
    assert repository.requests[1][2]["state"] == "closed"


def test_no_drift_opens_nothing(make: Make, pulumi: Cli, github: dict[str, str], repository: Repository) -> None:
    assert check(make, pulumi, 0) == 0
    assert make("ci-drift-issue", **STACK, **github).returncode == 0
    assert repository.requests == []


@pytest.mark.parametrize("code", [1, 3, 4, 255])
def test_a_failed_check_fails_and_closes_nothing(
    make: Make, pulumi: Cli, github: dict[str, str], repository: Repository, code: int
) -> None:
    repository.issues = [issue(9, marker("gcp-dev"))]
    assert check(make, pulumi, code, says="error: no credentials") != 0
    done = make("ci-drift-issue", **STACK, **github)
    assert done.returncode == 0
    assert "not known" in done.stdout
    assert repository.requests == []


@pytest.mark.slow
def test_an_issue_in_gitlab(make: Make, pulumi: Cli, gitlab: dict[str, str], repository: Repository) -> None:
    assert check(make, pulumi, 7) == 0
    assert make("ci-drift-issue", **STACK, **gitlab).returncode == 0
    repository.issues = [issue(4, repository.requests[0][2]["description"])]
    assert check(make, pulumi, 0) == 0
    assert make("ci-drift-issue", **STACK, **gitlab).returncode == 0
    assert [(method, path) for method, path, _ in repository.requests] == [
        ("POST", "/projects/5/issues"),
        ("POST", "/projects/5/issues/4/notes"),
        ("PUT", "/projects/5/issues/4"),
    ]
    assert repository.requests[2][2] == {"state_event": "close"}


def test_the_report_is_in_the_summary_of_the_run(make: Make, pulumi: Cli, tmp_path: Path) -> None:
    summary = tmp_path / "summary"
    make(
        "ci-drift",
        **STACK,
        PATH=pulumi.path,
        PULUMI_EXITS="7",
        PULUMI_SAYS="train",
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert "no longer as its last update left it" in summary.read_text(encoding="utf-8")
