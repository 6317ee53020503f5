"""Runs the policies on a stack, and separates the findings that its file suppresses."""

import shlex
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slipway.evaluated.model import Finding, Suppressed
from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.commands import page
from slipway.infra.features import parts
from slipway.infra.review.contract import Harm, Policy, Severity, Violation
from slipway.infra.review.stack import Stack, mapping
from slipway.infra.schema.problems import did_you_mean, key_of
from slipway.infra.settings.model import Suppression
from slipway.policies import changes, jobs, openings, pods, pools, security, services
from slipway.policies.changes import Change

TABLE = Path(__file__).with_name("policies.toml")

SECTION = "slipway:policies"
"""The key of the stack file with the suppressions."""

SETTINGS = "settings"
UNSET_SECRET = "unset-secret"
DEPRECATED_KEY = "deprecated-key"
UNKNOWN_SUPPRESSION = "unknown-suppression"
UNUSED_SUPPRESSION = "unused-suppression"
REMOVED_STACK = "removed-stack"
LOST_POOL = "lost-pool"

EVERYWHERE: Sequence[Policy[Stack]] = (
    *chain(*(module.POLICIES for module in (pods, pools, jobs, security, services, openings))),
    *chain(*parts("policies", "POLICIES")),
)
"""The policies that hold on every cloud."""

CHANGE_POLICIES = (
    *changes.POLICIES,
    *services.CHANGE_POLICIES,
    *openings.CHANGE_POLICIES,
    *chain(*parts("policies", "CHANGE_POLICIES")),
)
"""The policies about an update."""

