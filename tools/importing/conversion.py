"""From a training's manifest to the folder of a pipeline, and what of it could not be carried over."""

import json
import posixpath
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import jinja2
import yaml

from infra.kubernetes.bundle import left_out
from infra.kubernetes.pod import SHARED_MEMORY
from infra.pipelines.contract import literal
from infra.pipelines.discovery import ROOT, WORKLOADS
from infra.pipelines.file.shape import SECTION_KEYS
from infra.platform import GPU_RESOURCE
from infra.review.stack import items, mapping, mappings
from infra.schema.names import REFERENCE
from infra.schema.problems import Problem
from infra.schema.quantities import cpu_millicores, size_in_bytes
from infra.settings.checks.pipelines import section_name_findings
from tools.importing.manifest import (
    JOB,
    REPLICAS,
    Manifest,
    Place,
    Replica,
    path_text,
    problems,
    program_container,
    rule_of,
    value_at,
)
from tools.new.writing import Draft, RefusedError, name_clashes

# From a training's manifest to the step of a ``pipeline.yaml``, and what of it could not be carried over.


STEP = "train"
"""The name of the step that a training becomes."""

DISPATCHER = "by_role.py"
"""The program that starts another one for each role, where they differ."""

PORTS = {"TFJob": "tfjob-port", "PyTorchJob": "pytorchjob-port"}

AMOUNTS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeral_storage", GPU_RESOURCE: "gpus"}

BESIDE = (
    "only the training is read: files of a ConfigMap go into the pipeline's folder, values of a Secret under "
    "`secrets`, and what a claim holds into the store"
)
"""What is said of an object that is no training."""

EMPTY = "it has no pods"
"""What is said of a role with `replicas: 0`."""

SHELL = re.compile(r"(/\S*/)?(ba|da|z)?sh")
SHELL_COMMAND = re.compile(r"-[a-z]*c[a-z]*")
"""The option after which a shell reads commands from the next word: ``-c``, ``-ec``."""

ROLES_AT = {(path,) for path in REPLICAS.values()}

UNKNOWN = re.compile(r"\$\((?P<variable>[A-Za-z_]\w*)\)|%(?P<mark>[A-Za-z]\w*)%")
"""What a template left open: a variable of kustomize, which looks like one of Kubernetes, or a mark of ksonnet."""


@dataclass(frozen=True)
class Note:
    """Something to know about the import: where in the manifest, its value, and what became of it.

    ``carried`` says that it is in the pipeline, in another form.
    """

    at: str
    value: object
    text: str
    carried: bool = True


@dataclass
class Imported:
    """A pipeline as plain values. ``notes`` say what was not carried over, ``needs`` what its pool has to have.

    ``programs`` are the files that the command starts, as their paths stand in it, relative where possible.
    ``by_role`` are command and environment of each role, where they differ.
    """

    pipeline: dict[str, Any]
    notes: list[Note] = field(default_factory=list[Note])
    needs: list[str] = field(default_factory=list[str])
    programs: list[str] = field(default_factory=list[str])
    by_role: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class _Pod:
    """What is carried over of one role's pod."""

    run: list[str] = field(default_factory=list[str])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    resources: dict[str, str | int] = field(default_factory=dict[str, "str | int"])
    image: str | None = None
    port: int | None = None


def convert(manifest: Manifest) -> Imported:
    """The pipeline of ``manifest``: one step, which runs the programs of all its roles.

    Raises RefusedError where the step would run something else than the manifest does, and end well.
    """
    if refusals := list(problems(manifest)):
        raise RefusedError(refusals)
    return _Conversion(manifest).result()


