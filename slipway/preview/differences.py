"""The changes that an update from one evaluation of a stack to another would make."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slipway.evaluated import phrasing
from slipway.evaluated.model import Changes, JobRun, Operation, Outcome, PropertyChange, ResourceChange
from slipway.evaluated.operations import ResourceDiff, compare_resources
from slipway.evaluated.places import owners
from slipway.evaluated.workloads import workloads
from slipway.infra.kubernetes.labels import (
    INPUTS_ANNOTATION,
    MOVES_ANNOTATION,
    PLAN_ANNOTATION,
    RESULTS_ANNOTATION,
    RUN_ANNOTATION,
)
from slipway.infra.pipelines.results import SHOW
from slipway.infra.review.property_diff import Difference, Path, differences, path_text, shorten_both
from slipway.infra.review.stack import (
    CONFIG_MAP,
    KUBERNETES_PROVIDER,
    Resource,
    Stack,
    at,
    json_document,
    mappings,
    text,
)
from slipway.preview.reruns import runs

FilePaths = Mapping[tuple[str, str, str], str]
"""Where pods have a file of a ConfigMap, by the provider, the object's name, and the key."""


def compare(before: Stack, after: Stack, comparisons: Sequence[ResourceDiff] | None = None) -> Changes:
    """The changes of an update from ``before`` to ``after``, and the Jobs that it runs.

    ``comparisons`` is the result of `compare_resources` if the caller has it already.
    """
    comparisons = compare_resources(before, after) if comparisons is None else comparisons
    paths, steps = {**_file_paths(before), **_file_paths(after)}, owners(after)
    return Changes(
        resources=[_change(comparison, paths, steps) for comparison in comparisons if comparison.operation],
        unchanged=sum(not comparison.operation for comparison in comparisons),
        runs=runs(before, after, comparisons),
        remarks=list(_remarks(comparisons)),
    )


def output_remarks(before: Mapping[str, bool], after: Mapping[str, bool]) -> list[str]:
    """Remarks on the changes of a stack's outputs, one for each kind of change.

    Both map paths (``mnist.predictions``) to whether they are secret. `SHOW` is left out: it repeats the others.
    """
    before, after = (
        {name: secret for name, secret in side.items() if _top(name) != SHOW} for side in (before, after)
    )
    kept = {_top(name) for name in after}
    gone = dict.fromkeys(name if _top(name) in kept else _top(name) for name in _find_missing(before, after))
    new = _find_missing(after, before)
    moved = {old: places for old in gone if (places := [name for name in new if name.endswith(f".{old}")])}
    words = {
        "new outputs": [name for name in new if not any(name in places for places in moved.values())],
        "outputs that moved": [f"{old} is now {' and '.join(places)}" for old, places in moved.items()],
        "removed outputs": [name for name in gone if name not in moved],
        "outputs that are no longer secret": [name for name in after if before.get(name) and not after[name]],
    }
    return [f"{kind}: {', '.join(names)}" for kind, names in words.items() if names]


def _find_missing(outputs: Collection[str], others: Collection[str]) -> list[str]:
    """The ``outputs`` that ``others`` has neither as they are, nor as a whole, nor in part."""
    paths = {*others, *(_top(other) for other in others if "." in other)}
    return [output for output in outputs if output not in paths and _top(output) not in set(others)]


def _top(output: str) -> str:
    return output.partition(".")[0]


def _change(change: ResourceDiff, paths: FilePaths, steps: Mapping[str, str]) -> ResourceChange:
    assert change.operation is not None
    resource = change.resource
    return ResourceChange(
        urn=resource.urn,
        type=resource.type,
        name=resource.name,
        place=resource.place,
        operation=change.operation,
        properties=list(_properties(change, paths)),
        because=_because(change),
        known=change.known,
        note=change.note,
        protected=change.protected,
        of=steps.get(resource.urn, ""),
    )


