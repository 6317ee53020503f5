"""From the pods of a training to a step of a ``pipeline.yaml``: its program, resources, mounts and nodes."""

import json
import posixpath
import re
from dataclasses import fields
from typing import Any

from slipway.features.importing.manifest import Findings, Place, Role, Training, data, pattern
from slipway.features.importing.program import ADDRESS, LATER, RANK, Pod, Reader, data_of, quoted
from slipway.infra.pipelines.contract import literal
from slipway.infra.pipelines.images import TAGS
from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.review.stack import items, mapping, mappings
from slipway.infra.schema.names import REFERENCE, spell
from slipway.infra.schema.quantities import cpu_millicores, size_in_bytes
from slipway.infra.schema.secret_values import looks_like

STEP, PORT = "train", 2222
"""The name of the step that a training becomes, and the port of a step that names none."""

AMOUNTS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeral_storage", GPU_RESOURCE: "gpus"}


class Conversion:
    """Makes steps of a training. ``files`` are those of ConfigMaps, by their paths in the pipeline's folder."""

    def __init__(self, training: Training, findings: Findings) -> None:
        self.training, self.findings, self.files = training, findings, dict[str, str]()
        self._stored: dict[str, Any] = {}
        first, *others = training.roles
        mode = first.source.look(*training.job, "completionMode") if training.job else None
        mode = mode or ("Indexed" if training.kind in {"JobSet", "TrainJob"} else training.kind)
        # By whose variables the pods find one another: a section of `told` in the data file, if any.
        self.policy = "torch" if "torch" in mapping(first.source.look("spec", "mlPolicy")) else str(mode)
        self.pod = self._pod(first, findings)
        for role in others:
            other = self._pod(role, Findings(findings.problems, secrets=findings.secrets))
            for part in (part.name for part in fields(Pod)):
                if getattr(other, part) != getattr(self.pod, part):
                    words = {"what": part.replace("_", " "), "role": role.name, "first": first.name}
                    findings.add("roles-differ", role.spec[:-2], **words)

    def steps(self, *, has_code: bool) -> dict[str, Any]:
        """The steps; ``has_code`` says whether the program's folder comes with the manifest."""
        self._require_together(self.training.roles[0])
        step = self._step(has_code=has_code)
        self._name_rest()
        folders = sorted({path.partition("/")[0] for path in self.files})
        return {**{name: {"run": ["cp", "-rL", ".", "{output}"], "code": name} for name in folders}, STEP: step}

    def _require_together(self, role: Role) -> None:
        """Refuses pods of which each may do a piece of the work."""
        pod, at = self.pod, (*self.training.job, "completions")
        variables = (f"{name}={value}" for name, value in {**pod.environment, **pod.exports}.items())
        texts = " ".join([*pod.words, *variables])
        # What the manifest has as the step has it is in neither.
        apart = {"MASTER_ADDR", "PET_MASTER_ADDR", "JAX_COORDINATOR_ADDRESS"} <= {*pod.unset, *pod.exports}
        apart &= not (role.source.look(*role.spec, "subdomain") or pattern("together").search(texts))
        if not role.count:
            self.findings.add("pieces", at, role.source.look(*at))
        elif self.policy == "Indexed" and role.count > 1 and apart and ADDRESS not in texts:
            self.findings.add("pieces-or-training", at, role.count, count=role.count)

    def _pod(self, role: Role, findings: Findings) -> Pod:
        source, known = role.source, data("read")[self.training.kind]
        names = [str(container.get("name")) for container in mappings(source.look(*role.spec, "containers"))]
        if len(names) != 1:
            findings.add("containers", (*role.spec, "containers"), names=", ".join(names) or "none")
        main = known.get("container")
        place = (*role.spec, "containers", names.index(main) if main in names else 0)
        _, image, folder = source.take_keys(place, "name", "image", "workingDir")
        pod = Pod(image=_image(place, str(image or ""), findings), starts_in=str(folder or ""))
        pod.resources = _resources(role, place, findings)
        pod.port = known.get("port", 0)
        for index, port in enumerate(mappings(source.look(*place, "ports"))):
            if port.get("name") == known.get("port_name", ""):
                pod.port = source.take(*place, "ports", index)["containerPort"]
        told = self._told(role, pod)
        Reader(self.training, role, place, pod, findings).read(told)
        port = told.get("PET_MASTER_PORT") or pod.environment.get("MASTER_PORT", "")
        pod.port = pod.port or (int(port) if port.isdecimal() else 0)
        self._take_variables(pod, told)
        for index, _ in enumerate(items(source.look(*place, "volumeMounts"))):
            self._mount(role, (*place, "volumeMounts", index), pod, findings)
        for key in ("nodeSelector", "tolerations", "affinity"):
            if value := source.look(*role.spec, key) and source.take(*role.spec, key):
                findings.add("pool.nodes", (*role.spec, key), labels=json.dumps(value))
        runtime = (*role.spec, "runtimeClassName")
        if value := source.look(*runtime) and source.take(*runtime):
            findings.add("pool.runtime", runtime, name=json.dumps(value))
        return pod

    def _told(self, role: Role, pod: Pod) -> dict[str, str]:
        """What the controller of the training's kind sets."""
        first, policy, count, port = self.training.objects[0], self.policy, self.training.count, pod.port
        gpus, processes = int(pod.resources.get("gpus", 0)), str(first.take("spec", "nprocPerNode") or "auto")
        if policy == "torch":
            of_runtime = mapping(role.source.take("spec", "mlPolicy", "torch")).get("numProcPerNode")
            processes = str(first.take("spec", "trainer", "numProcPerNode") or of_runtime or "auto")
            cores = cpu_millicores(str(pod.resources.get("cpu", "0"))) // 1000
            processes, port = max(1, cores) if processes == "auto" and not gpus else processes, 29400
        world = count * int(processes) if policy == "PyTorchJob" and str(processes).isdecimal() else count
        processes = gpus if gpus and processes in {"auto", "gpu"} else processes
        rank, address = (RANK, ADDRESS) if count > 1 else ("0", "localhost")
        policy = "" if (policy, count) == ("TFJob", 1) else policy
        return _told(policy, rank=rank, address=address, count=count, port=port, processes=processes, world=world)

    def _take_variables(self, pod: Pod, told: dict[str, str]) -> None:
        """Gives the program what its controller ``told`` it, where the step does not."""
        count, processes = self.training.count, max(1, int(pod.resources.get("gpus", 0)))
        of_step = _told(
            "step", rank=RANK, address=ADDRESS, count=count, port=pod.port or PORT, processes=processes
        )
        for name, value in {**pod.environment, **pod.exports, **told}.items():
            pod.environment.pop(name, None)
            pod.exports.pop(name, None)
            if (count == 1 or name not in of_step) and value != f"\0{name}\0":
                (pod.exports if LATER.search(value) else pod.environment)[name] = value
            elif of_step.pop(name, value) != value:
                pod.exports[name] = value
        pod.unset = sorted(of_step) if count > 1 else []

    def _mount(self, role: Role, here: Place, pod: Pod, findings: Findings) -> None:
        """A folder that the program finds at a path of its own."""
        take, look = role.source.take_keys, role.source.look
        name, path, below, reads, varies = take(here, "name", "mountPath", "subPath", "readOnly", "subPathExpr")
        volumes = [mapping(volume).get("name") for volume in items(look(*role.spec, "volumes"))]
        if varies or name not in volumes or not path:
            return findings.add("mount", here, path)
        at, path = (*role.spec, "volumes", volumes.index(name)), posixpath.normpath(str(path))
        take(at, "name")
        kind = next((key for key in mapping(look(*at)) if key != "name"), "emptyDir")
        where, volume, said, words = (*at, kind), mapping(look(*at, kind)), "", {"path": path}
        if path == "/dev/shm" and (kind == "emptyDir" or volume.get("path") == path):
            # It is no larger than the memory of the pod, and as large without a size (Kubernetes 1.32,
            # SizeMemoryBackedVolumes).
            sizes = take(where, "sizeLimit", "medium", "path")[0], pod.resources.get("memory")
            if size := min(map(str, filter(None, sizes)), key=size_in_bytes, default=None):
                pod.resources["shm"] = size
            return None
        if kind in {"emptyDir", "ephemeral"}:
            size, _ = take(where, "sizeLimit", "medium")
            least = str(pod.resources.get("ephemeral_storage", "0"))
            if size and _is_amount("", size):
                pod.resources["ephemeral_storage"] = max(least, str(size), key=size_in_bytes)
            pod.mounts |= {} if path == "/tmp" else {path: f"{{scratch}}/{_joined(name, below)}"}
            said = "own-folder" if path == "/tmp" else "scratch"
        elif kind == "configMap" and not below:
            words["step"] = self._copy(role, where, findings)
            pod.mounts[path], said = f"{{{words['step']}}}", "copied"
        elif kind in {"persistentVolumeClaim", "nfs"} or pattern("folders").search(str(volume.get("driver"))):
            role.source.take(*where)
            bucket = mapping(volume.get("volumeAttributes")).get("bucketName")
            root = _joined(volume.get("claimName") or bucket or name)
            folder = f"{{store}}/{_joined(root, below)}"
            if self._stored.setdefault(root, volume) != volume:
                findings.add("same-folder", here, path)
            writes = not (reads or volume.get("readOnly"))
            pod.mounts[path] = {"folder": folder, "write": True} if writes else folder
            said, words["folder"] = "stored-and-written" if writes else "stored", folder
        else:
            role.source.take(*where)
            return findings.add(f"volumes.{kind if kind in data('volumes') else 'other'}", here, path)
        return findings.add(f"changed.{said}", here, **words)

    def _copy(self, role: Role, where: Place, findings: Findings) -> str:
        """The step that copies the files of a ConfigMap, which the program then has at their path."""
        name, _, chosen, _ = role.source.take_keys(where, "name", "defaultMode", "items", "optional")
        texts, step = data_of(self.training.beside, "ConfigMap", str(name)), spell(30, "files", str(name))
        paths = {str(item.get("key")): str(item.get("path")) for item in mappings(chosen)}
        paths = paths or {key: key for key in texts or ()}
        if texts is None or not texts.keys() >= paths.keys():
            findings.add("not-in-file", where, name)
            return step
        for key, path in paths.items():
            self.files[f"{step}/{posixpath.normpath(path)}"] = texts[key]
            if what := looks_like(texts[key]):
                findings.add("secret", (*where, key), what=what)
        return step

    def _step(self, *, has_code: bool) -> dict[str, Any]:
        training, pod, findings = self.training, self.pod, self.findings
        start, folder = "", posixpath.normpath(pod.starts_in or "/")
        wraps = list[str]()
        if pod.exports:
            wraps += ["export " + " ".join(f"{name}={quoted(value)}" for name, value in pod.exports.items())]
        if has_code:
            findings.add("changed.starts-in-code", ("workingDir",), pod.starts_in or None)
        elif pod.starts_in:
            wraps += ['mkdir -p "$0" && cd "$0"']
        else:
            start = "{scratch}/start"
            findings.add("changed.starts-empty", ("workingDir",))
        words, later = pod.words, any(map(LATER.search, pod.words))
        run = ["exec", *(["env", *(f"-u {name}" for name in pod.unset)] if pod.unset else [])]
        run += map(quoted, words) if later else ['"$@"']
        if wraps or pod.unset or later:
            words = ["sh", "-c", " && ".join([*wraps, " ".join(run)]), folder, *([] if later else words)]
            findings.add("changed.wrapped")
        nodes: dict[str, Any] = {"count": training.count}
        if training.kind == "TFJob" and [role.name for role in training.roles] != ["worker"]:
            nodes["roles"] = {role.name: role.count for role in training.roles}
        nodes |= {"port": pod.port} if pod.port not in {0, PORT} else {}
        places = [("spec", "runPolicy"), training.job or ("spec",)]
        limits = [item.take(*place, "activeDeadlineSeconds") for item in training.objects for place in places]
        limit = next((f"{seconds}s" for seconds in limits if seconds is not None), None)
        _ = findings.add("changed.no-deadline", ("activeDeadlineSeconds",)) if limit is None else None
        findings.add("changed.user")
        step: dict[str, Any] = {
            "run": list(map(literal, words)),
            "directory": start,
            "environment": {name: literal(value) for name, value in pod.environment.items()},
            "secrets": pod.secrets,
            "image": pod.image,
            "mounts": pod.mounts,
            "resources": pod.resources,
            "nodes": (nodes if len(nodes) > 1 else training.count) if training.count > 1 else None,
            "time_limit": limit,
        }
        return {key: value for key, value in step.items() if value}

    def _name_rest(self) -> None:
        """Says of every field that was not carried over what takes its place, or why it cannot be left out."""
        if self.training.kind == "CronJob":
            cron, zone = self.training.objects[0].take_keys(("spec",), "schedule", "timeZone")
            self.findings.add("changed.schedule", cron=json.dumps(cron), zone=zone or "of the cluster")
        for item in self.training.objects:
            for place, value in item.rest():
                said = next((key for key in reversed(place) if key in data("lost")), "field")
                keys = [*place, *re.findall(r'"(\w+)": ', json.dumps(value, default=str))]
                wrong: set[str] = set() if {"metadata", "status"} & {*keys} else data("fields").keys() & {*keys}
                empty = value in (None, []) or (value == {} and not wrong)
                name = "lost.empty" if empty else f"fields.{min(wrong)}" if wrong else f"lost.{said}"
                self.findings.add(name, place, value)
        for item in self.training.beside:
            if rest := ", ".join(str(place[0]) for place, _ in item.rest()):
                self.findings.add("lost.beside", (), f"{item.kind.partition(' ')[0]} {item.name} ({rest})")


