"""What a stack shows of its Jobs' results: the results themselves, or the commands that read them in the store."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pulumi

from slipway.infra.commands import command
from slipway.infra.kubernetes.apps.app import PipelineApp
from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.job import StepJob
from slipway.infra.kubernetes.pods.pod import usage_folder
from slipway.infra.pipelines.results import USED, Curves, File, Number, Page, Picture, Result, Table
from slipway.infra.placed import STORE_GATE, Step


@dataclass(frozen=True)
class Outputs:
    """Makes the outputs of pipelines. ``described`` has, by name, what ``make show`` has to know of a result."""

    jobs: Mapping[str, StepJob]
    workspaces: Mapping[str, Workspace]
    described: dict[str, pulumi.Input[Any]] = field(default_factory=dict[str, pulumi.Input[Any]])

    def of(self, steps: Sequence[Step]) -> dict[str, pulumi.Input[Any]]:
        """The outputs of one pipeline: where each step's results are, and those that it declares, by their names.

        Where several steps declare a result of one name, it is a mapping by step.
        """
        jobs = {step.name: self.jobs[f"{step.pipeline}-{step.name}"] for step in steps}
        published = {name: job for name, job in jobs.items() if job.run.step.publishes}
        shown: dict[str, pulumi.Input[Any]] = {
            "runs": {
                name: pulumi.Output.concat(job.run.step.platform.store.url, "/", job.run.path)
                for name, job in published.items()
            }
        }
        if pages := {
            name: browse(job.run.path)
            for name, job in published.items()
            if (browse := job.run.step.platform.store.browse)
        }:
            shown["browse"] = pages
        if used := {name: _usage(job) for name, job in jobs.items() if _is_read(job)}:
            shown[USED] = used
        declared = [(result, job) for job in jobs.values() for result in job.run.step.results]
        for name in dict.fromkeys(result.name for result, _ in declared):
            of_name = [(result, job) for result, job in declared if result.name == name]
            values = {
                job.run.step.name: self._show(result, job, job.run.step.name if of_name[1:] else "")
                for result, job in of_name
            }
            shown[name] = values if of_name[1:] else next(iter(values.values()))
        return shown

    def _show(self, result: Result, job: StepJob, step: str) -> pulumi.Input[Any]:
        """The output of one result; ``step`` stands in its name where several steps have one of that name."""
        store = job.run.step.platform.store
        name = ".".join(filter(None, (job.run.step.pipeline, result.name, step)))
        path = f"{job.run.path}/{result.path}"
        match result:
            case Picture() | Page() | File() if store.claim is None:
                return pulumi.Output.concat(store.url, "/", path)
            case Curves() if result.logs:
                logs = f"{job.run.path}/{result.logs}"
                if store.claim is None:
                    return tensorboard(logs, store.url)
                return self._command(name, job, logs, then="tensorboard --logdir {copy}")
            case Picture() | Page() | File():
                return self._command(name, job, path)
            case _ if store.read is None or job.held:
                return self._command(name, job, path, result.select)
            case _:
                return self._value(result, job)

    def _value(self, result: Number | Table | Curves, job: StepJob) -> pulumi.Output[Any]:
        """The value in the file; if the store has lost the file, a text that says how to make it again."""
        store = job.run.step.platform.store
        path = f"{job.run.path}/{result.path}"

        def value_in(text: str | None) -> Any:
            try:
                return None if text is None else _pick(result, json.loads(text))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                return None

        def show(text: str | None) -> pulumi.Output[Any]:
            picked = value_in(text)
            if number := infinite(picked):
                # The engine writes its state as JSON, which has no such numbers.
                step = f"{job.run.step.pipeline}.{job.run.step.name}"
                return pulumi.Output.from_input(f"result {result.name} of step {step} is {number} in {path}")
            if picked is not None:
                return pulumi.Output.from_input(picked)
            what = "is not in the store" if text is None else "is damaged"
            return pulumi.Output.concat(
                store.url,
                f"/{path} {what}. Make it again: pulumi up --stack {pulumi.get_stack()} --replace '",
                job.job.urn,
                "'",
            )

        assert store.read is not None
        return store.read(path, job.job).apply(show)

    def _command(self, name: str, job: StepJob, path: str, select: str = "", then: str = "") -> pulumi.Output[Any]:
        """The command that reads ``path`` through a pod and shows it, or copies a folder here.

        ``then`` is a command that opens the copy, with ``{copy}`` for its path.
        """
        platform = job.run.step.platform
        workspace = self.workspaces[platform.name]
        self.described[name] = {
            "kubectl": pulumi.Output.concat(platform.kubectl, f" --namespace {workspace.namespace}"),
            # Its pods mount the store, and ask for no GPU.
            "reader": self.jobs[f"{STORE_GATE}-{platform.name}"].job_name,
            "path": path,
            "select": select,
            "then": then,
            "job": job.job.urn,
        }
        return pulumi.Output.from_input(command("show", name, stack=pulumi.get_stack()))


def app_outputs(apps: Sequence[PipelineApp]) -> dict[str, pulumi.Input[Any]]:
    """The outputs of a pipeline's apps, beside those of its steps: how people reach each, with what
    token, at which address from outside the cluster and what is left to do for that.
    """
    forwards = {app.app.name: app.forward for app in apps if app.forward}
    tokens = {app.app.name: app.token for app in apps if app.token is not None}
    opened = {app.app.name: app.opened for app in apps if app.opened is not None}
    outputs: dict[str, Mapping[str, pulumi.Input[Any]]] = {
        "addresses": {name: app.url for name, app in opened.items()},
        "to_do": {name: app.to_do for name, app in opened.items()},
        "apps": forwards,
        "tokens": tokens,
    }
    return {name: output for name, output in outputs.items() if output}


def _is_read(job: StepJob) -> bool:
    step = job.run.step
    return bool(job.run.usage and step.uses_store and step.platform.store.read and not job.held)


def _usage(job: StepJob) -> pulumi.Output[str]:
    """What the step's first pod used, in words; a GPU that was idle for too long is warned of."""
    store, usage = job.run.step.platform.store, job.run.usage
    assert store.read is not None
    assert usage is not None

    def said(text: str | None) -> str:
        try:
            content = None if text is None else json.loads(text)
            idle = content["gpu_idle"] if content else None
            seconds = content["seconds"] if content else 0.0
            words = _use_in_words(content) if content else "nothing was kept"
        except (ValueError, LookupError, TypeError, RecursionError):
            return "what was kept is damaged"
        if idle is not None and 100 * idle > usage.idle_share:
            pulumi.log.warn(
                f"{job.run.name}: its GPUs did next to nothing for {100 * idle:.0f} % of {seconds:.0f} s, "
                "which were paid all the same"
            )
        return words

    return store.read(f"{usage_folder(job.run)}/0.json", job.job).apply(said)


