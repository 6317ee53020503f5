"""Which Jobs an update runs, on which pool, and what changed for each.

What a step's result follows from is in the placed model. Of Jobs that are no steps, and where the base is of a
version that printed no model, the changed parts of the pod are told.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

from slipway.evaluated.model import JobRun, Operation, Outcome
from slipway.evaluated.operations import ResourceDiff
from slipway.evaluated.phrasing import duration, join, money
from slipway.evaluated.places import MovedStep, is_held, moved_steps, moves_of
from slipway.evaluated.workloads import gpus_of, workload_of
from slipway.infra.kubernetes.review import CLAIM, VOLUME, volume_of
from slipway.infra.pipelines.file.shape import STEP_KEYS
from slipway.infra.placed import CODE
from slipway.infra.placed_model import PlacedStep
from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.review.property_diff import Path
from slipway.infra.review.stack import JOB, NodePool, Resource, Stack, at, mapping, mappings, text
from slipway.infra.schema.names import short_digest

Again = Literal["", "all", "changed"]

SHOWN = 3
"""How many changed files are named."""

NEW_STORE = "its store is new"
UNEXPLAINED = ["what its result depends on changed"]
COMES = frozenset({Operation.CREATE, Operation.REPLACE})

DECIDES: Mapping[str, str] = {
    "module": "its command",
    "image": "its image",
    "arguments": "its arguments",
    "environment": "its environment",
    "gpus": "its GPUs",
    "hardware": "the accelerators of its places",
    "choices": "how the best of its inputs is chosen",
    "places": "its directory or its mounts",
}
"""What decides a step's result (`PlacedStep.decides`) as text. Accelerators, data and keys of features have
sentences of their own."""

OF_SLIPWAY = "how Slipway runs it"
"""The rest of what decides a result."""

PARTS: Mapping[str, str] = {
    "image": "its image",
    "args": "its arguments",
    "command": "its command",
    "env": "its environment",
    "nodeSelector": "its node selector",
    "tolerations": "its tolerations",
    "runtimeClassName": "its runtime class",
    "serviceAccountName": "its service account",
    "completions": "its completions",
    "parallelism": "its parallelism",
}
"""The keys of a Job and its pod as text."""

AMOUNTS: Mapping[str, str] = {"cpu": "CPU", "memory": "memory", "ephemeral-storage": "disk", GPU_RESOURCE: "GPUs"}

WHERE = frozenset(
    f"{part} changed"
    for part in (
        "its namespace",
        PARTS["nodeSelector"],
        PARTS["tolerations"],
        *(f"its {name}" for name in AMOUNTS.values() if name != "GPUs"),
    )
)
"""The parts of a step's pod that its placed model does not tell of."""


def step_causes(old: PlacedStep, new: PlacedStep) -> list[str]:
    """What changed about a step itself, but for the results that it reads."""
    return [
        *_file_causes(old.files, new.files),
        *data_causes(old, new).values(),
        *(cause for key in STEP_KEYS for cause in key.causes(old, new)),
        *dict.fromkeys(_decided(old.decides, new.decides)),
    ]


def _file_causes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    changed = [path for path, digest in new.items() if path in old and old[path] != digest]
    came, went = ([path for path in one if path not in other] for one, other in ((new, old), (old, new)))
    return [*_list_paths(changed, "changed"), *_list_paths(came, "came"), *_list_paths(went, "went")]


def data_causes(old: PlacedStep, new: PlacedStep) -> dict[str, str]:
    """What changed about the data that a step reads and nothing of the stack makes, by the input's name."""
    before, after = mapping(old.decides.get("data")), mapping(new.decides.get("data"))
    causes = {name: f"it no longer reads {name}, {url}" for name, (url, _) in before.items() if name not in after}
    for name, (url, digest) in after.items():
        earlier_url, earlier_digest = before.get(name, ("", ""))
        if not earlier_url:
            causes[name] = f"it reads {name}, {url}"
        elif url != earlier_url:
            causes[name] = f"its input {name} is {url}, and was {earlier_url}"
        elif digest != earlier_digest:
            digests = [short_digest(digest) or "none", short_digest(earlier_digest) or "none"]
            causes[name] = f"the data of its input {name} changed: {url}, digest {digests[0]}, before {digests[1]}"
    return causes