def _told(policy: str, **values: object) -> dict[str, str]:
    """The variables that the section of the data file has for ``policy``, with ``values``."""
    return {name: text.format(**values) for name, text in data("told").get(policy, {}).items()}


def _image(place: Place, image: str, findings: Findings) -> str:
    """The image by digest; empty for TensorFlow's official ones, which a step runs in by itself."""
    name, _, tag = image.removeprefix("docker.io/").partition(":")
    official, _, version = TAGS[0].partition(":")
    if REFERENCE.fullmatch(image):
        findings.add("changed.image", (*place, "image"))
        return image
    is_official = name == official and (tag in {"", "latest", "latest-gpu"} or f"{name}:{tag}" in TAGS)
    said = "changed.tensorflow-image" if is_official else "image-by-tag"
    findings.add(said, (*place, "image"), image or None, image=image, version=version)
    return ""


def _resources(role: Role, place: Place, findings: Findings) -> dict[str, Any]:
    """What the container asks for: of CPU the request, of all else the limit, which a step asks for, too."""
    at, resources = (*place, "resources"), dict[str, Any]()
    limits, requests = (mapping(role.source.look(*at, kind)) for kind in ("limits", "requests"))
    for name in {**limits, **requests}:
        _ = role.source.take_keys((*at, "limits"), name), role.source.take_keys((*at, "requests"), name)
        kind = "requests" if name not in limits or (name == "cpu" and name in requests) else "limits"
        where, key, amount = (*at, kind, name), AMOUNTS.get(name), role.source.look(*at, kind, name)
        if pattern("network").fullmatch(name):
            findings.add("lost.network-device", where, amount)
        elif not key or not _is_amount(name, amount):
            findings.add("amount" if key else "resource", where, amount)
        elif str(amount) != "0":
            resources[key] = int(amount) if key == "gpus" else str(amount)
    if limits != requests:
        findings.add("changed.resources", at)
    if "memory" not in resources:
        findings.add("changed.no-memory", at)
    return resources


def _is_amount(name: str, amount: object) -> bool:
    try:
        return {"cpu": cpu_millicores, GPU_RESOURCE: int}.get(name, size_in_bytes)(str(amount)) >= 0
    except ValueError:
        return False


def _joined(*parts: object) -> str:
    """A path of names, of which those that a template left open keep their words."""
    return "/".join(filter(None, (re.sub(r"[^\w./-]+", "", str(part or "")).strip("/") for part in parts)))
