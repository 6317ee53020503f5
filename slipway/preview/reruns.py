"""Which Jobs an update runs, on which pool, and what changed for each."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from slipway.evaluated.model import JobRun, Operation, Outcome
from slipway.evaluated.operations import ResourceDiff
from slipway.evaluated.phrasing import join
from slipway.evaluated.places import MovedStep, is_held, moved_steps
from slipway.evaluated.workloads import gpus_of, workload_of, workloads
from slipway.infra.kubernetes.labels import RUN_ANNOTATION, inputs_of
from slipway.infra.kubernetes.review import CLAIM, VOLUME, volume_of
from slipway.infra.placed import CODE, CODE_PART
from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.review.property_diff import Difference, Path
from slipway.infra.review.stack import (
    CONFIG_MAP,
    JOB,
    NodePool,
    Resource,
    Stack,
    at,
    mapping,
    mappings,
    strings,
    text,
    texts,
)
from slipway.preview import run_changes
from slipway.preview.archived_code import content_of, members

# The files that pods mount from ConfigMaps, by their paths in the pod.


def pod_spec(job: Resource) -> Mapping[str, Any]:
    """The pod that a Job starts."""
    return mapping(at(job.properties, "spec", "template", "spec"))


class ShippedFiles:
    """The files of all ConfigMaps of a stack, and the Jobs, services and apps that mount them."""

    def __init__(self, stack: Stack) -> None:
        self._maps = {_identity(config_map): config_map for config_map in stack.of_type(CONFIG_MAP)}
        self._paths: dict[tuple[str, str], dict[str, str]] = {}
        self._jobs = stack.of_type(JOB)
        for workload in workloads(stack):
            for identity, items in _find_mounted(workload.resource, workload.spec):
                self._paths.setdefault(identity, {}).update(items)

    @property
    def files(self) -> dict[str, Any]:
        """The contents of all files that any Job mounts, by path."""
        return {path: content for job in self._jobs for path, content in self.of(job).items()}

    def path(self, config_map: Resource, key: str) -> str:
        """The path in the pod of the file at ``key``, from the pods that mount it; empty if none does."""
        return self._paths.get(_identity(config_map), {}).get(key, "")

    def of(self, job: Resource) -> dict[str, Any]:
        """The contents of all files that a Job mounts, by path."""
        files: dict[str, Any] = {}
        parts: list[bytes] = []
        for identity, items in _find_mounted(job, pod_spec(job)):
            if identity in self._maps:
                held = self._maps[identity].properties
                if items == {CODE_PART: CODE_PART}:
                    parts.append(content_of(held, CODE_PART))
                    continue
                contents = {**mapping(held.get("data")), **mapping(held.get("binaryData"))}
                files.update({path: contents.get(key) for key, path in items.items()})
        return {**files, **{f"{CODE}/{path}": content for path, content in members(parts).items()}}


def _identity(config_map: Resource) -> tuple[str, str]:
    """The provider and the object's name, which together identify the ConfigMap."""
    return config_map.provider, text(at(config_map.properties, "metadata", "name"))


def _find_mounted(owner: Resource, pod: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, str]]]:
    """The identities of the ConfigMaps that the ``pod`` of a resource mounts, each with the paths of its keys."""
    for volume in mappings(pod.get("volumes")):
        if name := text(at(volume, "configMap", "name")):
            items = mappings(at(volume, "configMap", "items"))
            yield (owner.provider, name), {text(item.get("key")): text(item.get("path")) for item in items}


# Files of Jobs that moved to another path, and the changes that follow from that alone.


MOVED = "its code moved"