def find_scope(old: PlacedStep, new: PlacedStep, causes: Sequence[str], inputs: Mapping[str, str]) -> Again:
    """Whether a step that runs again works on all of its items, or on those that are new or changed.

    ``causes`` are why it runs again, and ``inputs`` those of them that are new results, by the input's name. If
    the only cause is that what has the items is new, the items that are as before stay done.
    """
    if not new.of_items:
        return ""
    data = data_causes(old, new) if old.surroundings == new.surroundings else {}
    from_items = {cause for name, cause in chain(inputs.items(), data.items()) if name in new.of_items}
    return "changed" if causes and from_items.issuperset(causes) else "all"


def _decided(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*after, *before]):
        old, new = before.get(name), after.get(name)
        if old == new or name == "data" or any(name in key.explains for key in STEP_KEYS):
            continue
        if name == "accelerator" and old and new:
            yield f"its accelerator changed from {old} to {new}"
        elif name != "accelerator":
            yield f"{DECIDES.get(name, OF_SLIPWAY)} changed"


def _list_paths(paths: Sequence[str], verb: str) -> list[str]:
    if not paths:
        return []
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    # A command's own files, as its folder has them.
    names = [path.removeprefix(f"{CODE}/") for path in paths[:SHOWN]]
    return [f"{', '.join(names)}{more} {verb}"]


_TIMES = ("time_limit", "next_after", "deadline", "work")
"""The keys of a step with places that are times, in seconds."""


def places_causes(old: Resource, new: Resource) -> list[str]:
    """What changed about the places of a step, from what the Job of its mover says of them."""
    before, after = moves_of(old), moves_of(new)
    causes: list[str] = []
    if before.get("places") != after.get("places"):
        causes.append(f"its places were {join(before.get('places', ()))}")
    for key in (*_TIMES, "returns", "max_price"):
        if before.get(key) != after.get(key):
            values = [_rule(key, side.get(key)) for side in (before, after)]
            causes.append(f"its {key} changed from {values[0]} to {values[1]}")
    return causes


def _rule(key: str, value: Any) -> str:
    if value is None:
        return "none"
    if key == "max_price":
        return money(value)
    return duration(value) if key in _TIMES else str(value)


def runs(before: Stack, after: Stack, compared: Sequence[ResourceDiff]) -> list[JobRun]:
    """Every Job that the update creates or replaces, in the order of their declaration."""
    return _Runs(before, after, compared).list_runs()


