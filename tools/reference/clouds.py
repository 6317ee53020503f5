"""What differs between the stacks above the platform contract, and docs/clouds.md, which shows it.

Every stack is evaluated with the same pipelines, on pools of its own, and the Kubernetes objects of these are
compared field by field.

python -m slipway.tools.reference.clouds            # write the page
python -m slipway.tools.reference.clouds --check    # exit 1 where it is out of date
"""

import copy
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from slipway.infra.clouds.registry import emulators
from slipway.infra.kubernetes.pods.pod import PARTS_VARIABLE
from slipway.infra.pipelines.contract import StepSettings, placements
from slipway.infra.pipelines.discovery import DeclaredPipeline, supplements
from slipway.infra.pipelines.places import with_first_pool
from slipway.infra.placed import DEVICES_GATE, NETWORK_GATE
from slipway.infra.places import LIBRARY
from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.program import declare
from slipway.infra.schema.problems import PREFIX, listed, without_prefix
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from slipway.infra.settings.pipelines import folder
from slipway.offline.engine.evaluate import evaluate
from slipway.offline.engine.other_stacks import OtherStacks
from slipway.offline.engine.stack_config import stack_config
from slipway.offline.files import write_or_check
from slipway.tools.reference import shipped

PAGE = LIBRARY / "docs" / "clouds.md"

REFERENCES = ("gcp-dev", "gcp-batch")
"""The stacks with whose pipelines others are compared, each with those that run one of them, as far as all do. A
stack's own steps say only which pool, how many GPUs, and how much of the pool's nodes."""

OWN = ("pool", "gpus", "cpu", "memory")

PLACES = tuple(
    f"slipway:kubernetes:{kind}" for kind in ("StepJob", "Workspace", "PipelineService", "PipelineSchedule")
)
"""The components whose objects are compared: those above the platform contract."""

SCHEDULED = "data.jobs.json"
"""The field with the Jobs that a schedule runs, which are compared as they stand."""

ADMISSION = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
"""The type of what refuses all other Jobs, which holds these Jobs' pods."""

WHOLE = frozenset({"nodeSelector", "tolerations", "annotations", "egress"})
SUPPLEMENTS = tuple(f"--{supplement.name}=" for supplement in supplements().values())
"""The arguments that a step gets where its pool has GPUs."""

PIPELINES = f"{PREFIX}pipelines"

BY_NAME = frozenset({"volumes", "env", "volumeMounts"})

NAMESPACE = "slipway"
"""What stands for the namespace of a stack on clusters of another one."""

ABSENT = "not there"
PRESENT = "there"

_PUBLISHING = "|".join(f"{folder}-{supplement.name}" for folder, supplement in supplements().items())
_READ = "|".join(supplement.name for supplement in supplements().values())

CATEGORIES: Mapping[str, re.Pattern[str]] = {
    "Device plugin": re.compile(r"\S+ <cluster>-device-plugin.*"),
    "Selectors and tolerations": re.compile(
        r".* spec\.(jobTemplate\.spec\.)?template\.spec\.(nodeSelector|tolerations)"
    ),
    "Volumes": re.compile(
        r".* spec\.template\.spec\.volumes\.store|PersistentVolumeClaim .*|StatefulSet .*\.storageClassName"
    ),
    "Annotations": re.compile(r".* (spec\.template\.)?metadata\.annotations"),
    # A step with checkpoints has as long as the cloud gives a node that it takes back.
    "Notice": re.compile(r"Job \S+ spec\.template\.spec\.terminationGracePeriodSeconds"),
    "Network": re.compile(r"NetworkPolicy \S+ spec\.egress"),
    "Identity": re.compile(r".* spec\.template\.spec\.(serviceAccountName|securityContext\..*)"),
    "GPUs": re.compile(
        rf"(Job|ConfigMap) ({DEVICES_GATE}|{NETWORK_GATE}|{_PUBLISHING}).*"
        r"|ClusterRole.*|ServiceAccount .*-nodes-account.*"
        # What tests and measures GPUs in the pods of a step, and ships for that.
        r"|Job \S+ spec\.template\.spec\.(volumes\.bundle|containers\.0\.command)"
        rf"|Job \S+ spec\.template\.spec\.containers\.0\.env\.(NODE_NAME|{PARTS_VARIABLE})\..*"
        r"|ConfigMap \S+ data\.slipway\.workloads\.(gates|runtime)\..*"
        rf"|.*({re.escape(GPU_RESOURCE)}|\.image|args\.({_READ})|volume(s|Mounts)\.shared-memory(\.mountPath)?)"
    ),
    "Capacity": re.compile(
        r"ResourceQuota .*|.*\.resources\.(requests|limits)\.(cpu|memory)"
        # On GKE Autopilot a pod has 10 GiB of scratch space at most.
        r"|Job packages-\S+ .*(\.ephemeral-storage|\.volumes\.tmp)"
    ),
}
"""What may differ: by kind and name of the object and the field. The first that matches takes it."""

