"""A manifest of a TFJob, a PyTorchJob or a Job: its roles, which of its fields were read, and what is refused."""

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml

from infra.platform import GPU_RESOURCE
from infra.review.stack import at, items, mapping
from infra.schema.names import REFERENCE
from infra.schema.problems import Problem
from tools.new.writing import RefusedError

# What becomes of the fields of a manifest: a table, by their places.


DATA = Path(__file__).parent / "data" / "fields.toml"

Place = tuple[str | int, ...]
"""A field's place in a manifest: keys of mappings and indices of lists, from the root."""

ANY, ANY_DEPTH, ROLE = "*", "**", "<role>"


@dataclass(frozen=True)
class Rule:
    """What becomes of the fields at a place: what they are in the pipeline, and what else there is to say."""

    at: str
    becomes: str = ""
    why: str = ""

    def matches(self, place: Place) -> bool:
        """Whether it holds for what stands at ``place``."""
        return _matches(self.at.split("."), [str(part) for part in place])


def _matches(pattern: Sequence[str], place: Sequence[str]) -> bool:
    """Whether ``pattern`` is the beginning of ``place``."""
    if not pattern:
        return True
    if pattern[0] == ANY_DEPTH:
        return any(_matches(pattern[1:], place[start:]) for start in range(len(place) + 1))
    return bool(place) and pattern[0] in {ANY, ROLE, place[0]} and _matches(pattern[1:], place[1:])


@cache
def rules() -> Sequence[Rule]:
    """The whole table, in its order."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return tuple(Rule(**row) for row in data["field"])


def rule_of(place: Place) -> Rule:
    """The first rule that holds for ``place``; the last of the table holds for every one."""
    return next(rule for rule in rules() if rule.matches(place))


def path_text(place: Place) -> str:
    """``place`` as people write it: ``spec.containers[0].image``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


OPTION = "MANIFEST"

REPLICAS: Mapping[str, str] = {"TFJob": "tfReplicaSpecs", "PyTorchJob": "pytorchReplicaSpecs"}
"""The kinds of ``kubeflow.org`` that are read, each with the key of its roles."""

JOB = "Job"

ROLES: Mapping[str, str] = {
    "chief": "chief",
    "master": "chief",
    "worker": "worker",
    "ps": "ps",
    "evaluator": "evaluator",
}
"""The role of a replica type in lower case: TFJob takes `PS`, `Ps` and `ps` alike (kubeflow/training-operator,
pkg/apis/kubeflow.org/v1/tensorflow_defaults.go, 1.9)."""

PLACEHOLDER = re.compile(r"(?<=: )(%[A-Za-z]\w*%)(?=\s*$)", re.MULTILINE)
"""What ksonnet and the examples of kubeflow/examples put where a value belongs. YAML allows no `%` there."""


CONTAINERS = {"TFJob": "tensorflow", "PyTorchJob": "pytorch"}
"""The container that the training operator takes for the program's, and whose name and port it looks for
(kubeflow/training-operator, pkg/apis/kubeflow.org/v1, 1.9)."""

ACCELERATOR = re.compile(r"gpu|mig-|tpu|npu|neuron|gaudi")
"""In the names of resources that are accelerators: ``google.com/tpu``, ``amd.com/gpu``, ``nvidia.com/mig-1g.5gb``,
``aws.amazon.com/neuron``, ``habana.ai/gaudi`` (kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus and the device
plugins of their vendors, seen November 2026)."""


@dataclass
class Document:
    """One object of a manifest. ``used`` are the places of the fields that were carried over."""

    file: Path
    content: Mapping[str, Any]
    used: set[Place] = field(default_factory=set[Place])

    def get(self, *place: str | int) -> Any:
        """What stands at ``place``, which counts as carried over with all that is below it; None where nothing
        is."""
        value: Any = self.content
        for part in place:
            if isinstance(value, Mapping) and part in value:
                value = cast("Mapping[str | int, Any]", value)[part]
            elif isinstance(value, list) and isinstance(part, int) and part < len(cast("list[Any]", value)):
                value = cast("list[Any]", value)[part]
            else:
                return None
        self.used.add(place)
        return value

    def unread(self) -> Iterator[tuple[Place, Any]]:
        """The fields that were not carried over, the highest ones of which nothing was."""
        yield from self._unread((), self.content)

    def _unread(self, place: Place, value: object) -> Iterator[tuple[Place, Any]]:
        if place in self.used or value is None:
            return
        fields, elements = mapping(value), items(value)
        deeper = any(used[: len(place)] == place for used in self.used)
        if not place or (deeper and (fields or elements)):
            for key, inner in fields.items():
                yield from self._unread((*place, str(key)), inner)
            for index, inner in enumerate(elements):
                yield from self._unread((*place, index), inner)
        else:
            yield place, value


