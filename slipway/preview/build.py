"""Builds the preview from the evaluations of the project's stacks at two revisions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any, Literal

from slipway.engine.evaluation.decoding import ClusterElsewhere, EvaluatedStack, FailedEvaluation
from slipway.engine.evaluation.worker import where
from slipway.evaluated.cost import common_basis, cost, difference, scheduled_jobs
from slipway.evaluated.diagram import diagram
from slipway.evaluated.model import (
    Changes,
    Failure,
    Finding,
    Outcome,
    PackageVersions,
    Preview,
    QuotaNeed,
    StackPreview,
    Suppressed,
)
from slipway.evaluated.operations import ResourceDiff, compare_resources
from slipway.evaluated.phrasing import many
from slipway.evaluated.places import is_held
from slipway.evaluated.schedule import JobDuration
from slipway.evaluated.scheduling import obstacle, pool_obstacle
from slipway.evaluated.workloads import CRON_JOB, STATEFUL_SET, Workload, workloads
from slipway.infra.exits import Exit
from slipway.infra.kubernetes.labels import NAME
from slipway.infra.placed import STORE_GATE
from slipway.infra.places import PROJECT
from slipway.infra.platform import Node
from slipway.infra.review.contract import Severity
from slipway.infra.review.stack import JOB, NodePool, Secret, Stack, at, leaves, strings, text
from slipway.infra.schema.problems import key_of
from slipway.infra.schema.renamed import warning
from slipway.policies.changes import Change, find_uncompared
from slipway.policies.check import (
    check,
    check_change,
    deprecated_findings,
    in_order,
    lost_pool_finding,
    mark_new,
    removed_finding,
    settings_findings,
    suppressions_of,
    unset_findings,
)
from slipway.policies.pods import BuiltImage, built_image
from slipway.preview.differences import compare, output_remarks
from slipway.preview.revisions import Evaluations
from slipway.preview.verdict import impact

PLACED = (JOB, CRON_JOB, STATEFUL_SET)
"""What has a place on a pool."""


@dataclass(frozen=True)
class LostPlace:
    """Jobs or services of the stack ``team`` lose their place, because the stack ``stack`` changes."""

    team: str
    stack: str
    finding: Finding


def lost_places(before: EvaluatedStack, after: EvaluatedStack) -> list[LostPlace]:
    """The Jobs and services of ``before`` on nodes of other stacks that, after a change of these, can run nowhere.

    The stack may have failed after the change: a step whose pool is gone is a problem of its settings.
    """
    if before.stack is None:
        return []
    clusters = {place.name: place for place in after.elsewhere}
    teams = {place.name: place.teams for place in before.elsewhere}
    pods_by_place: dict[tuple[str, str, str], list[Workload]] = {}
    for job in workloads(before.stack, *PLACED):
        pool = job.pool(before.stack)
        if pool is None or not pool.stack or (owner := clusters.get(pool.cluster)) is None:
            continue
        if owner.stack != pool.stack:
            continue
        if lost := _loss(job, pool, owner, after.stack) or _lost_access(
            job, teams[pool.cluster], owner, after.stack
        ):
            pods_by_place.setdefault((pool.stack, *lost), []).append(job)
    return [
        LostPlace(before.name, stack, lost_pool_finding(stack, before.name, resource, why, [*_steps(jobs)]))
        for (stack, resource, why), jobs in pods_by_place.items()
    ]


def _steps(jobs: Sequence[Workload]) -> list[str]:
    """The names of Jobs, without those of gates unless there are no others."""
    labels = {job.resource.name: strings(at(job.resource.properties, "metadata", "labels")) for job in jobs}
    return [name for name, label in labels.items() if label.get(NAME) != STORE_GATE] or [*labels]


def _loss(job: Workload, pool: NodePool, owner: ClusterElsewhere, after: Stack | None) -> tuple[str, str] | None:
    """The resource or key that no longer takes ``job``, and why; None where it still has a place."""
    if after is not None:
        again = next(
            (workload for workload in workloads(after, *PLACED) if workload.resource.urn == job.resource.urn), None
        )
        if again is None or again.pool(after) is not None:
            return None
        job = again
    cluster = key_of(("clusters", owner.cluster))
    if owner.removed:
        return cluster, f"the file of `{owner.stack}`, which has the cluster, is removed"
    if owner.pools is None:
        return None
    if not owner.pools:
        return cluster, f"`{owner.stack}` no longer has the cluster `{owner.cluster}`"
    now = next((other for other in owner.pools if other.name == pool.name), None)
    place = pool.urn or key_of(("clusters", owner.cluster, "pools", pool.name))
    if now is None:
        return (
            place,
            f"`{owner.stack}` no longer has the pool `{pool.name}` in its cluster `{owner.cluster}`",
        )
    why = _obstacle(job, now, owner.pools, placed=after is not None)
    return (place, f"the nodes of pool `{pool.name}` of `{owner.stack}` do not suffice: {why}") if why else None


def _lost_access(
    job: Workload, teams: Sequence[tuple[str, str]], owner: ClusterElsewhere, after: Stack | None
) -> tuple[str, str] | None:
    """The same where the other stack no longer names the team of ``job``, one of ``teams`` before."""
    namespace = text(at(job.resource.properties, "metadata", "namespace"))
    team = (namespace, text(job.spec.get("serviceAccountName")))
    if after is not None or owner.pools is None or team not in teams or team in owner.teams:
        return None
    return key_of(("teams",)), (
        f"`{owner.stack}` no longer names a team with namespace `{team[0]}` and service account `{team[1]}`, "
        "and takes its access to the store away"
    )


def _obstacle(job: Workload, pool: NodePool, pools: Sequence[NodePool], *, placed: bool) -> str | None:
    """What keeps the pod off the pool.

    Labels and taints decide nothing of a pod that is not ``placed`` yet: a stack takes its selector and its
    tolerations from the pool.
    """
    if job.request is None:
        return None
    if placed:
        return pool_obstacle(job.request, pool, pools)
    node = Node(pool.cluster, pool.name, {}, (), pool.allocatable, pool.max_nodes)
    return obstacle(replace(job.request, selector={}, affinity=()), node)


KIB = 1024


def image_remarks(stack: Stack, changes: Changes | None) -> Iterator[str]:
    """For each image whether the next update builds it; ``changes`` are from the base to now, None without one."""
    running = None if changes is None else {run.urn for run in changes.runs if run.outcome is Outcome.RUNS}
    for resource in stack.of_type(JOB):
        image = built_image(resource)
        if image is None:
            continue
        if running is None or resource.urn in running:
            yield f"the image of {image.name} will be built {_describe_image(image)}, unless the registry has it"
        else:
            yield f"the image of {image.name} will not be built: nothing of its context has changed"


def _describe_image(image: BuiltImage) -> str:
    size = f"{max(1, round(image.size / KIB))} KiB"
    return f"from {image.context}/{image.dockerfile} ({many(image.files, 'file')}, {size})"


def _none(_: str) -> Mapping[str, JobDuration]:
    return {}


@dataclass(frozen=True)
class Options:
    """What a preview is made of beside the evaluations.

    ``today`` decides which prices are old and which suppressions have expired. ``base`` is the title of the
    revision that is compared with, empty without one; ``versions`` are the packages of which it has another one.
    ``configuration`` reads a stack's file, for stacks whose program fails; ``measured`` gives the times of a
    stack's Jobs. ``policies_only`` leaves out all but findings.
    """

    today: date
    configuration: Callable[[str], Mapping[str, Any]]
    base: str = ""
    versions: Sequence[PackageVersions] = ()
    measured: Callable[[str], Mapping[str, JobDuration]] = _none
    policies_only: bool = False


def build(evaluations: Evaluations, options: Options) -> Preview:
    """The preview of every stack that either revision has, the stacks with the largest changes first."""
    head, base = evaluations.head, evaluations.base
    lost = [
        lost_place for name, after in head.items() if name in base for lost_place in lost_places(base[name], after)
    ]
    previews = {
        name: _preview_or_failure(name, partial(_compare_stack, evaluation, base.get(name), options, lost))
        for name, evaluation in head.items()
    }
    times = dict.fromkeys(head, _none(""))
    for name, preview in previews.items():
        previews[name] = _preview_or_failure(name, partial(_add_times, preview, times, options))
    basis = common_basis(times, {name: _list_running(head[name], preview) for name, preview in previews.items()})
    if not options.policies_only:
        counted = times if basis != "limit" else {}
        for name, preview in previews.items():
            if _has_failed(preview):
                continue
            before = base[name].stack if name in base else None
            priced = partial(_add_cost, preview, (before, head[name].stack), counted.get(name, {}), options)
            previews[name] = _preview_or_failure(name, priced)
    removed = [
        _add_lost_places(_preview_removed(evaluation), lost)
        for name, evaluation in base.items()
        if name not in head
    ]
    stacks = [*previews.values(), *removed]
    lines = [line for stack in stacks if stack.cost for line in stack.cost.lines]
    dates = [line.as_of for line in lines if line.as_of[:1].isdigit()]
    return Preview(
        base=options.base,
        versions=[*options.versions],
        basis=basis,
        prices_as_of=min(dates, default=""),
        stacks=sorted(stacks, key=impact),
    )


def exit_code(preview: Preview, fail_on: Severity) -> Exit:
    """`Exit.REFUSED` if a stack cannot be evaluated at this revision, `Exit.FAILED` if a finding is as bad as
    ``fail_on``.

    A base that cannot be evaluated does not count, because a change that repairs it would be refused.
    """
    if any(_has_failed(stack) for stack in preview.stacks):
        return Exit.REFUSED
    failing = {Severity.ERROR} if fail_on is Severity.ERROR else set(Severity)
    fails = any(finding.severity in failing for stack in preview.stacks for finding in stack.findings)
    return Exit.FAILED if fails else Exit.DONE


def _has_failed(preview: StackPreview) -> bool:
    return any(failure.revision == "head" for failure in preview.failures)


def _add_times(
    preview: StackPreview, times: dict[str, Mapping[str, JobDuration]], options: Options
) -> StackPreview:
    """Adds the stack's measured times to ``times``, and returns ``preview``."""
    times[preview.stack] = options.measured(preview.stack)
    return preview