OF_POOLS = ("GPUs", "Capacity")
"""The categories in which a stack has what its pools have and take."""

HEAD = """# Differences between clouds

A pipeline runs the same way on every cloud: the same steps, code, arguments and images, in the same order. This
page is for whoever moves a pipeline to another cloud, or doubts that it can be moved: it lists every field of the
pipeline's Kubernetes objects that differs between the stacks that come with Slipway. A test fails where any other
field differs.

Stacks are compared that run the same pipelines, each on pools of its own. What all have alike is left out, as are
digests, and the namespaces of teams. Of a node selector the labels are shown, of a long value its beginning.
`python -m slipway.tools.reference.clouds` writes this page.
"""

NEXT = """
## Next

- [Write a stack of your own](your-project.md#write-a-stack-of-your-own)
- [How Slipway is built](architecture.md), and how to [add a cloud](development.md#add-a-cloud)
"""

PART = """
## {pipelines}

On {stacks}: {alike} of {fields} fields are alike.
"""


@dataclass(frozen=True)
class Difference:
    """A field that is not the same everywhere: on which objects, and which stacks have which value."""

    category: str | None
    objects: tuple[str, ...]
    field: str
    values: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Comparison:
    """``fields`` is how many were compared over all objects, ``differences`` those that differ."""

    stacks: Sequence[str]
    pipelines: Sequence[str]
    fields: int
    differences: Sequence[Difference]


def comparisons(stacks: Sequence[str], root: Path = LIBRARY) -> list[Comparison]:
    """A comparison for each of the references, with those of ``stacks`` that run one of its pipelines."""
    configurations = {
        stack: cast("Mapping[str, Any]", stack_config(stack, root).get(PIPELINES) or {}) for stack in stacks
    }
    compared: list[Comparison] = []
    for reference in REFERENCES:
        of_reference = configurations[reference].keys()
        alike = [stack for stack, sections in configurations.items() if sections.keys() & of_reference]
        compared.append(compare(alike, root, reference))
    return compared


def compare(stacks: Sequence[str], root: Path = LIBRARY, reference: str = REFERENCES[0]) -> Comparison:
    """The fields of the Kubernetes objects of the pipelines of ``reference`` in which ``stacks`` differ."""
    configurations = {stack: stack_config(stack, root) for stack in {reference, *stacks}}
    alike = [
        DeclaredPipeline(name, folder(name, settings), settings)
        for name, settings in load(without_prefix(configurations[reference])).pipelines.items()
        if all(name in configuration[PIPELINES] for configuration in configurations.values())
    ]
    of_reference = configurations[reference][PIPELINES]
    objects = {stack: _objects(stack, configurations[stack], alike, of_reference, root) for stack in stacks}
    every = {thing: None for fields in objects.values() for thing in fields}
    fields = 0
    rows: dict[tuple[str | None, str, tuple[tuple[str, tuple[str, ...]], ...]], list[str]] = {}
    for thing in every:
        having = {stack: things[thing] for stack, things in objects.items() if thing in things}
        known = sorted({field for by_field in having.values() for field in by_field})
        values = {field: {stack: by_field.get(field) for stack, by_field in having.items()} for field in known}
        values[""] = {stack: PRESENT if stack in having else None for stack in stacks}
        for field, by_stack in values.items():
            fields += bool(field)
            if differing := _values_that_differ(by_stack):
                key = (_category(thing, field), field, tuple(differing.items()))
                rows.setdefault(key, []).append(thing)
    differences = [
        Difference(category, tuple(things), field, dict(values))
        for (category, field, values), things in rows.items()
    ]
    return Comparison(stacks, [pipeline.name for pipeline in alike], fields, differences)