@dataclass(frozen=True)
class Replica:
    """The pods of one role: ``count`` of them, whose spec is at ``spec`` in ``document``."""

    role: str
    count: int | str
    document: Document
    spec: Place


@dataclass(frozen=True)
class Manifest:
    """A training as a manifest has it. ``kind`` is that of the object, ``replicas`` are in the order of ranks.

    ``beside`` are objects that are no training.
    """

    kind: str
    name: str
    documents: Sequence[Document]
    replicas: Sequence[Replica]
    beside: Sequence[Document] = ()


def read(path: Path) -> Manifest:
    """The training in the file or folder ``path``. Raises RefusedError."""
    documents = list(_documents(path))
    known = [document for document in documents if _kind(document)]
    if not known:
        kinds = ", ".join(sorted({_described(document) for document in documents})) or "nothing"
        reason = f"it has {kinds}, and no TFJob or PyTorchJob of kubeflow.org and no Job of batch/v1"
        raise _refusal(str(path), reason, "name the manifest of one training")
    names = {_name(document) for document in known}
    kinds = {_kind(document) for document in known}
    if len(names) > 1 or len(kinds) > 1:
        listed = ", ".join(f"{_kind(document)} {_name(document)} ({document.file.name})" for document in known)
        raise _refusal(str(path), f"it has several trainings: {listed}", "name the file of one of them")
    for document in known:
        _ = document.get("apiVersion"), document.get("kind"), document.get("metadata", "name")
        _ = document.get("metadata", "generateName")
    kind = next(iter(kinds))
    replicas = list(_replicas(kind, known, path))
    beside = [document for document in documents if document not in known]
    return Manifest(kind, next(iter(names)), known, replicas, beside)


def _refusal(value: str, reason: str, fix: str) -> RefusedError:
    return RefusedError([Problem(OPTION, value, reason, fix)])


def _documents(path: Path) -> Iterator[Document]:
    if not path.exists():
        raise _refusal(str(path), "there is no such file", "name the YAML file of a TFJob or a Job")
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in {".yaml", ".yml"})
    for file in files:
        try:
            text = PLACEHOLDER.sub(r'"\1"', file.read_text(encoding="utf-8"))
            objects = list(yaml.safe_load_all(text))
        except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
            reason = f"it cannot be read as YAML: {' '.join(str(error).split())[:200]}"
            raise _refusal(
                str(file), reason, "render templates first: `kustomize build`, `helm template`"
            ) from None
        for item in objects:
            if isinstance(item, dict):
                yield Document(file, cast("dict[str, Any]", item))


def _kind(document: Document) -> str:
    """The kind of what is a training; empty for everything else."""
    version, kind = str(document.content.get("apiVersion", "")), str(document.content.get("kind", ""))
    if version.partition("/")[0] == "kubeflow.org" and kind in REPLICAS:
        return kind
    return kind if (version, kind) == ("batch/v1", JOB) else ""


def _described(document: Document) -> str:
    """Kind and group of an object: Volcano's ``Job`` is none of ``batch/v1``."""
    kind, version = (" ".join(str(document.content.get(key) or "").split()) for key in ("kind", "apiVersion"))
    return f"{kind or 'no kind'} of {version or 'no apiVersion'}"


def _name(document: Document) -> str:
    """The training's name on one line, as its other uses need it: a manifest may have any text there."""
    metadata = mapping(document.content.get("metadata"))
    return " ".join(str(metadata.get("name") or str(metadata.get("generateName") or "").strip("-")).split())


def _replicas(kind: str, documents: Sequence[Document], path: Path) -> Iterator[Replica]:
    """The roles in the order of their ranks: the chief first, since it publishes."""
    replicas: dict[str, Replica] = {}
    for document in documents:
        if kind == JOB:
            replicas["worker"] = Replica("worker", _pods(document), document, ("spec", "template", "spec"))
            continue
        for name, settings in mapping(at(document.content, "spec", REPLICAS[kind])).items():
            role = ROLES.get(str(name).lower())
            if role is None:
                raise _refusal(str(path), f"`{name}` is no role of a {kind}", "write Chief, Worker, PS, Evaluator")
            if role in replicas:
                raise _refusal(str(path), f"it has the role `{name}` twice", "leave one of them")
            place = ("spec", REPLICAS[kind], str(name))
            count = mapping(settings).get("replicas")
            if isinstance(count, str) and count.isdecimal():
                # A template wrote it in quotes.
                count = int(count)
            if count == 0:
                continue
            document.get(*place, "replicas")
            replicas[role] = Replica(role, 1 if count is None else count, document, (*place, "template", "spec"))
    if not replicas:
        raise _refusal(
            str(path), f"the {kind} has no {REPLICAS.get(kind, 'pods')}", "add the roles and their pods"
        )
    for role in ("chief", "worker", "ps", "evaluator"):
        if role in replicas:
            yield replicas[role]


