"""A manifest as it is written: its objects, which of their fields were read, and the training among them."""

import copy
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml

from slipway.command.new.writing import RefusedError
from slipway.infra.commands import shared_page, with_pages
from slipway.infra.review.stack import items, mapping, mappings
from slipway.infra.schema.problems import Problem, key_of
from slipway.infra.schema.secret_values import MASK, SHORTEST, shown

SAID = ("lost", "changed", "pool", "needs")  # Sections of the data file with what is said of an import.
MOST_VALUES = 100_000  # Of a manifest, with what aliases repeat.

Place = tuple[str | int, ...]
"""A field's place: keys of mappings and indices of lists, from the root."""


@cache
def data(section: str) -> Mapping[str, Any]:
    """A section of the data file."""
    content = (Path(__file__).parent / "data" / "manifests.toml").read_text(encoding="utf-8")
    return tomllib.loads(with_pages(content, shared_page))[section]


@cache
def pattern(name: str) -> re.Pattern[str]:
    """A pattern of the data file."""
    return re.compile(data("patterns")[name])


def refused(name: str, at: object, value: object = None, /, **words: object) -> RefusedError:
    """The problem that the data file has as ``section.name``, or below `refused`, of a file or a field's place."""
    section, _, sentence = name.partition(".") if "." in name else ("refused", "", name)
    reason, _, fix = data(section)[sentence].format(**words).partition("; ")
    key, value = (key_of(cast("Place", at), ""), value) if isinstance(at, tuple) else ("MANIFEST", str(at))
    return RefusedError([Problem(key, value, reason, fix)])


@dataclass
class Findings:
    """Why a manifest is refused, by names, what is said of it, by section, and values that nobody is to read."""

    problems: list[tuple[str, Problem]] = field(default_factory=list[tuple[str, Problem]])
    notes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    secrets: set[str] = field(default_factory=set[str])

    def add(self, name: str, place: Place = (), value: object = None, /, **words: object) -> None:
        """Notes what the data file has as ``name`` of a field: a problem, or a sentence of a section of `SAID`."""
        section, _, sentence = name.partition(".")
        if section in SAID:
            key = key_of(place, "")
            parts = [key, "" if value is None else shown(key, value), data(section)[sentence].format(**words)]
            self.notes.setdefault(section, []).append(": ".join(filter(None, parts)))
        elif (problem := (name, refused(name, place, value, **words).problems[0])) not in self.problems:
            self.problems.append(problem)

    def masked(self, text: Any) -> Any:
        """``text`` on one line, without the secrets; what is no text as it is."""
        for value in sorted(self.secrets, key=len, reverse=True) if isinstance(text, str) else ():
            text = text.replace(value, MASK) if len(value) >= SHORTEST else text
        return " ".join(text.split()) if isinstance(text, str) else text


class Object:
    """An object of a manifest. Who reads a field takes it; `rest` are those that nobody took."""

    def __init__(self, file: Path, content: Mapping[str, Any]) -> None:
        self.file, self.content = file, content
        self._taken: set[Place] = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "generateName")}

    @property
    def kind(self) -> str:
        """Kind and group: Volcano's ``Job`` is none of ``batch``."""
        kind, version = (" ".join(str(self.content.get(key)).split()) for key in ("kind", "apiVersion"))
        return f"{kind} of {version.partition('/')[0]}"

    @property
    def name(self) -> str:
        """Its name, or how that begins, on one line."""
        name = self.look("metadata", "name") or str(self.look("metadata", "generateName") or "").rstrip("-")
        return " ".join(str(name).split())

    def look(self, *place: str | int) -> Any:
        """What stands at ``place``; None where nothing does."""
        value: Any = self.content
        for part in place:
            value = _inside(value).get(part)
        return value

    def take(self, *place: str | int) -> Any:
        """The same, which is now read with all that is in it."""
        self._taken.add(place)
        return self.look(*place)

    def take_keys(self, place: Place, *keys: str) -> Sequence[Any]:
        """What stands under each of ``keys`` of the mapping at ``place``; an empty one is read by that."""
        if not mapping(self.look(*place)):
            self._taken.add(place)
        return [self.take(*place, key) for key in keys]

    def rest(self, place: Place = ()) -> Iterator[tuple[Place, Any]]:
        """The fields that nobody took, the highest of which nothing was; empty ones, too."""
        if place in self._taken:
            return
        value = self.look(*place)
        if place and not (_inside(value) and any(taken[: len(place)] == place for taken in self._taken)):
            yield place, value
        else:
            for key in _inside(value):
                yield from self.rest((*place, key))


def _inside(value: object) -> Mapping[Any, Any]:
    return mapping(value) or dict(enumerate(items(value)))


@dataclass(frozen=True)
class Role:
    """The pods of a role: how many, where ``source`` has their spec, and what their names are up to the index."""

    name: str
    count: int
    source: Object
    spec: Place
    host: str


@dataclass(frozen=True)
class Training:
    """What is imported: the objects that it is made of, and those beside; where its Job has its spec, if any."""

    kind: str
    roles: Sequence[Role]
    objects: Sequence[Object]
    beside: Sequence[Object]
    job: Place = ()

    @property
    def count(self) -> int:
        """Its pods."""
        return sum(role.count for role in self.roles)


