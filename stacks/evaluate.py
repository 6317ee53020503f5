"""Evaluate a Pulumi program in this process, with an engine of our own in place of the Pulumi CLI's."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pulumi.runtime import mocks, run_in_stack
from pulumi.runtime import settings as pulumi_settings
from pulumi.runtime.config import set_all_config

from infra.platform import Emulator, StoreFiles
from stacks.config import for_engine
from stacks.monitor import Cloud, Evaluation, EvaluationError, Monitor, NoStore, Observer

THREADS = 512
"""Most registrations under way at once. One that waits for its Job holds a thread; asyncio's default, a few more
than there are cores, would let waiting Jobs starve independent ones."""


def evaluate(
    program: Callable[[], object],
    *,
    project: str,
    stack: str,
    config: Mapping[str, Any],
    emulators: Sequence[Emulator] = (),
    store: StoreFiles | None = None,
    observer: Observer | None = None,
    preview: bool = False,
) -> Evaluation:
    """Runs ``program`` as the Pulumi CLI would, and returns what it declared.

    ``config`` has full keys (``slipway:clusters``). Values that only a cloud knows come from ``emulators``. With
    ``preview`` the program is told so, and files that are not in ``store`` are unknown instead of an error. Raises
    what the program raises, and EvaluationError for what goes wrong after it has returned.
    """
    evaluation = Evaluation()
    disabled = config.get("pulumi:disable-default-providers")
    cloud = Cloud(emulators, store or NoStore())
    monitor = Monitor(evaluation, cloud, observer or Observer(), preview, disabled)

    def run() -> None:
        set_all_config(for_engine(config), [])
        pulumi_settings.set_root_resource(None)  # pyright: ignore[reportArgumentType]
        pulumi_settings.configure(
            mocks.MockSettings(
                monitor=monitor,
                monitor_features=set(monitor.features()),
                engine=mocks.MockEngine(logging.getLogger("pulumi")),
                project=project,
                stack=stack,
                dry_run=preview,
                organization="organization",
                root_directory=None,
                package_refs={},
                callbacks=None,
                # Else the tasks that a failed evaluation left would be waited for by the next.
                outputs=set(),
                lock=threading.Lock(),
            )
        )
        asyncio.run(_run(program))

    # Everything Pulumi keeps about a running program is in context variables, so a second evaluation starts anew.
    contextvars.copy_context().run(run)
    return evaluation


async def _run(program: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, "resource"))
    # One failure fails the futures of all that would have come after it, and nobody retrieves those.
    loop.set_exception_handler(lambda _, context: logging.getLogger(__name__).debug("%s", context))
    raised: list[BaseException] = []

    def declare() -> None:
        try:
            program()
        except BaseException as error:
            raised.append(error)
            raise

    try:
        await run_in_stack(declare)
    except Exception as error:
        if raised:
            raise raised[0] from None
        raise EvaluationError(str(error)) from error
