"""Keeps `pulumi up` from leaving for good without pods, or suspended, what the last day of a stack has ended.

With a later day each of these objects changes, and so is set as it is declared. Without any, the field stays with
what has scaled or suspended the object: nothing would say that an app has no pod.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import pulumi

from slipway.infra.kubernetes.cluster.workspace import LastDay
from slipway.infra.kubernetes.labels import UNTIL_ANNOTATION
from slipway.infra.pulumi_cli import CliError
from slipway.infra.review.stack import Properties, at, text
from slipway.infra.schema.problems import listed
from slipway.infra.settings import until
from slipway.infra.stack.running_work import RefusedUpdateError


def check(last_days: Iterable[LastDay], exported: Callable[[], Sequence[Properties]], *, preview: bool) -> None:
    """Raises RefusedUpdateError where the stack had a last day that is over, and has none now; a ``preview`` warns
    of that.

    ``last_days`` are those of all namespaces, once everything is declared. ``exported`` asks for the resources of
    the stack's state.
    """
    awake = {
        (kind, name) for of in last_days if of.day is None for kind, names in of.names.items() for name in names
    }
    with suppress(CliError):
        # Where nobody knows the state, nobody knows of its last day either.
        if awake and (said := _ended(awake, exported())):
            if not preview:
                raise RefusedUpdateError(said)
            pulumi.log.warn(said)


def _ended(awake: set[tuple[str, str]], resources: Sequence[Properties]) -> str:
    """What of ``awake``, kinds and names, was ended at a last day; empty where nothing was."""
    days: dict[str, str] = {}
    for resource in resources:
        metadata = at(resource, "inputs", "metadata")
        day, name = text(at(metadata, "annotations", UNTIL_ANNOTATION)), text(at(metadata, "name"))
        # `deployments` of `kubernetes:apps/v1:Deployment`.
        kind = f"{text(resource.get('type')).rpartition(':')[2].lower()}s"
        if day and (kind, name) in awake and until.days_left(day) < 0:
            days[name] = day
    return f"{until.removed(max(days.values()))}: {listed(sorted(days), 'and')}; {until.BACK}" if days else ""