def _pods(document: Document) -> int | str:
    """The pods of a Job that work together: all of them, where it is Indexed and they run at once."""
    spec = mapping(document.content.get("spec"))
    if not together(spec):
        return 1
    for key in ("completions", "parallelism", "completionMode"):
        document.get("spec", key)
    return spec.get("completions", 1)


def together(spec: Mapping[str, Any]) -> bool:
    """Whether the pods of a Job with this spec are one training: one pod, or all at once, each with its index."""
    completions, parallelism = spec.get("completions", 1), spec.get("parallelism", 1)
    return completions == parallelism and (completions == 1 or spec.get("completionMode") == "Indexed")


def problems(manifest: Manifest) -> Iterator[Problem]:
    """What a step would run as something else than the manifest does, without a sign of it."""
    for replica in manifest.replicas:
        yield from _pod_problems(replica)
    for document in manifest.documents:
        yield from _run_problems(document)


def _pod_problems(replica: Replica) -> Iterator[Problem]:
    """A program that the manifest does not name or the image lacks, and accelerators that steps cannot ask for."""
    place, container = program_container(replica)
    if not container:
        yield Problem(path_text(replica.spec), None, "the pod has no container", "write the one of the program")
        return
    image = str(container.get("image") or "")
    named = shlex.quote(image or "<image>")
    if not items(container.get("command")):
        words = " with these `args`" if items(container.get("args")) else ""
        inspect = "docker image inspect --format '{{json .Config.Entrypoint}} {{json .Config.Cmd}}'"
        yield Problem(
            path_text((*place, "command")),
            None,
            f"the image's own program (its ENTRYPOINT) runs{words}, and only the image says which that is",
            f"write the program as `command` in the manifest; `{inspect} {named}` shows it",
        )
    if replica.document.content.get("kind") == "PyTorchJob" and not REFERENCE.fullmatch(image):
        yield Problem(
            path_text((*place, "image")),
            image or None,
            "it is not by digest, so the step would run in TensorFlow's image, which has no PyTorch",
            f"write `image: <name>@sha256:<digest>`; `docker buildx imagetools inspect {named}` shows the digest",
        )
    for kind in ("requests", "limits"):
        for name, amount in value_at(container, ("resources", kind)).items():
            if name != GPU_RESOURCE and ACCELERATOR.search(str(name)):
                yield Problem(
                    path_text((*place, "resources", kind, str(name))),
                    amount,
                    "steps ask for whole GPUs of NVIDIA alone, and on CPUs the program would be another one",
                    f"ask for `{GPU_RESOURCE}` where the program runs on NVIDIA's GPUs, too; else run it without "
                    "Slipway",
                )


def _run_problems(document: Document) -> Iterator[Problem]:
    """A Job whose pods each do a piece of the work: a step without items would run the program once."""
    spec = mapping(document.content.get("spec"))
    if document.content.get("kind") != JOB or together(spec):
        return
    for key in ("completions", "parallelism"):
        if spec.get(key, 1) not in (None, 1):
            yield Problem(
                f"spec.{key}",
                spec[key],
                "its pods each do a piece of the work; one step would run the program once",
                "write a step with `items` and `workers` (docs/steps.md); or leave out `completions` and "
                "`parallelism` where one run does all the work",
            )


def program_container(replica: Replica) -> tuple[Place, Mapping[str, Any]]:
    """The container that runs the role's program, and its place; an empty one where the pod has none."""
    containers = [*map(mapping, items(value_at(replica.document.content, replica.spec).get("containers")))]
    main = CONTAINERS.get(replica.document.content.get("kind", ""))
    index = next((i for i, container in enumerate(containers) if container.get("name") == main), 0)
    return (*replica.spec, "containers", index), containers[index] if containers else {}


def value_at(content: object, place: Place) -> Mapping[str, Any]:
    """The mapping at ``place``; an empty one where there is none."""
    for part in place:
        fields: Mapping[Any, Any] = dict(enumerate(items(content))) if isinstance(part, int) else mapping(content)
        content = fields.get(part)
    return mapping(content)
