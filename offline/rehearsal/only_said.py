"""What a stack declares that a rehearsal takes up and does nothing about: a sentence for each."""

import re
from collections.abc import Callable, Iterable, Mapping

from infra.kubernetes.labels import NAME
from infra.review.properties import at, mapping, mappings, strings, text, texts
from infra.review.stack import Resource
from infra.step import IDLE_WATCH
from offline.engine.provider_outputs import kind_of
from offline.policies.workloads import CRON_JOB, DEPLOYMENT
from offline.rehearsal.server_specs import app_of

_DAILY = re.compile(r"(?P<minute>\d+) (?P<hour>\d+) \* \* \*")


def only_said(resources: Iterable[Resource]) -> list[str]:
    """When schedules run, how many pods an app may have, which are left alone, and where people come in."""
    found: list[str] = []
    for each in resources:
        say = _SENTENCES.get(each.type) or _OF_KIND.get(kind_of(each.type) or "")
        sentence = say(each) if say else None
        if sentence and sentence not in found:
            found.append(sentence)
    return found


def _schedule(resource: Resource) -> str | None:
    if strings(at(resource.inputs, "metadata", "labels")).get(NAME) == IDLE_WATCH:
        return None
    spec = mapping(resource.inputs.get("spec"))
    daily = _DAILY.fullmatch(str(spec.get("schedule")))
    when = f"at {int(daily['hour']):02}:{int(daily['minute']):02}" if daily else f"at `{spec.get('schedule')}`"
    zone = spec.get("timeZone") or "in the time zone of the cluster"
    return f"{resource.name} runs {when} {zone}; a rehearsal runs its Jobs once, now"


def _autoscaler(resource: Resource) -> str:
    spec = mapping(resource.inputs.get("spec"))
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas")
    return f"{resource.name} has {least} to {most} pods, as they are busy; a rehearsal runs 1"


def _budget(resource: Resource) -> str | None:
    spec = mapping(resource.inputs.get("spec"))
    if "maxUnavailable" not in spec:
        return None
    count = spec["maxUnavailable"]
    return f"{resource.name}: nodes are drained of at most {count} of its pods at a time; a rehearsal drains none"


def _deployment(resource: Resource) -> str | None:
    if app_of(resource):
        return None
    return f"{resource.name} runs in the cluster beside the apps (Deployment); a rehearsal does not run it"


def _opened(resource: Resource) -> str:
    spec = mapping(resource.inputs.get("spec"))
    named = [text(each.get("host")) for each in mappings(spec.get("rules"))]
    hosts = [each for each in (*named, *texts(spec.get("hostnames")), text(spec.get("host"))) if each]
    where = " and ".join(f"https://{each}" for each in dict.fromkeys(hosts)) or "an address of the cluster"
    return f"{where} leads people to {resource.name}; a rehearsal opens nothing beyond this machine"


_Say = Callable[[Resource], str | None]

_SENTENCES: Mapping[str, _Say] = {CRON_JOB: _schedule, DEPLOYMENT: _deployment}

_OF_KIND: Mapping[str, _Say] = {
    "HorizontalPodAutoscaler": _autoscaler,
    "PodDisruptionBudget": _budget,
    "Ingress": _opened,
    "HTTPRoute": _opened,
    "Route": _opened,
}
"""By kind, whichever version of its API declares it."""
