"""Policies about a change that has results of runs by the clock deleted which stayed before."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.infra.commands import command
from slipway.infra.review.contract import Harm, Severity, Violation
from slipway.infra.review.stack import at, mapping
from slipway.infra.schema.problems import key_of
from slipway.infra.settings.pipelines import KEY
from slipway.offline.policies.app_changes import SECTION
from slipway.offline.policies.changes import Change, ChangePolicy

_KEYS = ("runs", "days")


def _find_deleted(change: Change) -> Iterator[Violation]:
    before, after = (mapping(stack.configuration.get(SECTION)) for stack in (change.before, change.after))
    for name in before.keys() & after.keys():
        rule, earlier = _rule(after[name]), _rule(before[name])
        if not rule or (earlier and all(rule[key] >= earlier[key] for key in _KEYS)):
            continue
        stayed = f"those of {earlier['runs']} runs and {earlier['days']} days stayed" if earlier else "all stayed"
        yield Violation(
            key_of((KEY, name, "schedule", "retention"), "slipway:"),
            "deletes results of old runs by the clock from the store at the end of the next one: all but those of "
            f"the newest {rule['runs']} good runs, of the last {rule['days']} days, and what others refer to, "
            f"where {stayed}",
            f"`{command('show', 'retention', stack=change.after.name)}` lists what goes; "
            + (
                f"leave `runs` at {earlier['runs']} and `days` at {earlier['days']}" if earlier else "leave it out"
            ),
        )


def _rule(section: object) -> Mapping[str, Any]:
    return mapping(at(mapping(section), "schedule", "retention"))


CHANGE_POLICIES: Sequence[ChangePolicy] = (
    ChangePolicy(
        "deletes-old-runs",
        Severity.WARNING,
        "A change lets no schedule delete results of runs that it kept before.",
        _find_deleted,
        f"Leave `retention` as it is; or look at what goes by `{command('show', 'retention')}`, and copy it away "
        "first.",
        harm=Harm.LOSS,
    ),
)
