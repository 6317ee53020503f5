"""`slipway watch`: what the stack's Jobs do right now, and why those that wait do."""

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.markup import escape

from slipway.command.clusters import Clusters
from slipway.command.watch.document import watched
from slipway.command.watch.plan import Plan, PlanError, evaluate, plan_of
from slipway.command.watch.screen import Changes, Key, keyboard, screen, summary
from slipway.command.watch.session import Session
from slipway.command.watch.states import Phase, View
from slipway.evaluated.model import document
from slipway.infra.exits import Exit, report_error
from slipway.infra.places import PROJECT
from slipway.infra.pulumi_cli import unfinished_jobs
from slipway.infra.terminal import new_console

PAUSE = 2.0
"""Seconds between two looks at the clusters."""

WIDTH = 140
"""Columns of output that does not go to a terminal."""


class WatchError(Exception):
    """What keeps a stack from being watched. The text says why, and what to do about it."""


def main(stack: str, kubeconfig: Path | None, context: str, *, once: bool, as_json: bool = False) -> Exit:
    """Shows the stack: one table with ``once``, a screen on a terminal, elsewhere a line for each change."""
    # What the Kubernetes client logs of a login that failed would be drawn across the screen.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        session = open_session(stack, kubeconfig, context)
        if once:
            return print_once(session, as_json=as_json)
        # A terminal that moves no cursor gets lines.
        console = new_console()
        if console.is_interactive:
            return show(session, console)
        return follow(session, lambda: time.sleep(PAUSE))
    except (WatchError, PlanError) as error:
        report_error(error)
        return Exit.REFUSED


def open_session(stack: str, kubeconfig: Path | None = None, context: str = "") -> Session:
    """A session for the stack. Raises WatchError, PlanError."""
    plan = load_plan(stack)
    clusters = Clusters(stack, {place.name: place for place in plan.places}, kubeconfig, context or None)
    return Session(plan, clusters, unfinished=partial(unfinished_jobs, stack))


def load_plan(stack: str) -> Plan:
    """What the program declares for the stack. Raises WatchError, PlanError."""
    declared = plan_of(evaluate(stack, PROJECT))
    if not declared.steps:
        raise WatchError(f"the stack {stack} declares no Job")
    return declared


def print_once(session: Session, *, as_json: bool = False) -> Exit:
    """Prints the steps as they are now."""
    view = session.look()
    code = Exit.REFUSED if view.trouble else Exit.FAILED if view.failed else Exit.DONE
    if as_json:
        sys.stdout.write(document(watched(view)))
        return code
    console = new_console(WIDTH)
    console.print(screen(view, _most_important(view), len(view.steps) + 40, console.width, keys=False))
    if view.earlier:
        console.print(f"[dim]{view.earlier} finished Jobs of earlier runs are still there[/]")
    return code


def follow(session: Session, pause: Callable[[], None]) -> Exit:
    """Prints a line for each change until nothing goes on any more."""
    changes = Changes()
    while True:
        view = session.look()
        for line in changes.lines(view):
            print(line, flush=True)
        if not view.trouble and (view.done or view.failed):
            print(f"{view.at.astimezone():%H:%M:%S}  {summary(view)}", flush=True)
            return Exit.FAILED if view.failed else Exit.DONE
        pause()


def show(session: Session, console: Console) -> Exit:
    """Draws the screen until somebody leaves it."""
    views: queue.Queue[View | Exception] = queue.Queue()
    end = threading.Event()

    def look() -> None:
        # A daemon, so that nobody who leaves waits for a cluster that does not answer.
        while not end.is_set():
            try:
                views.put(session.look())
            except Exception as error:
                views.put(error)
                return
            end.wait(PAUSE)

    def newest(view: View | None) -> View:
        """The last view that came; waits for the first."""
        while view is None or not views.empty():
            result = views.get()
            if isinstance(result, Exception):
                raise result
            view = result
        return view

    console.print(f"[dim]Looking at {escape(session.plan.stack)} …[/]")
    threading.Thread(target=look, name="look", daemon=True).start()
    view = newest(None)
    cursor: int | None = None
    with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            # Until somebody moves the cursor, it follows what happens.
            selected = min(_most_important(view) if cursor is None else cursor, max(len(view.steps) - 1, 0))
            live.update(screen(view, selected, console.height, console.width), refresh=True)
            key = keys.wait(0.25)
            if key is Key.QUIT:
                break
            if key is not None and view.steps:
                cursor = (selected + (1 if key is Key.DOWN else -1)) % len(view.steps)
            view = newest(view)
    end.set()
    console.print(f"{session.plan.stack}: {summary(view)}", markup=False)
    return Exit.FAILED if view.failed else Exit.DONE


def _most_important(view: View) -> int:
    """The step to look at: one that failed, else that goes on, else the next."""
    numbers = range(len(view.steps))
    failed = [number for number in numbers if view.steps[number].phase is Phase.FAILED]
    waiting = [number for number in numbers if not view.steps[number].phase.over]
    active = [number for number in waiting if view.steps[number].began]
    return (failed or active or waiting or [max(len(view.steps) - 1, 0)])[0]