def _values_that_differ(by_stack: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Each value with the stacks that have it, of mappings what they do not share; empty where all are alike."""
    mappings = [cast("Mapping[str, Any]", value) for value in by_stack.values() if isinstance(value, Mapping)]
    shared = (
        [item for item in mappings[0].items() if all(mapping.get(item[0]) == item[1] for mapping in mappings)]
        if (len(mappings) == len(by_stack))
        else []
    )
    by_text: dict[str, list[str]] = {}
    for stack, value in by_stack.items():
        rest = {key: inner for key, inner in value.items() if (key, inner) not in shared} if shared else value
        text = ABSENT if rest is None or rest == {} else json.dumps(rest, sort_keys=True).strip('"')
        by_text.setdefault(text, []).append(stack)
    return {value: tuple(stacks) for value, stacks in by_text.items()} if len(by_text) > 1 else {}


def page(compared: Sequence[Comparison]) -> str:
    """The whole page."""
    return HEAD + "".join(map(_part, compared)) + NEXT


def _part(comparison: Comparison) -> str:
    differing = sum(len(difference.objects) for difference in comparison.differences)
    text = PART.format(
        alike=comparison.fields - differing,
        fields=comparison.fields,
        pipelines=listed(comparison.pipelines, "and"),
        stacks=listed(comparison.stacks, "and"),
    )
    of_pools: list[Difference] = []
    for category in CATEGORIES:
        rows = [difference for difference in comparison.differences if difference.category == category]
        if category in OF_POOLS:
            of_pools += rows
        elif rows:
            text += f"\n### {category}\n\n| objects | field | value |\n| --- | --- | --- |\n"
            text += "".join(_row(row, comparison.stacks) for row in _merge(rows))
    return text + _list_of_pools(of_pools)


@dataclass
class _Row:
    """What several differences have in common: of which objects which fields, and what each stack shows there."""

    objects: list[str]
    fields: list[str]
    shown: dict[str, str]


def _merge(differences: Sequence[Difference]) -> list[_Row]:
    """The differences as rows: one field of objects that no stack has different values on, then fields alike."""
    by_field: list[_Row] = []
    for difference in differences:
        shown = {
            stack: show(difference.field, value) for value, having in difference.values.items() for stack in having
        }
        for row in by_field:
            if row.fields == [difference.field] and all(
                row.shown.get(stack, shown[stack]) == shown[stack] for stack in shown
            ):
                row.objects += difference.objects
                row.shown |= shown
                break
        else:
            by_field.append(_Row([*difference.objects], [difference.field], shown))
    rows: list[_Row] = []
    for row in by_field:
        for other in rows:
            if (other.objects, other.shown) == (row.objects, row.shown):
                other.fields += row.fields
                break
        else:
            rows.append(row)
    return rows


def show(field: str, value: str) -> str:
    """A value as the page shows it, of a node selector its labels."""
    if value in {ABSENT, PRESENT}:
        return value
    if not value:
        return '`""`'
    if field.endswith("nodeSelector"):
        # A stack with two clusters has a list with the selector of each.
        read = json.loads(value)
        selectors = cast("list[dict[str, str]]", read if isinstance(read, list) else [read])
        labels = sorted({label for selector in selectors for label in selector})
        return ", ".join(f'`"{label}"`' for label in labels)
    return f"`{_short(value)}`"


def _list_of_pools(differences: Sequence[Difference]) -> str:
    """The fields whose values follow from the pools of the stack file, without these."""
    if not differences:
        return ""
    by_objects: dict[str, list[str]] = {}
    for difference in differences:
        by_objects.setdefault(_list_objects(difference.objects), []).append(_name_field(difference.field))
    lines = "".join(f"| {objects} | {', '.join(fields)} |\n" for objects, fields in by_objects.items())
    return (
        "\n### What the pools have\n\nValues that follow from the pools of the stack file.\n\n"
        f"| objects | fields |\n| --- | --- |\n{lines}"
    )


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` says whether it is up to date."""
    return write_or_check(PAGE, page(comparisons(shipped.stacks())), "slipway.tools.reference.clouds", arguments)


def _objects(
    stack: str,
    configuration: Mapping[str, Any],
    pipelines: Sequence[DeclaredPipeline],
    of_reference: Mapping[str, Any],
    root: Path,
) -> dict[str, dict[str, Any]]:
    """The fields of each object of the stack, by kind and name, with what only this stack calls so left out."""
    values = dict(configuration)
    sections = {pipeline.name: copy.deepcopy(of_reference[pipeline.name]) for pipeline in pipelines}
    pools: dict[str, str] = {}
    for pipeline in pipelines:
        for place, pod in placements(pipeline.settings, (pipeline.name,)):
            # Of several places the first: what they differ in is the same on every cloud.
            of_stack, placed = with_first_pool(_at(values[PIPELINES], place)), _at(sections, place)
            no_gpu = {"gpus": 0} if isinstance(pod, StepSettings) else {}
            placed.update({**no_gpu, **{key: of_stack[key] for key in OWN if key in of_stack}})
            pools.setdefault(str(placed["pool"]), f"<pool of {place[-1]}>")
    values[PIPELINES] = sections
    values.pop(f"{PREFIX}rehearsal", None)
    # Whether Jobs queue for their nodes is the stack's choice on every cloud.
    values.pop(f"{PREFIX}kueue", None)
    others = OtherStacks(root, declare, preview=False).of(stack)
    settings = load(without_prefix(values), others.resolve)
    stand_ins = emulators(settings.request)
    for pod in stand_ins:
        values = {**pod.configuration, **values}
    evaluation = evaluate(
        lambda: declare(root),
        project="slipway",
        stack=stack,
        config=values,
        emulators=stand_ins,
        stacks=others.exported,
    )
    names = {"accelerator": pools} | dict.fromkeys(
        ("store", "devices"), dict.fromkeys(settings.clusters, "<cluster>")
    )
    objects: dict[str, dict[str, Any]] = {}
    for _, resource in sorted(evaluation.resources.items()):
        if resource.custom and resource.type != ADMISSION and any(place in resource.urn for place in PLACES):
            rename = _renamer(stack, resource.name, names, settings)
            kind = resource.type.rpartition(":")[2]
            fields = dict(_flat(resource.inputs, (), rename))
            # A stack with two clusters has one of each; where they differ, both values count.
            fields.pop(SCHEDULED, None)
            for field, value in objects.get(f"{kind} {rename(resource.name)}", {}).items():
                if fields.get(field) != value:
                    fields[field] = [value, fields.get(field)]
            objects[f"{kind} {rename(resource.name)}"] = fields
    return objects


def _at(values: Any, place: Iterable[str | int]) -> Any:
    for part in place:
        values = values[part]
    return values


def _renamer(
    stack: str, name: str, names: Mapping[str, Mapping[str, str]], settings: Settings
) -> Callable[[str], str]:
    """What takes the names of clusters and pools, and digests, out of the texts of the object of that name."""
    clusters = settings.clusters
    patterns = [(rf"^{re.escape(cluster)}(?=-)", "<cluster>") for cluster in clusters]
    for pool, stands_for in names["accelerator"].items():
        patterns.append((rf"(?<=device-plugin-){re.escape(pool)}(?=$|-)", stands_for))
    kind, gate, guarded = name.partition("-gate-")
    for word, stands_for in names.get(kind, {}).items() if gate else ():
        if guarded == word or guarded.startswith(f"{word}-"):
            patterns += [
                (rf"(?<=gate-){re.escape(word)}(?=$|-)", stands_for),
                (rf"^{re.escape(word)}$", stands_for),
            ]
    patterns.append((rf"(?<=-slipway-){re.escape(stack)}|(?<=^slipway\.){re.escape(stack)}$", "<stack>"))
    # The same seconds stand at the pod, as its grace period.
    patterns.append((r'(?<="grace": )\d+', "<notice>"))
    patterns.append((r"(?<![0-9a-f])(?:[0-9a-f]{10}|[0-9a-f]{32})(?![0-9a-f])", "<digest>"))
    if any(cluster.other_stack for cluster in clusters.values()):
        # The other stack says which namespace it is, so that no two of its teams share one.
        patterns.append((rf"^{re.escape(settings.namespace)}(?=$|-node-reader$)", NAMESPACE))

    def rename(text: str) -> str:
        for pattern, stands_for in patterns:
            text = re.sub(pattern, stands_for, text)
        return text

    return rename


def _flat(value: Any, path: tuple[str, ...], rename: Callable[[str], str]) -> Iterator[tuple[str, Any]]:
    """Every field below ``value`` with its path; volumes and variables by name, selectors and such whole."""
    whole = path[-1:] and (path[-1] in WHOLE or path[-2:-1] == ("volumes",))
    if isinstance(value, Mapping) and value and not whole:
        for key, inner in cast("Mapping[str, Any]", value).items():
            yield from _flat(inner, (*path, rename(key)), rename)
    elif path[-1:] == ("args",):
        arguments = [rename(str(argument)) for argument in cast("list[object]", value)]
        yield ".".join(path), [argument for argument in arguments if not argument.startswith(SUPPLEMENTS)]
        for option in SUPPLEMENTS:
            name = option.strip("-=")
            yield ".".join((*path, name)), [argument for argument in arguments if argument.startswith(option)]
    elif isinstance(value, list) and not whole and isinstance(next(iter(cast("list[Any]", value)), None), Mapping):
        for index, inner in enumerate(cast("list[Mapping[str, Any]]", value)):
            by_name = path[-1] in BY_NAME
            rest = {key: inner for key, inner in inner.items() if key != "name" or not by_name}
            yield from _flat(rest, (*path, str(inner["name"] if by_name else index)), rename)
    else:
        yield ".".join(path), _text(value, rename)


def _text(value: Any, rename: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _text(inner, rename) for key, inner in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_text(inner, rename) for inner in cast("list[Any]", value)]
    return rename(value) if isinstance(value, str) else value


def _category(thing: str, field: str) -> str | None:
    return next((name for name, pattern in CATEGORIES.items() if pattern.fullmatch(f"{thing} {field}")), None)


def _row(row: _Row, stacks: Sequence[str]) -> str:
    by_value: dict[str, list[str]] = {}
    for stack in stacks:
        if stack in row.shown:
            by_value.setdefault(row.shown[stack], []).append(stack)
    if by_value.keys() == {PRESENT, ABSENT}:
        del by_value[ABSENT]
    values = "<br>".join(f"{value}: {_name_stacks(having, stacks)}" for value, having in by_value.items())
    fields = ", ".join(map(_name_field, row.fields))
    return f"| {_list_objects(row.objects)} | {fields} | {values.replace('|', chr(92) + '|')} |\n"


def _name_field(field: str) -> str:
    return f"`{field}`" if field else "the object"


def _list_objects(objects: Iterable[str]) -> str:
    by_kind: dict[str, list[str]] = {}
    for thing in objects:
        kind, _, name = thing.partition(" ")
        by_kind.setdefault(kind, []).append(name)
    return "; ".join(f"{kind} {', '.join(f'`{name}`' for name in names)}" for kind, names in by_kind.items())


def _name_stacks(having: Sequence[str], stacks: Sequence[str]) -> str:
    rest = [stack for stack in stacks if stack not in having]
    if len(rest) < len(having) and len(having) > 2:
        return f"all but {', '.join(rest)}"
    return ", ".join(having)


def _short(value: str, limit: int = 100) -> str:
    return value if len(value) <= limit else f"{value[: limit - 1]}…"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
