"""The pods of a training: its roles, how many pods each has, and where a manifest has their spec."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from slipway.infra.review.stack import at, items, mapping, mappings
from slipway.tools.importing.document import Document, Place, refusal, value_at
from slipway.tools.importing.kinds import (
    CRON_JOB,
    JOB,
    JOB_SET,
    RUNTIMES,
    TRAIN_JOB,
    VOLCANO,
    Kind,
    is_volcano,
    kind_of,
    policies,
)

ROLES: Mapping[str, str] = {
    "chief": "chief",
    "master": "chief",
    "worker": "worker",
    "ps": "ps",
    "evaluator": "evaluator",
}
"""The role of a replica type in lower case: TFJob takes `PS`, `Ps` and `ps` alike (kubeflow/training-operator,
pkg/apis/kubeflow.org/v1/tensorflow_defaults.go, 1.9)."""

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
"""The label of the replicated Job of a runtime that trains (kubeflow/trainer, pkg/constants, August 2026)."""

JOBS: Mapping[str, Place] = {JOB: ("spec",), CRON_JOB: ("spec", "jobTemplate", "spec")}

REPLICATED: Mapping[str, Place] = {JOB_SET: ("spec", "replicatedJobs")} | dict.fromkeys(
    RUNTIMES, ("spec", "template", "spec", "replicatedJobs")
)
"""Where the kinds that have several Jobs have them."""


@dataclass(frozen=True)
class Replica:
    """The pods of one role: ``count`` of them, whose spec is at ``spec`` in ``document``.

    ``host`` is the name of each pod up to its index; ``variables`` are what its runtime sets for the program.
    """

    role: str
    count: int | str
    document: Document
    spec: Place
    host: str = ""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def replicas(
    kind: Kind, documents: Sequence[Document], runtimes: Sequence[Document], path: Path
) -> Iterator[Replica]:
    """The roles in the order of their ranks: the chief first, since it publishes. Raises RefusedError."""
    made: dict[str, Replica] = {}
    for document in documents:
        for replica in _of(kind, document, runtimes, path):
            if replica.role in made:
                raise refusal(str(path), f"it has the role `{replica.role}` twice", "leave one of them")
            made[replica.role] = replica
    if not made:
        raise refusal(str(path), f"the {kind.kind} has no {kind.roles or 'pods'}", "add the roles and their pods")
    yield from (made[role] for role in ("chief", "worker", "ps", "evaluator") if role in made)


def _of(kind: Kind, document: Document, runtimes: Sequence[Document], path: Path) -> Iterator[Replica]:
    name = str(at(document.content, "metadata", "name") or "")
    if kind.roles:
        yield from _of_roles(kind, document, name, path)
    elif kind.kind == TRAIN_JOB:
        yield _of_train_job(document, name, runtimes, path)
    elif kind.kind == JOB_SET:
        yield _of_job_set(document, name, path)
    elif kind.group == VOLCANO:
        yield from _of_tasks(document, name, path)
    else:
        place = JOBS[kind.kind]
        yield Replica("worker", _pods(document, place), document, (*place, "template", "spec"), f"{name}-")


def _processes(document: Document, *place: str) -> Mapping[str, str]:
    """What torchrun takes for its ``--nproc-per-node``; empty where the manifest does not say it."""
    number = document.get(*place)
    return {} if number is None else {"PET_NPROC_PER_NODE": str(number)}


def _of_roles(kind: Kind, document: Document, name: str, path: Path) -> Iterator[Replica]:
    variables = _processes(document, "spec", "nprocPerNode")
    for title, settings in mapping(at(document.content, "spec", kind.roles)).items():
        role = ROLES.get(str(title).lower())
        if role is None:
            raise refusal(
                str(path), f"`{title}` is no role of a {kind.kind}", "write Chief, Worker, PS, Evaluator"
            )
        place = ("spec", kind.roles, str(title))
        count = _number(mapping(settings).get("replicas"))
        if count != 0:
            document.get(*place, "replicas")
            spec = (*place, "template", "spec")
            yield Replica(role, count, document, spec, f"{name}-{str(title).lower()}-", variables)


def _of_job_set(document: Document, name: str, path: Path) -> Replica:
    """The pods of the only replicated Job. JobSet makes its Job Indexed (pkg/webhooks/jobset_webhook.go)."""
    jobs = _jobs(document)
    if len(jobs) != 1 or _number(jobs[0].get("replicas")) != 1:
        listed = ", ".join(f"{job.get('name')} x {_number(job.get('replicas'))}" for job in jobs) or "none"
        reason = f"it has the replicated Jobs {listed}; a step is one Job, whose pods have one index each"
        fix = (
            "write one replicated Job with `replicas: 1` and as many `parallelism` and `completions` as all have "
            "pods; or import the Job of each as a step of its own, with `after` (docs/pipeline.md)"
        )
        raise refusal(str(path), reason, fix)
    place = (*REPLICATED[JOB_SET], 0)
    _ = document.get(*place, "name"), document.get(*place, "replicas")
    job = (*place, "template", "spec")
    host = f"{name}-{jobs[0].get('name')}-0-"
    return Replica("worker", _pods(document, job), document, (*job, "template", "spec"), host)


def _of_tasks(document: Document, name: str, path: Path) -> Iterator[Replica]:
    """The pods of the tasks of Volcano's Job: one of any name, or several whose names are roles."""
    tasks = mappings(at(document.content, "spec", "tasks"))
    plugins = list(mapping(at(document.content, "spec", "plugins")))
    if strange := [plugin for plugin in plugins if plugin not in policies()]:
        reason = f"its pods find one another by the plugin `{strange[0]}`, which a step has not"
        fix = "start the program by the framework's own means: `torchrun`, `jax.distributed` (docs/distributed.md)"
        raise refusal(str(path), reason, fix)
    variables = {key: text for plugin in plugins for key, text in policies()[plugin].items()}
    document.get("spec", "plugins", "env")
    for index, task in enumerate(tasks):
        title = str(task.get("name") or "")
        role = "worker" if len(tasks) == 1 else ROLES.get(title.lower())
        if role is None:
            listed = ", ".join(str(task.get("name")) for task in tasks)
            reason = f"its tasks are {listed}, and `{title}` is no role of a training"
            fix = "call them master, worker, ps, evaluator where they are that; else make each a step of its own"
            raise refusal(str(path), reason, fix)
        place = ("spec", "tasks", index)
        if (count := _number(task.get("replicas"))) != 0:
            _ = document.get(*place, "name"), document.get(*place, "replicas")
            spec = (*place, "template", "spec")
            yield Replica(role, count, document, spec, f"{name}-{title}-", variables)


