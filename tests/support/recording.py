"""Evaluates a program with the engine of rehearsals and previews, and tells tests what it declared.

Only the engine and the clouds are replaced: arguments, options, providers, dependencies and secrets pass
through the SDK's own types and serialization, as in `pulumi preview` and `pulumi up`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from google.protobuf import struct_pb2
from pulumi.output import Unknown

from slipway.engine.emulated_cloud import NoStore
from slipway.engine.evaluate import evaluate
from slipway.engine.monitor import Evaluation, EvaluationError, Hooks, Observer
from slipway.engine.provider_outputs import is_marked
from slipway.infra.emulator import Emulator
from slipway.infra.review.stack import Resource, Secret

PROJECT = "slipway"


@dataclass(frozen=True)
class Call:
    """One call of a provider function; ``registered`` is how many resources there were when it came."""

    token: str
    arguments: Mapping[str, Any]
    registered: int = 0


@dataclass
class Recording:
    """What a program declared, without what it only looked up.

    ``calls`` are those of provider functions, ``result`` is what the program returned, ``emulators`` what stood in
    for the clouds.
    """

    evaluation: Evaluation = field(default_factory=Evaluation)
    calls: list[Call] = field(default_factory=list)
    result: Any = None
    emulators: Sequence[Emulator] = ()

    @property
    def resources(self) -> list[Resource]:
        """In the order of their registration."""
        return [resource for resource in self.evaluation.resources.values() if not resource.read]

    @property
    def exports(self) -> dict[str, Any]:
        """The stack's outputs, secrets opened."""
        return {name: output.value for name, output in self.evaluation.outputs.items()}

    @property
    def secret_exports(self) -> set[str]:
        """The names of the outputs that are secret."""
        return {name for name, output in self.evaluation.outputs.items() if output.secret}

    def of(self, token: str) -> list[Resource]:
        """All resources of a type."""
        return [resource for resource in self.resources if resource.type == token]

    def one(self, token: str, name: str | None = None) -> Resource:
        """The only resource of a type (and name)."""
        matches = [resource for resource in self.of(token) if name in (None, resource.name)]
        assert len(matches) == 1, (
            f"{len(matches)} resources {token} {name or ''}: {[r.name for r in self.resources]}"
        )
        return matches[0]

    def waits_for(self, resource: Resource) -> set[str]:
        """The URNs of everything that exists before ``resource`` is created, however many steps away."""
        by_urn = self.evaluation.resources
        seen: set[str] = set()
        pending = set(resource.needs)
        while pending:
            urn = pending.pop()
            if urn not in seen:
                seen.add(urn)
                pending |= by_urn[urn].needs if urn in by_urn else set()
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
    stacks: Mapping[str, struct_pb2.Struct] | None = None,
) -> Recording:
    """Runs ``program`` as the body of a stack and returns what it declared.

    ``config`` has whole keys (``gcp:project``) and plain values. In a ``preview``, what only an update can tell is
    unknown; otherwise ``emulators`` say it. ``store`` has the text of files that provider functions read. Whatever
    the program raises is raised. Hooks of resources, which ask a cluster, are called only with ``run_hooks``.
    ``stacks`` are the outputs of other stacks.
    """
    recording = Recording(emulators=emulators)
    listener = _Listener(recording)

    def body() -> None:
        recording.result = program()

    try:
        recording.evaluation = evaluate(
            body,
            project=PROJECT,
            stack=stack_name,
            config=config,
            emulators=[listener, *emulators],
            store=_Files(store) if store is not None else _NoBucket() if preview else None,
            observer=listener,
            hooks=_CalledHooks(preview) if run_hooks else None,
            preview=preview,
            stacks=stacks,
        )
    except EvaluationError as error:
        raise error.__cause__ or error from None
    return recording


def secret_inputs(resource: Resource) -> set[str]:
    """The inputs that are secret, or have a secret somewhere below."""
    return {key for key, value in resource.properties.items() if _holds_secret(value)}


def is_unknown(value: Any) -> bool:
    """Whether only `pulumi up` would know a recorded value, or a part of it."""
    return isinstance(value, Unknown) or is_marked(value)


class _Listener(Emulator, Observer):
    """Notes the calls of provider functions, and leaves their answers to the emulators behind it."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._registered = 0

    def registering(self, resource: Resource) -> None:  # noqa: ARG002
        self._registered += 1

    def call(self, token: str, args: Mapping[str, Any], store: Any) -> None:  # noqa: ARG002
        self._recording.calls.append(Call(token, args, self._registered))


class _NoBucket(NoStore):
    """The store before the first update, whose files nobody can list."""

    def names(self, prefix: str) -> Sequence[str]:
        raise FileNotFoundError(prefix)


class _Files:
    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def read_text(self, path: str) -> str:
        if path not in self._texts:
            raise FileNotFoundError(path)
        return self._texts[path]

    def names(self, prefix: str) -> Sequence[str]:
        return sorted(path for path in self._texts if path.startswith(prefix))


class _CalledHooks(Hooks):
    """Calls the hooks of resources as Pulumi's engine does, in the program's event loop."""

    def __init__(self, preview: bool) -> None:
        self._preview = preview
        self._registered: dict[str, tuple[pulumi.ResourceHook, asyncio.AbstractEventLoop]] = {}

    def register_resource_hook(self, hook: pulumi.ResourceHook) -> None:
        assert hook.name not in self._registered
        self._registered[hook.name] = hook, asyncio.get_running_loop()

    def before_create(self, names: Sequence[str], resource: Resource) -> None:
        for hook, loop in (self._registered[name] for name in names):
            if not self._preview or (hook.opts and hook.opts.on_dry_run):
                args = pulumi.ResourceHookArgs(
                    resource.urn, "", resource.name, resource.type, new_inputs=resource.inputs
                )
                asyncio.run_coroutine_threadsafe(_awaited(hook(args)), loop).result()


async def _awaited(given: Any) -> None:
    if given is not None:
        await given


def _holds_secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_secret(item) for item in value.values())
    return any(_holds_secret(item) for item in value) if isinstance(value, list) else isinstance(value, Secret)
