"""From a training's manifest to the step of a ``pipeline.yaml``, and what of it could not be carried over."""

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from slipway.infra.pipelines.contract import literal
from slipway.infra.pipelines.file.section import SECTION_KEYS
from slipway.infra.pipelines.mounts import covers, path_problem
from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.review.stack import items, mapping, mappings
from slipway.infra.schema.names import REFERENCE
from slipway.infra.schema.problems import Problem
from slipway.infra.schema.quantities import cpu_millicores, size_in_bytes
from slipway.tools.importing import config_maps
from slipway.tools.importing.document import ANY_DEPTH, Place, path_text, rule_of, value_at
from slipway.tools.importing.kinds import CRON_JOB, kinds
from slipway.tools.importing.manifest import Manifest
from slipway.tools.importing.pods import Replica, job_place, program_container
from slipway.tools.importing.refusals import problems
from slipway.tools.importing.variables import (
    ENDPOINT,
    INDEX,
    INDEX_VARIABLE,
    RENDEZVOUS,
    SET,
    host_problems,
    replace_hosts,
)
from slipway.tools.importing.volumes import Mount, carry, lost_problems, mounts, path_pattern
from slipway.tools.new.writing import RefusedError

STEP = "train"
"""The name of the step that a training becomes."""

STARTER = "start.py"
"""The program that starts another one: that of the pod's role, or with what a controller told it."""

AMOUNTS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeral_storage", GPU_RESOURCE: "gpus"}

BESIDE = (
    "only the training is read: files of a ConfigMap go into the pipeline's folder, values of a Secret under "
    "`secrets`, and what a claim holds into the store"
)
"""What is said of an object that is no training."""

READERS: Mapping[str, Callable[[str], int]] = {"cpu": cpu_millicores, "gpus": int}
"""What reads an amount, where it is no size."""

EMPTY = "it has no pods"
"""What is said of a role with `replicas: 0`."""

SHELL = re.compile(r"(/\S*/)?(ba|da|z)?sh")
SHELL_COMMAND = re.compile(r"-[a-z]*c[a-z]*")
"""The option after which a shell reads commands from the next word: ``-c``, ``-ec``."""

ROLES_AT = {(kind.roles,) for kind in kinds()}

OPEN = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)\}?")

SEARCHED = frozenset({"HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH"})
"""Variables of an image, which manifests name where nothing fills them in."""

COMMANDS = frozenset({"date", "hostname", "id", "mktemp", "nproc", "pwd", "uname", "whoami"})
"""Commands whose output a shell puts in place of ``$(hostname)``, which looks like a variable of Kubernetes."""

ONLY_IN_POD = re.compile(r"\$\((\w+)\)")
"""What `STARTER` fills in."""

FOLDER_CHANGE = re.compile(r"\s*cd\s+(?P<folder>[^\s;&|]+)\s*(;|&&)\s*")
"""How the command of a shell begins that goes to another folder."""

BUCKET = re.compile(r"\b(?:gs|s3a?)://[^/\s\"']+")