class _Runs:
    """Decides about Jobs in the order of declaration, so that the Jobs whose results one reads are decided before
    it."""

    def __init__(self, before: Stack, after: Stack, compared: Sequence[ResourceDiff]) -> None:
        self._before = before
        self._after = after
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
                moved = self._steps.get(job.urn)
                run = self._moved_run(comparison, moved) if moved else self._job_run(comparison, job)
                made.append(run)
                if run.outcome is Outcome.RUNS and (result := self._result(job)):
                    self._computing[result] = job
        return made

    def _moved_run(self, compared: ResourceDiff, moved: MovedStep) -> JobRun:
        """The run of a step with places, once: on the pool of its first place, and why at any of them."""
        causes = self._moved_causes(compared, moved) if compared.before is not None else None
        run = self._job_run(compared, moved.places[0].resource, causes)
        return run.model_copy(update={"places": moved.pools(self._after)})

    def _moved_causes(self, compared: ResourceDiff, moved: MovedStep) -> list[str]:
        """What changed about the step, about its Jobs at single places, or else about its mover."""
        assert compared.before is not None
        lost = self._lost_store(moved.job)
        pools = {place.resource.urn: place.pool(self._after) for place in moved.places}
        names = {urn: pool.name if pool else urn.rpartition("::")[2] for urn, pool in pools.items()}
        kept = [place for place in self._compared if place.resource.urn in names and place.before is not None]
        places_by_cause: dict[str, list[str]] = {}
        for place in kept:
            if place.operation in COMES:
                for cause in (*self._parts(compared, place), *self._moves(place, lost)):
                    places_by_cause.setdefault(cause, []).append(names[place.resource.urn])
        order = list(names.values())
        causes = [
            *self._own_causes(compared, moved.job),
            *(
                cause if len(at) == len(kept) else f"{cause} at {join(sorted(at, key=order.index))}"
                for cause, at in places_by_cause.items()
            ),
            *places_causes(compared.before, moved.job),
            *lost,
        ]
        return causes or self._causes(compared, moved.job, workload_of(moved.job, self._after).pool(self._after))

    def _job_run(self, compared: ResourceDiff, on: Resource, known: Sequence[str] | None = None) -> JobRun:
        """The run of a Job whose pods are those of ``on``. ``known`` is why, where that is not in ``compared``."""
        job = compared.resource
        outcome = self._outcome(job)
        workload = workload_of(on, self._after)
        pool = workload.pool(self._after)
        gpus = gpus_of(workload)
        causes = self._causes(compared, job, pool) if known is None else known
        old, new = self._sides(compared)
        items: Again = ""
        if old and new and outcome is Outcome.RUNS and not self._store_is_new(job):
            items = find_scope(old, new, causes, self._inputs(job))
        return JobRun(
            urn=job.urn,
            name=job.name,
            outcome=outcome,
            cluster=self._after.cluster_of(on),
            pool=pool.name if pool else "",
            known=workload.placement_known(self._after),
            accelerator=(pool.accelerator or "") if pool and gpus else "",
            gpus=gpus,
            nodes=workload.pods if workload.together else 1,
            because="; ".join([*causes, *_remarks(items, new)]),
            items=items,
        )

    def _sides(self, compared: ResourceDiff) -> tuple[PlacedStep | None, PlacedStep | None]:
        """The step of a Job before and after."""
        before, after = compared.before, compared.after
        return before and self._before.step_of(before), after and self._after.step_of(after)

    def _result(self, job: Resource) -> str:
        """The directory of the Job's result; empty if it has none."""
        step = self._after.step_of(job)
        return step.directory if step else ""

    def _outcome(self, job: Resource) -> Outcome:
        kept = bool(self._result(job)) and _name(job) in self._earlier and not self._store_is_new(job)
        return Outcome.RESUMES if kept else Outcome.RUNS

    def _causes(self, compared: ResourceDiff, job: Resource, pool: NodePool | None) -> list[str]:
        if compared.before is None:
            again = "it is declared anew" if _name(job) in self._earlier else "it is new"
            return [again, *self._lost_store(job)]
        lost = self._lost_store(job)
        causes = [
            *self._own_causes(compared, job),
            *self._parts(compared, compared),
            *lost,
            *self._moves(compared, lost),
        ]
        return (
            causes
            or _parts(compared)
            or self._shipped(compared)
            or self._changed_pools(pool)
            or self._changed_before(compared.before, job)
            or UNEXPLAINED
        )

    def _own_causes(self, compared: ResourceDiff, job: Resource) -> list[str]:
        """What changed about the step of a Job, and about what it reads."""
        old, new = self._sides(compared)
        return [*(step_causes(old, new) if old and new else ()), *self._inputs(job).values()]

    def _shipped(self, compared: ResourceDiff) -> list[str]:
        """Which files of the package changed, where both sides tell what their pods run."""
        old, new = self._sides(compared)
        return _file_causes(old.ships, new.ships) if old and new and old.ships else []

    def _parts(self, step: ResourceDiff, pods: ResourceDiff) -> list[str]:
        """What changed about ``pods``; of those of a ``step`` only what its placed model does not tell."""
        return [part for part in _parts(pods) if part in WHERE or not all(self._sides(step))]

    def _moves(self, compared: ResourceDiff, lost: Sequence[str]) -> list[str]:
        """Why a Job is replaced if not for what it is, nor for its store, where that is ``lost``."""
        job = compared.resource
        if self._operations.get(job.provider) is Operation.REPLACE:
            return [f"its cluster {self._after.cluster_of(job)} is replaced"]
        return [compared.because] if compared.because and not lost else []

    def _changed_pools(self, pool: NodePool | None) -> list[str]:
        """The Job's own pool, if it changes."""
        if pool is None or not self._changes(pool):
            return []
        return [f"the pool {pool.name}{f' of {pool.stack}' if pool.stack else ''} changes"]

    def _changes(self, pool: NodePool) -> bool:
        return pool not in self._before.pools if pool.stack else bool(self._operations.get(pool.urn))

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

    def _inputs(self, job: Resource) -> dict[str, str]:
        """The Job's inputs that the update computes, by their name, in the order in which it does."""
        step = self._after.step_of(job)
        names = {directory: name for name, directory in step.inputs.items()} if step else {}
        return {
            names[directory]: f"its input {needed.name} {self._fate(needed)}"
            for directory, needed in self._computing.items()
            if directory in names
        }

    def _fate(self, needed: Resource) -> str:
        return "is new" if self._operations[needed.urn] is Operation.CREATE else "runs again"

    def _lost_store(self, job: Resource) -> list[str]:
        return [NEW_STORE] if self._result(job) and self._store_is_new(job) and self._earlier else []

    def _store_is_new(self, job: Resource) -> bool:
        """Whether the update creates the store that the Job mounts, or takes another one for it."""
        if self._earlier_folders and any(folder not in self._earlier_folders for folder in _mounted_folders(job)):
            return True
        claims = {
            text(at(volume, "persistentVolumeClaim", "claimName"))
            for volume in mappings(at(job.properties, "spec", "template", "spec", "volumes"))
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


_SCOPES: Mapping[Again, str] = {
    "all": "it works on all of its items again",
    "changed": "it works only on items that are new or changed",
}


def _remarks(items: Again, step: PlacedStep | None) -> list[str]:
    """On which of its items a Job works, and what its keys say beside that."""
    scope = [_SCOPES[items]] if items else []
    return [*scope, *(remark for key in STEP_KEYS for remark in (key.remarks(step) if step else ()))]


def _parts(compared: ResourceDiff) -> list[str]:
    """The changed parts of the pod, as text."""
    causes: dict[str, None] = {}
    for difference in compared.differences:
        comes_or_goes = difference.before is None or difference.after is None
        for path in (
            difference.leaves if comes_or_goes and not _is_container(difference.path) else [difference.path]
        ):
            if words := _part(path):
                causes[words] = None
    return [f"{words} changed" for words in causes]


def _is_container(path: Path) -> bool:
    return [step for step in path if isinstance(step, str)][-1] == "initContainers"


def _part(path: Path) -> str:
    keys = [step for step in path if isinstance(step, str)]
    if "initContainers" in keys and not {"resources", "image"} & {*keys}:
        return "what runs before its program"
    if keys == ["metadata", "namespace"]:
        return "its namespace"
    if keys[:3] != ["spec", "template", "spec"] and keys[:3] != ["spec", "template", "metadata"]:
        return PARTS.get(keys[-1], "")
    if "resources" in keys:
        return (
            f"its {AMOUNTS.get(keys[-1], keys[-1])}" if keys[-1] not in {"limits", "requests", "resources"} else ""
        )
    if "volumes" in keys:
        # Mounted files are a cause of their own.
        return "" if "configMap" in keys else "its volumes"
    known = next((PARTS[key] for key in keys if key in PARTS), "")
    return known or (f"its pod's {keys[3]}" if len(keys) > 3 else "")


def _name(job: Resource) -> str:
    """The Job's name on its cluster, which is another one for each run."""
    return text(at(job.properties, "metadata", "name"))


def _mounted_folders(job: Resource) -> list[tuple[str, str]]:
    """The store's bucket that the Job's pods mount without a claim, and its folder; empty without one.

    Cloud Storage FUSE has both in the attributes of such a volume (cloud.google.com/kubernetes-engine/docs/how-to/
    cloud-storage-fuse-csi-driver-ephemeral, seen November 2026).
    """
    places: list[tuple[str, str]] = []
    for volume in mappings(at(job.properties, "spec", "template", "spec", "volumes")):
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