def _preview_or_failure(name: str, make: Callable[[], StackPreview]) -> StackPreview:
    """The preview of one stack. If it fails, only this stack's preview fails.

    The failure has the error's class and place, because its text may quote a value.
    """
    try:
        return make()
    except Exception as error:
        message = f"its preview failed with {type(error).__name__} in {where(error, PROJECT) or 'Python'}"
        return StackPreview(stack=name, failures=[Failure(revision="head", message=message)])


def _compare_stack(
    head: EvaluatedStack, base: EvaluatedStack | None, options: Options, lost: Sequence[LostPlace]
) -> StackPreview:
    """The preview of a stack without its cost and quotas. ``lost`` are places of any stack's Jobs."""
    failures = [_failure("base", base.failure)] if base is not None and base.failure else []
    stack, before = head.stack, base.stack if base is not None else None
    if stack is None:
        assert head.failure is not None
        findings, suppressed = _check_stack(Stack(head.name, {}, options.configuration(head.name)), options.today)
        causes = _unique([loss.stack for loss in lost if loss.team == head.name])
        failed = StackPreview(
            stack=head.name,
            failures=[_failure("head", head.failure, causes), *failures],
            new_stack=bool(options.base) and base is None,
            findings=in_order([*settings_findings(head.failure.problems), *findings]),
            suppressed=suppressed,
            remarks=_unique(head.remarks),
        )
        return _add_lost_places(failed, lost)
    findings, suppressed = _check_stack(stack, options.today)
    findings = in_order([*unset_findings(head.unset), *deprecated_findings(head.renamed), *findings])
    changes: Changes | None = None
    if base is not None and before is not None:
        update = compare_resources(before, stack)
        harm, lived_with = check_change(
            Change(before, stack, update), suppressions_of(stack.configuration), options.today
        )
        found_before, suppressed_before = _check_stack(before, options.today)
        earlier = [*unset_findings(base.unset), *deprecated_findings(base.renamed), *found_before]
        findings = in_order([*harm, *mark_new(findings, earlier)])
        suppressed = [*lived_with, *_mark_new(suppressed, suppressed_before)]
        changes = None if options.policies_only else _changes(head, base, before, stack, update)
    images = () if options.policies_only else image_remarks(stack, changes)
    # The program warns of these, which are findings here.
    said = {warning(**key) for key in head.renamed}
    preview = StackPreview(
        stack=head.name,
        failures=failures,
        resources=sum(resource.custom and not resource.read for resource in stack.resources.values()),
        new_stack=bool(options.base) and base is None,
        changes=changes,
        findings=findings,
        suppressed=suppressed,
        remarks=_unique([*(remark for remark in head.remarks if remark not in said), *images]),
        diagram="" if options.policies_only else _new_diagram(before, stack),
    )
    return _add_lost_places(preview, lost)


