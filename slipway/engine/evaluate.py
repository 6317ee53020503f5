"""Evaluate a Pulumi program in this process, with an engine of our own in place of the Pulumi CLI's."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, cast

import pulumi
from google.protobuf import struct_pb2
from pulumi.runtime import mocks, run_in_stack
from pulumi.runtime import resource as pulumi_resource
from pulumi.runtime import settings as pulumi_settings
from pulumi.runtime.config import set_all_config
from pulumi.runtime.stack import Stack

from slipway.engine.emulated_cloud import Cloud, NoStore
from slipway.engine.leaving_unknown import leave_unknown
from slipway.engine.monitor import Evaluation, EvaluationError, Hooks, Monitor, Observer
from slipway.engine.source_positions import stack_trace
from slipway.engine.stack_config import for_engine
from slipway.engine.unknown_results import stand_in_for_results
from slipway.infra.emulator import Emulator, StoreFiles
from slipway.infra.placed_model import listen
from slipway.infra.platform_output import Resolve
from slipway.infra.review.stack import mapping
from slipway.infra.schema.names import UNREAD
from slipway.infra.schema.problems import PREFIX, Problem, SettingsError
from slipway.infra.schema.secret_values import MASK
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from slipway.infra.settings.pipelines import unread

_P = ParamSpec("_P")
_T = TypeVar("_T")

ORGANIZATION = "organization"
"""Of every stack, as in Pulumi's own backends for one user."""

THREADS = 512
"""Most registrations under way at once. One that waits for its Job holds a thread; asyncio's default, a few more
than there are cores, would let waiting Jobs starve independent ones."""

PATIENCE = 2.0
"""Seconds in which no output becomes known, after which a failed request ends a preview."""


def evaluate(
    program: Callable[[], object],
    *,
    project: str,
    stack: str,
    config: Mapping[str, Any],
    secrets: Sequence[str] = (),
    emulators: Sequence[Emulator] = (),
    store: StoreFiles | None = None,
    observer: Observer | None = None,
    hooks: Hooks | None = None,
    preview: bool = False,
    stacks: Mapping[str, struct_pb2.Struct] | None = None,
) -> Evaluation:
    """Runs ``program`` as the Pulumi CLI would, and returns what it declared.

    ``config`` has full keys (``slipway:clusters``), of which ``secrets`` are secret. Values that only a cloud
    knows come from ``emulators``. With ``preview`` they are unknown, as before the first update, and so are files
    that are not in ``store``; only what a provider's function returns still comes from ``emulators``. ``stacks``
    are the outputs of other stacks, as `Evaluation.exported` has them, by the name that a reference to one has;
    those of all others are unknown.
    Raises what the program raises, and EvaluationError for what goes wrong after it has returned.
    """
    evaluation = Evaluation()
    cloud = Cloud(emulators, store or NoStore(), evaluation.unanswered)
    called = hooks or Hooks()
    monitor = Monitor(
        evaluation, cloud, observer or Observer(), called, preview=preview, config=config, stacks=stacks
    )
    # Hooks are waited for, too: they run in the program's event loop.
    inline = hooks is None and not (observer and observer.waits)

    def run() -> None:
        pulumi_resource._get_stack_trace = stack_trace  # pyright: ignore[reportPrivateUsage]
        mocks._sync_await = await_at_once  # pyright: ignore
        set_all_config(for_engine(config), list(secrets))
        UNREAD.set(True)
        evaluation.steps = listen()
        if observer:
            observer.steps = evaluation.steps
        stand_in_for_results(lambda name: evaluation.unanswered.update({name: True}))
        leave_unknown(evaluation.left_unknown.append)
        for emulator in emulators:
            emulator.prepare()
        pulumi_settings.set_root_resource(None)  # pyright: ignore[reportArgumentType]
        pulumi_settings.configure(
            mocks.MockSettings(
                monitor=monitor,
                monitor_features=set(monitor.features()),
                engine=mocks.MockEngine(logging.getLogger("pulumi")),
                project=project,
                stack=stack,
                dry_run=preview,
                organization=ORGANIZATION,
                root_directory=None,
                package_refs={},
                callbacks=cast("Any", called),
                # Else the tasks that a failed evaluation left would be waited for by the next.
                outputs=set(),
                lock=threading.Lock(),
            )
        )
        asyncio.run(_run(program, evaluation, preview, inline))

    # Everything Pulumi keeps about a running program is in context variables, so a second evaluation starts anew.
    contextvars.copy_context().run(run)
    return evaluation