class MovedFiles:
    """The files of a stack that moved; ``paths`` has their new paths by the old ones.

    A file moved if one of the same name is gone and the code is the same, but for the names of modules that moved.
    ``before`` and ``after`` are all files.
    """

    def __init__(self, before: ShippedFiles, after: ShippedFiles) -> None:
        self.before, self.after = before, after
        earlier, now = before.files, after.files
        came = {PurePosixPath(path).name: path for path in now if path not in earlier}
        gone = [path for path in earlier if path not in now]
        self.paths: Mapping[str, str] = {
            path: came[name] for path in gone if (name := PurePosixPath(path).name) in came
        }
        # Another file may count as moved only because this one did, so the rest is checked again.
        while wrong := [old for old, new in self.paths.items() if not self.is_same(earlier[old], now[new])]:
            self.paths = {old: new for old, new in self.paths.items() if old not in wrong}

    def is_same(self, before: object, after: object) -> bool:
        """Whether two contents are the same except for the names of modules that moved."""
        return before == after or self.is_renamed(before, after)

    def is_renamed(self, before: object, after: object) -> bool:
        """Whether two texts differ in the names of modules that moved and in nothing else."""
        if not (self.paths and isinstance(before, str) and isinstance(after, str)):
            return False
        names = {_module(old): _module(new) for old, new in self.paths.items()} | dict(self.paths)
        pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})(?![\w/])")
        renamed = pattern.sub(lambda match: names[match[0]], before)
        return renamed != before and (renamed == after or _code(renamed) == _code(after))

    def explains(self, path: str) -> bool:
        """Whether the file at ``path`` was added or removed because it, or its package, moved."""
        ends = {*self.paths, *self.paths.values()}
        here = PurePosixPath(path)
        return path in ends or (
            here.name == "__init__.py" and any(PurePosixPath(end).parent == here.parent for end in ends)
        )


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


@cache
def _code(text: str) -> str:
    """A Python file without its comments, its line breaks and the order of its imports; another text as it is."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = " ".join(node.value.split())
    # A new name may change the order of sorted imports.
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    rest = [ast.dump(node) for node in tree.body if node not in imports]
    return "\n".join([*sorted(map(ast.dump, imports)), *rest])


SHOWN = 3
"""How many changed files are named."""

NEW_STORE = "its store is new"
UNEXPLAINED = ["what its result depends on changed"]
COMES = frozenset({Operation.CREATE, Operation.REPLACE})

PARTS: Mapping[str, str] = {
    "image": "its image",
    "args": "its arguments",
    "command": "its command",
    "env": "its environment",
    "nodeSelector": "its node selector",
    "tolerations": "its tolerations",
    "runtimeClassName": "its runtime class",
    "serviceAccountName": "its service account",
}
"""The keys of a pod as text."""

COUNTS: Mapping[str, str] = {"completions": "its completions", "parallelism": "its parallelism"}
"""The numbers of a Job's pods as text."""

AMOUNTS: Mapping[str, str] = {"cpu": "CPU", "memory": "memory", "ephemeral-storage": "disk", GPU_RESOURCE: "GPUs"}


def runs(before: Stack, after: Stack, compared: Sequence[ResourceDiff], moved: MovedFiles) -> list[JobRun]:
    """Every Job that the update creates or replaces, in the order of their declaration."""
    return _Runs(before, after, compared, moved).list_runs()


