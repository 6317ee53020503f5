"""What is said of an update that takes Kueue away."""

from datetime import date

from slipway.evaluated.model import Finding
from slipway.evaluated.operations import compare_resources
from slipway.infra.review.contract import Severity
from slipway.infra.review.stack import Stack
from slipway.policies.app_changes import RELEASE
from slipway.policies.changes import Change
from slipway.policies.check import check_change
from tests.support.reviewing import declared


def found(before: Stack, after: Stack) -> list[Finding]:
    change = Change(before, after, compare_resources(before, after))
    return check_change(change, {}, date(2026, 11, 22))[0]


def test_kueue_takes_the_queues_of_all_with_it() -> None:
    release = declared(RELEASE, "here-kueue-release", {"name": "kueue", "chart": "/charts/kueue.tgz"})
    other = declared(RELEASE, "here-plugin", {"name": "device-plugin"})
    there = Stack("test", {each.urn: each for each in (release, other)})
    [finding] = found(there, Stack("test", {}))
    assert (finding.policy, finding.severity, finding.harm) == ("deletes-queue-api", Severity.WARNING, True)
    assert "everybody's queues on that cluster: the stack no longer has it" in finding.reason
