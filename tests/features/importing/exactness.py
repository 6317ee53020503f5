"""Compares the pods of a manifest with those that the stack declares which is made of its import."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from slipway.features.importing.folder import draft
from slipway.features.importing.manifest import Training, read
from slipway.features.nodes.pod import work
from slipway.features.nodes.pod.group import Address
from slipway.infra.review.stack import items, mapping, mappings
from slipway.infra.schema.quantities import mebibytes
from slipway.infra.schema.secret_values import MASK
from tests.support.previewing import previewed
from tests.support.tree import write_tree

OWN = re.compile(
    r"SLIPWAY_.*|POD_NAME|JOB_(NAME|UID)|HOME|TMPDIR|USER|TF_CPP.*|PYTHON(UNBUFFERED|DONT.*)|NCCL_.*|PWD|SHLVL|_"
)
"""Variables that a step has beside those of its program."""

FIRST, SECOND = "10.0.0.1", "10.0.0.2"
"""Addresses of the first pod and of the second, which is looked at; one that is alone is `localhost` to itself."""


def expanded(text: str, table: Mapping[str, str]) -> str:
    """``$(NAME)`` as Kubernetes fills it in, character by character."""
    result, at = "", 0
    while at < len(text):
        end = text.find(")", at)
        if text.startswith("$$", at):
            result, at = f"{result}$", at + 2
        elif text.startswith("$(", at) and end > 0:
            name = text[at + 2 : end]
            result, at = result + table.get(name, f"$({name})"), end + 1
        else:
            result, at = result + text[at], at + 1
    return result


def told(training: Training, gpus: int) -> dict[str, str]:
    """What the kind's controller sets in the second pod, or in the only one."""
    rank, address = ("1", FIRST) if training.count > 1 else ("0", "localhost")
    spec, runtime = training.objects[0].look, training.roles[0].source.look
    if training.kind == "PyTorchJob":
        processes, port = str(spec("spec", "nprocPerNode") or "auto"), "23456"
        here = {"MASTER_ADDR": address, "MASTER_PORT": port, "RANK": rank}
        here["WORLD_SIZE"] = str(training.count * (int(processes) if processes.isdecimal() else 1))
    elif "torch" in mapping(runtime("spec", "mlPolicy")):
        processes, port, here = str(spec("spec", "trainer", "numProcPerNode") or "auto"), "29400", {}
        processes = processes if gpus or processes != "auto" else "1"
    elif training.kind in {"JobSet", "TrainJob"} or spec(*training.job, "completionMode") == "Indexed":
        return {"JOB_COMPLETION_INDEX": rank}
    else:
        return {"TF_CONFIG": ""} if training.kind == "TFJob" and training.count > 1 else {}
    torch = {"ADDR": address, "PORT": port}
    here |= {f"PET_MASTER_{key}": value for key, value in torch.items()}
    processes = str(gpus) if gpus and processes == "auto" else processes
    return here | {"PET_NNODES": str(training.count), "PET_NODE_RANK": rank, "PET_NPROC_PER_NODE": processes}


def of_manifest(training: Training) -> dict[str, Any]:
    """What the second pod of the manifest is, or the only one."""
    role = training.roles[0]
    [container, *_] = mappings(role.source.look(*role.spec, "containers"))
    resources = mapping(container.get("resources"))
    amounts = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
    gpus = int(amounts.get("nvidia.com/gpu") or 0)
    environment: dict[str, str] = {}
    for variable in mappings(container.get("env")):
        if "job-completion-index" in str(variable):
            environment[variable["name"]] = "1" if training.count > 1 else "0"
        elif "valueFrom" not in variable:
            environment[variable["name"]] = expanded(variable.get("value") or "", environment)
    domain = r"\.(fit|all)" if training.job else ""
    first = rf"(?<![\w.-]){re.escape(role.host)}0{domain}(\.[\w-]+)*(?![\w-])"
    environment = {name: re.sub(first, FIRST, value) for name, value in environment.items()}
    environment |= told(training, gpus)
    volumes = {volume["name"]: volume for volume in mappings(role.source.look(*role.spec, "volumes"))}
    mounts: dict[str, bool] = {}
    for mount in mappings(container.get("volumeMounts")):
        volume = volumes[mount["name"]]
        path, kind = mount["mountPath"].rstrip("/"), next(key for key in [*volume, "emptyDir"] if key != "name")
        if path not in {"/dev/shm", "/tmp"}:
            reads = mount.get("readOnly") or mapping(volume.get(kind)).get("readOnly") or kind == "configMap"
            mounts[path] = not reads or kind == "emptyDir"
    return {
        "words": [
            expanded(word, environment) for key in ("command", "args") for word in items(container.get(key))
        ],
        "environment": environment,
        "named": {variable["name"] for variable in mappings(container.get("env"))},
        "gpus": gpus,
        "memory": mebibytes(str(amounts["memory"])) if "memory" in amounts else None,
        "mounts": mounts,
        "pods": training.count,
        "starts in": container.get("workingDir"),
    }