class _Runs:
    """Decides about Jobs in the order of declaration, so that the Jobs whose results one reads are decided before
    it."""

    def __init__(self, before: Stack, after: Stack, compared: Sequence[ResourceDiff], moved: MovedFiles) -> None:
        self._before = before
        self._after = after
        self._moved = moved
        self._steps = moved_steps(after)
        self._compared = compared
        self._operations = {comparison.resource.urn: comparison.operation for comparison in compared}
        self._claims = after.of_type(CLAIM)
        self._earlier_places = [_place(volume) for volume in before.of_type(VOLUME)]
        self._earlier_folders = [folder for job in before.of_type(JOB) for folder in _mounted_folders(job)]
        self._earlier = {_name(job) for job in before.of_type(JOB)}
        self._computing: dict[str, Resource] = {}
        """The Jobs that compute a result, by its directory."""

    def list_runs(self) -> list[JobRun]:
        made: list[JobRun] = []
        for comparison in self._compared:
            job = comparison.after
            if job is not None and job.type == JOB and comparison.operation in COMES and not is_held(job):
                outcome = self._outcome(job)
                step = self._steps.get(job.urn)
                made.append(
                    self._moved_run(comparison, step, outcome) if step else self._job_run(comparison, job, outcome)
                )
                if outcome is Outcome.RUNS and (result := _result(job)):
                    self._computing[result] = job
        return made

    def _moved_run(self, compared: ResourceDiff, step: MovedStep, outcome: Outcome) -> JobRun:
        """The run of a step with places, once: on the pool of its first place, and why at any of them."""
        job = _with_run_of(step.job, step.places[0].resource)
        causes = self._moved_causes(compared, step) if compared.before is not None else None
        run = self._job_run(compared, job, outcome, causes)
        return run.model_copy(
            update={"urn": step.job.urn, "name": step.job.name, "places": step.pools(self._after)}
        )

    def _moved_causes(self, compared: ResourceDiff, step: MovedStep) -> list[str]:
        """What changed about the step, about its Jobs at single places, or else about its mover."""
        before, pools = compared.before, {place.resource.urn: place.pool(self._after) for place in step.places}
        assert before is not None
        names = {urn: pool.name if pool else urn.rpartition("::")[2] for urn, pool in pools.items()}
        kept = [place for place in self._compared if place.resource.urn in names and place.before is not None]
        places_by_cause: dict[str, list[str]] = {}
        for place in kept:
            if place.operation in COMES and place.before is not None and place.after is not None:
                job = _with_run_of(step.job, place.after)
                changed = replace(place, before=_with_run_of(before, place.before), after=job)
                for cause in self._causes(changed, job, pools[job.urn]):
                    places_by_cause.setdefault(cause, []).append(names[job.urn])
        order = list(names.values())
        causes = [
            cause if len(at) == len(kept) else f"{cause} at {join(sorted(at, key=order.index))}"
            for cause, at in places_by_cause.items()
            if cause not in UNEXPLAINED
        ]
        causes += run_changes.places_changes(before, step.job)
        if causes or places_by_cause:
            return causes or UNEXPLAINED
        return self._causes(compared, step.job, workload_of(step.job, self._after).pool(self._after))

    def _job_run(
        self, compared: ResourceDiff, job: Resource, outcome: Outcome, known: Sequence[str] | None = None
    ) -> JobRun:
        """``known`` is why it runs, where that is not in ``compared``."""
        workload = workload_of(job, self._after)
        pool = workload.pool(self._after)
        gpus = gpus_of(workload)
        causes = self._causes(compared, job, pool) if known is None else known
        items: run_changes.Again = ""
        if outcome is Outcome.RUNS and compared.before is not None and not self._store_is_new(job):
            folders = run_changes.folders_of_items(compared.before, job)
            items = run_changes.find_scope(job, causes, {**self._inputs(job), **folders})
        return JobRun(
            urn=job.urn,
            name=job.name,
            outcome=outcome,
            cluster=self._after.cluster_of(job),
            pool=pool.name if pool else "",
            known=workload.placement_known(self._after),
            accelerator=(pool.accelerator or "") if pool and gpus else "",
            gpus=gpus,
            nodes=workload.pods if workload.together else 1,
            because="; ".join([*causes, *run_changes.scope_words(items), *run_changes.trials_words(job)]),
            items=items,
        )

    def _outcome(self, job: Resource) -> Outcome:
        kept = bool(_result(job)) and _name(job) in self._earlier and not self._store_is_new(job)
        return Outcome.RESUMES if kept else Outcome.RUNS

    def _causes(self, compared: ResourceDiff, job: Resource, pool: NodePool | None) -> list[str]:
        if compared.before is None:
            again = "it is declared anew" if _name(job) in self._earlier else "it is new"
            return [again, *self._lost_store(job)]
        files, inputs = self._changed_files(compared.before, job), list(self._inputs(job).values())
        causes = [
            *files,
            # The code of these Jobs moved, too, so that reason is enough.
            *([] if files == [MOVED] else inputs),
            *run_changes.data_changes(compared.before, job).values(),
            *_parts(compared, job, self._moved),
            *self._other_accelerator(compared.before, pool),
            *self._lost_store(job),
        ]
        if self._operations.get(job.provider) is Operation.REPLACE:
            causes.append(f"its cluster {self._after.cluster_of(job)} is replaced")
        elif compared.because and NEW_STORE not in causes:
            causes.append(compared.because)
        return causes or self._changed_pools(pool) or self._changed_before(compared.before, job) or UNEXPLAINED

    def _changed_pools(self, pool: NodePool | None) -> list[str]:
        """The Job's own pool, if it changes."""
        if pool is None or not self._changes(pool):
            return []
        return [f"the pool {pool.name}{f' of {pool.stack}' if pool.stack else ''} changes"]

    def _changes(self, pool: NodePool) -> bool:
        return pool not in self._before.pools if pool.stack else bool(self._operations.get(pool.urn))

    def _other_accelerator(self, old: Resource, pool: NodePool | None) -> list[str]:
        earlier = workload_of(old, self._before).pool(self._before)
        known = earlier and earlier.accelerator, pool and pool.accelerator
        return (
            [f"its accelerator changed from {known[0]} to {known[1]}"] if all(known) and len({*known}) > 1 else []
        )

    def _changed_before(self, old: Resource, job: Resource) -> list[str]:
        """The changed dependencies of the Job: other Jobs if there are any, else all."""
        fates = {Operation.CREATE: "is new", Operation.DELETE: "is gone", Operation.UPDATE: "changes"}
        changed = [
            (urn, fates.get(operation, "is replaced"))
            for urn in sorted(old.dependencies | job.dependencies)
            if (operation := self._operations.get(urn))
        ]
        changed = [pool for pool in changed if f"{JOB}::" in pool[0]] or changed
        more = [f"{len(changed) - SHOWN} more that it waits for change"] if len(changed) > SHOWN else []
        return [*(f"{urn.rpartition('::')[2]} {fate}" for urn, fate in changed[:SHOWN]), *more]

    def _changed_files(self, old: Resource, new: Resource) -> list[str]:
        earlier, now = self._moved.before.of(old), self._moved.after.of(new)
        changed = [path for path in now if path in earlier and earlier[path] != now[path]]
        came, went = [path for path in now if path not in earlier], [path for path in earlier if path not in now]
        if run_changes.node_run_changes(old, new):
            came, went = run_changes.without_launcher(came), run_changes.without_launcher(went)
        return [
            *_list_paths(
                [path for path in changed if not self._moved.is_same(earlier[path], now[path])], "changed"
            ),
            *_list_paths([path for path in came if not self._moved.explains(path)], "came"),
            *_list_paths([path for path in went if not self._moved.explains(path)], "went"),
            *([MOVED] if any(map(self._moved.explains, went)) else []),
        ]

    def _inputs(self, job: Resource) -> dict[str, str]:
        """The Job's inputs that the update computes, by their directory."""
        inputs: dict[str, str] = {}
        for directory in inputs_of(_annotations(job)).values():
            if needed := self._computing.get(directory):
                fate = "is new" if self._operations[needed.urn] is Operation.CREATE else "runs again"
                inputs[directory] = f"its input {needed.name} {fate}"
        return inputs

    def _lost_store(self, job: Resource) -> list[str]:
        return [NEW_STORE] if _result(job) and self._store_is_new(job) and self._earlier else []

    def _store_is_new(self, job: Resource) -> bool:
        """Whether the update creates the store that the Job mounts, or takes another one for it."""
        if self._earlier_folders and any(folder not in self._earlier_folders for folder in _mounted_folders(job)):
            return True
        claims = {
            text(at(volume, "persistentVolumeClaim", "claimName"))
            for volume in mappings(pod_spec(job).get("volumes"))
        }
        origins = set(job.property_dependencies.get("spec", ()))
        for claim in self._claims:
            if claim.provider == job.provider and text(at(claim.properties, "metadata", "name")) in claims:
                volume = volume_of(claim, self._after)
                origins |= {claim.urn, *claim.property_dependencies.get("spec", ())}
                if volume is None:
                    continue
                origins |= {volume.urn, *volume.property_dependencies.get("spec", ())}
                if _place(volume) in self._earlier_places:
                    # The same folder or bucket behind another claim.
                    origins -= {claim.urn, volume.urn}
                    if at(volume.properties, "spec", "hostPath"):
                        origins.add(volume.provider)
        # A mover's pod has a digest of the Jobs that it moves.
        return any(self._operations.get(urn) in COMES and f"{JOB}::" not in urn for urn in origins)