class _Conversion:
    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.parameters: dict[str, dict[str, Any]] = {}
        self.notes: list[Note] = []
        self.needs: list[str] = []
        self.programs: list[str] = []

    def result(self) -> Imported:
        pods = {replica.role: self._pod(replica) for replica in self.manifest.replicas}
        first = next(iter(pods.values()))
        step: dict[str, Any] = {"run": first.run}
        by_role: dict[str, Any] = {}
        if any((pod.run, pod.environment) != (first.run, first.environment) for pod in pods.values()):
            by_role = {role: {"run": pod.run, "environment": pod.environment} for role, pod in pods.items()}
            step["run"] = ["python", DISPATCHER]
            step["environment"] = self._environment_by_role(by_role)
        elif first.environment:
            step["environment"] = first.environment
        if secrets := {key: name for pod in pods.values() for key, name in pod.secrets.items()}:
            step["secrets"] = secrets
        if image := first.image:
            step["image"] = image
        step |= self._nodes(first.port, alike=not by_role)
        if resources := self._most([pod.resources for pod in pods.values()]):
            step["resources"] = resources
        if limit := self._time_limit():
            step["time_limit"] = limit
        self._leave()
        about = f"Imported from the {self.manifest.kind} {self.manifest.name}."
        pipeline: dict[str, Any] = {"description": about}
        if self.parameters:
            pipeline["parameters"] = self.parameters
        pipeline["steps"] = {STEP: step}
        return Imported(pipeline, self.notes, list(dict.fromkeys(self.needs)), self.programs, by_role)

    def _nodes(self, port: int | None, *, alike: bool) -> dict[str, Any]:
        roles = {replica.role: self._count(replica) for replica in self.manifest.replicas}
        if self.manifest.kind == "PyTorchJob" and alike:
            roles = {"worker": sum(roles.values())}
        nodes: dict[str, Any] = {"count": sum(roles.values())}
        if set(roles) != {"worker"}:
            nodes["roles"] = roles
        for document in self.manifest.documents:
            wait = document.get("spec", "runPolicy", "schedulingPolicy", "scheduleTimeoutSeconds")
            if isinstance(wait, int):
                nodes["wait"] = f"{wait}s"
        if port is not None:
            nodes["port"] = port
        if nodes == {"count": 1} or (nodes["count"] == 1 and self.manifest.kind == JOB):
            return {}
        return {"nodes": nodes["count"] if set(nodes) == {"count"} else nodes}

    def _count(self, replica: Replica) -> int:
        if isinstance(replica.count, int) and not isinstance(replica.count, bool):
            return replica.count
        place = (*replica.spec[:-2], "replicas")
        text = "a template left it open; written as 1: set `nodes` of the step in the stack file"
        self.notes.append(Note(path_text(place), replica.count, text))
        return 1

    def _time_limit(self) -> str | None:
        for document in self.manifest.documents:
            for place in (("spec", "runPolicy", "activeDeadlineSeconds"), ("spec", "activeDeadlineSeconds")):
                seconds = document.get(*place)
                if isinstance(seconds, int):
                    return f"{seconds}s"
        return None

    def _pod(self, replica: Replica) -> _Pod:
        document = replica.document
        place, container = program_container(replica)
        pod = _Pod()
        document.get(*place, "name")
        mounts = self._mounts(replica, place)
        document.get(*place, "workingDir")
        folder = str(container.get("workingDir") or "")
        self._environment(replica, place, pod, mounts)
        words = [str(word) for key in ("command", "args") for word in items(document.get(*place, key))]
        pod.run = [self._relative(self._text(word, pod.environment, mounts), folder) for word in words]
        self.programs += [program for program in _programs(pod.run) if program not in self.programs]
        self._resources(replica, place, pod)
        self._image(replica, place, pod)
        for number, port in enumerate(map(mapping, items(container.get("ports")))):
            if port.get("name") == PORTS.get(self.manifest.kind) and isinstance(port.get("containerPort"), int):
                document.get(*place, "ports", number)
                pod.port = port["containerPort"]
        self._pool(replica)
        return pod

    def _relative(self, word: str, folder: str) -> str:
        """A path below the program's working directory, relative to it."""
        return posixpath.relpath(word, folder) if folder and word.startswith(f"{folder.rstrip('/')}/") else word

    def _environment(self, replica: Replica, place: Place, pod: _Pod, mounts: Mapping[str, str]) -> None:
        variables = items(value_at(replica.document.content, place).get("env"))
        for index, variable in enumerate(map(mapping, variables)):
            name, at = str(variable.get("name")), (*place, "env", index)
            source = variable.get("valueFrom")
            if "value" in variable or source is None:
                replica.document.get(*at)
                pod.environment[name] = self._text(str(variable.get("value", "")), {}, mounts)
            elif reference := mapping(mapping(source).get("secretKeyRef")):
                replica.document.get(*at)
                secret = re.sub(r"[^a-z0-9-]+", "-", f"{reference.get('name')}-{reference.get('key')}".lower())
                pod.secrets[name] = secret
                text = f"set its value: `pulumi config set --secret --path 'slipway:secrets.{secret}'`"
                self.notes.append(Note(path_text(at), f"{name} from a Secret", text))

    def _text(self, text: str, environment: Mapping[str, str], mounts: Mapping[str, str]) -> str:
        """A word or value with references in place of mounted folders and of what a template left open."""
        parts: list[str] = []
        end = 0
        for match in UNKNOWN.finditer(text):
            name = match["variable"] or match["mark"]
            parts.append(literal(text[end : match.start()]))
            if match["variable"] and name in environment:
                parts.append(environment[name])
            else:
                key = f"{name}_value" if name in SECTION_KEYS else name
                self.parameters[key] = {"type": "string", "description": f"What the manifest has as {match[0]}."}
                parts.append(f"{{{key}}}")
            end = match.end()
        result = "".join([*parts, literal(text[end:])])
        for folder in sorted(mounts, key=len, reverse=True):
            # In the command of a shell a path ends where the shell's word does.
            path = rf"(?<![\w./-]){re.escape(folder)}(?=[/\s\"'`;:,&|<>()]|$)"
            result = re.sub(path, lambda _, to=mounts[folder]: to, result)
        return result

    def _mounts(self, replica: Replica, place: Place) -> dict[str, str]:
        """The reference that stands for each mounted folder."""
        content = replica.document.content
        mounts = [*map(mapping, items(value_at(content, place).get("volumeMounts")))]
        folders: dict[str, str] = {}
        for number, volume in enumerate(map(mapping, items(value_at(content, replica.spec).get("volumes")))):
            at = (*replica.spec, "volumes", number)
            claim = mapping(volume.get("persistentVolumeClaim"))
            for index, mount in enumerate(mounts):
                if mount.get("name") != volume.get("name") or not mount.get("mountPath"):
                    continue
                folder = str(mount["mountPath"]).rstrip("/")
                here = (*place, "volumeMounts", index)
                if claim:
                    name = self._text(str(claim.get("claimName")), {}, {})
                    reads = bool(mount.get("readOnly") or claim.get("readOnly"))
                    if below := str(mount.get("subPath") or "").strip("/"):
                        name += f"/{self._text(below, {}, {})}"
                    folders[folder] = f"{{store}}/{name}" if reads else "{output}"
                    what = f"only read: copy its files into the store, below `{name}`"
                    text = what if reads else "written: paths below it are the step's `{output}`"
                    self.notes.append(Note(path_text(here), folder, text))
                elif "emptyDir" in volume and folder == SHARED_MEMORY:
                    text = "pods have one of their own: 1 GiB where they have several GPUs, else mostly 64 MiB"
                    self.notes.append(Note(path_text(here), folder, text))
                elif "emptyDir" in volume:
                    folders[folder] = f"/tmp/{volume.get('name')}"
                    text = f"an empty folder: `/tmp/{volume.get('name')}`, which the program has to make"
                    self.notes.append(Note(path_text(here), folder, text))
                else:
                    continue
                _ = replica.document.get(*at), replica.document.get(*here)
        return folders

    def _resources(self, replica: Replica, place: Place, pod: _Pod) -> None:
        for kind in ("requests", "limits"):
            for name, amount in value_at(replica.document.content, (*place, "resources", kind)).items():
                key = AMOUNTS.get(str(name))
                if key is None:
                    continue
                replica.document.get(*place, "resources", kind, str(name))
                if key == "cpu" and kind == "limits" and "cpu" in pod.resources:
                    text = f"CPU has no limit; {pod.resources['cpu']} is asked for"
                    self.notes.append(Note(path_text((*place, "resources", kind, name)), amount, text))
                    continue
                wanted = int(amount) if key == "gpus" else str(amount)
                pod.resources[key] = _larger(key, pod.resources.get(key), wanted)

    def _most(self, resources: Sequence[Mapping[str, str | int]]) -> dict[str, str | int]:
        """The most that any role asks for: all pods of a step are alike."""
        most: dict[str, str | int] = {}
        for resource in resources:
            for key, amount in resource.items():
                most[key] = _larger(key, most.get(key), amount)
        if any(dict(resource) != most for resource in resources):
            listed = ", ".join(f"{key} {amount}" for key, amount in most.items())
            text = f"all pods of a step are alike: each asks for the most that any role does ({listed})"
            self.notes.append(Note("resources", "differ by role", text))
            if most.get("gpus") and any(not resource.get("gpus") for resource in resources):
                idle = "a pod of a role without GPUs holds a GPU node, too; without such roles it is not paid for"
                self.notes.append(Note("resources", "GPUs", idle))
        return most

    def _image(self, replica: Replica, place: Place, pod: _Pod) -> None:
        image = str(value_at(replica.document.content, place).get("image") or "")
        if REFERENCE.fullmatch(image):
            replica.document.get(*place, "image")
            pod.image = image

    def _pool(self, replica: Replica) -> None:
        """What the nodes need that the pods asked for."""
        if labels := mapping(replica.document.get(*replica.spec, "nodeSelector")):
            listed = ", ".join(f"{key}: {value}" for key, value in labels.items())
            self.needs.append(f"nodes with the labels {listed} (`nodeSelector` of {replica.role})")
        for toleration in mappings(replica.document.get(*replica.spec, "tolerations")):
            value = f"={toleration['value']}" if toleration.get("value") else ""
            effect = f":{toleration['effect']}" if toleration.get("effect") else ""
            taint = f"{toleration.get('key', 'any key')}{value}{effect}"
            self.needs.append(f"nodes whose taints are among: {taint} (`tolerations` of {replica.role})")

    def _environment_by_role(self, by_role: Mapping[str, Any]) -> dict[str, str]:
        """Words and variables of all roles as the step's environment, where references are filled in."""
        text = "each role has a command or environment of its own: `by_role.py` starts the one of its pod"
        self.notes.append(Note("roles", ", ".join(by_role), text))
        environment: dict[str, str] = {}
        for role, program in by_role.items():
            words = cast("list[str]", program["run"])
            variables = cast("dict[str, str]", program["environment"])
            environment |= {f"{role.upper()}_WORD_{index}": word for index, word in enumerate(words)}
            environment |= {f"{role.upper()}_ENV_{name}": value for name, value in variables.items()}
        return environment

    def _leave(self) -> None:
        for document in self.manifest.beside:
            metadata = value_at(document.content, ("metadata",))
            what = " ".join(str(part) for part in (document.content.get("kind"), metadata.get("name")) if part)
            self.notes.append(Note(document.file.name, what or "no object", BESIDE, carried=False))
        for document in self.manifest.documents:
            for place, value in document.unread():
                if value in ({}, []):
                    continue
                rule = rule_of(place)
                why = EMPTY if place[1:2] in ROLES_AT and len(place) == 3 else rule.why or rule.becomes
                self.notes.append(Note(path_text(place), value, why, carried=False))


