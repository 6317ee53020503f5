"""The changes of a stack as rows of a table. Similar changes share a row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from infra.kubernetes.labels import INPUTS_ANNOTATION, RESULTS_ANNOTATION, RUN_ANNOTATION
from offline.preview import phrasing
from offline.preview.model import Changes, JobRun, Operation, Outcome, PropertyChange, ResourceChange

ALIKE = 3
"""How many resources with the same change it takes to share a row where they are not in the same place, too."""

NAMES = 6
"""How many resources of a row are named. Deleted resources are all named."""

OF_A_JOB = 3
"""How many properties of a Job are shown: the row already has the reason why it runs."""

UNKNOWN = "[unknown]"

LISTED_JOBS = {
    "kubernetes:core/v1:ConfigMap": 'data["jobs.json"]',
    "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy": "spec.variables[",
}
"""By type, what the properties begin with that have the Jobs of a schedule, as `infra.kubernetes.schedule` and
`infra.kubernetes.schedule_admission` write them."""


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
    def said(self) -> str:
        """Where and why, in one line."""
        return ": ".join(filter(None, [self.place, self.why]))


def rows(changes: Changes) -> list[Row]:
    """Resources that are deleted or replaced first, Jobs last, and of these first those that run."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in _singles(changes):
        shared = (row.done, row.operation, row.why, *(each.model_dump_json() for each in row.properties))
        found.setdefault(shared, []).append(row)
    return [row for alike in found.values() for row in ([_one(alike)] if _share(alike) else alike)]


def without_places(found: Sequence[Row]) -> list[Row]:
    """The rows without the places of Jobs, for stacks that differ only in these."""
    return [replace(row, place="") for row in found]


def telling(change: ResourceChange) -> list[PropertyChange]:
    """The properties that are shown.

    Changes that follow from moved files are left out. If the change has another reason, so are properties that
    differ in a digest only, and properties that are unknown on both sides. Otherwise digests are left out if there
    are other properties.
    """
    own = [each for each in change.properties if not each.moved]
    known = [each for each in own if not unknown(each)]
    told = known if known or change.because or change.note else own
    clear = [each for each in told if not phrasing.digests(each)]
    return clear if clear or change.because else told


def unknown(change: PropertyChange) -> bool:
    """Whether only the update can tell what the value was and what it will be."""
    return change.before == change.after == UNKNOWN


def _singles(changes: Changes) -> Iterator[Row]:
    runs = {each.urn: each for each in changes.runs}
    for each in phrasing.ordered(changes):
        if each.urn not in runs:
            name = (each.name, phrasing.kind(each.type))
            told, why = telling(each), phrasing.why(each)
            listing = LISTED_JOBS.get(each.type)
            if runs and listing and any(change.path.startswith(listing) for change in told):
                # Those that changed have rows of their own.
                told = [change for change in told if not change.path.startswith(listing)]
                why = why or "it lists Jobs that change"
            yield Row(phrasing.DONE[each.operation], each.operation, [name], why, told)
    changed = {each.urn: each for each in changes.resources}
    for outcome in Outcome:
        for run in changes.runs:
            if run.outcome is outcome:
                yield _job(run, changed[run.urn])


def _job(run: JobRun, change: ResourceChange) -> Row:
    again = change.operation is Operation.REPLACE and run.outcome is Outcome.RUNS
    done = run.outcome.value + (" again" if again else "")
    shown = [each for each in telling(change) if not (phrasing.digests(each) or _describes_run(each))][:OF_A_JOB]
    why = "; ".join(filter(None, [run.because, phrasing.why(change, because=False)]))
    return Row(done, change.operation, [(run.name, phrasing.kind(change.type))], why, shown, phrasing.place(run))


def _describes_run(change: PropertyChange) -> bool:
    """Whether it is an annotation with the Job's run, inputs or results, which has no effect of its own."""
    return any(key in change.path for key in (RUN_ANNOTATION, INPUTS_ANNOTATION, RESULTS_ANNOTATION))


def _share(alike: Sequence[Row]) -> bool:
    """Whether rows with the same change become one: two do not where that would hide where they run."""
    return len(alike) >= ALIKE or len({row.place for row in alike}) < len(alike)


def _one(alike: Sequence[Row]) -> Row:
    resources = [resource for row in alike for resource in row.resources]
    places = {row.place for row in alike}
    return replace(alike[0], resources=resources, place=alike[0].place if len(places) == 1 else "")