def _use_in_words(usage: Mapping[str, Any]) -> str:
    parts: list[str] = []
    if usage["gpu_busy"] is not None:
        parts.append(f"GPU busy {100 * usage['gpu_busy']:.0f} %, idle {100 * usage['gpu_idle']:.0f} %")
    elif usage["gpus_emulated"]:
        parts.append(f"GPU emulated ({usage['gpus_emulated']})")
    elif usage["gpus_asked"]:
        parts.append(f"GPU unknown: {usage['gpus_unknown']}")
    if usage["cpu_cores"] is not None:
        parts.append(f"CPU {usage['cpu_cores']:.2f} cores")
    beside = {part: seconds for part, seconds in usage.get("parts", {}).items() if part != "program"}
    causes = ", ".join(f"{seconds:.0f} s {part}" for part, seconds in beside.items() if seconds >= 1)
    took = f"{usage['seconds']:.0f} s{f' with {causes}' if causes else ''}"
    return ", ".join([*parts, f"memory at most {usage['memory_peak_mib']} MiB", took])


def _pick(result: Number | Table | Curves, content: Any) -> Any:
    """What is shown of a file's ``content``: of a table's rows the values that the table is declared to show."""
    value = selected(content, result.select)
    if not isinstance(result, Table):
        return value
    keys = dict.fromkeys([*(column.key for column in result.columns), *(result.compare or ())])
    rows = cast("Sequence[Mapping[str, Any]]", value)
    return [{key: row[key] for key in keys if key in row} for row in rows]


def infinite(value: Any) -> str:
    """A number in ``value`` that is not finite, as text; empty where there is none."""
    # Not by calls within calls: what a program wrote may be nested as deeply as JSON can be read.
    values: list[Any] = [value]
    while values:
        member = values.pop()
        if isinstance(member, float) and not math.isfinite(member):
            return str(member)
        if isinstance(member, Mapping):
            values += cast("Mapping[str, Any]", member).values()
        elif isinstance(member, list):
            values += cast("list[Any]", member)
    return ""


def selected(content: Any, pointer: str) -> Any:
    """The part of a JSON document that ``pointer`` names (RFC 6901); raises LookupError where there is none."""
    for escaped in pointer.split("/")[1:]:
        key = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(content, list):
            content = cast("list[Any]", content)[int(key)]
        elif isinstance(content, Mapping):
            content = cast("Mapping[str, Any]", content)[key]
        else:
            raise LookupError(pointer)
    return content


def tensorboard(path: str, root: pulumi.Input[str]) -> pulumi.Output[str]:
    """Shows the training curves in the folder ``path`` below ``root``, a URL."""
    return pulumi.Output.concat("tensorboard --logdir ", pulumi.Output.concat(root, "/", path).apply(shlex.quote))