def _programs(run: Sequence[str]) -> list[str]:
    """The files that a command starts, in a shell's command too."""
    words = list(run[:3])
    if len(words) == 3 and SHELL.fullmatch(words[0]) and SHELL_COMMAND.fullmatch(words[1]):
        reader = shlex.shlex(words.pop(), posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        try:
            words += reader
        except ValueError:
            # A quotation that has no end: the shell will say so.
            return []
    return list(dict.fromkeys(word for word in words if re.search(r"^[^-{][^{]*\.(py|sh)$", word)))


def _larger(key: str, one: str | int | None, other: str | int) -> str | int:
    if one is None:
        return other
    amount = {"cpu": cpu_millicores, "gpus": int}.get(key, size_in_bytes)
    return max(one, other, key=lambda value: amount(cast("Any", value)))


# The folder of an imported pipeline, and what is said about it.


TEMPLATE = Path(__file__).parent / "data" / "by_role.py.j2"

WIDTH = 110

WORD = "_WORD_"
"""What tells a word of a role's command from its variables, in the environment of `DISPATCHER`."""

MOST_BYTES = 2**20
"""Bytes of a program that is copied: what a step ships has to fit into a ConfigMap."""


def draft(manifest: Manifest, imported: Imported, name: str, code: Path | None) -> Draft:
    """The folder ``workloads/<name>`` with the pipeline and its program. Raises RefusedError."""
    name = name or re.sub(r"[^a-z0-9-]+", "-", manifest.name.lower()).strip("-") or "imported"
    target = ROOT / WORKLOADS / name
    problems = [
        Problem("NAME", name, finding.reason, finding.fix.partition(", and write")[0])
        for finding in section_name_findings((), name)
    ]
    if problems := problems or name_clashes("NAME", name, target, ROOT):
        raise RefusedError(problems)
    files = _program(manifest, imported, code)
    missing = [program for program in imported.programs if not program.startswith("/") and program not in files]
    if imported.by_role and (programs := sorted({*filter(_is_python, files), *filter(_is_python, missing)})):
        # It starts them by name, and only what a program imports travels by itself.
        imported.pipeline["steps"][STEP]["files"] = programs
    files["pipeline.yaml"] = _pipeline(imported, manifest)
    if imported.by_role:
        files[DISPATCHER] = _dispatcher(imported.by_role)
    return Draft(target, files, tuple(_report(manifest, imported, name, files, missing)))


def _is_python(path: str) -> bool:
    return path.endswith(".py")


def _program(manifest: Manifest, imported: Imported, code: Path | None) -> dict[str, str]:
    """The program's files: those of ``code``, or those of the manifest's folder that the command names."""
    if code is not None:
        if not code.is_dir():
            raise RefusedError(
                [Problem("CODE", str(code), "there is no such folder", "name the program's folder")]
            )
        return dict(_texts(code))
    folder = manifest.documents[0].file.parent
    files: dict[str, str] = {}
    for program in imported.programs:
        path = folder / Path(program).name
        if path.is_file():
            files[Path(program).name] = path.read_text(encoding="utf-8")
    renamed = {program: Path(program).name for program in imported.programs if Path(program).name in files}
    step = imported.pipeline["steps"][STEP]
    step["run"] = [_rename(word, renamed) for word in step["run"]]
    if imported.by_role:
        words: Mapping[str, str] = step["environment"]
        step["environment"] = {key: _rename(word, renamed) if WORD in key else word for key, word in words.items()}
    imported.programs = [renamed.get(program, program) for program in imported.programs]
    return files


def _rename(word: str, names: Mapping[str, str]) -> str:
    """A word of the command with new names of programs: the whole word, or words in a shell's command."""
    for old, new in names.items():
        word = re.sub(rf"(?<![\w./-]){re.escape(old)}(?![\w./-])", lambda _, to=new: to, word)
    return word


def _texts(code: Path) -> Iterator[tuple[str, str]]:
    size = 0
    hidden = set(left_out(code))
    for path in sorted(code.rglob("*")):
        parts = path.relative_to(code).parts
        if not path.is_file() or any(part.startswith((".", "__pycache__")) for part in parts):
            continue
        if "/".join(parts) in hidden and path.suffix in {".png", ".jpg"}:
            continue
        content = path.read_bytes()
        size += len(content)
        if size > MOST_BYTES:
            reason = "its files are more than 1 MiB, the most that a step ships"
            raise RefusedError([Problem("CODE", str(code), reason, "name the folder of the program alone")])
        try:
            yield "/".join(parts), content.decode()
        except UnicodeDecodeError:
            reason = f"{'/'.join(parts)} is no text; data belongs into the store"
            raise RefusedError(
                [Problem("CODE", str(code), reason, "name the folder of the program alone")]
            ) from None


def _pipeline(imported: Imported, manifest: Manifest) -> str:
    lines = [f"Imported from the {manifest.kind} {manifest.name}."]
    for heading, notes in _groups(imported):
        lines += [f"{heading}:", *(f"- {note}" for note in notes)]
    head = "\n".join(
        f"# {part}"
        for line in lines
        for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False)
    )
    body = yaml.safe_dump(
        imported.pipeline, sort_keys=False, default_flow_style=None, width=WIDTH, allow_unicode=True
    )
    return f"{head}\n{body}"


