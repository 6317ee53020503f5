"""The history of a stack that is up: from its store, through a pod, with the commits that Pulumi's history has.

A commit decides no result, so no Job may have it: in its pod template each commit would run all Jobs again, in an
annotation each commit would be an update of all Jobs, and with `ignore_changes` a Job that is replaced would keep
the commit of the one before it. Pulumi notes the commit of each update by itself, and whether files differed from
it (`git.head` and `git.dirty`, pulumi/pulumi, pkg/backend/updates.go, seen November 2026), and a result was made
by the newest update that had begun by then.
"""

import contextlib
import json
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slipway.command.clusters import kubectl
from slipway.command.show import Described, ShowError, reader_pod, run_kubectl, unpack
from slipway.command.watch.plan import Expected, PlanError, evaluate, plan_of
from slipway.features.history.comparison import History, HistoryError
from slipway.features.history.paid import SECONDS_KEPT
from slipway.features.history.results import Result, results
from slipway.infra import pulumi_cli
from slipway.infra.commands import command
from slipway.infra.kubernetes.labels import (
    COMPONENT,
    MOVES_ANNOTATION,
    NAME,
    PLACE_ANNOTATION,
    RESULTS_ANNOTATION,
    RUN_ANNOTATION,
    data_of,
)
from slipway.infra.placed import STORE_GATE
from slipway.infra.review.stack import JOB, Properties, Stack, at, mapping, mappings, strings, text

COPY = """
cd "$1" || exit 1
shift
IFS=
{
  find . -mindepth 3 -maxdepth 3 -type d ! -path './.*'
  find . -mindepth 4 -maxdepth 4 -name manifest.json ! -path './.*'
  find ./.usage ./.history -name '*.json' 2>/dev/null
  for pattern in "$@"; do
    for file in $pattern; do
      if [ -f "$file" ]; then echo "./$file"; fi
    done
  done
} | tar -cf - --no-recursion --ignore-failed-read -T -
"""
"""The shell script that packs what the history is in: the directories of results, manifests, facts, what was used,
and by patterns the files with the numbers."""


@dataclass(frozen=True)
class Update:
    """An update of the stack that Pulumi noted. ``began`` is in seconds since the epoch."""

    version: int
    began: float
    commit: str
    changed: bool


@contextlib.contextmanager
def history_of(stack: str, root: Path) -> Generator[History]:
    """The history of the stack, in a folder that goes again. Raises HistoryError."""
    try:
        resources = pulumi_cli.resources_of(stack)
        updates = updates_of(stack)
    except pulumi_cli.CliError as error:
        raise HistoryError(str(error)) from error
    declared = _declared(resources)
    evaluated = _evaluate(stack, root)
    expected = plan_of(evaluated).steps if evaluated else ()
    with tempfile.TemporaryDirectory(prefix="slipway-history-") as temporary:
        store = Path(temporary) / "store"
        store.mkdir()
        patterns = [
            f"{step}/*/{entry['path']}"
            for step, entries in declared.items()
            for entry in entries
            if entry.get("kind") == "number"
        ]
        reader, places = places_of(stack, resources, Path(temporary))
        try:
            jobs = [job for place in places for job in _jobs(place)]
            with reader_pod(reader) as (pod, mount):
                words = ["sh", "-c", COPY, "sh", mount, *dict.fromkeys(patterns)]
                if failure := unpack([*reader.kubectl, "exec", pod, "--", *words], store):
                    raise HistoryError(f"the manifests could not be copied: {failure}")
        except ShowError as error:
            raise HistoryError(str(error)) from error
        facts = _facts(jobs)
        listed: list[Result] = []
        for result in results(store):
            noted = {**facts.get(result.path, {}), **result.facts}
            # Without the Job nobody knows when it began.
            known = _known(result, noted.get("began", result.made), updates, expected)
            listed.append(replace(result, facts={**known, **noted}))
        yield History(store, listed, root, declared)


def updates_of(stack: str) -> list[Update]:
    """The newest hundred updates of the stack, the newest first. Raises CliError."""
    words = ("stack", "history", "--json", "--full-dates", "--page-size", "100", "--stack", stack)
    try:
        entries = mappings(json.loads(pulumi_cli.run(*words) or "[]"))
    except ValueError as error:
        raise pulumi_cli.CliError(f"pulumi {' '.join(words)} did not print JSON: {error}") from error
    updates: list[Update] = []
    for entry in entries:
        environment = strings(entry.get("environment"))
        began = _seconds(text(entry.get("startTime")))
        if entry.get("kind") == "update" and began is not None:
            version = entry.get("version")
            commit, changed = environment.get("git.head", ""), environment.get("git.dirty") == "true"
            updates.append(Update(version if isinstance(version, int) else 0, began, commit, changed))
    return sorted(updates, key=lambda update: update.began, reverse=True)


