"""From two evaluations of the project's stacks to the preview of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal, cast

from infra.review.policy import Severity
from infra.review.stack import Stack
from infra.review.unknown import Secret
from stacks.policies.changes import Change
from stacks.policies.check import check, check_change, in_order, mark_new, settings_findings, suppressions_of
from stacks.preview.compared import Compared, compared
from stacks.preview.cost import cost, difference
from stacks.preview.diff import compare, output_remarks
from stacks.preview.evaluation import Evaluations
from stacks.preview.graph import Evaluated, Failed
from stacks.preview.measured import Measured
from stacks.preview.model import Failure, Finding, Preview, QuotaNeed, StackPreview, Suppressed
from stacks.preview.timeline import timeline
from stacks.preview.words import many
from stacks.preview.worker import where

CLEAN, FINDINGS, NOT_EVALUATED = 0, 1, 2
"""What a preview exits with."""


ROOT = Path(__file__).resolve().parents[2]


def _none(_: str) -> Mapping[str, Measured]:
    return {}


@dataclass(frozen=True)
class Options:
    """What a preview is made of beside the evaluations.

    ``today`` decides which prices are old and which suppressions have expired. ``base`` is the title of the
    revision that is compared with, empty without one. ``configuration`` reads a stack's file, for stacks whose
    program fails; ``measured`` gives the times of a stack's Jobs. ``policies_only`` leaves out all but findings.
    """

    today: date
    configuration: Callable[[str], Mapping[str, Any]]
    base: str = ""
    measured: Callable[[str], Mapping[str, Measured]] = _none
    policies_only: bool = False


def build(evaluations: Evaluations, options: Options) -> Preview:
    """The preview of every stack that either revision has, by name."""
    head, base = evaluations.head, evaluations.base
    stacks = [
        _whole(found, base.get(name), options) if (found := head.get(name)) else _removed(base[name])
        for name in sorted({*head, *base})
    ]
    lines = [line for each in stacks if each.cost for line in each.cost.lines]
    dates = [line.as_of for line in lines if line.as_of[:1].isdigit()]
    return Preview(base=options.base, prices_as_of=min(dates, default=""), stacks=stacks)


def exit_code(preview: Preview, fail_on: Severity) -> int:
    """2 where a stack cannot be evaluated as it is now, 1 where a finding is as bad as ``fail_on``, else 0.

    A base that cannot be evaluated changes nothing: what mends it would else be refused.
    """
    if any(failure.revision == "head" for each in preview.stacks for failure in each.failures):
        return NOT_EVALUATED
    failing = {Severity.ERROR} if fail_on is Severity.ERROR else set(Severity)
    return (
        FINDINGS if any(each.severity in failing for stack in preview.stacks for each in stack.findings) else CLEAN
    )


def _whole(head: Evaluated, base: Evaluated | None, options: Options) -> StackPreview:
    """The preview of one stack; where making it fails, that alone: the other stacks' are whole.

    The error's text may quote a value, so its kind and place stand for it.
    """
    try:
        return _head(head, base, options)
    except Exception as error:
        message = f"its preview failed with {type(error).__name__} in {where(error, ROOT) or 'Python'}"
        return StackPreview(stack=head.name, failures=[Failure(revision="head", message=message)])


def _head(head: Evaluated, base: Evaluated | None, options: Options) -> StackPreview:
    failures = [_failure("base", base.failure)] if base is not None and base.failure else []
    stack, before = head.stack, base.stack if base is not None else None
    if stack is None:
        assert head.failure is not None
        findings, suppressed = _found(Stack(head.name, {}, options.configuration(head.name)), options.today)
        return StackPreview(
            stack=head.name,
            failures=[_failure("head", head.failure), *failures],
            new_stack=bool(options.base) and base is None,
            findings=in_order([*settings_findings(head.failure.problems), *findings]),
            suppressed=suppressed,
            remarks=_unique(head.remarks),
        )
    findings, suppressed = _found(stack, options.today)
    update: Sequence[Compared] | None = None
    if before is not None:
        update = compared(before, stack)
        harm, lived_with = check_change(
            Change(before, update), suppressions_of(stack.configuration), options.today
        )
        findings = in_order([*harm, *mark_new(findings, _found(before, options.today)[0])])
        suppressed = [*lived_with, *suppressed]
    preview = StackPreview(
        stack=head.name,
        failures=failures,
        resources=sum(each.custom and not each.read for each in stack.resources.values()),
        new_stack=bool(options.base) and base is None,
        findings=findings,
        suppressed=suppressed,
        remarks=_unique(head.remarks),
    )
    return (
        preview
        if options.policies_only
        else preview.model_copy(update=_consequences(head, stack, base, update, options))
    )


def _consequences(
    head: Evaluated, stack: Stack, base: Evaluated | None, update: Sequence[Compared] | None, options: Options
) -> dict[str, Any]:
    """What changes, what it costs and how long it takes, by the fields of `StackPreview`."""
    measured = options.measured(head.name)
    priced = cost(stack, today=options.today, measured=measured)
    found: dict[str, Any] = {
        "cost": priced,
        "timeline": timeline(stack, measured),
        "quotas": [
            QuotaNeed(
                metric=quota.metric,
                where=quota.where,
                needed=quota.needed,
                unit=quota.unit,
                see=quota.see,
                ordinary=quota.ordinary,
            )
            for review in stack.reviews
            for quota in review.quotas(stack)
        ],
    }
    if base is not None and base.stack is not None:
        before = base.stack
        found["difference"] = difference(cost(before, today=options.today, measured=measured), priced)
        differing = compare(before, stack, update)
        remarks = [
            *differing.remarks,
            *output_remarks(base.outputs, head.outputs),
            *_encrypted_remarks(before.configuration, stack.configuration),
        ]
        found["changes"] = differing.model_copy(update={"remarks": remarks})
    return found


def _removed(base: Evaluated) -> StackPreview:
    count = sum(each.custom and not each.read for each in base.stack.resources.values()) if base.stack else 0
    remark = f"Its file is gone, and what it declares stays as it is: `pulumi destroy -s {base.name}` deletes it."
    return StackPreview(stack=base.name, removed=True, resources=count, remarks=[remark])


def _found(stack: Stack, today: date) -> tuple[list[Finding], list[Suppressed]]:
    return check(stack, suppressions_of(stack.configuration), today)


def _failure(revision: Literal["base", "head"], failed: Failed) -> Failure:
    problems = f"{many(len(failed.problems), 'problem')} in the stack's settings"
    message = problems if failed.problems else failed.message
    where = f" ({failed.where})" if failed.where else ""
    return Failure(
        revision=revision, message=f"{message}{where}", problems=[dict(each) for each in failed.problems]
    )


def _encrypted_remarks(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Nobody can see what an encrypted value does; that it is another one can be told."""
    return [
        f"the encrypted configuration {key} is another one; what it changes cannot be seen"
        for key in sorted({*before, *after})
        if list(_secrets(before.get(key))) != list(_secrets(after.get(key)))
    ]


def _secrets(value: object) -> Iterable[Secret]:
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, Mapping):
        for each in cast("Mapping[str, object]", value).values():
            yield from _secrets(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _secrets(each)


def _unique(remarks: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(remarks))