def _dispatcher(by_role: Mapping[str, Any]) -> str:
    shapes = {
        role: {"words": len(program["run"]), "variables": sorted(program["environment"])}
        for role, program in by_role.items()
    }
    template = jinja2.Template(
        TEMPLATE.read_text(encoding="utf-8"), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return template.render(shapes=shapes)


def _groups(imported: Imported) -> Iterator[tuple[str, list[str]]]:
    """What there is to say, under headings: first what is lost."""
    lost = [_line(note) for note in imported.notes if not note.carried]
    changed = [_line(note) for note in imported.notes if note.carried]
    groups = {"Not carried over": lost, "In another form": changed, "The step's pool needs": imported.needs}
    yield from ((heading, notes) for heading, notes in groups.items() if notes)


def _line(note: Note) -> str:
    value = note.value if isinstance(note.value, str) else json.dumps(note.value, default=str)
    value = value if len(value) <= 60 else f"{value[:57]}…"
    return " ".join(f"{note.at}: {value}: {note.text}".split())


def _report(
    manifest: Manifest, imported: Imported, name: str, files: Mapping[str, str], missing: list[str]
) -> Iterator[str]:
    roles = ", ".join(f"{replica.role} {replica.count}" for replica in manifest.replicas)
    yield f"Read the {manifest.kind} {manifest.name}: {roles}"
    for heading, notes in _groups(imported):
        yield f"{heading} ({len(notes)}):"
        yield from (f"  {note}" for note in notes)
    yield f"Wrote {WORKLOADS}/{name}/: {', '.join(sorted(files))}"
    absolute = [program for program in imported.programs if program.startswith("/")]
    if missing:
        here = f"put it into {WORKLOADS}/{name}/, or import again with CODE=<its folder>"
        yield f"Missing: {', '.join(missing)}: {here}"
    if absolute:
        yield f"In the image: {', '.join(absolute)}: `image` has to name it by digest; a rehearsal needs it here"
    yield "Next:"
    if imported.pipeline.get("parameters"):
        yield f"  give {', '.join(imported.pipeline['parameters'])} values in the stack file: they have no default"
    yield f"  make new STACK=mine CLOUD=existing USES={name}    or another cloud"
    yield "  make rehearse STACK=mine"
    yield "docs/import.md says what becomes of each field"