def _because(change: ResourceDiff) -> str:
    """Why the resource is replaced. The condition under which a cluster stays is said of its provider only."""
    if change.unless and change.resource.type == KUBERNETES_PROVIDER:
        return f"unless {change.unless}: then it is only updated, and nothing on the cluster is replaced"
    return change.because


def _properties(change: ResourceDiff, paths: FilePaths) -> Iterator[PropertyChange]:
    for difference in change.differences:
        forces = difference in change.forcing
        for part in _inside(change.resource, difference):
            old, new = shorten_both(part.before, part.after)
            path = path_text(_file_path(change, part.path, paths))
            yield PropertyChange(path=path, before=old, after=new, forces=forces)


def _inside(resource: Resource, difference: Difference) -> list[Difference]:
    """The differences inside a JSON document such as a policy; for other values the difference itself."""
    old, new = json_document(difference.before), json_document(difference.after)
    if resource.type == CONFIG_MAP or old is None or new is None:
        return [difference]
    return list(differences(old, new, difference.path)) or [difference]


def _file_paths(stack: Stack) -> FilePaths:
    return {
        (workload.resource.provider, text(at(volume, "configMap", "name")), text(item.get("key"))): text(
            item.get("path")
        )
        for workload in workloads(stack)
        for volume in workload.volumes
        for item in mappings(at(volume, "configMap", "items"))
    }


def _file_path(change: ResourceDiff, path: Path, paths: FilePaths) -> Path:
    """The path of a difference, with a file's path in place of its key in a ConfigMap."""
    if change.resource.type != CONFIG_MAP or len(path) != 2:
        return path
    names = (
        (side.provider, text(at(side.properties, "metadata", "name")), str(path[1]))
        for side in (change.after, change.before)
        if side
    )
    return (path[0], next((paths[name] for name in names if name in paths), path[1]))


def _remarks(comparisons: Sequence[ResourceDiff]) -> Iterator[str]:
    for comparison in comparisons:
        old, new = comparison.before, comparison.after
        name = f"{comparison.resource.name} ({comparison.resource.type.rpartition(':')[2]})"
        if old and new and old.protect and not new.protect:
            yield f"{name} is no longer protected"
        for path in dict.fromkeys(path_text(difference.path) for difference in comparison.kept):
            yield f"{name} keeps its {path}: the stack no longer sets it, and the provider leaves it as it is"


ALIKE = 3
"""How many resources with the same change it takes to share a row where they are not in the same place, too."""

NAMES = 6
"""How many resources of a row are named. Deleted resources are all named."""

OF_A_JOB = 3
"""How many properties of a Job are shown: the row already has the reason why it runs."""

UNKNOWN = "[unknown]"

ABOUT_RUN = (RUN_ANNOTATION, INPUTS_ANNOTATION, RESULTS_ANNOTATION, MOVES_ANNOTATION, PLAN_ANNOTATION)
"""The annotations of a Job that say which run it is, what it reads and has, and at which places it is."""

LISTED_JOBS = {
    "kubernetes:core/v1:ConfigMap": 'data["jobs.json"]',
    "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy": "spec.variables[",
}
"""By type, what the properties begin with that have the Jobs of a schedule, as the modules
`schedule` and `admission` of `slipway.infra.kubernetes.schedules` write them."""


@dataclass(frozen=True)
class Row:
    """``resources`` are names with kinds. ``place`` is where a Job runs; empty if the Jobs of the row run in
    several places."""

    done: str
    operation: Operation
    resources: Sequence[tuple[str, str]]
    why: str = ""
    properties: Sequence[PropertyChange] = ()
    place: str = ""

    @property
    def named(self) -> Sequence[tuple[str, str]]:
        """The resources that are named."""
        return self.resources if self.operation is Operation.DELETE else self.resources[:NAMES]

    @property
    def where_and_why(self) -> str:
        """Where and why, in one line."""
        return ": ".join(filter(None, [self.place, self.why]))