def _with_run_of(mover: Resource, place: Resource) -> Resource:
    """The Job at a place with what the annotations of its mover say of the run: its result and its inputs."""
    metadata = mapping(place.properties.get("metadata"))
    annotations = {**_annotations(mover), **strings(metadata.get("annotations"))}
    return replace(place, properties={**place.properties, "metadata": {**metadata, "annotations": annotations}})


def _parts(compared: ResourceDiff, job: Resource, moved: MovedFiles) -> list[str]:
    """The changed parts of the pod, as text."""
    causes: dict[str, None] = {}
    for difference in compared.differences:
        if _names_the_run(difference, compared.before, job) or moved.is_renamed(
            difference.before, difference.after
        ):
            continue
        comes_or_goes = difference.before is None or difference.after is None
        for path in (
            difference.leaves if comes_or_goes and not _is_container(difference.path) else [difference.path]
        ):
            if words := _part(path):
                causes[words] = None
    if not causes:
        return []
    of_workers = run_changes.changes(compared.before, job) if compared.before else []
    if "its arguments" in causes and _same_but_directories(compared.before, job, workers=bool(of_workers)):
        causes.pop("its arguments")
    if compared.before and _same(run_changes.command, compared.before, job):
        causes.pop(PARTS["command"], None)
    of_nodes = run_changes.node_run_changes(compared.before, job) if compared.before else []
    if of_workers or of_nodes:
        causes = {words: None for words in causes if words not in COUNTS.values()}
    if of_nodes and compared.before:
        causes = {words: None for words in causes if words not in _find_following(compared.before, job)}
    if compared.before and _directories(job) and not _directories(compared.before):
        # A Job from before its annotations does not say which directories its arguments name (November 2026).
        causes = {words: None for words in causes if words not in {PARTS["args"], PARTS["env"]}}
    return [*of_workers, *of_nodes, *(f"{words} changed" for words in causes)]