JAX_DETECTION = re.compile(r"jax\.distributed\.initialize\(\s*\)")

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
    ``by_role`` are command and environment of each role, where they differ. ``variables`` are what `STARTER` sets,
    ``filled`` the variables in which it fills in values; ``starter`` says whether it starts the program. ``files``
    are texts of ConfigMaps by their path in the pipeline's folder.
    """

    pipeline: dict[str, Any]
    notes: list[Note] = field(default_factory=list[Note])
    needs: list[str] = field(default_factory=list[str])
    programs: list[str] = field(default_factory=list[str])
    by_role: dict[str, Any] = field(default_factory=dict[str, Any])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    filled: list[str] = field(default_factory=list[str])
    starter: bool = False
    files: dict[str, str] = field(default_factory=dict[str, str])


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
        self.refused: list[Problem] = []
        self.variables = dict(manifest.variables)
        self.texts = [text for replica in manifest.replicas for text in _texts(replica)]
        self.mounts: dict[str, Any] = {}
        self.files: dict[str, str] = {}
        self.config_folders: dict[str, config_maps.ConfigFolder] = {}
        self.config_maps: set[str] = set()
        self.directories: set[str] = set()
        self.together = [replica.count for replica in manifest.replicas] != [1]

    def result(self) -> Imported:
        pods = {replica.role: self._pod(replica) for replica in self.manifest.replicas}
        first = next(iter(pods.values()))
        step: dict[str, Any] = {"run": first.run}
        by_role: dict[str, Any] = {}
        if any((pod.run, pod.environment) != (first.run, first.environment) for pod in pods.values()):
            by_role = {role: {"run": pod.run, "environment": pod.environment} for role, pod in pods.items()}
            step["run"] = ["python", STARTER]
            step["environment"] = self._environment_by_role(by_role)
        elif first.environment:
            step["environment"] = first.environment
        filled = [] if by_role else [key for key, text in first.environment.items() if self._is_filled(text)]
        starter = bool(by_role or self.variables or filled or any(map(self._is_filled, first.run)))
        if starter and not by_role:
            text = "`start.py` gives the program the variables that the controller of its kind set"
            self.notes.append(Note("kind", self.manifest.kind.kind, text))
            step["run"] = ["python", STARTER, *first.run]
        if secrets := {key: name for pod in pods.values() for key, name in pod.secrets.items()}:
            step["secrets"] = secrets
        if len(self.directories) == 1 and (directory := next(iter(self.directories))):
            step["directory"] = directory
            self._refuse_shells(directory)
        if self.mounts:
            step["mounts"] = self.mounts
        if image := self._one_image(pods):
            step["image"] = image
        step |= self._nodes(first.port, alike=not by_role)
        if resources := self._most([pod.resources for pod in pods.values()]):
            step["resources"] = resources
        if limit := self._time_limit():
            step["time_limit"] = limit
        self._leave()
        if self.refused:
            raise RefusedError(self.refused)
        about = f"Imported from the {self.manifest.kind.kind} {self.manifest.name}."
        pipeline: dict[str, Any] = {"description": about}
        if self.parameters:
            pipeline["parameters"] = self.parameters
        pipeline["steps"] = {STEP: step}
        needs = list(dict.fromkeys(self.needs))
        return Imported(
            pipeline, self.notes, needs, self.programs, by_role, self.variables, filled, starter, self.files
        )

    def _refuse_shells(self, directory: str) -> None:
        """A shell that starts in another folder than that of its code finds no file there by a relative path."""
        shells = [text for text in self.texts if re.search(r"[\s;&|]", text)]
        for folder in self.config_folders.values():
            if any(folder.replace(text) != text for text in shells):
                reason = f"the command of a shell names it, and starts in {directory}, without the program's files"
                fix = "write the program as words, without a shell, or remove `workingDir`"
                self.refused.append(Problem(path_text(folder.mount), folder.folder, reason, fix))

    def _nodes(self, port: int | None, *, alike: bool) -> dict[str, Any]:
        roles = {replica.role: self._count(replica) for replica in self.manifest.replicas}
        if self.manifest.kind.kind in {"PyTorchJob", "XGBoostJob"} and alike:
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
        if nodes == {"count": 1} or (nodes["count"] == 1 and not self.manifest.kind.roles):
            return {}
        return {"nodes": nodes["count"] if set(nodes) == {"count"} else nodes}

    def _one_image(self, pods: Mapping[str, _Pod]) -> str | None:
        """The image of all roles; None where it is that of the pool."""
        images = {role: pod.image for role, pod in pods.items()}
        if len(set(images.values())) > 1:
            listed = ", ".join(f"{role} {image or 'by tag'}" for role, image in images.items())
            reason = "all pods of a step run one image, and its roles have several"
            self.refused.append(Problem("image", listed, reason, "write one digest for all roles"))
        return next(iter(images.values()))

    def _count(self, replica: Replica) -> int:
        if isinstance(replica.count, int) and not isinstance(replica.count, bool):
            return replica.count
        place = (*replica.spec[:-2], "replicas")
        text = "a template left it open; written as 1: set `nodes` of the step in the stack file"
        self.notes.append(Note(path_text(place), replica.count, text))
        return 1

    def _time_limit(self) -> str | None:
        for document in self.manifest.documents:
            for place in (("spec", "runPolicy"), ("spec",), job_place(document.content) or ("spec",)):
                seconds = document.get(*place, "activeDeadlineSeconds")
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
        directory = self._directory(folder, mounts)
        self.directories.add(directory)
        if folder and not directory:
            text = "the step starts in the folder of its code; name files of the image by their whole path"
            self.notes.append(Note(path_text((*place, "workingDir")), folder, text))
        folder = "" if directory else folder
        self._environment(replica, place, pod, mounts)
        words = [str(word) for key in ("command", "args") for word in items(document.get(*place, key))]
        self._say_of_jax(place, words)
        if any(RENDEZVOUS in word.lower() for word in words):
            self.variables |= ENDPOINT
        words = [word if _is_shell(words) else self._opened(word, container) for word in words]
        pod.run = [self._relative(self._word(word, pod.environment, mounts, place), folder) for word in words]
        if not any(covers(mount, folder) for mount in [*mounts, *self.mounts] for folder in _entered(words)):
            self.programs += [program for program in _programs(pod.run) if program not in self.programs]
        self._resources(replica, place, pod)
        self._image(replica, place, pod)
        for number, port in enumerate(map(mapping, items(container.get("ports")))):
            opened = port.get("containerPort")
            if port.get("name") == (self.manifest.kind.port or None) and isinstance(opened, int):
                document.get(*place, "ports", number)
                pod.port = opened
        self._pool(replica)
        return pod

    def _relative(self, word: str, folder: str) -> str:
        """A path below the program's working directory, relative to it."""
        return posixpath.relpath(word, folder) if folder and word.startswith(f"{folder.rstrip('/')}/") else word

    def _word(self, word: str, environment: Mapping[str, str], mounts: Mapping[str, str], place: Place) -> str:
        """A word or value as a step has it, with the address of rank 0 in place of its host name."""
        if self.together:
            self.refused += host_problems(path_text(place), word, self.manifest.replicas)
            word = replace_hosts(word, self.manifest.replicas)
        return self._text(word, environment, mounts)

    def _opened(self, word: str, container: Mapping[str, Any]) -> str:
        """A word that no shell reads with `$(NAME)` for the `$NAME` and `${NAME}` that `envsubst` left open."""
        known = {variable.get("name") for variable in mappings(container.get("env"))}
        return OPEN.sub(lambda match: match[0] if match[1] in known | SEARCHED else f"$({match[1]})", word)

    def _say_of_jax(self, place: Place, words: Sequence[str]) -> None:
        if self.together:
            self.notes += jax_notes(path_text((*place, "command")), " ".join(words))

    def _environment(self, replica: Replica, place: Place, pod: _Pod, mounts: Mapping[str, str]) -> None:
        container = value_at(replica.document.content, place)
        for index, name, taken in config_maps.environment_of(container, self.manifest.beside):
            replica.document.get(*place, "envFrom", index)
            self.config_maps.add(f"ConfigMap {name}")
            pod.environment |= {key: literal(value) for key, value in taken.items()}
        variables = items(container.get("env"))
        for index, variable in enumerate(map(mapping, variables)):
            name, at = str(variable.get("name")), (*place, "env", index)
            source = variable.get("valueFrom")
            if name in SET and self.together:
                replica.document.get(*at)
                value = variable.get("value", mapping(source))
                self.notes.append(Note(path_text(at), f"{name} {value}", "the step sets it itself, for each pod"))
            elif INDEX in str(mapping(mapping(source).get("fieldRef")).get("fieldPath")):
                replica.document.get(*at)
                self.variables[name] = "$(RANK)"
            elif "value" in variable or source is None:
                replica.document.get(*at)
                value = self._opened(str(variable.get("value", "")), {})
                pod.environment[name] = self._word(value, {}, mounts, at)
            elif (value := self._of_config_map(mapping(mapping(source).get("configMapKeyRef")))) is not None:
                replica.document.get(*at)
                pod.environment[name] = literal(value)
            elif reference := mapping(mapping(source).get("secretKeyRef")):
                replica.document.get(*at)
                secret = re.sub(r"[^a-z0-9-]+", "-", f"{reference.get('name')}-{reference.get('key')}".lower())
                pod.secrets[name] = secret
                text = f"set its value: `pulumi config set --secret --path 'slipway:secrets.{secret}'`"
                self.notes.append(Note(path_text(at), f"{name} from a Secret", text))

    def _of_config_map(self, reference: Mapping[str, Any]) -> str | None:
        """The value that a variable takes of a ConfigMap of the manifest; None where it has none."""
        value = (config_maps.values(reference, self.manifest.beside) or {}).get(str(reference.get("key")))
        if value is not None:
            self.config_maps.add(f"ConfigMap {reference.get('name')}")
        return value

    def _text(self, text: str, environment: Mapping[str, str], mounts: Mapping[str, str]) -> str:
        """A word or value with references in place of mounted folders and of what a template left open."""
        parts: list[str] = []
        end = 0
        for match in UNKNOWN.finditer(text):
            name = match["variable"] or match["mark"]
            parts.append(literal(text[end : match.start()]))
            if match["variable"] and name in environment:
                parts.append(environment[name])
            elif match["variable"] and (self._is_set(name) or name in {*COMMANDS, INDEX_VARIABLE}):
                self.variables |= {name: "$(RANK)"} if name == INDEX_VARIABLE else {}
                parts.append(match[0])
            else:
                key = f"{name}_value" if name in SECTION_KEYS else name
                self.parameters[key] = {"type": "string", "description": f"What the manifest has as {match[0]}."}
                parts.append(f"{{{key}}}")
            end = match.end()
        result = "".join([*parts, literal(text[end:])])
        for folder in sorted(mounts, key=len, reverse=True):
            result = path_pattern(folder).sub(lambda _, to=mounts[folder]: to, result)
        for config_folder in self.config_folders.values():
            result = config_folder.replace(result)
        return result

    def _is_set(self, name: str) -> bool:
        """Whether only the pod knows a variable: `STARTER` fills it in."""
        return name in SET or name in self.variables

    def _is_filled(self, text: str) -> bool:
        return any(self._is_set(match[1]) for match in ONLY_IN_POD.finditer(text))

    def _mounts(self, replica: Replica, place: Place) -> dict[str, str]:
        """The reference that stands for each mounted folder that words name; the others are mounts of the step."""
        folders: dict[str, str] = {}
        for mount in mounts(replica, place, self.manifest.beside):
            _ = replica.document.get(*mount.volume), replica.document.get(*mount.mount)
            carried = carry(mount, self.texts)
            self.notes.append(Note(path_text(mount.mount), mount.folder, carried.text))
            if carried.reference is not None:
                folders[mount.folder] = carried.reference
            elif carried.mounted is not None:
                self._mount(mount, carried.mounted)
        for folder in config_maps.folders(replica, place, self.manifest.beside):
            _ = replica.document.get(*folder.volume), replica.document.get(*folder.mount)
            self._take_files(folder)
        taken = self.config_folders.keys()
        self.refused += lost_problems(replica, place, self.texts, taken)
        return folders

    def _take_files(self, folder: config_maps.ConfigFolder) -> None:
        """Files of a ConfigMap go beside the program, which finds them by their paths from there."""
        self.refused += folder.problems(self.files)
        self.files |= folder.files
        self.config_maps.add(f"ConfigMap {folder.name}")
        self.config_folders[folder.folder] = folder
        names = ", ".join(folder.files)
        if any(folder.replace(text) != text for text in self.texts):
            note = Note(path_text(folder.mount), folder.folder, f"beside the program: {names}")
        else:
            text = f"{names}: beside the program; where it opens them by this path, change that"
            note = Note(path_text(folder.mount), folder.folder, text, carried=False)
        self.notes.append(note)

    def _mount(self, mount: Mount, value: object) -> None:
        at = path_text(mount.mount)
        folders = [path for path in self.mounts if path != mount.folder]
        nested = [path for path in folders if covers(path, mount.folder) or covers(mount.folder, path)]
        if problem := path_problem(mount.folder):
            self.refused.append(Problem(at, mount.folder, *problem))
        elif nested:
            reason, fix = f"it and {nested[0]} are one below the other", "mount two folders side by side"
            self.refused.append(Problem(at, mount.folder, reason, fix))
        elif self.mounts.setdefault(mount.folder, value) != value:
            reason = "another role mounts something else there, and all pods of a step are alike"
            self.refused.append(Problem(at, mount.folder, reason, "mount it at another path"))

    def _directory(self, folder: str, mounts: Mapping[str, str]) -> str:
        """Where the program starts, where that is a folder that it mounts."""
        path = self._text(folder, {}, mounts)
        if path.startswith("{output}"):
            return path
        return folder if any(covers(mount, folder) for mount in self.mounts) else ""

    def _resources(self, replica: Replica, place: Place, pod: _Pod) -> None:
        for kind in ("requests", "limits"):
            for name, amount in value_at(replica.document.content, (*place, "resources", kind)).items():
                key = AMOUNTS.get(str(name))
                # Without an amount of GPUs the program would run on CPUs.
                if key is None or (amount is None and key != "gpus"):
                    continue
                replica.document.get(*place, "resources", kind, str(name))
                if amount is None or not _is_amount(key, amount):
                    reason, fix = "a template left it open, or it is no amount", "write the amount in the manifest"
                    at = path_text((*place, "resources", kind, str(name)))
                    self.refused.append(Problem(at, amount, reason, fix))
                    continue
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
        text = "each role has a command or environment of its own: `start.py` starts the one of its pod"
        self.notes.append(Note("roles", ", ".join(by_role), text))
        environment: dict[str, str] = {}
        for role, program in by_role.items():
            words = cast("list[str]", program["run"])
            variables = cast("dict[str, str]", program["environment"])
            environment |= {f"{role.upper()}_WORD_{index}": word for index, word in enumerate(words)}
            environment |= {f"{role.upper()}_ENV_{name}": value for name, value in variables.items()}
        return environment

    def _say_schedule(self) -> None:
        """When a CronJob runs: that is the stack file's."""
        for document in self.manifest.documents:
            if document.content.get("kind") == CRON_JOB and (cron := document.get("spec", "schedule")):
                zone = document.get("spec", "timeZone")
                where = f", time_zone: {zone}" if zone else ""
                section = f'{{cron: "{cron}"{where}}}'
                text = f"write `schedule: {section}` below the pipeline in the stack file"
                self.notes.append(Note("spec.schedule", str(cron), text))

    def _say_buckets(self) -> None:
        """The addresses of buckets in words and values: the identity of pods goes no further than the store."""
        addresses = dict.fromkeys(match[0] for text in self.texts for match in BUCKET.finditer(text))
        if addresses:
            text = (
                "the right to use it: pods may use the stack's store alone. Write `{output}` for what the program "
                "writes there, and `{store}/…` for what it reads"
            )
            self.notes.append(Note("command, env", ", ".join(addresses), text, carried=False))

    def _leave(self) -> None:
        if self.together and (unset := self.manifest.kind.unset):
            text = "nothing sets them: the addresses of all pods are in `TF_CONFIG` (docs/distributed.md)"
            self.notes.append(Note("kind", ", ".join(unset), text, carried=False))
        self._say_schedule()
        self._say_buckets()
        for document in self.manifest.beside:
            metadata = value_at(document.content, ("metadata",))
            what = " ".join(str(part) for part in (document.content.get("kind"), metadata.get("name")) if part)
            if what in self.config_maps:
                continue
            self.notes.append(Note(document.file.name, what or "no object", BESIDE, carried=False))
        for document in self.manifest.documents:
            for place, value in document.unread():
                self._leave_field(place, value)

    def _leave_field(self, place: Place, value: object) -> None:
        rule = rule_of(place)
        if value in ({}, [], None):
            return
        if place[1:2] in ROLES_AT and len(place) == 3:
            self.notes.append(Note(path_text(place), value, EMPTY, carried=False))
        elif rule.at == ANY_DEPTH and (fields := mapping(value)):
            for key, inner in fields.items():
                self._leave_field((*place, str(key)), inner)
        else:
            self.notes.append(Note(path_text(place), value, rule.why or rule.becomes, carried=False))