def _seconds(time: str) -> float | None:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _known(
    result: Result, began: float, updates: Iterable[Update], expected: Iterable[Expected]
) -> dict[str, Any]:
    """Facts that follow from when a Job began, and from what the program declares of its step now."""
    facts: dict[str, Any] = {}
    for update in updates:
        if update.began <= began:
            facts = {"update": update.version, "commit": update.commit, "changed": update.changed}
            break
    for step in expected:
        if (step.pipeline, step.step) == (result.pipeline, result.step) and step.job.endswith(result.digest):
            if step.places:
                # The pods say at which of them they were.
                pools = {place.pool: _of_nodes(place) for place in step.places}
                facts |= {"pods": step.places[0].pods, "pools": pools}
            else:
                facts |= {"pool": step.pool, "pods": step.pods, **_of_nodes(step)}
    return facts


def _of_nodes(step: Expected) -> dict[str, float]:
    """What the program declares of the nodes that the step has."""
    known = {"rate": step.rate, SECONDS_KEPT: step.kept}
    return {name: value for name, value in known.items() if value is not None}


def _evaluate(stack: str, root: Path) -> Stack | None:
    try:
        return evaluate(stack, root)
    except PlanError:
        # This checkout need not be what is up: then pools and prices are not known.
        return None


def _declared(resources: Iterable[Properties]) -> dict[str, list[Properties]]:
    """The results that the Jobs in the stack's state declare, by ``<pipeline>/<step>``."""
    declared: dict[str, list[Properties]] = {}
    for resource in resources:
        if resource.get("type") == JOB:
            metadata = at(mapping(resource.get("inputs")), "metadata")
            labels = strings(at(mapping(metadata), "labels"))
            annotation = strings(at(mapping(metadata), "annotations")).get(RESULTS_ANNOTATION)
            if annotation:
                declared[f"{labels.get(NAME)}/{labels.get(COMPONENT)}"] = mappings(json.loads(annotation))
    return declared


def places_of(stack: str, resources: Sequence[Properties], folder: Path) -> tuple[Described, list[Described]]:
    """What reads the store, and by cluster what reads its Jobs. Raises HistoryError."""
    places: list[Described] = []
    for resource in resources:
        name = text(resource.get("urn")).rpartition("::")[2]
        if resource.get("type") != JOB or resource.get("delete") or not name.startswith(f"{STORE_GATE}-"):
            continue
        provider = text(resource.get("provider")).split("::")[-2:][0]
        namespace, _, job = text(resource.get("id")).rpartition("/")
        words = [*kubectl(*pulumi_cli.kubeconfig_of(resources, provider), folder), "--namespace", namespace]
        places.append(Described(words, job, "", "", "", text(resource.get("urn"))))
    if not places:
        raise HistoryError(
            f"the stack {stack} has no Job that reads its store: `pulumi up -s {stack}` has not ended well yet"
        )
    return places[0], places


def _jobs(place: Described) -> list[Properties]:
    """The Jobs of the namespace. Raises ShowError."""
    return mappings(mapping(json.loads(run_kubectl(place, ["get", "jobs", "--output", "json"]))).get("items"))


def _facts(jobs: Iterable[Properties]) -> dict[str, dict[str, Any]]:
    """What the Jobs that are still there say of their results, by the result's path."""
    facts: dict[str, dict[str, Any]] = {}
    every = list(jobs)
    ended_at = dict(_ends(every))
    for job in every:
        containers = mappings(at(job, "spec", "template", "spec", "containers"))
        annotations = strings(at(job, "metadata", "annotations"))
        path = annotations.get(RUN_ANNOTATION)
        times = [_seconds(text(at(job, "status", key))) for key in ("startTime", "completionTime")]
        if path is None:
            continue
        known: dict[str, Any] = {"image": text(containers[0].get("image")) if containers else ""}
        if MOVES_ANNOTATION in annotations:
            # The Job of a step with places is that of its mover: another one made the result.
            known = ended_at.get(text(at(job, "metadata", "name")), {"image": ""})
        known["data"] = {name: [*data] for name, data in data_of(annotations).items()}
        if None not in times:
            known |= dict(zip(("began", "ended"), times, strict=True))
        facts[path] = known
    return facts


def _ends(jobs: Iterable[Properties]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of the Job of each step with places, where it ended: its pool and its image."""
    for job in jobs:
        place = strings(at(job, "metadata", "annotations")).get(PLACE_ANNOTATION)
        if place is not None and at(job, "status", "completionTime"):
            containers = mappings(at(job, "spec", "template", "spec", "containers"))
            image = text(containers[0].get("image")) if containers else ""
            yield json.loads(place)["of"], {"image": image, "pool": json.loads(place)["pool"]}


def rehearsed(folder: Path, stack: str, root: Path) -> History:
    """The history of the rehearsals in ``folder``. Raises HistoryError where there was none."""
    store = folder / "store"
    if not store.is_dir():
        raise HistoryError(f"there is no rehearsal in {folder}: {command('rehearse', stack=stack)}")
    return History(store, results(store), root, {})