def _find_following(old: Resource, new: Resource) -> set[str]:
    """The parts of a pod, as text, that differ only since it finds other pods, or none."""
    parts = {
        "args": run_changes.own_arguments,
        "command": run_changes.own_command,
        "env": run_changes.own_environment,
    }
    following = {PARTS[key] for key, words in parts.items() if _same(words, old, new)}
    following |= {"its volumes"} if _same(run_changes.own_volumes, old, new) else set()
    following |= {"its pod's containers"} if _same(run_changes.own_container, old, new) else set()
    return following | {"its pod's affinity", "its pod's subdomain"}


def _same(words: Callable[[Resource], Sequence[str]], old: Resource, new: Resource) -> bool:
    """Whether these words of both Jobs differ in the directories of results only."""
    before, now = ([_with_names(word, side) for word in words(side)] for side in (old, new))
    return before == now


def _names_the_run(difference: Difference, old: Resource | None, job: Resource) -> bool:
    """Whether a text differs in the directories of results only, which follows from other changes."""
    before, after = difference.before, difference.after
    if old is None or not isinstance(before, str) or not isinstance(after, str):
        return False
    return _with_names(before, old) == _with_names(after, job)


def _is_container(path: Path) -> bool:
    return [step for step in path if isinstance(step, str)][-1] == "initContainers"


