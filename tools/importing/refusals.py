"""What a step would run as something else than the manifest does, and is refused for that."""

import re
import shlex
from collections.abc import Iterator

from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.review.stack import items, mapping
from slipway.infra.schema.names import REFERENCE
from slipway.infra.schema.problems import Problem
from slipway.tools.importing.document import Document, path_text, value_at
from slipway.tools.importing.kinds import TRAIN_JOB, is_volcano
from slipway.tools.importing.manifest import Manifest
from slipway.tools.importing.pods import Replica, job_place, job_spec, program_container, together

ACCELERATOR = re.compile(r"gpu|mig-|tpu|npu|neuron|gaudi|huawei.com/|cambricon")
"""In the names of resources that are accelerators: ``google.com/tpu``, ``amd.com/gpu``, ``nvidia.com/mig-1g.5gb``,
``aws.amazon.com/neuron``, ``habana.ai/gaudi`` (kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus and the device
plugins of their vendors, seen November 2026)."""

FRAMEWORK = re.compile(r"torch|(?<![a-z])jax(?![a-z])|paddle|xgboost|lightgbm|mxnet|mindspore", re.IGNORECASE)
"""Frameworks that TensorFlow's image has not, in the name of an image or in a command."""

HOST_FILES = re.compile(r"/etc/volcano|\bVC_\w+_(HOSTS|NUM)\b")
"""What Volcano's plugin `svc` gives a pod (pkg/controllers/job/plugins/svc, August 2026)."""


def problems(manifest: Manifest) -> Iterator[Problem]:
    """What a step would run as something else than the manifest does, without a sign of it."""
    for replica in manifest.replicas:
        yield from _pod_problems(replica, manifest.kind.framework)
    for document in manifest.documents:
        yield from _run_problems(document)
        yield from _train_job_problems(document)
    for replica in manifest.replicas:
        if manifest.kind.kind == "PaddleJob" and replica.role == "chief":
            yield Problem(
                path_text(replica.spec[:-2]),
                replica.count,
                "masters of a PaddleJob are parameter servers of Paddle, which a step has not",
                "train collectively, with workers alone",
            )


def _pod_problems(replica: Replica, framework: str) -> Iterator[Problem]:
    """A program that the manifest does not name or the image lacks, and accelerators that steps cannot ask for."""
    place, container = program_container(replica)
    if not container:
        yield Problem(path_text(replica.spec), None, "the pod has no container", "write the one of the program")
        return
    image = str(container.get("image") or "")
    named = shlex.quote(image or "<image>")
    words = [str(word) for key in ("command", "args") for word in items(container.get(key))]
    if not items(container.get("command")):
        arguments = " with these `args`" if items(container.get("args")) else ""
        inspect = "docker image inspect --format '{{json .Config.Entrypoint}} {{json .Config.Cmd}}'"
        yield Problem(
            path_text((*place, "command")),
            None,
            f"the image's own program (its ENTRYPOINT) runs{arguments}, and only the image says which that is",
            f"write the program as `command` in the manifest; `{inspect} {named}` shows it",
        )
    if not framework and (match := FRAMEWORK.search(" ".join([image, *words]))):
        framework = match[0].lower()
    if framework and not REFERENCE.fullmatch(image) and replica.document.content.get("kind") != "TFJob":
        yield Problem(
            path_text((*place, "image")),
            image or None,
            f"it is not by digest, so the step would run in TensorFlow's image, without {framework}",
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
    if is_volcano(replica.document.content) and (match := HOST_FILES.search(" ".join(words))):
        yield Problem(
            path_text((*place, "command")),
            match[0],
            "Volcano's plugin `svc` writes the names of all pods there, and pods of a step have other ones",
            "take the addresses from `TF_CONFIG` or `MASTER_ADDR`, which a step sets (docs/distributed.md)",
        )


def _run_problems(document: Document) -> Iterator[Problem]:
    """A Job whose pods each do a piece of the work: a step without items would run the program once."""
    if (place := job_place(document.content)) is None:
        return
    spec = job_spec(document.content, place)
    if together(spec):
        return
    for key in ("completions", "parallelism"):
        if spec.get(key, 1) not in (None, 1):
            yield Problem(
                path_text((*place, key)),
                spec[key],
                "its pods each do a piece of the work; one step would run the program once",
                "write a step with `items` and `workers` (docs/steps.md); or leave out `completions` and "
                "`parallelism` where one run does all the work",
            )


def _train_job_problems(document: Document) -> Iterator[Problem]:
    """What a TrainJob has other controllers do to its pods or its data."""
    if document.content.get("kind") != TRAIN_JOB:
        return
    spec = mapping(document.content.get("spec"))
    for key in ("runtimePatches", "podTemplateOverrides", "podSpecOverrides"):
        if spec.get(key):
            yield Problem(
                f"spec.{key}",
                f"{len(items(spec[key]))} of them",
                "they change the pods of the runtime",
                "write the changes into the runtime's pods in the file",
            )
    if spec.get("initializer"):
        yield Problem(
            "spec.initializer",
            ", ".join(mapping(spec["initializer"])),
            "it brings data into /workspace before the training, where a step would find nothing",
            "make it a step of its own, or copy the data into the store; then remove it from the manifest",
        )
