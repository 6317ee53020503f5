"""Evaluates a Pulumi program through the real SDK against a monitor that records what it is asked to register.

Only the engine and the clouds are replaced: arguments, options, providers, dependencies and secrets pass
through the SDK's own types and serialization, as in `pulumi preview` and `pulumi up`.
"""

import asyncio
import contextvars
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from google.protobuf import json_format, struct_pb2
from pulumi.runtime import mocks, rpc, settings, stack, sync_await
from pulumi.runtime.config import set_all_config
from pulumi.runtime.proto import resource_pb2

from infra.platform import Emulator

PROJECT = "slipway"

STACK_TOKEN = "pulumi:pulumi:Stack"


@dataclass(frozen=True)
class Recorded:
    """One registered resource.

    ``inputs`` have the provider's (camelCase) keys, secrets opened and unknown values as `pulumi.output.Unknown`;
    ``secret_inputs`` are the top-level keys whose value holds a secret. ``dependencies`` are URNs of everything it
    waits for, whether through ``depends_on`` or through an input.
    """

    token: str
    name: str
    inputs: Mapping[str, Any]
    urn: str
    parent: str
    provider: str
    custom: bool
    protect: bool
    delete_before_replace: bool
    retain_on_delete: bool
    ignore_changes: Sequence[str]
    replace_on_changes: Sequence[str]
    dependencies: frozenset[str]
    timeouts: Mapping[str, str]
    secret_inputs: frozenset[str]


@dataclass(frozen=True)
class Call:
    """One call of a provider function; ``registered`` is how many resources there were when it came."""

    token: str
    arguments: Mapping[str, Any]
    registered: int = 0


@dataclass
class Recording:
    """Everything that a program registered, in the order of registration.

    ``exports`` are the stack outputs, secrets opened and unknowns as `pulumi.output.Unknown`; ``secret_exports``
    are the names of those that hold a secret. ``result`` is what the program returned, ``emulators`` what stood in
    for the clouds.
    """

    resources: list[Recorded] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    exports: dict[str, Any] = field(default_factory=dict)
    secret_exports: frozenset[str] = frozenset()
    result: Any = None
    emulators: Sequence[Emulator] = ()

    def of(self, token: str) -> list[Recorded]:
        """All resources of a type."""
        return [resource for resource in self.resources if resource.token == token]

    def one(self, token: str, name: str | None = None) -> Recorded:
        """The only resource of a type (and name)."""
        found = [resource for resource in self.of(token) if name in (None, resource.name)]
        assert len(found) == 1, f"{len(found)} resources {token} {name or ''}: {[r.name for r in self.resources]}"
        return found[0]

    def waits_for(self, resource: Recorded) -> set[str]:
        """The URNs of everything that exists before ``resource`` is created, however many steps away."""

        def needs(each: Recorded) -> set[str]:
            provider = {each.provider.rpartition("::")[0]} if each.provider else set()
            return provider | each.dependencies

        by_urn = {each.urn: each for each in self.resources}
        seen: set[str] = set()
        pending = needs(resource)
        while pending:
            urn = pending.pop()
            if urn not in seen:
                seen.add(urn)
                pending |= needs(by_urn[urn]) if urn in by_urn else set()
        return seen


def record(
    program: Callable[[], Any],
    config: Mapping[str, Any],
    *,
    preview: bool,
    emulators: Sequence[Emulator] = (),
    store: Mapping[str, str] | None = None,
    stack_name: str = "test",
    run_hooks: bool = False,
) -> Recording:
    """Runs ``program`` as the body of a stack and returns what it registered.

    ``config`` has whole keys (``gcp:project``) and plain values. With ``preview`` new resources have no id and no
    computed outputs, as before the first `pulumi up`; without it ``emulators`` say what the clouds computed, and
    ``store`` has the text of files that provider functions read. Whatever the program raises is raised. Hooks of
    resources, which ask a cluster, run only with ``run_hooks``.
    """
    recording = Recording(emulators=emulators)

    def run() -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        # One failure fails the futures of all that would have come after it, and nobody retrieves those. The
        # default writes a traceback when one is collected, and Python 3.11.7 cannot do so in the middle of an
        # `ast.parse` (python/cpython#106905): a later test would fail.
        loop.set_exception_handler(lambda *_: None)
        try:
            set_all_config(
                {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}, []
            )
            hooks = _Hooks(loop, run_hooks)
            monitor = _Monitor(recording, preview, emulators, _Files(store or {}), hooks)
            settings.configure(
                mocks.MockSettings(
                    monitor=monitor,
                    engine=mocks.MockEngine(None),
                    monitor_features={resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_HOOKS},
                    package_refs={},
                    outputs=set(),
                    lock=threading.Lock(),
                    project=PROJECT,
                    stack=stack_name,
                    organization="organization",
                    root_directory=".",
                    dry_run=preview,
                    legacy_apply_enabled=False,
                    callbacks=hooks,
                )
            )
            settings.set_root_resource(None)  # type: ignore[arg-type]

            def body() -> None:
                recording.result = program()

            loop.run_until_complete(stack.run_in_stack(body))
        finally:
            loop.close()
            asyncio.set_event_loop(None)

    contextvars.copy_context().run(run)
    return recording


class _Files:
    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def read_text(self, path: str) -> str:
        if path not in self._texts:
            raise FileNotFoundError(path)
        return self._texts[path]

    def names(self, prefix: str) -> Sequence[str]:
        return sorted(path for path in self._texts if path.startswith(prefix))


