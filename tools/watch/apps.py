"""Apps whose pods wait for results: for which, and whether earlier pods of them answer meanwhile."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from infra.kubernetes.labels import APP, NAME
from infra.kubernetes.waiting import CONTAINER
from infra.review.stack import Properties, at, mapping, mappings, text, texts
from tools.watch.observed import conditions, deletion_time, holds, labels_of


def waiting_apps(pods: Sequence[Properties], failed: Collection[str]) -> Iterator[str]:
    """A line for each app of ``pods`` that waits; ``failed`` are the steps that did, as ``<pipeline>-<step>``."""
    apps: dict[tuple[str, str], list[Properties]] = {}
    for pod in pods:
        labels = labels_of(pod)
        if APP in labels and not deletion_time(pod):
            apps.setdefault((labels.get(NAME, ""), labels[APP]), []).append(pod)
    for (pipeline, app), of_app in apps.items():
        waited_for = next(filter(None, (_waited_for(pod, failed) for pod in of_app)), ())
        if waited_for:
            answers = any((holds(conditions(pod), "Ready") or {}).get("status") == "True" for pod in of_app)
            meanwhile = "; its earlier pods answer meanwhile" if answers else ""
            yield f"app {pipeline}.{app} waits for {' and '.join(waited_for)}{meanwhile}"


def _waited_for(pod: Properties, failed: Collection[str]) -> Sequence[str]:
    """What the pod waits for, as its init container was told; empty where that is through."""
    running = {text(status.get("name")) for status in _statuses(pod) if mapping(at(status, "state", "running"))}
    if CONTAINER not in running:
        return ()
    containers = mappings(at(pod, "spec", "initContainers"))
    words = next(texts(entry.get("args")) for entry in containers if entry.get("name") == CONTAINER)
    return [sentence for flag, value in pairwise(words) if (sentence := _in_words(flag, value, failed))]


def _in_words(flag: str, value: str, failed: Collection[str]) -> str:
    name, _, place = value.partition("=")
    parts = place.split("/")
    match flag:
        case "--result":
            return f"the result of {name} ({'/'.join(parts[-3:])})" + _failed(parts[-3:-1], failed)
        case "--any":
            return f"a result of {name}" + _failed(parts[-2:], failed)
        case "--runs":
            return "a good run"
        case "--server":
            return f"the app {name}"
        case _:
            return ""


def _failed(step: Sequence[str], failed: Collection[str]) -> str:
    return ", which failed" if "-".join(step) in failed else ""


def _statuses(pod: Properties) -> Sequence[Mapping[str, object]]:
    return mappings(at(pod, "status", "initContainerStatuses"))