def _part(path: Path) -> str:
    keys = [step for step in path if isinstance(step, str)]
    if "initContainers" in keys and not {"resources", "image"} & {*keys}:
        return "what runs before its program"
    if keys == ["metadata", "namespace"]:
        return "its namespace"
    if keys[:3] != ["spec", "template", "spec"] and keys[:3] != ["spec", "template", "metadata"]:
        return COUNTS.get(keys[-1], "")
    if "resources" in keys:
        return (
            f"its {AMOUNTS.get(keys[-1], keys[-1])}" if keys[-1] not in {"limits", "requests", "resources"} else ""
        )
    if "volumes" in keys:
        # Mounted files are a cause of their own.
        return "" if "configMap" in keys else "its volumes"
    known = next((PARTS[key] for key in keys if key in PARTS), "")
    return known or (f"its pod's {keys[3]}" if len(keys) > 3 else "")


def _same_but_directories(old: Resource | None, new: Resource, *, workers: bool) -> bool:
    """Whether the arguments differ only in the directories of results, which follow from other changes.

    With ``workers`` they may also differ in the options for workers.
    """
    earlier, now = (
        [_with_names(word, side) for word in _arguments(side)] if side is not None else [] for side in (old, new)
    )
    return run_changes.without_workers(earlier) == run_changes.without_workers(now) if workers else earlier == now


def _with_names(content: str, job: Resource) -> str:
    """``content`` with the name of each of the Job's directories in the place of its path, and so of the Job."""
    names = {**_directories(job), "job": _name(job)}
    for name, path in sorted(names.items(), key=lambda item: len(item[1]), reverse=True):
        content = content.replace(path, f"{{{name}}}")
    return content


def _directories(job: Resource) -> dict[str, str]:
    """The directories below the store's root that the Job writes and reads, by what they are to the Job."""
    directories = {"output": _result(job)} if _result(job) else {}
    return {**directories, **inputs_of(_annotations(job))}


def _arguments(job: Resource) -> list[str]:
    containers = mappings(pod_spec(job).get("containers"))
    return [argument for container in containers for argument in texts(container.get("args"))]


def _annotations(job: Resource) -> dict[str, str]:
    return strings(at(job.properties, "metadata", "annotations"))


def _name(job: Resource) -> str:
    """The Job's name on its cluster, which is another one for each run."""
    return text(at(job.properties, "metadata", "name"))


def _result(job: Resource) -> str:
    """The directory of the Job's result; empty if it has none."""
    return _annotations(job).get(RUN_ANNOTATION, "")


def _mounted_folders(job: Resource) -> list[tuple[str, str]]:
    """The store's bucket that the Job's pods mount without a claim, and its folder; empty without one.

    Cloud Storage FUSE has both in the attributes of such a volume (cloud.google.com/kubernetes-engine/docs/how-to/
    cloud-storage-fuse-csi-driver-ephemeral, seen November 2026).
    """
    places: list[tuple[str, str]] = []
    for volume in mappings(pod_spec(job).get("volumes")):
        attributes = mapping(at(volume, "csi", "volumeAttributes"))
        if volume.get("name") == "store" and (bucket := text(attributes.get("bucketName"))):
            options = text(attributes.get("mountOptions")).split(",")
            folders = [option.partition("=")[2] for option in options if option.startswith("only-dir=")]
            places.append((bucket, next(iter(folders), "")))
    return places


def _place(volume: Resource) -> list[object]:
    """Identifies a volume's files, regardless of the volume's name and size."""
    spec = mapping(volume.properties.get("spec"))
    attributes = {
        key: value for key, value in mapping(at(spec, "csi", "volumeAttributes")).items() if key != "capacity"
    }
    return [
        at(spec, "nfs", "server"),
        at(spec, "nfs", "path"),
        at(spec, "hostPath", "path"),
        at(spec, "csi", "driver"),
        at(spec, "csi", "volumeHandle"),
        attributes,
    ]


def _list_paths(paths: Sequence[str], verb: str) -> list[str]:
    if not paths:
        return []
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    # A command's own files, as its folder has them.
    names = [path.removeprefix(f"{CODE}/") for path in paths[:SHOWN]]
    return [f"{', '.join(names)}{more} {verb}"]