def _is_shell(words: Sequence[str]) -> bool:
    return bool(words and SHELL.fullmatch(words[0]))


def _texts(replica: Replica) -> Iterator[str]:
    """All words and values of a role's program."""
    _, container = program_container(replica)
    yield from (str(word) for key in ("command", "args") for word in items(container.get(key)))
    yield from (str(variable.get("value", "")) for variable in mappings(container.get("env")))
    yield str(container.get("workingDir") or "")


def _entered(words: Sequence[str]) -> Iterator[str]:
    """The folder that a shell's command enters first: its programs are there."""
    yield from (match["folder"] for word in words if (match := FOLDER_CHANGE.match(word)))


def _programs(run: Sequence[str]) -> list[str]:
    """The files that a command starts, in a shell's command too."""
    words = [word.replace("\\\n", " ") for word in run[:3]]
    if len(words) == 3 and SHELL.fullmatch(words[0]) and SHELL_COMMAND.fullmatch(words[1]):
        reader = shlex.shlex(words.pop(), posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        try:
            words += reader
        except ValueError:
            # A quotation that has no end: the shell will say so.
            return []
    return list(dict.fromkeys(word for word in words if re.search(r"^[^-{:][^{:]*\.(py|sh)$", word)))


def jax_notes(at: str, program: str) -> Iterator[Note]:
    """What is said of a program on several nodes in which JAX is to find the others by itself."""
    if match := JAX_DETECTION.search(program):
        text = (
            "JAX asks the Kubernetes API for the other pods, which a step may not: pass `num_processes`, "
            '`process_id` and `cluster_detection_method="deactivate"` (docs/distributed.md)'
        )
        yield Note(at, match[0], text, carried=False)


def _is_amount(key: str, amount: object) -> bool:
    try:
        return READERS.get(key, size_in_bytes)(str(amount)) >= 0
    except ValueError:
        return False


def _larger(key: str, one: str | int | None, other: str | int) -> str | int:
    if one is None:
        return other
    amount = READERS.get(key, size_in_bytes)
    return max(one, other, key=lambda value: amount(str(value)))
