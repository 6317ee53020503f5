"""Whose an object is: a stack takes over its own objects only, and refuses those that somebody else made.

The clusters' providers update an object that is there instead of failing on its name, since an `up` that was
killed leaves objects that the stack's state does not know. By itself that takes over anybody's object, and
`destroy` then deletes it. So every object has the label `INSTANCE`, which names its stack, and before Pulumi
creates an object, its name is looked up in the cluster. What the stack's state knows is not created, and so not
looked up. Before a Job is created, features say what speaks against it.

Patches are left out, because they change the objects of others by design, and so are Helm releases: Helm itself
refuses names and objects that are not the release's own (helm.sh/helm/v3, pkg/action/validate.go, 3.20).
"""

from asyncio import get_running_loop
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import pulumi

from slipway.infra.api_server import ApiServer, UnreachableError, UnreadableError
from slipway.infra.features import parts
from slipway.infra.kubernetes.labels import INSTANCE, PART_OF, instance

_T = TypeVar("_T")

PROVIDER = "pulumi:providers:kubernetes"
"""Type of the resources that stand for a cluster."""


class RefusedJobError(Exception):
    """A Job would not run as it is declared."""


class ForeignObjectError(Exception):
    """An object is in the cluster already and not this stack's, or nobody could say whether it is."""


@dataclass
class _Cluster:
    """One provider's cluster, with the hook that looks up what is to be created there.

    It looks up one object after the other, in a thread of its own: the program's threads each wait for a resource,
    which in turn may wait for this.
    """

    name: str
    kubeconfig: pulumi.Output[str]
    context: str | None
    hook: pulumi.ResourceHook | None = None
    server: ApiServer | None = None
    lost: UnreachableError | None = None
    """Why it could not be reached; it is not tried again."""
    said: bool = False
    """Whether the user was told so."""
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "ownership"))

    async def ask(self, kubeconfig: str, question: Callable[[ApiServer], _T]) -> _T:
        """The answer of its API server, in the cluster's thread."""
        return await get_running_loop().run_in_executor(self.thread, self._ask, kubeconfig, question)

    def _ask(self, kubeconfig: str, question: Callable[[ApiServer], _T]) -> _T:
        if self.lost:
            raise self.lost
        self.server = self.server or ApiServer(kubeconfig, self.context)
        try:
            return question(self.server)
        except UnreachableError as error:
            self.lost = error
            raise


