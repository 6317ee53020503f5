"""The resources and stack outputs of the requests that the SDK sends to an engine."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

import pulumi
from google.protobuf import struct_pb2
from pulumi.dynamic.dynamic import PROVIDER_KEY
from pulumi.output import Unknown
from pulumi.runtime import mocks, rpc
from pulumi.runtime.proto import provider_pb2, resource_pb2

from slipway.infra.emulator import Emulator, StoreFiles
from slipway.infra.review import stack as review
from slipway.infra.review.stack import CONFIG_MAP, JOB, Resource, Secret, mapping, texts
from slipway.offline.engine.provider_outputs import (
    as_marks,
    computed_outputs,
    is_marked,
    mark,
    marked_name,
    number_mark,
    object_name,
    physical_id,
    unmark,
)
from slipway.offline.engine.secret_outputs import as_secrets, hide, names_of
from slipway.offline.engine.source_positions import place_of
from slipway.offline.engine.unknown_results import short_name

SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key of a mapping that is no mapping but a secret, an asset, or a resource
(github.com/pulumi/pulumi, sdk/python/lib/pulumi/runtime/rpc.py, 3.x)."""

DYNAMIC = "pulumi-python:dynamic"
"""What the type of a resource begins with whose provider is code of the program. Only an update runs it."""

SECRET = "[secret]"
"""What is shown of a secret, as in Pulumi's own output."""


class NamedUnknown(Unknown):
    """An unknown value whose output is known: ``name`` is the name of the output."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def read_request(urn: str, request: Any) -> Resource:
    """The resource of a RegisterResource or ReadResource request, which Pulumi's protocol leaves untyped."""
    read = not hasattr(request, "object")
    inputs: Any = _read_marks(rpc.deserialize_properties(request.properties if read else request.object))
    inputs = as_secrets(inputs, names_of(request))
    if request.type.startswith(DYNAMIC):
        # The pickled provider has the path of its file in it, and differs between two checkouts of the same code.
        inputs.pop(PROVIDER_KEY, None)
    by_property = {
        key: frozenset(str(other) for other in value.urns)
        for key, value in getattr(request, "propertyDependencies", {}).items()
    }
    return Resource(
        urn=urn,
        type=request.type,
        name=request.name,
        properties=_for_review(inputs),
        custom=read or request.custom,
        parent=request.parent,
        provider=request.provider.rpartition("::")[0],
        dependencies=frozenset(str(dependency) for dependency in request.dependencies).union(
            *by_property.values()
        ),
        property_dependencies=by_property,
        protect=bool(getattr(request, "protect", False)),
        retain_on_delete=bool(getattr(request, "retainOnDelete", False)),
        delete_before_replace=bool(getattr(request, "deleteBeforeReplace", False)),
        ignore_changes=tuple(getattr(request, "ignoreChanges", ())),
        replace_on_changes=tuple(getattr(request, "replaceOnChanges", ())),
        replace_with=frozenset(getattr(request, "replace_with", ())),
        aliases=tuple(alias.spec.name or alias.urn for alias in getattr(request, "aliases", ())),
        create_timeout=request.customTimeouts.create if hasattr(request, "customTimeouts") else "",
        read=read,
        place=place_of(request.sourcePosition),
        inputs=plain(inputs),
    )


@dataclass(frozen=True)
class StackOutput:
    """One output of a stack. ``known`` is false where what it comes from was not created.

    ``hidden`` are the entries of a mapping that have a secret in them, where it is not secret as a whole.
    """

    value: Any
    secret: bool = False
    known: bool = True
    hidden: frozenset[str] = frozenset()

    @classmethod
    def of(cls, value: Any) -> "StackOutput":
        """From a deserialized property, in which a secret is marked."""
        secret = rpc.is_rpc_secret(value)
        if secret:
            value = rpc.unwrap_rpc_secret(value)
        return cls(plain(value), secret, not _is_unknown(value))

    @classmethod
    def sent(cls, value: Any) -> "StackOutput":
        """From a property as the protocol has it. Of a mapping only those entries are secret that have a secret:
        deserialized in one go, it would be so as a whole.
        """
        if not isinstance(value, struct_pb2.Struct) or SIGNATURE in value:
            return cls.of(rpc.deserialize_property(value, keep_unknowns=True))
        entries = {key: rpc.deserialize_property(item, keep_unknowns=True) for key, item in value.items()}
        hidden = frozenset(key for key, entry in entries.items() if rpc.is_rpc_secret(entry))
        return cls(plain(entries), hidden=hidden)

    @property
    def shown(self) -> Any:
        """What may be printed."""
        if self.hidden and not self.secret:
            return {key: SECRET if key in self.hidden else entry for key, entry in self.value.items()}
        return SECRET if self.secret else self.value


def plain(value: Any) -> Any:
    """``value`` with its secrets in clear."""
    return plain(rpc.unwrap_rpc_secret(value)) if rpc.is_rpc_secret(value) else _map_parts(value, plain)