ABOUT_FILES: Mapping[str, Mapping[str, str]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["stack-files"]
"""Severity and title of findings about stack files, by id."""

MOST_JOBS = 10
"""How many Jobs that lose their place are named."""


def cloud_policies() -> list[tuple[str, Policy[Stack]]]:
    """The policies of one cloud each, with the cloud's display name."""
    return [(cloud.title, policy) for cloud in CLOUDS.values() for policy in cloud.review().policies]


@cache
def policies() -> Sequence[Policy[Stack]]:
    """All policies. Importing those of the clouds imports no cloud SDK."""
    return (*EVERYWHERE, *(policy for _, policy in cloud_policies()))


def suppressions_of(configuration: Mapping[str, Any]) -> dict[str, Suppression]:
    """A configuration's suppressions, by policy. A wrong one is left out: it is a problem of the settings."""
    suppressions: dict[str, Suppression] = {}
    for name, entry in mapping(mapping(configuration.get(SECTION)).get("suppress")).items():
        try:
            suppressions[str(name)] = Suppression.model_validate(entry)
        except ValidationError:
            continue
    return suppressions


def check(
    stack: Stack, suppressions: Mapping[str, Suppression], today: date
) -> tuple[list[Finding], list[Suppressed]]:
    """What the policies find in ``stack``, and which of it is suppressed on the day ``today``.

    A stack whose program fails is checked by what its file says: one without resources. Its suppressions may then
    be for resources that nobody knows of, so none is called unused.
    """
    findings: list[Finding] = []
    suppressed: list[Suppressed] = []
    used: dict[str, set[str]] = {}
    for policy in policies():
        bad, lived_with, covered = judge(policy, policy.check(stack), suppressions.get(policy.id), today, stack)
        findings.extend(bad)
        suppressed.extend(lived_with)
        if covered:
            used[policy.id] = covered
    findings.extend(about_suppressions(suppressions, used if stack.resources else None))
    return in_order(findings), sorted(suppressed, key=lambda entry: _place(entry.finding))


def check_change(
    change: Change, suppressions: Mapping[str, Suppression], today: date
) -> tuple[list[Finding], list[Suppressed]]:
    """The findings of the policies about changes in an update, and those that are suppressed on the day ``today``.

    ``suppressions`` are those of the stack after the update. One that existed before it and has no last day was
    for an earlier update. It does not count, because it would hide the findings of all later updates.
    """
    earlier = suppressions_of(change.before.configuration)
    findings: list[Finding] = []
    suppressed: list[Suppressed] = []
    for policy in CHANGE_POLICIES:
        suppression = suppressions.get(policy.id)
        spent = suppression is not None and suppression.until is None and suppression == earlier.get(policy.id)
        suppression = None if spent else suppression
        bad, lived_with, _ = judge(policy, policy.check(change), suppression, today, change.after, change.before)
        if spent:
            bad = [_with_note(violation, "its suppression was for an earlier change") for violation in bad]
        findings.extend(bad)
        suppressed.extend(lived_with)
    return in_order(findings), sorted(suppressed, key=lambda entry: _place(entry.finding))


def judge(
    policy: Policy[Any],
    violations: Iterable[Violation],
    suppression: Suppression | None,
    today: date,
    *stacks: Stack,
) -> tuple[list[Finding], list[Suppressed], set[str]]:
    """The findings of one policy, the suppressed ones among them, and the names that the suppression covers.

    The first of ``stacks`` that has a resource says which line declares it.
    """
    findings: list[Finding] = []
    suppressed: list[Suppressed] = []
    covered: set[str] = set()
    for violation in violations:
        finding = _finding(policy, violation, stacks)
        if suppression is None or not _covers(suppression, finding):
            findings.append(finding)
            continue
        covered |= _names(finding.resource)
        if _over(suppression, today):
            findings.append(_with_note(finding, f"its suppression expired on {suppression.until}"))
        else:
            suppressed.append(Suppressed(finding=finding, why=suppression.reason, until=suppression.until or ""))
    return findings, suppressed, covered


def about_suppressions(
    suppressions: Mapping[str, Suppression], used: Mapping[str, set[str]] | None
) -> list[Finding]:
    """The problems of the suppressions themselves.

    ``used`` are the names that each suppression covered; None if the stack could not be evaluated.
    """
    return [*_unknown(suppressions), *(_unused(suppressions, used) if used is not None else ())]


def settings_findings(problems: Iterable[Mapping[str, str]]) -> list[Finding]:
    """One finding for each problem of a stack file."""
    return in_order(
        Finding(
            policy=SETTINGS,
            severity=Severity.ERROR,
            resource=problem["key"],
            name=problem["key"],
            reason=_with_value(problem["value"], problem["reason"]),
            fix=problem["fix"],
            harm=True,
            harm_kind=Harm.REFUSAL,
        )
        for problem in problems
    )


def unset_findings(problems: Iterable[Mapping[str, str]]) -> list[Finding]:
    """One finding for each secret that a stack needs and does not have."""
    return [
        _about_file(
            UNSET_SECRET, problem["key"], f"{problem['reason']}; `pulumi up` refuses the stack", problem["fix"]
        ).model_copy(update={"harm": True, "harm_kind": Harm.REFUSAL})
        for problem in problems
    ]


def deprecated_findings(keys: Iterable[Mapping[str, str]]) -> list[Finding]:
    """One finding for each key that still works by the name of an earlier release."""
    return [_about_file(DEPRECATED_KEY, key["key"], key["reason"], key["fix"]) for key in keys]


def removed_finding(stack: str, resources: int) -> Finding:
    """The finding about a stack whose file was removed and that had this many resources."""
    count = f"{resources} resource{'s' * (resources != 1)}"
    return _about_file(
        REMOVED_STACK,
        stack,
        f"the stack's file is gone, and its {count if resources else 'resources'} stay, and are billed",
        f"to delete them, run `pulumi destroy -s {shlex.quote(stack)}` before the merge, while there is a file",
    ).model_copy(update={"harm": True, "harm_kind": Harm.COST})


def lost_pool_finding(stack: str, team: str, resource: str, why: str, jobs: Sequence[str]) -> Finding:
    """The finding about ``jobs`` of the stack ``team`` that have no place any more, since ``stack`` changes.

    ``resource`` is the URN or the key of the pool or cluster, and ``why`` what becomes of it.
    """
    lost_jobs = ", ".join(
        [*jobs[:MOST_JOBS], *([f"{len(jobs) - MOST_JOBS} more"] if len(jobs) > MOST_JOBS else [])]
    )
    return _about_file(
        LOST_POOL,
        resource,
        f"{lost_jobs} of `{team}` {'lose their' if len(jobs) > 1 else 'loses its'} place: {why}",
        f"keep it in the file of `{stack}`; or first give these steps of `{team}` another pool, "
        "in a change of its own",
    ).model_copy(update={"harm": True, "harm_kind": Harm.INTERRUPTION, "name": name_of(resource)})


def mark_new(findings: Iterable[Finding], base: Iterable[Finding]) -> list[Finding]:
    """``findings``, marked as new if ``base`` does not have them, whatever their text. Old findings do no new
    harm."""
    before = Counter((finding.policy, finding.resource) for finding in base)
    marked: list[Finding] = []
    for finding in findings:
        key = (finding.policy, finding.resource)
        new = not before[key]
        no_harm = {} if new else {"harm": False, "harm_kind": None}
        marked.append(finding.model_copy(update={"new": new, **no_harm}))
        before[key] -= min(1, before[key])
    return marked


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, then by policy, resource and reason."""
    return sorted(findings, key=_place)


def _place(finding: Finding) -> tuple[tuple[int, ...], str, str, str]:
    return finding.rank, finding.policy, finding.resource, finding.reason


def _finding(policy: Policy[Any], violation: Violation, stacks: Iterable[Stack]) -> Finding:
    declared = (stack.resources.get(violation.resource) for stack in stacks)
    return Finding(
        policy=policy.id,
        severity=policy.severity,
        resource=violation.resource,
        name=name_of(violation.resource),
        place=next((resource.place for resource in declared if resource is not None), ""),
        reason=violation.reason,
        fix=violation.fix,
        harm=policy.harm is not None,
        harm_kind=policy.harm,
    )


def _with_note(finding: Finding, note: str) -> Finding:
    return finding.model_copy(update={"reason": f"{finding.reason} ({note})"})


def name_of(resource: str) -> str:
    """A URN's name and kind, ``mnist-train (Job)``; a configuration key as it is."""
    if not resource.startswith("urn:"):
        return resource
    type_, _, name = resource.partition("::")[2].partition("::")[2].partition("::")
    return f"{name} ({type_.rpartition(':')[2]})"


def _names(resource: str) -> set[str]:
    """The names by which a suppression can refer to the resource: logical name, URN, or configuration key."""
    return {resource, resource.rpartition("::")[2] if resource.startswith("urn:") else resource}


def _covers(suppression: Suppression, finding: Finding) -> bool:
    return suppression.resources is None or bool(_names(finding.resource) & set(suppression.resources))


def _over(suppression: Suppression, today: date) -> bool:
    return suppression.until is not None and date.fromisoformat(suppression.until) < today


def _unknown(suppressions: Mapping[str, Suppression]) -> Iterator[Finding]:
    known = [policy.id for policy in (*policies(), *CHANGE_POLICIES)]
    for name in suppressions:
        if name not in known:
            pages = f"{page('policies.md')} lists the policies, {page('removed.md')} those that went"
            fix = did_you_mean(name, known, f"remove it; {pages}")
            yield _about_file(
                UNKNOWN_SUPPRESSION, key_of(("suppress", name), f"{SECTION}."), "no such policy", fix
            )


def _unused(suppressions: Mapping[str, Suppression], used: Mapping[str, set[str]]) -> Iterator[Finding]:
    # Policies on changes are left out: whether their suppressions are used depends on the base.
    known = {policy.id for policy in policies()}
    for name, suppression in suppressions.items():
        if name not in known:
            continue
        key = key_of(("suppress", name), f"{SECTION}.")
        if name not in used:
            yield _about_file(UNUSED_SUPPRESSION, key, "the policy finds nothing that it suppresses", "remove it")
            continue
        for resource in sorted(set(suppression.resources or ()) - used[name]):
            yield _about_file(
                UNUSED_SUPPRESSION,
                f"{key}.resources",
                f"the policy finds nothing about {resource}",
                f"take {resource} out of the list",
            )


def _about_file(policy: str, key: str, reason: str, fix: str) -> Finding:
    severity = Severity(ABOUT_FILES[policy]["severity"])
    return Finding(policy=policy, severity=severity, resource=key, name=key, reason=reason, fix=fix)


def _with_value(value: str, reason: str) -> str:
    return reason if value in {"", "not set"} else f"{value}: {reason}"