@dataclass
class Ownership:
    """Labels the Kubernetes objects of a stack, and refuses those that are there already and not the stack's.

    ``owner`` is the stack as `INSTANCE` names it, ``namespace`` the one of its settings. Once it is ``complete``,
    a provider is the project's own, and so is what happens there. In a ``preview``, where
    nothing is created yet, it passes over a cluster that cannot be read, and objects of Slipway without that
    label, which `pulumi up` may be about to replace.
    """

    owner: str
    namespace: str
    preview: bool
    complete: bool = False
    _clusters: dict[Any, _Cluster] = field(default_factory=dict[Any, _Cluster])

    def apply(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        """The transformation of every resource of the stack."""
        if args.type_ == PROVIDER:
            if not self.complete:
                kubeconfig = pulumi.Output.from_input(args.props["kubeconfig"])
                context = cast("str | None", args.props.get("context"))
                self._clusters[args.resource] = _Cluster(args.name, kubeconfig, context)
            return None
        if args.opts.id is not None or args.type_.endswith("Patch"):
            return None
        parent = args.opts.parent
        provider = args.opts.provider or (parent.get_provider(args.type_) if parent else None)
        cluster = self._clusters.get(provider)
        metadata: Any = args.props.get("metadata")
        if cluster is None or metadata is None or isinstance(metadata, pulumi.Output):
            return None
        if isinstance(metadata, Mapping):
            # As a project's own program may write it.
            given = cast("Mapping[str, Any]", metadata)
            props = cast("dict[str, Any]", args.props)
            props["metadata"] = {**given, "labels": self._labels(given.get("labels"))}
        else:
            metadata.labels = self._labels(metadata.labels)
        guarded = pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(before_create=[self._hook(cluster)]))
        return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, guarded))

    def _labels(self, given: Any) -> Any:
        if isinstance(given, pulumi.Output):
            return cast("pulumi.Output[Any]", given).apply(self._labels)
        return {**PART_OF, **cast("Mapping[str, Any]", given or {}), INSTANCE: self.owner}

    def _hook(self, cluster: _Cluster) -> pulumi.ResourceHook:
        if cluster.hook is None:

            async def look_up(args: pulumi.ResourceHookArgs) -> None:
                await self._look_up(cluster, args.new_inputs or {})

            options = pulumi.ResourceHookOptions(on_dry_run=True)
            cluster.hook = pulumi.ResourceHook(f"ownership-{cluster.name}", look_up, options)
        return cluster.hook

    async def _look_up(self, cluster: _Cluster, inputs: Mapping[str, Any]) -> None:
        """Raises ForeignObjectError where the object of these ``inputs`` is there and not this stack's."""
        kubeconfig = await cluster.kubeconfig.future()
        if kubeconfig is None:
            # The cluster is not there yet.
            return
        metadata = cast("Mapping[str, Any]", inputs["metadata"])
        kind, name, namespace = inputs["kind"], metadata.get("name"), metadata.get("namespace") or ""
        if not isinstance(name, str) or not isinstance(namespace, str):
            # Another resource of the project's own has it, and is not there yet.
            return
        try:
            wanted = inputs["apiVersion"], kind, name, namespace
            live = await cluster.ask(kubeconfig, lambda server: server.find(*wanted))
        except UnreadableError as error:
            what = f"{_spell(kind, name, namespace)} may be there already, and cannot be read: {error}"
            if not self.preview:
                raise ForeignObjectError(what) from error
            if error is not cluster.lost or not cluster.said:
                pulumi.log.warn(f"Cluster {cluster.name}: {what}. `pulumi up` refuses what is not this stack's.")
            cluster.said = error is cluster.lost
            return
        labels: Mapping[str, str] = (live or {}).get("metadata", {}).get("labels") or {}
        if live is not None and not self._may_take(labels):
            raise ForeignObjectError(self._refusal(kind, name, namespace, labels))
        # In a preview what the stack itself declares is not there yet.
        for problem_of in () if live or self.preview or kind != "Job" else parts("declared", "creation_problem"):
            problem = await cluster.ask(kubeconfig, partial(problem_of, metadata=metadata))
            if problem:
                raise RefusedJobError(f"{_spell(kind, name, namespace)} is not created: {problem}")

    def _may_take(self, labels: Mapping[str, str]) -> bool:
        if not PART_OF.items() <= labels.items():
            return False
        return labels.get(INSTANCE) == self.owner or (self.preview and INSTANCE not in labels)

    def _refusal(self, kind: str, name: str, namespace: str, labels: Mapping[str, str]) -> str:
        what = _spell(kind, name, namespace)
        ours = PART_OF.items() <= labels.items()
        if kind == "Namespace" and name == self.namespace and not ours:
            way_out = (
                "To run in it as it is, set `creates_namespace: false` on the cluster: the stack then neither "
                "changes nor deletes it. Otherwise name another `slipway:namespace`."
            )
        else:
            way_out = "Name another `slipway:namespace`, or delete the object if nobody needs it."
        if ours and INSTANCE not in labels:
            place = f" -n {namespace}" if namespace else ""
            way_out += (
                " If an `up` of this stack was killed and left it, give it to the stack, which then deletes it "
                f"when it is destroyed: kubectl label {kind.lower()} {name}{place} {INSTANCE}={self.owner}"
            )
        return f"{what} is there already, and {_owner(labels)}; this is stack {self.owner}. {way_out}"


def _spell(kind: str, name: str, namespace: str) -> str:
    return f'{kind} "{name}" in namespace "{namespace}"' if namespace else f'{kind} "{name}"'


def _owner(labels: Mapping[str, str]) -> str:
    ours = PART_OF.items() <= labels.items()
    if INSTANCE in labels:
        whose = "Slipway stack" if ours else "application"
        return f"it belongs to the {whose} {labels[INSTANCE]}"
    if ours:
        return f"an earlier version of Slipway made it, without the label {INSTANCE} that names its stack"
    manager = labels.get("app.kubernetes.io/managed-by")
    return f"{manager} manages it" if manager else f"it is nobody's: no label {INSTANCE} names an owner"


def enforce(namespace: str, *, preview: bool) -> Ownership:
    """Labels and guards every Kubernetes object that the program declares after this, as `Ownership` says.

    It is `complete` once the clusters of the settings are declared.
    """
    stack = instance(pulumi.get_organization(), pulumi.get_project(), pulumi.get_stack())
    ownership = Ownership(stack, namespace, preview)
    pulumi.runtime.register_stack_transformation(ownership.apply)
    return ownership