def mask(value: Any) -> Any:
    """``value`` with `SECRET` in place of every secret."""
    return SECRET if rpc.is_rpc_secret(value) else _map_parts(value, mask)


def stood_in(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """``inputs`` with a text in place of every unknown value, for who has to work with some value."""
    return cast("Mapping[str, Any]", _plain_values(inputs))


def _read_marks(value: Any) -> Any:
    """``value`` with an unknown value for each text and number of which nothing is known."""
    if rpc.is_rpc_secret(value):
        inner = _read_marks(rpc.unwrap_rpc_secret(value))
        return inner if isinstance(inner, Unknown) else rpc.wrap_rpc_secret(inner)
    if isinstance(value, Mapping | list):
        return _map_parts(value, _read_marks)
    marked = as_marks(value)
    name = marked_name(marked)
    return marked if name is None else NamedUnknown(name)


def _for_review(value: Any) -> Any:
    """Inputs as reviews read them: what only an update knows, and what is secret, say so."""
    if rpc.is_rpc_secret(value):
        return Secret("", partial=_is_unknown(rpc.unwrap_rpc_secret(value)))
    if isinstance(value, Unknown):
        return review.Unknown(value.name) if isinstance(value, NamedUnknown) else review.UNKNOWN
    return unmark(value) if isinstance(value, str) else _map_parts(value, _for_review)


def _plain_values(value: Any) -> Any:
    return "unknown" if isinstance(value, Unknown) else _map_parts(value, _plain_values)


def _map_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with ``change`` applied to each part of a mapping or a list."""
    if isinstance(value, Mapping):
        return {str(key): change(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list):
        return [change(element) for element in cast("list[Any]", value)]
    if isinstance(value, float) and value.is_integer():
        # Protobuf has one kind of number; Kubernetes and people write integers as such.
        return int(value)
    return value


def _is_unknown(value: Any) -> bool:
    """Whether ``value`` or anything below it is unknown, or has the mark of an unknown value."""
    if isinstance(value, Mapping):
        return any(_is_unknown(item) for item in cast("Mapping[Any, Any]", value).values())
    if isinstance(value, list):
        return any(_is_unknown(element) for element in cast("list[Any]", value))
    return isinstance(value, Unknown) or is_marked(value)


def _declared_at(resource: Resource) -> str:
    return f"at {resource.place}" if resource.place else "by the stack file"


# The engine's side of Pulumi's resource protocol, with emulators in place of providers.


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
    """Why a thing is unknown that has a stand-in, as `slipway.offline.engine.leaving_unknown` notes it."""


class NoStore:
    """The store of an evaluation that runs nothing: it is empty."""

    def read_text(self, path: str) -> str:
        """Raises FileNotFoundError."""
        raise FileNotFoundError(path)

    def names(self, prefix: str) -> Sequence[str]:  # noqa: ARG002
        """None."""
        return []


class Monitor(mocks.MockMonitor):
    """The engine's side of the resource protocol: creates everything at once, but Jobs when they are complete.

    In a preview nothing is created: what is known of a resource are its inputs, as before the first `pulumi up`.

    A resource that failed answers without id and with unknown outputs. So the program runs on, `apply` does not
    call back, and what depends on it still arrives here, where it is left out by name.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        cloud: "Cloud",
        observer: Observer,
        hooks: Hooks,
        *,
        preview: bool,
        disabled: object = None,
        stacks: Mapping[str, struct_pb2.Struct] | None = None,
    ) -> None:
        """``disabled`` are the packages whose default provider may not be used, ``stacks`` the outputs of other
        stacks, by the name that a reference to one has. Nothing is known of any other.
        """
        super().__init__(cloud)
        self._hooks = hooks
        self._cloud = cloud
        self._lock = threading.Lock()
        self._evaluation = evaluation
        self._observer = observer
        self._preview = preview
        self._disabled = frozenset(texts(disabled))
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
            result = self._cloud.looked_up(request, preview=self._preview)
        except FileNotFoundError as error:
            raise EvaluationError(f"{request.tok}: there is no {error} in the store") from error
        fields: dict[str, Any] = {"unknown": True} if result is None else {"return": result}
        return resource_pb2.ResourceInvokeResponse(**fields)

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