def _of_train_job(document: Document, name: str, runtimes: Sequence[Document], path: Path) -> Replica:
    """The pods of the runtime that a TrainJob names, with what the TrainJob says of them."""
    reference = mapping(document.get("spec", "runtimeRef"))
    kind, title = reference.get("kind") or RUNTIMES[0], reference.get("name")
    runtime = next(
        (
            candidate
            for candidate in runtimes
            if (candidate.content.get("kind"), at(candidate.content, "metadata", "name")) == (kind, title)
        ),
        None,
    )
    if runtime is None:
        reason = f"its pods are those of the {kind} {title}, which is not in {path.name}"
        show = f"`kubectl get {str(kind).lower()} {title} -o yaml`"
        raise refusal(str(path), reason, f"append what {show} prints to the file, after a line `---`")
    policy = mapping(at(runtime.content, "spec", "mlPolicy"))
    ways = [key for key in policy if key != "numNodes"]
    if strange := [way for way in ways if way not in policies()]:
        reason = f"the runtime {title} starts the program by {strange[0]}, which pods of a step do not have"
        fix = "take a runtime with `torch`, `jax` or `xgboost`, and start the program by the framework's own means"
        raise refusal(str(path), reason, fix)
    merged = Document(runtime.file, copy.deepcopy(dict(runtime.content)), origin=runtime)
    merged.read_identity()
    merged.get("spec", "mlPolicy")
    place = _trainer(merged, path)
    job = (*place, "template", "spec")
    spec = (*job, "template", "spec")
    _ = merged.get(*place, "name"), merged.get(*place, "template", "metadata", "labels", ANCESTOR)
    _override(document, value_at(merged.content, spec))
    count = document.get("spec", "trainer", "numNodes") or policy.get("numNodes")
    variables = {key: text for way in ways for key, text in policies()[way].items()}
    if "torch" in ways:
        variables |= _processes(document, "spec", "trainer", "numProcPerNode")
    return Replica("worker", _number(count), merged, spec, f"{name}-{_title(merged, place)}-0-", variables)