def _new_diagram(before: Stack | None, stack: Stack) -> str:
    """The diagram of a stack; empty where it had the same ``before``."""
    drawn = diagram(stack)
    return "" if before is not None and drawn == diagram(before) else drawn


def _add_lost_places(preview: StackPreview, lost: Iterable[LostPlace]) -> StackPreview:
    """``preview`` with the findings about Jobs that lose their place: Jobs of its stack, and Jobs that its change
    affects."""
    lost_findings = [loss.finding for loss in lost if preview.stack in {loss.stack, loss.team}]
    return (
        preview.model_copy(update={"findings": in_order([*lost_findings, *preview.findings])})
        if lost_findings
        else preview
    )


def _changes(
    head: EvaluatedStack, base: EvaluatedStack, before: Stack, stack: Stack, update: Sequence[ResourceDiff]
) -> Changes:
    changes = compare(before, stack, update)
    remarks = [
        *changes.remarks,
        *output_remarks(base.outputs, head.outputs),
        *_encrypted_remarks(before.configuration, stack.configuration),
        *(remark for remark in head.remarks if remark not in base.remarks),
    ]
    unknown = list(find_uncompared(before.configuration, stack.configuration))
    return changes.model_copy(update={"remarks": _unique(remarks), "unknown": unknown})


