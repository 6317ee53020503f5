"""The engine's side of Pulumi's resource protocol, with emulators in place of providers."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from google.protobuf import struct_pb2
from pulumi.runtime import mocks, rpc
from pulumi.runtime.proto import provider_pb2, resource_pb2

from slipway.engine.emulated_cloud import Cloud
from slipway.engine.provider_outputs import mark
from slipway.engine.requests import StackOutput, read_request
from slipway.engine.secret_outputs import hide, names_of, secret_names
from slipway.engine.unknown_results import short_name
from slipway.infra.placed_model import PlacedStep
from slipway.infra.review.stack import CONFIG_MAP, JOB, Resource, texts

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# Pulumi's mocks and the messages of its protocol have no types.

STACK_REFERENCE = "pulumi:pulumi:StackReference"
"""The type of the resource that reads the outputs of another stack."""

READ_STACK_OUTPUTS = "pulumi:pulumi:readStackOutputs"
"""The engine's own function that returns the properties of such a resource."""


class NotCreatedError(Exception):
    """The resource was not created, and what depends on it will not be."""


class EvaluationError(Exception):
    """The program itself failed. The text is its error; the cause is chained."""


class Observer:
    """What an engine learns of an evaluation. This one ignores everything."""

    waits = False
    """Whether a call may take its time. Those of independent resources then come at once, from several threads."""

    steps: Sequence[PlacedStep] = ()
    """Those that the program tells of, before it declares them."""

    def registering(self, resource: Resource) -> None:
        """All that ``resource`` depends on is there; it is created next. Raises NotCreatedError to refuse it."""

    def run_job(self, resource: Resource) -> None:
        """Runs a Job and returns when it is complete. Raises NotCreatedError where it is not."""

    def created(self, resource: Resource) -> None:
        """``resource`` is there."""

    def failed(self, resource: Resource, reason: str) -> None:
        """``resource`` could not be created."""

    def skipped(self, resource: Resource, because: Resource) -> None:
        """``resource`` was left out, since it needs ``because``, which failed or was itself left out."""


class Hooks:
    """Takes the hooks that a program gives its resources, and calls none: the cluster that they ask is not there.

    Pulumi's own is a server that the CLI calls, which takes longer to start than most stacks to be evaluated.
    """

    def register_resource_hook(self, hook: pulumi.ResourceHook) -> None:
        """The program's resources may name ``hook`` from now on."""

    def before_create(self, names: Sequence[str], resource: Resource) -> None:
        """Calls the hooks of these names before ``resource`` is created. Raises what they raise."""


