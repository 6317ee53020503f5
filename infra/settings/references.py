"""Clusters of other stacks: what the outputs of those stacks say of them takes its place in the settings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import ValidationError

from infra.platform_output import OUTPUT, VERSION, PlatformFacts, Resolve, UnreadableStackError
from infra.schema.problems import Finding, Path, did_you_mean, key_of, listed

CLOUD = "other_stack"
"""The ``cloud`` by which the settings know such a cluster; in a stack file, its `stack` says enough."""

READ = ("pools", "facts", "team")
"""Keys whose values come from the other stack."""


@dataclass
class Referred:
    """What was found wrong with clusters of other stacks, and the places that could not be filled for it."""

    findings: list[Finding] = field(default_factory=list[Finding])
    lost: set[Path] = field(default_factory=set[Path])


def unread(stack: str) -> Mapping[str, Any]:
    """An `infra.platform_output.Resolve` for those who have no other stacks."""
    raise UnreadableStackError(f"nothing here can read the outputs of stack `{stack}`", "preview or rehearse it")


def resolve(values: dict[str, Any], read: Resolve | None) -> Referred:
    """Completes the clusters of other stacks in ``values``, plain values of a stack file which may be wrong.

    Without ``read``, they only get their ``cloud``.
    """
    referred = Referred()
    clusters = {str(name): _section(content) for name, content in _section(values.get("clusters")).items()}
    others = {name: section for name, section in clusters.items() if _refers(section)}
    for name, section in others.items():
        referred.findings += _own_keys(name, section)
        section["cloud"] = CLOUD
    if others:
        referred.findings += _own_store(values, others)
        referred.lost.add(("store",))
    elif values.get("store") is None:
        referred.lost.add(("store",))
        referred.findings.append(_no_store("store" in values))
        values.pop("store", None)
    if read is not None:
        for name, section in others.items():
            _fill(name, section, values, read, referred)
    return referred


def _refers(section: Mapping[Any, Any]) -> bool:
    return section.get("cloud") == CLOUD or "stack" in section or ("cluster" in section and "cloud" not in section)


def _own_keys(name: str, section: dict[Any, Any]) -> Iterator[Finding]:
    """What a stack file cannot say of a cluster that another stack has; it is taken away."""
    for key in ("cloud", *READ):
        value = section.pop(key, None)
        if value is not None and not (key == "cloud" and value == CLOUD):
            whose = f"stack `{section.get('stack')}`"
            yield Finding(
                ("clusters", name, key), value, f"the file of {whose} says it, which has the cluster", "remove it"
            )


def _own_store(values: dict[str, Any], others: Mapping[str, Mapping[Any, Any]]) -> Iterator[Finding]:
    store = values.pop("store", None)
    # Pulumi.yaml gives every stack an empty one.
    if store:
        name, section = next(iter(others.items()))
        reason = f"cluster `{name}` is one of stack `{section.get('stack')}`, and has the store of that stack"
        yield Finding(("store",), store, reason, "remove it")


def _no_store(empty: bool) -> Finding:
    add = "add it: the one store that all clusters share, as docs/settings.md describes it"
    return Finding(("store",), None, "empty" if empty else "required, and not there", add)


def _fill(
    name: str, section: dict[Any, Any], values: Mapping[str, Any], read: Resolve, referred: Referred
) -> None:
    at: Path = ("clusters", name)
    stack, cluster = section.get("stack"), section.get("cluster")
    referred.lost.add((*at, "pools"))
    if not isinstance(stack, str) or not isinstance(cluster, str):
        return
    facts = _facts((*at, "stack"), stack, values, read)
    if isinstance(facts, Finding):
        # All clusters of one stack would say the same.
        if not any(
            (finding.value, finding.reason) == (facts.value, facts.reason) for finding in referred.findings
        ):
            referred.findings.append(facts)
        return
    if cluster not in facts.clusters:
        known = sorted(facts.clusters)
        fix = did_you_mean(cluster, known, f"write {listed(known)}")
        reason = f"stack `{stack}` has no cluster of that name"
        referred.findings.append(Finding((*at, "cluster"), cluster, reason, fix))
        return
    team = _team(stack, facts, values)
    if isinstance(team, Finding):
        if team not in referred.findings:
            referred.findings.append(team)
        team = ""
    platform = facts.clusters[cluster]
    # Outputs come in no order, and the first of pools that are alike is where gates run.
    section["pools"] = dict(sorted(platform.pools.items()))
    referred.lost.discard((*at, "pools"))
    if team:
        section.update(facts=platform, team=team)


def _facts(at: Path, stack: str, values: Mapping[str, Any], read: Resolve) -> PlatformFacts | Finding:
    """What the output of ``stack`` says, or why it cannot be used."""
    bring_up = f"run `pulumi up -s {stack}` (whoever has that stack)"
    try:
        outputs = read(stack)
    except UnreadableStackError as error:
        return Finding(at, stack, error.reason, error.fix)
    if not outputs:
        reason = "the stack has no outputs: it has not been brought up, was destroyed, or its last update failed"
        return Finding(at, stack, reason, bring_up)
    output = outputs.get(OUTPUT)
    namespace = values.get("namespace") or "slipway"
    if not isinstance(output, Mapping):
        return Finding(
            at,
            stack,
            f"the stack has no output `{OUTPUT}`, because its file names no teams",
            f"name yours there, `slipway:teams: {{<team>: {{namespace: {namespace}}}}}`, and {bring_up}",
        )
    version: object = cast("Mapping[str, Any]", output).get("version")
    if version != VERSION:
        # Numbers in outputs are floats.
        version = int(version) if isinstance(version, float) else version
        newer = isinstance(version, int) and version > VERSION
        reason = (
            f"its output `{OUTPUT}` has version {version}, and this checkout of Slipway reads version {VERSION}"
        )
        return Finding(at, stack, reason, "update this checkout" if newer else f"{bring_up} with a newer checkout")
    try:
        return PlatformFacts.model_validate(output)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = key_of(tuple(part for part in wrong["loc"] if part != "[key]"), "")
        reason = f"its output `{OUTPUT}` is not as version {VERSION} has it: {key}: {wrong['msg']}"
        return Finding(at, stack, reason, bring_up)


def _team(stack: str, facts: PlatformFacts, values: Mapping[str, Any]) -> str | Finding:
    """The team whose namespace and service account these settings have, or why there is none."""
    namespace = values.get("namespace") or "slipway"
    account = values.get("service_account") or "runner"
    for name, team in facts.teams.items():
        if (team.namespace, team.service_account) == (namespace, account):
            return name
    near = next((team for team in facts.teams.values() if team.namespace == namespace), None)
    if near is not None:
        reason = f"stack `{stack}` lets Jobs in namespace `{namespace}` run as `{near.service_account}` only"
        return Finding(("service_account",), account, reason, f"write `{near.service_account}`")
    teams = ", ".join(
        f"`{name}` in namespace `{team.namespace}` as `{team.service_account}`"
        for name, team in facts.teams.items()
    )
    reason = f"stack `{stack}` has no team with that namespace; it has {teams}"
    fix = "write one of these, or have yours added to `slipway:teams` in that stack's file"
    return Finding(("namespace",), namespace, reason, fix, read=(("service_account",),))


def _section(value: object) -> dict[Any, Any]:
    return cast("dict[Any, Any]", value) if isinstance(value, dict) else dict[Any, Any]()