def read(path: Path) -> Training:
    """The only training in the file, or in those of the folder, ``path``. Raises RefusedError."""
    objects = list(_objects(path))
    read_kinds = {f"{kind} of {known['group']}": kind for kind, known in data("read").items()}
    trainings = [item for item in objects if item.kind in read_kinds]
    if not trainings:
        kinds = dict.fromkeys(item.kind for item in objects)
        if known := next((kind for kind in kinds if kind in data("kinds")), None):
            raise refused(f"kinds.{known}", known)
        raise refused("no-training", path, kinds=", ".join(kinds) or "nothing", known=", ".join(read_kinds))
    if len(trainings) > 1:
        raise refused("several-trainings", path, names=", ".join(item.name for item in trainings))
    item, beside = trainings[0], [item for item in objects if item is not trainings[0]]
    known, kind = data("read")[read_kinds[item.kind]], read_kinds[item.kind]
    if kind == "TrainJob":
        return _with_runtime(item, beside, path)
    if "roles" in known:
        return Training(kind, list(_roles(item, ("spec", known["roles"]), known["order"])), [item], beside)
    host = _only_job(item, ("spec", "replicatedJobs"), path) if kind == "JobSet" else f"{item.name}-"
    job = tuple(known["job"])
    role = Role("worker", _pods(item, job, kind), item, (*job, "template", "spec"), host)
    return Training(kind, [role], [item], beside, job)


def _objects(path: Path) -> Iterator[Object]:
    if not path.exists():
        raise refused("no-file", path)
    for file in sorted(path.glob("*.y*ml")) if path.is_dir() else [path]:
        try:
            documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8-sig")))
            if _left(documents, MOST_VALUES) < 0:
                raise ValueError(f"it has more than {MOST_VALUES:,} values")
        except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
            raise refused("no-yaml", file, error=" ".join(str(error).split())[:200]) from None
        for document in filter(None, map(mapping, documents)):
            listed = str(document.get("kind")).endswith("List")
            yield from (Object(file, item) for item in (mappings(document.get("items")) if listed else [document]))


def _left(value: object, left: int) -> int:
    """How many values may still come after those in ``value``; less than 0 where there are too many."""
    for element in _inside(value).values():
        if left < 0:
            break
        left = _left(element, left - 1)
    return left


def _only_job(item: Object, place: Place, path: Path) -> str:
    """What the names of the pods of the only replicated Job begin with."""
    jobs = mappings(item.look(*place))
    if [job.get("replicas", 1) for job in jobs] != [1]:
        names = ", ".join(f"{job.get('name')} x {job.get('replicas', 1)}" for job in jobs)
        raise refused("several-jobs", path, names=names or "none")
    item.take_keys((*place, 0), "name", "replicas")
    return f"{item.name}-{jobs[0].get('name')}-0-"


def _pods(item: Object, job: Place, kind: str) -> int:
    """The pods of a Job that work together; 0 where each does a piece of the work."""
    parallelism, completions, mode = item.take_keys(job, "parallelism", "completions", "completionMode")
    parallelism = 1 if parallelism is None else parallelism
    completions = (parallelism if kind == "JobSet" else 1) if completions is None else completions
    together = completions == 1 or (mode or {"JobSet": "Indexed"}.get(kind)) == "Indexed"
    return completions if type(completions) is int and parallelism == completions >= 1 and together else 0


def _roles(item: Object, place: Place, order: Sequence[str]) -> Iterator[Role]:
    """In the ``order`` of ranks."""
    titles = {str(title).lower(): str(title) for title in mapping(item.look(*place))}
    written = {role: item.take(*place, title, "replicas") for role, title in titles.items()}
    counts = {role: 1 if count is None else count for role, count in written.items()}
    for role, count in counts.items():
        if role not in order or type(count) is not int:
            name = "amount" if role in order else "role"
            raise refused(name, (*place, titles[role]), count, roles=", ".join(order))
    if not any(counts.values()) or ("master" in order and not counts.get("master")):
        raise refused("no-master" if any(counts.values()) else "no-roles", place)
    for role in filter(counts.get, order):
        spec = (*place, titles[role], "template", "spec")
        yield Role(role, counts[role], item, spec, f"{item.name}-{role}-")


def _with_runtime(item: Object, beside: Sequence[Object], path: Path) -> Training:
    """A TrainJob with the pods of its runtime, and with what it says of them itself."""
    reference = mapping(item.take("spec", "runtimeRef"))
    kind, name = reference.get("kind") or "ClusterTrainingRuntime", reference.get("name")
    original = next((other for other in beside if (other.kind.split()[0], other.name) == (kind, name)), None)
    if original is None:
        raise refused("no-runtime", path, kind=kind, name=name)
    runtime = Object(original.file, copy.deepcopy(dict(original.content)))
    jobs: Place = ("spec", "template", "spec", "replicatedJobs")
    host = _only_job(runtime, jobs, path).removeprefix(runtime.name)
    runtime.take(*jobs, 0, "template", "metadata", "labels", "trainer.kubeflow.org/trainjob-ancestor-step")
    job = (*jobs, 0, "template", "spec")
    runtime.take_keys(job, "parallelism", "completions", "completionMode")
    for container in mappings(runtime.look(*job, "template", "spec", "containers")):
        if container.get("name") == data("read")["TrainJob"]["container"]:
            changed = cast("dict[str, Any]", container)
            names = {"image": "image", "command": "command", "args": "args", "resourcesPerNode": "resources"}
            values = {other: item.take("spec", "trainer", key) for key, other in names.items()}
            changed |= {key: value for key, value in values.items() if value is not None}
            variables = [*mappings(container.get("env")), *mappings(item.take("spec", "trainer", "env"))]
            changed["env"] = list({variable.get("name"): variable for variable in variables}.values())
    counts = item.take("spec", "trainer", "numNodes"), runtime.take("spec", "mlPolicy", "numNodes")
    count = next((count for count in counts if count is not None), 1)
    if type(count) is not int:
        raise refused("amount", ("spec", "trainer", "numNodes"), count)
    role = Role("worker", count, runtime, (*job, "template", "spec"), f"{item.name}{host}")
    return Training("TrainJob", [role], [item, runtime], [other for other in beside if other is not original], job)