def of_stack(spec: Mapping[str, Any], training: Training, step: Mapping[str, Any]) -> dict[str, Any]:
    """The same of the Job that the stack declares."""
    [container] = mappings(mapping(mapping(spec["template"])["spec"])["containers"])
    words = [expanded(word, {}) for word in container["args"][container["args"].index("--") + 1 :]]
    folder = None
    if words[:2] == ["python3", "-I"]:
        folder, words = words[4], words[5:]
    environment = {item["name"]: expanded(item["value"], {}) for item in container["env"] if "value" in item}
    gpus = int(container["resources"]["limits"].get("nvidia.com/gpu", 0))
    if training.count > 1:
        port = mapping(step["nodes"]).get("port", 2222)
        addresses = [Address(host, port) for host in [FIRST, *[SECOND] * (training.count - 1)]]
        environment |= work.variables(1, addresses, ["worker"] * training.count, gpus, 1)
        environment["JOB_COMPLETION_INDEX"] = "1"
    if words[:2] == ["sh", "-c"] and " exec " in f" {words[2]}":
        folder = words[3] if "cd " in words[2] else folder
        script = words[2].replace('mkdir -p "$0" && cd "$0" && ', "")
        before, _, command = script.rpartition("exec ")
        unset = re.match(r"env (-u \w+ )+", command)
        command = command[unset.end() :] if unset else command
        script = f"{before}{unset[0] if unset else 'env '}env -0; printf '%s\\0' --- {command}"
        secrets = {item["name"]: f"$({item['name']})" for item in container["env"] if "valueFrom" in item}
        lines = subprocess.check_output(
            ["/bin/sh", "-c", script, *words[3:]], env={**secrets, **environment}, text=True
        )
        variables, _, words = lines.partition("---\0")
        environment = dict(line.split("=", 1) for line in variables.split("\0") if "=" in line)
        environment = {name: value for name, value in environment.items() if name not in secrets}
        words = words.split("\0")[:-1]
    store = {
        mount["mountPath"]: not mount.get("readOnly") for mount in container["volumeMounts"] if "subPath" in mount
    }
    return {
        "words": words,
        "environment": environment,
        "secrets": [item["name"] for item in container["env"] if "secretKeyRef" in str(item.get("valueFrom"))],
        "gpus": gpus,
        "memory": mebibytes(container["resources"]["limits"]["memory"]),
        "mounts": store,
        "pods": spec.get("completions", 1),
        "starts in": None if str(folder).startswith("$TMPDIR") else folder,
    }


def differences(manifest: Path, folder: Path, code: Path | None = None) -> dict[str, tuple[object, object]]:
    """In what the second pod of the manifest, or the only one, is not that of the stack, by field.

    Raises RefusedError where it is not imported.
    """
    training = read(manifest)
    files = cast("Mapping[str, str]", draft(training, "imported-by-tests", code).files)
    # What `lock` would make of requirements.in.
    write_tree(folder, {"requirements.txt": "", **files})
    steps = mapping(yaml.safe_load(files["pipeline.yaml"])["steps"])
    pool = {"selector": {"a": "b"}, "cpu": "300", "memory": "8Ti", "ephemeral_storage": "90Ti", "nodes": 200}
    pools = {name: "gpu" if mapping(step.get("resources")).get("gpus") else "cpu" for name, step in steps.items()}
    gpus = mapping(steps["train"].get("resources")).get("gpus", 1)
    secrets = dict.fromkeys(mapping(steps["train"].get("secrets")).values(), MASK)
    stack = previewed(
        "local",
        {
            "clusters.local.pools": {"cpu": pool, "gpu": {**pool, "accelerator": "nvidia-l4", "gpus": gpus}},
            "store": {"kind": "pvc", "access_mode": "ReadWriteMany", "storage_class": "files"},
            "secrets": secrets,
            "pipelines": {
                "it": {"uses": str(folder), "steps": {name: {"pool": pool} for name, pool in pools.items()}}
            },
        },
    )
    [job] = [job for job in stack.of_type("kubernetes:batch/v1:Job") if "-train" in job.name]
    wanted, got = of_manifest(training), of_stack(mapping(job.properties["spec"]), training, steps["train"])
    for variables in (wanted["environment"], got["environment"]):
        for name in [name for name in variables if OWN.fullmatch(name) or name in got["secrets"]]:
            del variables[name]
        if "TF_CONFIG" in variables:
            # What is in it depends on the role, and is tested with the step.
            variables["TF_CONFIG"] = ""
    wanted["secrets"] = [name for name in got["secrets"] if name in wanted["named"]]
    if wanted["memory"] is None:
        got["memory"] = None
    return {key: (wanted[key], got[key]) for key in got if wanted[key] != got[key]}
