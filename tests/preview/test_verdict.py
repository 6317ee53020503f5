"""What a preview says first, and what it never leaves out."""

from collections.abc import Callable

import pytest

from slipway.evaluated.model import Failure, Finding, Level, Preview, StackPreview
from slipway.infra.review.contract import Harm, Severity
from slipway.preview.markdown import comment
from slipway.preview.page import NAMED
from slipway.preview.verdict import MOST, known_lines, most_important, remaining_lines, verdict
from tests.preview.samples import finding, preview, printed

WARNING, ERROR = Severity.WARNING, Severity.ERROR


def harmful(policy: str, severity: Severity, harm: Harm, name: str = "store (Bucket)") -> Finding:
    return finding(policy, severity, name).model_copy(update={"harm": True, "harm_kind": harm, "reason": policy})


def pools(count: int, stack: str) -> StackPreview:
    """A stack of which every pool has the same finding."""
    found = [harmful("ends", WARNING, Harm.INTERRUPTION, f"pool{index} (NodePool)") for index in range(count)]
    return StackPreview(stack=stack, findings=found)


@pytest.mark.parametrize("text_of", [printed, comment])
def test_a_lost_bucket_comes_before_the_warnings_about_24_pools_of_another_stack(
    text_of: Callable[[Preview], str],
) -> None:
    lost = StackPreview(stack="gcp-dev", findings=[harmful("deletes-data", ERROR, Harm.LOSS)])
    content = preview(pools(24, "aws-dev"), lost)
    assert [(line.level, line.stacks) for line in verdict(content)] == [
        (Level.LOSS, ["gcp-dev"]),
        (Level.WARNING, ["aws-dev"]),
    ]
    text = text_of(content)
    assert text.index("deletes-data") < text.index("24 NodePools")
    assert len(text.partition("deletes-data")[0].splitlines()) <= 4


def test_findings_with_one_reason_are_one_line_for_all_resources_and_stacks() -> None:
    (line,) = verdict(preview(pools(2, "gcp-prod"), pools(3, "aws-prod")))
    assert line.stacks == ["gcp-prod", "aws-prod"]
    assert line.subject == "5 NodePools"
    assert line.resources == ["pool0", "pool1", "pool2"]
    assert remaining_lines(pools(2, "gcp-prod"), [line]) == []


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("slipway:pipelines.a.pool", "2 keys"),
        ("a (NetworkPolicy)", "2 NetworkPolicies"),
        ("a (Ingress)", "2 Ingresses"),
    ],
)
def test_kinds_are_counted_in_english(name: str, count: str) -> None:
    stack = StackPreview(stack="dev", findings=[finding(name=name), finding(name=name.replace("a", "b", 1))])
    (line,) = verdict(preview(stack))
    assert line.subject == count


def test_one_resource_of_several_stacks_is_not_counted() -> None:
    stacks = [StackPreview(stack=name, findings=[finding(name="store (Bucket)")]) for name in ("a", "b")]
    (line,) = verdict(preview(*stacks))
    assert (line.stacks, line.subject, line.resources) == (["a", "b"], "", ["store (Bucket)"])


def test_findings_that_do_not_differ_in_their_reason_alone_are_lines_of_their_own() -> None:
    other = finding().model_copy(update={"fix": "another way out"})
    assert len(verdict(preview(StackPreview(stack="dev", findings=[finding(), other])))) == 2


def test_what_is_lost_comes_before_what_is_opened_refused_wrong_and_warned_of() -> None:
    failure = Failure(revision="head", message="cannot be read")
    found = [
        finding("warned", WARNING),
        harmful("billed", WARNING, Harm.COST),
        finding("wrong", ERROR),
        harmful("refused", ERROR, Harm.REFUSAL),
        harmful("stopped", ERROR, Harm.INTERRUPTION),
        harmful("opened", WARNING, Harm.OPENING),
        harmful("model-lost", WARNING, Harm.LOSS),
        harmful("lost", ERROR, Harm.LOSS),
    ]
    lines = verdict(preview(StackPreview(stack="dev", findings=found, failures=[failure])))
    assert [line.finding.policy if isinstance(line.finding, Finding) else "failure" for line in lines] == [
        *("lost", "model-lost", "opened", "stopped", "failure", "refused", "wrong", "billed", "warned")
    ]


def several(count: int, severity: Severity) -> StackPreview:
    found = [finding(f"policy-{index}", severity, f"resource-{index}") for index in range(count)]
    return StackPreview(stack="dev", findings=found)


def test_no_limit_leaves_out_an_error() -> None:
    content = preview(several(3 * MOST, ERROR), several(3 * MOST, WARNING))
    lines = most_important(verdict(content))
    assert len(lines) == 3 * MOST
    assert {line.level for line in lines} == {Level.ERROR}
    head = printed(content).partition("Stack ")[0]
    assert all(f"policy-{index} " in head for index in range(3 * MOST))


def test_warnings_over_the_limit_are_counted_and_stay_with_their_stack() -> None:
    text = printed(preview(several(3 * MOST, WARNING)))
    assert f"{2 * MOST} warnings more" in text
    assert all(f"policy-{index} " in text for index in range(3 * MOST))


@pytest.mark.parametrize("revision", ["head", "base"])
def test_every_stack_that_cannot_be_evaluated_keeps_its_reason(revision: str) -> None:
    stacks = [
        StackPreview(
            stack=f"stack-{index}",
            failures=[Failure.model_validate({"revision": revision, "message": f"reason number {index}."})],
        )
        for index in range(3 * MOST)
    ]
    for text in (printed(preview(*stacks)), comment(preview(*stacks))):
        assert all(f"reason number {index}." in text for index in range(3 * MOST))


def test_every_resource_of_an_error_is_named_and_of_a_warning_some() -> None:
    names = [f"bucket-{index} (Bucket)" for index in range(24)]
    for severity, named in ((ERROR, 24), (WARNING, NAMED)):
        text = printed(
            preview(StackPreview(stack="dev", findings=[finding("p", severity, name) for name in names]))
        )
        assert sum(f"bucket-{index}" in text for index in range(24)) == named


def test_a_comment_that_is_too_short_for_the_verdict_begins_with_its_worst_lines() -> None:
    content = preview(
        several(200, ERROR), StackPreview(stack="gcp-dev", findings=[harmful("deletes-data", ERROR, Harm.LOSS)])
    )
    text = comment(content, 5000)
    assert len(text) <= 5000
    assert text.index("deletes-data") < text.index("policy-0")
    assert "201 lines" in text
    assert "gcp-dev" in text
    whole = comment(content, 30_000)
    assert all(f"policy-{index}`" in whole for index in range(200)), "shorter lines come before fewer lines"


def test_errors_that_are_not_new_are_all_listed() -> None:
    stack = several(50, ERROR)
    old = [each.model_copy(update={"new": False}) for each in stack.findings]
    content = preview(stack.model_copy(update={"findings": old}))
    assert len(known_lines(content)) == 50
    assert all(f"policy-{index} " in printed(content) for index in range(50))