@dataclass
class Evaluation:
    """What a program declared: ``resources`` by URN, in the order of their registration, and the outputs."""

    resources: dict[str, Resource] = field(default_factory=dict[str, Resource])
    outputs: dict[str, StackOutput] = field(default_factory=dict[str, StackOutput])
    steps: list[PlacedStep] = field(default_factory=list[PlacedStep])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Reasons by URN."""
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """URN of the failed resource by URN of the one that needs it."""
    exported: struct_pb2.Struct = field(default_factory=struct_pb2.Struct)
    """The outputs as the program sent them, with its marks of secrets: what a reference to the stack reads."""
    unanswered: dict[str, bool] = field(default_factory=dict[str, bool])
    """What the program asked for and no emulator knows: provider functions (``aws:ec2/getAmi``), other stacks.
    True where it read a stand-in at once, and not an unknown output."""
    left_unknown: list[Exception] = field(default_factory=list[Exception])
    """Why a thing is unknown that has a stand-in, as `slipway.engine.leaving_unknown` notes it."""


class Monitor(mocks.MockMonitor):
    """The engine's side of the resource protocol: creates everything at once, but Jobs when they are complete.

    In a preview nothing is created: what is known of a resource are its inputs, as before the first `pulumi up`.

    A resource that failed answers without id and with unknown outputs. So the program runs on, `apply` does not
    call back, and what depends on it still arrives here, where it is left out by name.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        cloud: Cloud,
        observer: Observer,
        hooks: Hooks,
        *,
        preview: bool,
        config: Mapping[str, Any] | None = None,
        stacks: Mapping[str, struct_pb2.Struct] | None = None,
    ) -> None:
        """``config`` is the stack's, by full keys. ``stacks`` are the outputs of other stacks, by the name that a
        reference to one has. Nothing is known of any other.
        """
        super().__init__(cloud)
        self._hooks = hooks
        self._cloud = cloud
        self._lock = threading.Lock()
        self._evaluation = evaluation
        self._observer = observer
        self._preview = preview
        self._config = config or {}
        self._disabled = frozenset(texts(self._config.get("pulumi:disable-default-providers")))
        self._stacks = stacks or {}

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        qualified = parent.split("::")[2] if parent else ""
        prefix = "" if qualified in {"", "pulumi:pulumi:Stack"} else f"{qualified}$"
        return f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::{prefix}{type_}::{name}"

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802  # The protocol's name.
        if request.type == "pulumi:pulumi:Stack":
            return super().RegisterResource(request)
        resource = self._note(request)
        lost = self._lost_dependency(resource)
        if lost is not None:
            with self._lock:
                self._evaluation.skipped[resource.urn] = lost.urn
            self._observer.skipped(resource, lost)
            return self._answer(request, resource, lost=True)
        self._hooks.before_create(request.hooks.before_create, resource)
        try:
            self._observer.registering(resource)
            if resource.type == JOB:
                self._observer.run_job(resource)
        except NotCreatedError as error:
            with self._lock:
                self._evaluation.failed[resource.urn] = str(error)
            self._observer.failed(resource, str(error))
            return self._answer(request, resource, lost=True)
        response = self._answer(request, resource, lost=False)
        self._observer.created(resource)
        return response

    def ReadResource(self, request: Any) -> Any:  # noqa: N802
        resource = self._note(request)
        if resource.type == STACK_REFERENCE:
            return resource_pb2.ReadResourceResponse(
                urn=resource.urn, properties=self._reference_properties(request.id)
            )
        if self._preview:
            known = self._cloud.foresee(request.properties, resource)
            hide(known, names_of(request))
            if resource.type == CONFIG_MAP:
                # As in a new cluster: nobody has written into it.
                known.update({"data": {}})
            return resource_pb2.ReadResourceResponse(urn=resource.urn, properties=known)
        self._cloud.answering.resource = resource
        self._cloud.answering.secret = names_of(request)
        return super().ReadResource(request)

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        if "::pulumi:pulumi:Stack::" in request.urn:
            sent: Mapping[str, Any] = request.outputs
            self._evaluation.outputs.update({name: StackOutput.sent(value) for name, value in sent.items()})
            self._evaluation.exported.CopyFrom(request.outputs)
        return super().RegisterResourceOutputs(request)

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        if request.tok == READ_STACK_OUTPUTS:
            read: dict[str, Any] = {"return": self._reference_properties(request.args["name"])}
            if request.args["name"] not in self._stacks:
                read = {"unknown": True}
            return resource_pb2.ResourceInvokeResponse(**read)
        try:
            result = self._cloud.looked_up(request, self._settings_of(request), preview=self._preview)
        except FileNotFoundError as error:
            raise EvaluationError(f"{request.tok}: there is no {error} in the store") from error
        fields: dict[str, Any] = {"unknown": True} if result is None else {"return": result}
        return resource_pb2.ResourceInvokeResponse(**fields)

    def _settings_of(self, request: Any) -> Mapping[str, Any]:
        """The settings of the provider that a function asks: its own inputs, or those of the stack's file."""
        if known := self._evaluation.resources.get(request.provider.rpartition("::")[0]):
            return known.inputs
        package = request.tok.partition(":")[0]
        named = (key.partition(":") for key in self._config)
        return {name: self._config[f"{of}:{name}"] for of, _, name in named if of == package}

    def Call(self, request: Any) -> Any:  # noqa: N802
        """The result of a method of a resource, which no emulator knows."""
        self._evaluation.unanswered.setdefault(short_name(request.tok), False)
        unknown = struct_pb2.Struct()
        unknown.update({"unknown": rpc.UNKNOWN})
        answer: dict[str, Any] = {"return": unknown}
        return provider_pb2.CallResponse(**answer)

    def _reference_properties(self, stack: str) -> struct_pb2.Struct:
        """The properties of a reference to ``stack``."""
        if stack not in self._stacks:
            self._evaluation.unanswered.setdefault(f"the outputs of the stack {stack}", False)
            known = struct_pb2.Struct()
            known.update({"name": stack})
            return known
        outputs = self._stacks[stack]
        outputs_of_stack = struct_pb2.Struct()
        outputs_of_stack.update({"name": stack, "outputs": outputs, "secretOutputNames": secret_names(outputs)})
        return outputs_of_stack

    def _note(self, request: Any) -> Resource:
        urn = self.make_urn(request.parent, request.type, request.name)
        resource = read_request(urn, request)
        package = resource.package
        if resource.custom and not resource.provider and package != "pulumi" and self._disabled & {package, "*"}:
            raise EvaluationError(
                f"Default provider for {package!r} disabled. {resource.name!r} must use an explicit provider."
            )
        with self._lock:
            if (other := self._evaluation.resources.get(urn)) is not None:
                places = f"{_declared_at(other)}, and again {_declared_at(resource)}"
                raise EvaluationError(f"Duplicate resource URN {urn!r}; try giving it a unique name ({places})")
            self._evaluation.resources[urn] = resource
        return resource

    def _lost_dependency(self, resource: Resource) -> Resource | None:
        with self._lock:
            evaluation = self._evaluation
            lost = {urn for urn in resource.needs if urn in evaluation.failed or urn in evaluation.skipped}
            return (
                next((candidate for urn, candidate in evaluation.resources.items() if urn in lost), None)
                if lost
                else None
            )

    def _answer(self, request: Any, resource: Resource, *, lost: bool) -> Any:
        if lost:
            # "Unknown" is how the engine answers for a resource that an update leaves out. It leaves the inputs
            # known, of which nothing has come true here.
            response = resource_pb2.RegisterResourceResponse(urn=resource.urn, unknown=True)
            response.object.update(dict.fromkeys(request.object.keys(), rpc.UNKNOWN))
            return response
        if request.remote:
            # A package in another language makes the component's resources, and decides its outputs by itself.
            return resource_pb2.RegisterResourceResponse(urn=resource.urn)
        if self._preview:
            known = self._cloud.foresee(request.object, resource)
            hide(known, names_of(request))
            return resource_pb2.RegisterResourceResponse(
                urn=resource.urn, id=mark(f"{resource.name}.id") if resource.custom else "", object=known
            )
        self._cloud.answering.resource = resource
        self._cloud.answering.secret = names_of(request)
        response: Any = super().RegisterResource(request)
        # Callbacks that need what nothing here computes are not called; the SDK would call them with None.
        response.unknown = self._cloud.answering.partial
        return response

    def GetDeploymentInfo(self, request: Any) -> Any:  # noqa: N802
        """What this engine supports, beside other things.

        Without references to resources the SDK sends a resource that is an input as its id, or as its URN where it
        has none. It would make a second object of each reference, and ask the engine for its properties.
        """
        information: Any = super().GetDeploymentInfo(request)
        information.supportedFeatures.remove(resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES)
        return information

    def features(self) -> Sequence[int]:
        """What this engine supports, as Pulumi numbers it."""
        return list(self.GetDeploymentInfo(None).supportedFeatures)


def _declared_at(resource: Resource) -> str:
    return f"at {resource.place}" if resource.place else "by the stack file"