class _Hooks:
    """Runs the hooks of resources as the engine does, in the program's event loop; what one raises is raised."""

    def __init__(self, loop: asyncio.AbstractEventLoop, run: bool) -> None:
        self._loop = loop
        self._run = run
        self._registered: dict[str, pulumi.ResourceHook] = {}

    def register_resource_hook(self, hook: pulumi.ResourceHook) -> None:
        assert hook.name not in self._registered
        self._registered[hook.name] = hook

    def before_create(self, request: Any, urn: str, inputs: Mapping[str, Any], preview: bool) -> None:
        for name in request.hooks.before_create:
            hook = self._registered[name]
            if self._run and (not preview or (hook.opts and hook.opts.on_dry_run)):
                args = pulumi.ResourceHookArgs(urn, "", request.name, request.type, new_inputs=inputs)
                asyncio.run_coroutine_threadsafe(_awaited(hook(args)), self._loop).result()


async def _awaited(given: Any) -> None:
    if given is not None:
        await given


class _Answers(mocks.Mocks):
    """Where the SDK's mock monitor gets results of provider functions from."""

    def __init__(self, recording: Recording, emulators: Sequence[Emulator], store: _Files) -> None:
        self._recording = recording
        self._emulators = emulators
        self._store = store

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        self._recording.calls.append(Call(args.token, args.args, len(self._recording.resources)))
        for emulator in self._emulators:
            answer = emulator.call(args.token, args.args, self._store)
            if answer is not None:
                return dict(answer), []
        raise AssertionError(f"no emulator answers the call {args.token}")

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        """A resource that is read, not registered: it is there, with what the program knows of it."""
        return args.resource_id, dict(args.inputs)


class _Monitor(mocks.MockMonitor):
    def __init__(
        self,
        recording: Recording,
        preview: bool,
        emulators: Sequence[Emulator],
        store: _Files,
        hooks: "_Hooks",
    ) -> None:
        super().__init__(_Answers(recording, emulators, store))
        self._hooks = hooks
        self._recording = recording
        self._preview = preview
        self._emulators = emulators
        self._lock = threading.Lock()

    def RegisterResource(self, request):  # noqa: N802  # The name is that of the gRPC method.
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type == STACK_TOKEN:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        sync_await._ensure_event_loop()
        inputs = _opened(request.object)
        self._hooks.before_create(request, urn, inputs, self._preview)
        with self._lock:
            self._recording.resources.append(
                Recorded(
                    token=request.type,
                    name=request.name,
                    inputs=inputs,
                    urn=urn,
                    parent=request.parent,
                    provider=request.provider or request.providers.get(request.type.split(":")[0], ""),
                    custom=request.custom,
                    protect=request.protect,
                    delete_before_replace=request.deleteBeforeReplace,
                    retain_on_delete=request.retainOnDelete,
                    ignore_changes=tuple(request.ignoreChanges),
                    replace_on_changes=tuple(request.replaceOnChanges),
                    dependencies=frozenset(request.dependencies),
                    timeouts=json_format.MessageToDict(request.customTimeouts),
                    secret_inputs=_secret_keys(request.object),
                )
            )
        state: dict[str, Any] = dict(inputs)
        id_ = ""
        if request.custom and not self._preview:
            for emulator in self._emulators:
                outputs = emulator.outputs(request.type, request.name, inputs)
                if outputs is not None:
                    state.update(outputs)
                    break
            id_ = str(state.pop("id", None) or f"{request.name}-id")
        self.resources[urn] = mocks.MockMonitor.ResourceRegistration(urn, id_, state)
        # The real engine gives a preview the inputs back, secrets still marked, and no more.
        answered = struct_pb2.Struct()
        answered.CopyFrom(request.object)
        if not self._preview:
            added = {key: value for key, value in state.items() if key not in inputs or value != inputs[key]}
            answered.MergeFrom(sync_await._sync_await(rpc.serialize_properties(added, {})))
        return resource_pb2.RegisterResourceResponse(urn=urn, id=id_, object=answered)

    def ReadResource(self, request):  # noqa: N802  # The name is that of the gRPC method.
        # What is only read belongs to somebody else: it is not among the resources of the stack.
        urn = self.make_urn(request.parent, request.type, request.name)
        return resource_pb2.ReadResourceResponse(urn=urn, properties=request.properties)

    def RegisterResourceOutputs(self, request):  # noqa: N802  # The name is that of the gRPC method.
        if request.urn.split("::")[2] == STACK_TOKEN:
            self._recording.exports = _opened(request.outputs)
            self._recording.secret_exports = _secret_keys(request.outputs)
        return super().RegisterResourceOutputs(request)


def _opened(properties: struct_pb2.Struct) -> dict[str, Any]:
    return {key: _open(value) for key, value in rpc.deserialize_properties(properties, True).items()}


def _open(value: Any) -> Any:
    if rpc.is_rpc_secret(value):
        return _open(rpc.unwrap_rpc_secret(value))
    if isinstance(value, dict):
        return {key: _open(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_open(item) for item in value]
    return value


def _secret_keys(properties: struct_pb2.Struct) -> frozenset[str]:
    def holds_secret(value: Any) -> bool:
        if rpc.is_rpc_secret(value):
            return True
        if isinstance(value, dict):
            return any(holds_secret(item) for item in value.values())
        return isinstance(value, list) and any(holds_secret(item) for item in value)

    return frozenset(
        key for key, value in rpc.deserialize_properties(properties, True).items() if holds_secret(value)
    )


def is_unknown(value: Any) -> bool:
    """Whether a recorded value is one that only `pulumi up` would know."""
    return isinstance(value, pulumi.output.Unknown)