def await_at_once(awaitable: Coroutine[object, object, _T]) -> _T:
    """The result of a coroutine that waits for nothing, as the SDK's mocks serialize plain values.

    The SDK would run the event loop inside of itself, and so all that is ready there, one registration within the
    other: a hundred of them exceeded Python's recursion limit.
    """
    try:
        awaitable.send(None)
    except StopIteration as done:
        return cast("_T", done.value)
    raise EvaluationError("an answer of the engine waits for an output")


class Inline(ThreadPoolExecutor):
    """Runs everything at once and in its order, where nothing waits: threads would shuffle it.

    asyncio accepts only a ThreadPoolExecutor as a loop's own.
    """

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        future = Future[_T]()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


async def _run(program: Callable[[], object], evaluation: Evaluation, preview: bool, inline: bool) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Inline() if inline else ThreadPoolExecutor(THREADS, "resource"))
    # One failure fails the futures of all that would have come after it, and nobody retrieves those.
    loop.set_exception_handler(lambda _, context: logging.getLogger(__name__).debug("%s", context))
    raised: list[BaseException] = []
    secret: dict[str, asyncio.Future[bool]] = {}

    async def declare() -> None:
        try:
            program()
            if preview:
                await outputs_known()
                secret.update(_secret_outputs())
        except BaseException as error:
            raised.append(error)
            raise
        if not preview:
            await outputs_known()

    async def outputs_known() -> None:
        if inline:
            await _wait_for_outputs()

    try:
        await run_in_stack(declare)
    except Exception as error:
        if raised:
            raise raised[0] from None
        raise EvaluationError(str(error)) from error
    for name, output in evaluation.outputs.items():
        if name in secret:
            evaluation.outputs[name] = replace(output, secret=await secret[name])


async def _wait_for_outputs() -> None:
    """Waits until every output of the program is known, or one fails.

    The SDK waits for the first of all outputs, and then for the first of the others: with the square of their
    number (`wait_for_rpcs`, pulumi 3.260, pulumi/runtime/stack.py).
    """
    # The SDK declares them nowhere.
    sdk = cast("Any", pulumi_settings.SETTINGS)
    outputs = cast("Collection[asyncio.Future[Any]]", sdk.outputs)
    while pending := [task for task in outputs if not task.done()]:
        done, _ = await asyncio.wait(pending, timeout=PATIENCE, return_when=asyncio.FIRST_EXCEPTION)
        if not done and sdk.rpc_manager.unhandled_exception:
            # The outputs of a request that failed on its way may never be told.
            raise sdk.rpc_manager.unhandled_exception
        for task in list(outputs):
            # In the order of their creation: a later output fails with the one that it is made of.
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error
        if any(task.cancelled() for task in outputs):
            break


def _secret_outputs() -> dict[str, asyncio.Future[bool]]:
    """Which of the stack's outputs are secret; Pulumi's protocol tells it only of those that are known."""
    stack = cast("Stack", pulumi_settings.get_root_resource())
    outputs = {name: pulumi.Output.from_input(value) for name, value in stack.outputs.items()}
    return {name: asyncio.ensure_future(output.is_secret()) for name, output in outputs.items()}


SECTION = "secrets"

_KEY = f"{PREFIX}{SECTION}."


def unset(problem: Problem) -> str | None:
    """The name of the secret whose absence is the problem; None where it is another one."""
    return problem.key.removeprefix(_KEY) if problem.key.startswith(_KEY) and problem.value is None else None


def load_with_placeholders(
    raw: Mapping[str, Any],
    resolve: Resolve = unread,
    may_stand_in: Callable[[str], bool] = lambda _: True,
    warn: Callable[[Problem], object] = lambda _: None,
) -> tuple[Settings, Mapping[str, str], Sequence[Problem]]:
    """The settings in ``raw``, as `load` reads them, with a placeholder for each secret that is not set.

    ``may_stand_in`` says of a secret's name whether it gets one; ``warn`` is that of `load`. Returns
    these placeholders by name, too, and the problems that they stand for. Raises SettingsError for all others.
    """
    try:
        return load(raw, resolve, warn), {}, ()
    except SettingsError as error:
        absent = {name: problem for problem in error.problems if (name := unset(problem)) and may_stand_in(name)}
        if not absent:
            raise
    placeholders = dict.fromkeys(absent, MASK)
    whole = {**raw, SECTION: {**mapping(raw.get(SECTION)), **placeholders}}
    return load(whole, resolve, warn), placeholders, tuple(absent.values())
