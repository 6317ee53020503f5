"""Apps whose pods wait for results: for which, and whether earlier pods of them answer meanwhile."""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from slipway.command.watch.observed import conditions, deletion_time, holds, labels_of
from slipway.infra.kubernetes.apps.waiting import CONTAINER
from slipway.infra.kubernetes.labels import APP, NAME
from slipway.infra.review.stack import Properties, at, mapping, mappings, text, texts


def waiting_apps(pods: Sequence[Properties], failed: Collection[str], done: Collection[str] = ()) -> Iterator[str]:
    """A line for each app of ``pods`` that waits; ``failed`` and ``done`` are steps, as ``<pipeline>-<step>``."""
    apps: dict[tuple[str, str], list[Properties]] = {}
    for pod in pods:
        labels = labels_of(pod)
        if APP in labels and not deletion_time(pod):
            apps.setdefault((labels.get(NAME, ""), labels[APP]), []).append(pod)
    for (pipeline, app), of_app in apps.items():
        waiting = [words for pod in of_app if (words := _words(pod))]
        if waiting:
            waited_for = " and ".join(_in_words(waiting[0], failed, done)) or "what is there now"
            answers = any((holds(conditions(pod), "Ready") or {}).get("status") == "True" for pod in of_app)
            yield f"app {pipeline}.{app} waits for {waited_for}{'; its earlier pods answer meanwhile' * answers}"


def _words(pod: Properties) -> Sequence[str]:
    """The arguments of its init container; empty where that is through."""
    statuses = mappings(at(pod, "status", "initContainerStatuses"))
    running = {text(status.get("name")) for status in statuses if mapping(at(status, "state", "running"))}
    containers = mappings(at(pod, "spec", "initContainers"))
    waiters = [entry for entry in containers if entry.get("name") == CONTAINER]
    return texts(waiters[0].get("args")) if waiters and CONTAINER in running else []


def _in_words(words: Sequence[str], failed: Collection[str], done: Collection[str]) -> Iterator[str]:
    """What the pod waits for, but for the results of steps that are ``done``."""
    any_of: list[str] = []
    for flag, value in pairwise(words):
        name, _, place = value.partition("=")
        parts = place.split("/")
        step = "-".join(parts[-3:-1] if flag == "--result" else parts[-2:])
        why = ", which failed" if step in failed else ""
        if flag == "--result" and step not in done:
            yield f"the result of {name} ({'/'.join(parts[-3:])}){why}"
        elif flag == "--any" and step not in done:
            any_of.append(f"{name}{why}")
        elif flag == "--runs":
            yield "a good run"
        elif flag == "--server":
            yield f"the app {name}"
    if any_of:
        yield f"any result of {', '.join(any_of)}"
