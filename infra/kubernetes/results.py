"""What a stack shows of its Jobs' results: the results themselves, or the commands that read them in the store."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pulumi

from infra.kubernetes.gates import STORE_GATE
from infra.kubernetes.job import StepJob
from infra.kubernetes.workspace import Workspace

SHOW = "show"
"""The stack output that tells ``make show`` where the results are that only pods can read."""


@dataclass(frozen=True)
class Result:
    """Something worth showing in the directory of a step.

    ``path`` is a file or a folder. ``select`` is the JSON pointer (RFC 6901) of what is shown of a JSON file.
    ``then`` is a command that opens what was copied here, with ``{copy}`` for its path.
    """

    path: str
    select: str = ""
    then: str = ""


@dataclass(frozen=True)
class Shown:
    """Collects what a pipeline shows. ``described`` has, by name, what ``make show`` has to know."""

    jobs: Mapping[str, StepJob]
    workspaces: Mapping[str, Workspace]
    described: dict[str, pulumi.Input[Any]] = field(default_factory=dict[str, pulumi.Input[Any]])

    def value(
        self, name: str, job: StepJob, result: Result, pick: Callable[[Any], Any] = lambda found: found
    ) -> pulumi.Output[Any]:
        """What ``pick`` makes of ``result``, a part of a JSON file.

        Where only pods can read the store, the command that shows it. Where the store has lost it, a text that
        says how to make it again.
        """
        store = job.run.step.platform.store
        if store.read is None:
            return self.command(name, job, result)
        path = f"{job.run.path}/{result.path}"

        def found(text: str | None) -> Any:
            try:
                return None if text is None else pick(selected(json.loads(text), result.select))
            except (ValueError, LookupError, TypeError, AttributeError):
                return None

        def shown(text: str | None) -> pulumi.Output[Any]:
            picked = found(text)
            if picked is not None:
                return pulumi.Output.from_input(picked)
            what = "is not in the store" if text is None else "is damaged"
            return pulumi.Output.concat(
                store.url,
                f"/{path} {what}. Make it again: pulumi up --stack {pulumi.get_stack()} --replace '",
                job.job.urn,
                "'",
            )

        return store.read(path, job.job).apply(shown)

    def command(self, name: str, job: StepJob, result: Result) -> pulumi.Output[Any]:
        """The command that reads ``result`` through a pod and shows it, or copies a folder here."""
        platform = job.run.step.platform
        workspace = self.workspaces[platform.name]
        self.described[name] = {
            "kubectl": pulumi.Output.concat(platform.kubectl, f" --namespace {workspace.namespace}"),
            # Its pods mount the store, and ask for no GPU.
            "reader": self.jobs[f"{STORE_GATE}-{platform.name}"].run.job_name,
            "path": f"{job.run.path}/{result.path}",
            "select": result.select,
            "then": result.then,
            "job": job.job.urn,
        }
        return pulumi.Output.from_input(f"make show STACK={pulumi.get_stack()} {name}")


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