def _list_running(head: EvaluatedStack, preview: StackPreview) -> list[str]:
    """The names of the Jobs that the next update runs."""
    if preview.changes is not None:
        return [run.name for run in preview.changes.runs if run.outcome is Outcome.RUNS]
    return [job.name for job in head.stack.of_type(JOB) if not is_held(job)] if head.stack is not None else []


def _add_cost(
    preview: StackPreview,
    sides: tuple[Stack | None, Stack | None],
    counted: Mapping[str, JobDuration],
    options: Options,
) -> StackPreview:
    """``preview`` with its cost and quotas.

    ``sides`` are the stack before and after the change. ``counted`` are the times of its Jobs that costs are based
    on.
    """
    before, stack = sides
    if stack is None:
        return preview
    jobs = None if preview.changes is None else {run.urn: run.outcome for run in preview.changes.runs}
    # Before and after on the same basis, whichever Jobs the update runs.
    times = options.measured(preview.stack)
    clocks = [job for side in filter(None, sides) for _, jobs in scheduled_jobs(side) for job in jobs]
    scheduled = times if common_basis({"": times}, {"": clocks}) != "limit" else _none("")
    priced = cost(stack, today=options.today, jobs=jobs, measured=counted, scheduled=scheduled)
    quotas = _quotas(stack)
    values: dict[str, Any] = {}
    if before is not None:
        earlier = cost(before, today=options.today, jobs={}, measured=counted, scheduled=scheduled)
        needed = _quotas(before)
        values["difference"] = difference(earlier, priced)
        lines = [line.model_copy(update={"new": line not in earlier.lines}) for line in priced.lines]
        priced = priced.model_copy(update={"lines": lines})
        quotas = [quota.model_copy(update={"new": quota not in needed}) for quota in quotas]
    return preview.model_copy(update={**values, "cost": priced, "quotas": quotas})


def _quotas(stack: Stack) -> list[QuotaNeed]:
    return [QuotaNeed.model_validate(quota, from_attributes=True) for quota in stack.quotas]


def _preview_removed(base: EvaluatedStack) -> StackPreview:
    count = (
        sum(resource.custom and not resource.read for resource in base.stack.resources.values())
        if base.stack
        else 0
    )
    return StackPreview(
        stack=base.name, removed=True, resources=count, findings=[removed_finding(base.name, count)]
    )


def _check_stack(stack: Stack, today: date) -> tuple[list[Finding], list[Suppressed]]:
    return check(stack, suppressions_of(stack.configuration), today)


def _mark_new(suppressed: Sequence[Suppressed], base: Iterable[Suppressed]) -> list[Suppressed]:
    marked = mark_new((entry.finding for entry in suppressed), (entry.finding for entry in base))
    return [
        entry.model_copy(update={"finding": finding}) for entry, finding in zip(suppressed, marked, strict=True)
    ]


def _failure(revision: Literal["base", "head"], failed: FailedEvaluation, causes: Sequence[str] = ()) -> Failure:
    """The failure of an evaluation; ``causes`` are other stacks whose change it follows from."""
    problems = f"{many(len(failed.problems), 'problem')} in the stack's settings"
    message = problems if failed.problems else failed.message
    if causes:
        message += f", which the change of {' and '.join(causes)} causes"
    where = f" ({failed.where})" if failed.where else ""
    return Failure(
        revision=revision, message=f"{message}{where}", problems=[dict(problem) for problem in failed.problems]
    )


def _encrypted_remarks(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Remarks on encrypted values that changed: their effect cannot be determined."""
    return [
        f"the encrypted configuration {key} is another one; what it changes cannot be seen"
        for key in sorted({*before, *after})
        if _secrets(before.get(key)) != _secrets(after.get(key))
    ]


def _secrets(value: object) -> list[Secret]:
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, Secret)]


def _unique(remarks: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(remarks))
