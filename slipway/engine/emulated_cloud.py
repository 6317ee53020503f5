"""What a cloud would answer to a resource or a function of a provider, asked of the emulators."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast

from google.protobuf import struct_pb2
from pulumi.runtime import mocks, rpc

from slipway.engine.provider_functions import known_result
from slipway.engine.provider_outputs import (
    computed_outputs,
    is_marked,
    mark,
    number_mark,
    object_name,
    physical_id,
)
from slipway.engine.requests import mask, plain, stood_in
from slipway.engine.secret_outputs import as_secrets
from slipway.engine.unknown_results import short_name
from slipway.infra.emulator import Emulator, StoreFiles
from slipway.infra.review.stack import Resource, mapping

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# Pulumi's mocks and the messages of its protocol have no types.


class NoStore:
    """The store of an evaluation that runs nothing: it is empty."""

    def read_text(self, path: str) -> str:
        """Raises FileNotFoundError."""
        raise FileNotFoundError(path)

    def names(self, prefix: str) -> Sequence[str]:  # noqa: ARG002
        """None."""
        return []


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

    def looked_up(self, request: Any, provider: Mapping[str, Any], *, preview: bool) -> struct_pb2.Struct | None:
        """The result of a provider function; None where nothing here knows it, or only an update.

        ``provider`` are the settings of the provider that is asked. In a preview a file that is not in the store
        is unknown, too; else it raises FileNotFoundError.
        """
        try:
            arguments = rpc.deserialize_properties(request.args)
            # A policy document with a mark in it is one in which the mark stays visible.
            marked = is_marked(arguments) and not request.tok.endswith(":getPolicyDocument")
            if preview and (self._is_computed(request.tok) or marked):
                return None
            result = self._call_emulators(request.tok, plain(arguments))
            if result is None:
                result = known_result(request.tok, plain(arguments), provider)
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
