"""The changes that an update from one evaluation of a stack to another would make."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from infra.pipelines.results import SHOW
from infra.review.properties import at, json_document, text
from infra.review.stack import CONFIG_MAP, JOB, KUBERNETES_PROVIDER, Resource, Stack
from offline.preview.config_map_files import ShippedFiles
from offline.preview.model import Changes, PropertyChange, ResourceChange
from offline.preview.moved_files import MOVED, MovedFiles
from offline.preview.operations import Compared, compared
from offline.preview.property_diff import Difference, Path, differences, written
from offline.preview.property_values import both
from offline.preview.reruns import runs


def compare(before: Stack, after: Stack, found: Sequence[Compared] | None = None) -> Changes:
    """The changes of an update from ``before`` to ``after``, and the Jobs that it runs.

    ``found`` is the result of `compared` if the caller has it already.
    """
    found = compared(before, after) if found is None else found
    files = MovedFiles(ShippedFiles(before), ShippedFiles(after))
    return Changes(
        resources=[_change(each, files) for each in found if each.operation],
        unchanged=sum(not each.operation for each in found),
        runs=runs(before, after, found, files),
        moved=dict(files.paths),
        remarks=list(_remarks(found)),
    )


def output_remarks(before: Mapping[str, bool], after: Mapping[str, bool]) -> list[str]:
    """Remarks on the changes of a stack's outputs, one for each kind of change.

    Both map paths (``mnist.predictions``) to whether they are secret. `SHOW` is left out: it repeats the others.
    """
    before, after = (
        {name: secret for name, secret in each.items() if _top(name) != SHOW} for each in (before, after)
    )
    kept = {_top(name) for name in after}
    gone = dict.fromkeys(name if _top(name) in kept else _top(name) for name in _missing(before, after))
    new = _missing(after, before)
    moved = {old: places for old in gone if (places := [name for name in new if name.endswith(f".{old}")])}
    told = {
        "new outputs": [name for name in new if not any(name in places for places in moved.values())],
        "outputs that moved": [f"{old} is now {' and '.join(places)}" for old, places in moved.items()],
        "removed outputs": [name for name in gone if name not in moved],
        "outputs that are no longer secret": [name for name in after if before.get(name) and not after[name]],
    }
    return [f"{kind}: {', '.join(names)}" for kind, names in told.items() if names]


def _missing(outputs: Collection[str], others: Collection[str]) -> list[str]:
    """The ``outputs`` that ``others`` has neither as they are, nor as a whole, nor in part."""
    there = {*others, *(_top(each) for each in others if "." in each)}
    return [each for each in outputs if each not in there and _top(each) not in set(others)]


def _top(output: str) -> str:
    return output.partition(".")[0]


def _change(change: Compared, files: MovedFiles) -> ResourceChange:
    assert change.operation is not None
    resource = change.resource
    properties = list(_properties(change, files))
    moved = resource.type != JOB and any(each.moved for each in properties)
    return ResourceChange(
        urn=resource.urn,
        type=resource.type,
        name=resource.name,
        operation=change.operation,
        properties=properties,
        because=MOVED if moved else _because(change),
        known=change.known,
        note=change.note,
        protected=change.protected,
    )


def _because(change: Compared) -> str:
    """Why the resource is replaced. The condition under which a cluster stays is said of its provider only."""
    if change.unless and change.resource.type == KUBERNETES_PROVIDER:
        return f"unless {change.unless}: then it is only updated, and nothing on the cluster is replaced"
    return change.because


def _properties(change: Compared, files: MovedFiles) -> Iterator[PropertyChange]:
    for difference in change.differences:
        forces = difference in change.forcing
        for each in _inside(change.resource, difference):
            old, new = both(each.before, each.after)
            path = _file_path(change, each.path, files)
            moved = _moved(path, each, files)
            yield PropertyChange(path=written(path), before=old, after=new, forces=forces, moved=moved)


def _moved(path: Path, difference: Difference, moved: MovedFiles) -> bool:
    """Whether a file, its mount or the name of a module differs only because files moved."""
    if difference.before is not None and difference.after is not None:
        return moved.renamed(difference.before, difference.after)
    mounted = text(at(difference.after or difference.before, "path"))
    return moved.explain(mounted or str(path[-1]))


def _inside(resource: Resource, difference: Difference) -> list[Difference]:
    """The differences inside a JSON document such as a policy; for other values the difference itself."""
    old, new = json_document(difference.before), json_document(difference.after)
    if resource.type == CONFIG_MAP or old is None or new is None:
        return [difference]
    return list(differences(old, new, difference.path)) or [difference]


def _file_path(change: Compared, path: Path, files: MovedFiles) -> Path:
    """The path of a difference, with a file's path in place of its key in a ConfigMap."""
    if change.resource.type != CONFIG_MAP or len(path) != 2:
        return path
    for side, shipped in ((change.after, files.after), (change.before, files.before)):
        if side is not None and (name := shipped.path(side, str(path[1]))):
            return (path[0], name)
    return path


def _remarks(found: Sequence[Compared]) -> Iterator[str]:
    for each in found:
        old, new = each.before, each.after
        name = f"{each.resource.name} ({each.resource.type.rpartition(':')[2]})"
        if old and new and old.protect and not new.protect:
            yield f"{name} is no longer protected"
        for path in dict.fromkeys(written(difference.path) for difference in each.kept):
            yield f"{name} keeps its {path}: the stack no longer sets it, and the provider leaves it as it is"
