"""What the pods of an app wait for where `up` does not wait for the steps before it, and who looks for it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.pods.pod import (
    BUNDLE,
    STORE,
    TEMPORARY,
    container_security,
    escaped,
    limits,
    mount,
    python_environment,
    requests,
)
from slipway.infra.kubernetes.run import Run
from slipway.infra.pipelines.apps import NEWEST, runs_file
from slipway.infra.placed import App, Step
from slipway.infra.platform import Resources

WAITER = "slipway.runtime.apps.waiting"
"""The module that an init container runs."""

CONTAINER = "waits"
"""The name of that container."""

RESOURCES = Resources(cpu=50, memory=128, ephemeral_storage=64)
"""What it asks for. The pod asks for what its program does, which is more, as it does without it."""

NO_DEADLINE = 2**31 - 1
"""The `progressDeadlineSeconds` of a Deployment that may take as long as it likes (kubernetes/pkg/controller/
deployment/util, `HasProgressDeadline`, Kubernetes 1.34)."""


@dataclass(frozen=True)
class Waits:
    """What an app waits for.

    ``results`` are those that it reads, by the input's name: paths below the store's root. Of each of ``steps``,
    which only have to succeed first, any result does, and these are the folders of all: a pod that an eviction
    starts anew does not wait for the next one. With ``follow`` it reads that run of those in the file ``runs``.
    ``servers`` are the addresses of apps that wait themselves, by their names.
    """

    results: Mapping[str, str] = field(default_factory=dict[str, str])
    steps: Mapping[str, str] = field(default_factory=dict[str, str])
    runs: str = ""
    follow: str = ""
    servers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def words(self) -> list[str]:
        """The arguments of `WAITER`."""
        flags = [word for name, path in self.results.items() for word in ("--result", f"{name}={STORE}/{path}")]
        flags += [word for name, path in self.steps.items() for word in ("--any", f"{name}={STORE}/{path}")]
        if self.runs:
            flags += ["--runs", f"{STORE}/{self.runs}", "--run", self.follow]
        return [*flags, *(word for pair in self.servers.items() for word in ("--server", "=".join(pair)))]


def waits_of(app: App, runs: Mapping[str, Run], held: Collection[str], connected: Iterable[App]) -> Waits | None:
    """What ``app`` waits for; None where `up` has waited for all of it.

    ``held`` are the lasting names of the steps that it does not wait for, and ``connected`` the apps to which
    ``app`` connects and that wait themselves. ``runs`` are by the steps' lasting names.
    """
    inputs = {name: step for name, step in app.inputs.items() if step.job in held}
    after = {step.name: step for step in app.after if step.job in held and step.name != NEWEST}
    servers = {server.name: server.address for server in connected}
    if not (inputs or after or servers):
        return None
    return Waits(
        results={} if app.follows else {name: runs[step.job].path for name, step in inputs.items()},
        steps={
            name: folder_of_results(step)
            for name, step in after.items()
            if step.job not in {read.job for read in inputs.values()}
        },
        runs=runs_file(app.pipeline) if app.follows and inputs else "",
        follow=app.follows,
        servers=servers,
    )


def folder_of_results(step: Step) -> str:
    """The folder of the store with all results of ``step``, as a path below the root."""
    return f"{step.pipeline}/{step.name}"


def waiter(waits: Waits, image: str, store: str | None) -> k8s.core.v1.ContainerArgs:
    """The init container. ``image`` has a Python, and ``store`` is the name of the volume with the store."""
    return k8s.core.v1.ContainerArgs(
        name=CONTAINER,
        image=image,
        image_pull_policy="IfNotPresent",
        command=["python3", "-m", WAITER],
        args=[escaped(word) for word in waits.words],
        working_dir=BUNDLE,
        env=[k8s.core.v1.EnvVarArgs(name=key, value=value) for key, value in python_environment().items()],
        resources=k8s.core.v1.ResourceRequirementsArgs(requests=requests(RESOURCES), limits=limits(RESOURCES)),
        security_context=container_security(),
        termination_message_policy="FallbackToLogsOnError",
        volume_mounts=[
            mount("bundle", BUNDLE, read_only=True),
            mount("tmp", TEMPORARY),
            *([mount(store, STORE, read_only=True)] if store else []),
        ],
    )