class NamedInputs(dict[str, Any]):
    """The inputs of a resource, with a name in place of each that it lacks: providers make up such names."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource.inputs)
        self._name = object_name(resource)

    def __missing__(self, key: str) -> str:
        return self._name


class Cloud(mocks.Mocks):
    """Asks the emulators for what a cloud would answer."""

    def __init__(
        self, emulators: Sequence[Emulator], store: StoreFiles, unanswered: dict[str, bool] | None = None
    ) -> None:
        """``unanswered`` gets the names of the functions that none of the ``emulators`` knows."""
        self._emulators = emulators
        self._store = store
        self._unanswered = {} if unanswered is None else unanswered
        self.answering = threading.local()
        """``resource`` is the one whose request a thread answers: Pulumi tells mocks too little of it. ``secret``
        are the names of outputs that it hides. ``partial`` says of the answer that it has the inputs alone."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        resource: Resource = self.answering.resource
        computed = {**computed_outputs(resource), **self._emulated_outputs(resource)}
        self.answering.partial = not computed
        outputs: dict[str, Any] = {**args.inputs, **computed}
        identity = outputs.pop("id", None) or args.resource_id or physical_id(resource, outputs)
        outputs = as_secrets(outputs, self.answering.secret)
        resource.outputs = mask(outputs)
        return str(identity), outputs

    def call(self, args: mocks.MockCallArgs) -> NoReturn:
        """Never called: the monitor asks `looked_up`."""
        raise NotImplementedError(args.token)

    def foresee(self, known: struct_pb2.Struct, resource: Resource) -> struct_pb2.Struct:
        """What a preview knows of a resource: ``known``, its inputs, with what its provider computes unknown.

        The SDK takes every property that is missing as unknown, but not what is missing within one.
        """
        whole = replace(resource, inputs=stood_in(resource.inputs))
        foreseen = struct_pb2.Struct()
        foreseen.CopyFrom(known)
        computed = {**computed_outputs(whole), **self._emulated_outputs(whole)}
        _add_unknowns(foreseen, whole.inputs, computed, resource.name)
        return foreseen

    def looked_up(self, request: Any, *, preview: bool) -> struct_pb2.Struct | None:
        """The result of a provider function; None where no emulator knows it, or only an update.

        In a preview a file that is not in the store is unknown, too; else it raises FileNotFoundError.
        """
        try:
            arguments = rpc.deserialize_properties(request.args)
            if preview and (self._is_computed(request.tok) or is_marked(arguments)):
                return None
            result = self._call_emulators(request.tok, plain(arguments))
        except FileNotFoundError:
            if preview:
                return None
            raise
        if result is None:
            self._unanswered.setdefault(short_name(request.tok), False)
            return None
        answer = struct_pb2.Struct()
        answer.update(result)
        return answer

    def _is_computed(self, token: str) -> bool:
        return any(token in emulator.computed_calls for emulator in self._emulators)

    def _emulated_outputs(self, resource: Resource) -> Mapping[str, Any]:
        try:
            return self._ask_emulators(resource, resource.inputs)
        except LookupError:
            # A project's own resource may lack inputs that those of the stack file always have.
            pass
        try:
            return self._ask_emulators(resource, NamedInputs(resource))
        except (LookupError, TypeError, ValueError, AttributeError):
            return {}

    def _ask_emulators(self, resource: Resource, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        answers = (emulator.outputs(resource.type, resource.name, inputs) for emulator in self._emulators)
        return next((answer for answer in answers if answer is not None), dict[str, Any]())

    def _call_emulators(self, token: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        answers = (emulator.call(token, arguments, self._store) for emulator in self._emulators)
        return next((answer for answer in answers if answer is not None), None)


def secret_names(outputs: struct_pb2.Struct) -> list[str]:
    """The names of the ``outputs`` of a stack in which there is a secret."""
    return [name for name, value in outputs.items() if _has_secret(value)]


def _has_secret(value: Any) -> bool:
    """Whether a value of Pulumi's protocol has a secret in it."""
    if isinstance(value, struct_pb2.Struct):
        return rpc.is_rpc_secret(dict(value)) or any(map(_has_secret, value.values()))
    return isinstance(value, struct_pb2.ListValue) and any(map(_has_secret, value))


def _add_unknowns(
    known: struct_pb2.Struct, inputs: Mapping[str, Any], computed: Mapping[str, Any], name: str
) -> None:
    """Marks in ``known`` what ``computed`` has beyond ``inputs``, or has in another form."""
    for key, value in computed.items():
        below = inputs.get(key)
        if key not in known.fields:
            known[key] = _as_unknown(value, f"{name}.{key}")
        elif isinstance(value, Mapping) and isinstance(below, Mapping):
            inner = known.fields[key].struct_value
            if not rpc.is_rpc_secret(dict(inner)):
                _add_unknowns(inner, mapping(below), mapping(value), f"{name}.{key}")
        elif value != below:
            known[key] = _as_unknown(value, f"{name}.{key}")


def _as_unknown(value: Any, name: str) -> Any:
    """What stands for ``value``, which only an update knows: its shape, with a mark for each text and number."""
    if isinstance(value, str):
        return mark(name)
    if isinstance(value, Mapping):
        return {key: _as_unknown(item, f"{name}.{key}") for key, item in mapping(value).items()}
    if isinstance(value, list):
        return [_as_unknown(element, f"{name}[{index}]") for index, element in enumerate(cast("list[Any]", value))]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number_mark(name)
    return rpc.UNKNOWN
