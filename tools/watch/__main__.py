"""``make watch STACK=gcp-dev``: what the stack's Jobs do right now, and why those that wait do."""

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape

from tools.pulumi_cli import unfinished_jobs
from tools.watch.observed import Clusters
from tools.watch.plan import Plan, PlanError, evaluated, plan
from tools.watch.screen import Changes, Key, Keys, pressed, screen, summary
from tools.watch.session import Session
from tools.watch.states import View

ROOT = Path(__file__).resolve().parents[2]

PAUSE = 2.0
"""Seconds between two looks at the clusters."""

WIDTH = 140
"""Columns of output that does not go to a terminal."""

OK, FAILED, UNREADABLE = 0, 1, 2
"""Exit codes: a step failed and none goes on; a cluster or the stack could not be read."""


class WatchError(Exception):
    """What keeps a stack from being watched. The text says why, and what to do about it."""


def main(
    stack: Annotated[str, typer.Option("--stack", "-s", help="The stack.")] = "",
    once: Annotated[bool, typer.Option("--once", help="Print one table, and end.")] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="A kubeconfig, in place of the one that the stack has.")
    ] = None,
    context: Annotated[str, typer.Option(help="Its context.")] = "",
) -> None:
    """Show what the Jobs of a stack do: queued, waiting and why, running and how far, done, failed and why.

    On a terminal it goes on until q is pressed; elsewhere it prints a line for each change, and ends with 0 once
    all steps are done, with 1 once one failed and none goes on. With --once it ends with 2 where a cluster cannot
    be read.
    """
    # What the Kubernetes client logs of a login that failed would be drawn across the screen.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        session = opened(stack, kubeconfig, context)
        if once:
            raise typer.Exit(print_once(session))
        if sys.stdout.isatty():
            raise typer.Exit(show(session))
        raise typer.Exit(follow(session, lambda: time.sleep(PAUSE)))
    except (WatchError, PlanError) as error:
        Console(stderr=True, highlight=False).print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(UNREADABLE) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def opened(stack: str, kubeconfig: Path | None = None, context: str = "") -> Session:
    """A session for the stack. Raises WatchError, PlanError."""
    found = planned(stack)
    places = {place.name: place for place in found.places}
    clusters = Clusters(stack, places, kubeconfig, context or None)
    return Session(found, clusters, unfinished=partial(unfinished_jobs, stack))


def planned(stack: str) -> Plan:
    """What the program declares for the stack. Raises WatchError, PlanError."""
    if not stack:
        raise WatchError("name the stack: make watch STACK=local")
    found = plan(evaluated(stack, ROOT))
    if not found.steps:
        raise WatchError(f"the stack {stack} declares no Job")
    return found


def print_once(session: Session) -> int:
    """Prints the steps as they are now."""
    view = session.look()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    console.print(screen(view, _most_telling(view), len(view.steps) + 40, console.width, keys=False))
    if view.earlier:
        console.print(f"[dim]{view.earlier} finished Jobs of earlier runs are still there[/]")
    return UNREADABLE if view.trouble else FAILED if view.failed else OK


def follow(session: Session, pause: Callable[[], None]) -> int:
    """Prints a line for each change until nothing goes on any more."""
    changes = Changes()
    while True:
        view = session.look()
        for line in changes.lines(view):
            print(line, flush=True)
        if not view.trouble and (view.done or view.failed):
            print(f"{view.at.astimezone():%H:%M:%S}  {summary(view)}", flush=True)
            return FAILED if view.failed else OK
        pause()


def show(session: Session) -> int:
    """Draws the screen until somebody leaves it."""
    console = Console(highlight=False)
    views: queue.Queue[View | Exception] = queue.Queue()
    ending = threading.Event()

    def look() -> None:
        while not ending.is_set():
            try:
                views.put(session.look())
            except Exception as error:
                views.put(error)
                return
            ending.wait(PAUSE)

    console.print(f"[dim]Looking at {escape(session.plan.stack)} …[/]")
    threading.Thread(target=look, name="look", daemon=True).start()
    first = _taken(views.get())
    with pressed() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        last = _drawn(live, console, views, keys, first)
        ending.set()
    console.print(f"{session.plan.stack}: {summary(last)}", markup=False)
    return FAILED if last.failed else OK


def _drawn(live: Live, console: Console, views: "queue.Queue[View | Exception]", keys: Keys, view: View) -> View:
    selected, chosen = _most_telling(view), False
    while True:
        selected = min(selected, max(len(view.steps) - 1, 0))
        live.update(screen(view, selected, console.height, console.width), refresh=True)
        key = keys.wait(0.25)
        if key is Key.QUIT:
            return view
        if key is not None and view.steps:
            chosen = True
            selected = (selected + (1 if key is Key.DOWN else -1)) % len(view.steps)
        while not views.empty():
            view = _taken(views.get())
            if not chosen:
                # Until somebody moves the cursor, it follows what happens.
                selected = _most_telling(view)


def _taken(found: View | Exception) -> View:
    if isinstance(found, Exception):
        raise found
    return found


def _most_telling(view: View) -> int:
    """The step to look at: one that failed, else that goes on, else the next."""
    for number, step in enumerate(view.steps):
        if step.phase.over and step.phase.value == "failed":
            return number
    going = [number for number, step in enumerate(view.steps) if step.began and not step.phase.over]
    waiting = [number for number, step in enumerate(view.steps) if not step.phase.over]
    return (going or waiting or [max(len(view.steps) - 1, 0)])[0]


# Typer's own tracebacks print the values of variables, which include secrets.
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)

if __name__ == "__main__":
    app(prog_name="python -m tools.watch")
