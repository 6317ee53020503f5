"""``make logs STACK=gcp-dev STEP=train``: the logs of a step's pods, as long as the cluster has them."""

import logging
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from infra.api_server import UnreadableError
from infra.schema.problems import printable_lines
from tools.watch.__main__ import FAILED, OK, UNREADABLE, WatchError, opened
from tools.watch.observed import AccessError, plain
from tools.watch.plan import Expected, Plan, PlanError
from tools.watch.session import Line, Session, lines
from tools.watch.states import Phase, PodState, StepState, shown

PAUSE = 1.0
"""Seconds between two looks at a log that is followed."""

STATE_PAUSE = 3.0
"""Seconds between two looks for new pods."""


@dataclass(frozen=True)
class Source:
    """A pod whose log is printed. ``attempt`` counts the pods of one index, from 1 of ``attempts``."""

    pod: PodState
    attempt: int
    attempts: int


def main(  # noqa: PLR0917  # One parameter per option of the command line.
    stack: Annotated[str, typer.Option("--stack", "-s", help="The stack.")] = "",
    step: Annotated[str, typer.Option(help="The step: train, or pipeline.train.")] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the step is over.")] = False,
    attempts: Annotated[bool, typer.Option("--attempts", help="Also of pods that were replaced.")] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="A kubeconfig, in place of the one that the stack has.")
    ] = None,
    context: Annotated[str, typer.Option(help="Its context.")] = "",
) -> None:
    """Print the logs of a step's pods, each line with the pod's rank where there are several.

    Of a pod that was replaced after an eviction the newest is printed; --attempts prints those before it, too, as
    far as the cluster still has them. Ends with 1 where the step failed, with 2 where there is no log.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        if not step:
            raise WatchError(f"name the step: make logs STACK={stack or 'local'} STEP=train")
        session = opened(stack, kubeconfig, context)
        session.logs = False
        printer = Printer(session, chosen(step, session.plan))
        raise typer.Exit(printer.follow() if follow else printer.once(attempts))
    except (WatchError, PlanError, AccessError, UnreadableError) as error:
        words = plain(error) if isinstance(error, AccessError | UnreadableError) else str(error)
        Console(stderr=True, highlight=False).print(f"[red]error:[/] {escape(words)}", soft_wrap=True)
        raise typer.Exit(UNREADABLE) from None
    except (KeyboardInterrupt, BrokenPipeError):
        raise typer.Exit(130) from None


def chosen(name: str, plan: Plan) -> Expected:
    """The step that ``name`` means, whole or the end of it. Raises WatchError where that is none or several."""
    wanted = name.replace(".", "-")
    exact = [step for step in plan.steps if wanted in {step.name, step.job}]
    found = exact or [step for step in plan.steps if step.step == name or step.name.endswith(f"-{wanted}")]
    if not found:
        raise WatchError(
            f"the stack {plan.stack} has no step {name!r}; it has {', '.join(step.name for step in plan.steps)}"
        )
    if found[1:]:
        raise WatchError(f"{name!r} is several steps: name one of {', '.join(step.name for step in found)}")
    return found[0]


@dataclass
class Printer:
    """Prints the logs of ``step``."""

    session: Session
    step: Expected

    def once(self, attempts: bool) -> int:
        """Prints what there is now; returns the exit code."""
        state = self._state()
        sources = self._sources(state, attempts)
        if not sources:
            raise WatchError(self._none(state))
        printed = False
        for source in sources:
            found = self._lines(source.pod, "")
            self._head(source, len(sources))
            if found is None:
                self._say(f"the cluster has no log of pod {source.pod.name} (any more)")
                continue
            for line in found:
                printed = True
                self._print(line, source.pod, state.wanted)
        return (FAILED if state.phase is Phase.FAILED else OK) if printed else UNREADABLE

    def follow(self) -> int:
        """Prints what comes, of new pods too, until the step is over; returns the exit code."""
        printed: queue.Queue[tuple[PodState, Line]] = queue.Queue()
        readers: dict[str, threading.Thread] = {}
        over = threading.Event()
        told = ""
        while True:
            state = self._state()
            for pod in state.pods:
                if pod.running_since is not None and pod.uid not in readers:
                    readers[pod.uid] = threading.Thread(target=self._read, args=(pod, printed, over), daemon=True)
                    readers[pod.uid].start()
                    self._head(Source(pod, 1, 1), 2)
            if state.phase is not Phase.RUNNING and not state.phase.over and state.says != told:
                told = state.says
                self._say(told)
            ended = time.monotonic() + STATE_PAUSE
            while time.monotonic() < ended:
                self._drain(printed, state.wanted)
                time.sleep(PAUSE / 5)
            if state.phase.over:
                over.set()
                for reader in readers.values():
                    reader.join(STATE_PAUSE)
                self._drain(printed, state.wanted)
                self._say(f"{self.step.name}: {state.says}")
                return FAILED if state.phase is Phase.FAILED else OK

    def _state(self) -> StepState:
        view = self.session.look()
        state = next(step for step in view.steps if step.name == self.step.name)
        if state.phase is Phase.UNKNOWN:
            raise WatchError("; ".join(view.trouble))
        return state

    def _sources(self, state: StepState, attempts: bool) -> list[Source]:
        every = self.session.pods_of(self.step)
        found: list[Source] = []
        for newest in state.pods:
            same = [pod for pod in every if pod.index == newest.index] if newest.index is not None else every
            chosen_pods = same if attempts else [newest]
            found += [
                Source(pod, same.index(pod) + 1 if pod in same else len(same), len(same)) for pod in chosen_pods
            ]
        return [source for source in found if source.pod.running_since is not None or source.pod.over]

    def _none(self, state: StepState) -> str:
        return f"{self.step.name} has no log: {state.says}"

    def _lines(self, pod: PodState, after: str) -> Iterator[Line] | None:
        server = self.session.server(self.step.cluster)
        return lines(server, self.step.namespace, pod.name, pod.container, after)

    def _read(self, pod: PodState, printed: "queue.Queue[tuple[PodState, Line]]", over: threading.Event) -> None:
        """Reads on in one pod's log until it has gone or the step is over."""
        after = ""
        while True:
            last = over.is_set()
            try:
                found = self._lines(pod, after)
                if found is None and after:
                    return
                for line in found or ():
                    printed.put((pod, line))
                    after = max(after, line.stamp)
            except UnreadableError as error:
                printed.put((pod, Line("", f"[the log cannot be read for now: {plain(error)}]")))
            if last:
                return
            over.wait(PAUSE)

    def _drain(self, printed: "queue.Queue[tuple[PodState, Line]]", wanted: int) -> None:
        while not printed.empty():
            pod, line = printed.get()
            self._print(line, pod, wanted)

    def _print(self, line: Line, pod: PodState, wanted: int) -> None:
        prefix = f"{pod.index} | " if wanted > 1 and pod.index is not None else ""
        print(f"{prefix}{printable_lines(shown(line.text))}", flush=True)

    def _head(self, source: Source, count: int) -> None:
        pod = source.pod
        which = f"attempt {source.attempt} of {source.attempts}, " if source.attempts > 1 else ""
        rank = f"rank {pod.index}, " if pod.index is not None else ""
        why = f", ended because {pod.disrupted}" if pod.disrupted else ""
        if count > 1 or which:
            self._say(f"{which}{rank}pod {pod.name} on {pod.node or 'no node'}{why}")

    @staticmethod
    def _say(words: str) -> None:
        """What is no line of a log goes to stderr, so that the log can be piped."""
        print(f"# {printable_lines(words)}", file=sys.stderr, flush=True)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)

if __name__ == "__main__":
    app(prog_name="python -m tools.watch.logs")