def _trainer(runtime: Document, path: Path) -> Place:
    """The place of the replicated Job that trains."""
    place = REPLICATED[RUNTIMES[0]]
    jobs = _jobs(runtime)
    trainers = [
        index
        for index, job in enumerate(jobs)
        if mapping(at(job, "template", "metadata", "labels")).get(ANCESTOR) == "trainer"
    ]
    if len(trainers) != 1:
        raise refusal(str(path), f"no replicated Job of its runtime has `{ANCESTOR}: trainer`", "add the label")
    return (*place, trainers[0])


def _jobs(document: Document) -> Sequence[Mapping[str, Any]]:
    """The replicated Jobs of a JobSet or of a training runtime."""
    place = REPLICATED[str(document.content.get("kind"))]
    return mappings(value_at(document.content, place[:-1]).get(str(place[-1])))


def _title(runtime: Document, place: Place) -> str:
    return str(value_at(runtime.content, place).get("name"))


def _override(document: Document, pod: Mapping[str, Any]) -> None:
    """Writes what a TrainJob says of the program into the container ``node`` of ``pod``."""
    containers = cast("list[dict[str, Any]]", pod.get("containers") or [])
    container = next((item for item in containers if item.get("name") == "node"), None)
    if container is None:
        return
    for key in ("image", "command", "args", "resourcesPerNode"):
        if (value := document.get("spec", "trainer", key)) is not None:
            container["resources" if key == "resourcesPerNode" else key] = value
    variables = {variable.get("name"): variable for variable in mappings(container.get("env"))}
    variables |= {variable.get("name"): variable for variable in mappings(document.get("spec", "trainer", "env"))}
    if variables:
        container["env"] = list(variables.values())


def _number(count: Any) -> int | str:
    """A number of pods: 1 where none is written; a text where a template left it open."""
    if isinstance(count, str) and count.isdecimal():
        # A template wrote it in quotes.
        return int(count)
    return 1 if count is None else count


def job_place(content: Mapping[str, Any]) -> Place | None:
    """Where an object has the spec of its only Job; None where it has none of ``batch/v1``."""
    kind = str(content.get("kind"))
    if kind == JOB_SET:
        return (*REPLICATED[kind], 0, "template", "spec")
    return None if is_volcano(content) else JOBS.get(kind)


def job_spec(content: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    """The spec of the Job at ``place``, with what JobSet sets where nothing is written."""
    default = {"completionMode": "Indexed"} if content.get("kind") == JOB_SET else {}
    return {**default, **value_at(content, place)}


def _pods(document: Document, place: Place) -> int | str:
    """The pods of a Job that work together: all of them, where it is Indexed and they run at once."""
    spec = job_spec(document.content, place)
    if not together(spec):
        return 1
    for key in ("completions", "parallelism", "completionMode"):
        document.get(*place, key)
    return spec.get("completions", 1)


def together(spec: Mapping[str, Any]) -> bool:
    """Whether the pods of a Job with this spec are one training: one pod, or all at once, each with its index."""
    completions, parallelism = spec.get("completions", 1), spec.get("parallelism", 1)
    return completions == parallelism and (completions == 1 or spec.get("completionMode") == "Indexed")


def program_container(replica: Replica) -> tuple[Place, Mapping[str, Any]]:
    """The container that runs the role's program, and its place; an empty one where the pod has none."""
    containers = [*map(mapping, items(value_at(replica.document.content, replica.spec).get("containers")))]
    kind = kind_of(replica.document.content)
    main = kind.container if kind else "node"
    index = next((i for i, container in enumerate(containers) if container.get("name") == main), 0)
    return (*replica.spec, "containers", index), containers[index] if containers else {}