def rows(changes: Changes) -> list[Row]:
    """The rows in order: deleted and replaced resources, other resources, Jobs that run, other Jobs."""
    rows_by_key: dict[tuple[object, ...], list[Row]] = {}
    for row in _singles(changes):
        shared = (row.done, row.operation, row.why, *(property_.model_dump_json() for property_ in row.properties))
        rows_by_key.setdefault(shared, []).append(row)
    return [row for alike in rows_by_key.values() for row in ([_one(alike)] if _share(alike) else alike)]


def without_places(rows_left: Sequence[Row]) -> list[Row]:
    """The rows without the places of Jobs, for stacks that differ only in these."""
    return [replace(row, place="") for row in rows_left]


def select_properties(change: ResourceChange) -> list[PropertyChange]:
    """The properties that are shown.

    If the change has another reason, properties that differ in a digest only are left out, and properties that
    are unknown on both sides. Otherwise digests are left out if there are other properties.
    """
    known = [property_ for property_ in change.properties if not is_unknown(property_)]
    shown_changes = known if known or change.because or change.note else change.properties
    clear = [property_ for property_ in shown_changes if not phrasing.is_digest(property_)]
    return clear if clear or change.because else shown_changes


def is_unknown(change: PropertyChange) -> bool:
    """Whether only the update can tell what the value was and what it will be."""
    return change.before == change.after == UNKNOWN


def _singles(changes: Changes) -> Iterator[Row]:
    parts = phrasing.find_parts(changes)
    # Each of these is told with the Job of its step.
    runs = {run.urn for run in changes.runs} | {part.urn for of_step in parts.values() for part in of_step}
    for resource_change in phrasing.order_changes(changes):
        if resource_change.urn not in runs:
            name = (resource_change.name, phrasing.kind(resource_change.type))
            properties, why = select_properties(resource_change), phrasing.why(resource_change)
            listing = LISTED_JOBS.get(resource_change.type)
            if runs and listing and any(change.path.startswith(listing) for change in properties):
                # Those that changed have rows of their own.
                properties = [change for change in properties if not change.path.startswith(listing)]
                why = why or "it lists Jobs that change"
            why = "; ".join(filter(None, [why, resource_change.place]))
            yield Row(phrasing.DONE[resource_change.operation], resource_change.operation, [name], why, properties)
    changed = {resource.urn: resource for resource in changes.resources}
    for outcome in Outcome:
        for run in changes.runs:
            if run.outcome is outcome:
                yield _job(run, changed[run.urn], len(parts.get(run.urn, ())))


def _job(run: JobRun, change: ResourceChange, parts: int) -> Row:
    again = change.operation is Operation.REPLACE and run.outcome is Outcome.RUNS
    done = run.outcome.value + (" again" if again else "")
    properties = [
        property_
        for property_ in select_properties(change)
        if not (phrasing.is_digest(property_) or _is_about_run(property_))
    ][:OF_A_JOB]
    why = "; ".join(filter(None, [run.because, phrasing.why(change, because=False)]))
    name = (run.name, phrasing.kind(change.type))
    return Row(done, change.operation, [name], why, properties, phrasing.place(run, parts))


def _is_about_run(change: PropertyChange) -> bool:
    """Whether it is an annotation that has no effect of its own, or whose effect is among the reasons."""
    return any(key in change.path for key in ABOUT_RUN)


def _share(alike: Sequence[Row]) -> bool:
    """Whether rows with the same change become one: two do not where that would hide where they run."""
    return len(alike) >= ALIKE or len({row.place for row in alike}) < len(alike)


def _one(alike: Sequence[Row]) -> Row:
    # Programs declare in threads, so that the order of declaration is another one from run to run.
    resources = sorted(resource for row in alike for resource in row.resources)
    places = {row.place for row in alike}
    return replace(alike[0], resources=resources, place=alike[0].place if len(places) == 1 else "")
