"""`slipway logs`: the logs of a step's pods, as long as the cluster has them."""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway.command.clusters import AccessError, explain
from slipway.command.watch.cli import WatchError, open_session
from slipway.command.watch.plan import Expected, Plan, PlanError
from slipway.command.watch.session import Line, Session, lines
from slipway.command.watch.states import Phase, PodState, StepState, as_on_terminal
from slipway.infra.api_server import UnreadableError
from slipway.infra.commands import command
from slipway.infra.exits import Exit, report_error
from slipway.infra.schema.problems import printable_lines

PAUSE = 1.0
"""Seconds between two looks at a log that is followed."""

STATE_PAUSE = 3.0
"""Seconds between two looks for new pods."""


def main(stack: str, step: str, kubeconfig: Path | None, context: str, *, follow: bool, attempts: bool) -> Exit:
    """Prints the logs of the ``step`` as they are, or with ``follow`` as they come."""
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        if not step:
            raise WatchError(f"name the step: {command('logs', stack=stack, step='train')}")
        session = open_session(stack, kubeconfig, context)
        session.logs = False
        printer = Printer(session, choose(step, session.plan))
        return printer.follow() if follow else printer.print_once(attempts)
    except (WatchError, PlanError, AccessError, UnreadableError) as error:
        report_error(explain(error) if isinstance(error, UnreadableError) else error)
        return Exit.REFUSED


def choose(name: str, plan: Plan) -> Expected:
    """The step that ``name`` means, whole or the end of it. Raises WatchError where that is none or several."""
    wanted = name.replace(".", "-")
    steps = [step for step in plan.steps if wanted in {step.name, step.job}]
    steps = steps or [step for step in plan.steps if step.step == name or step.name.endswith(f"-{wanted}")]
    if not steps:
        raise WatchError(
            f"the stack {plan.stack} has no step {name!r}; it has {', '.join(step.name for step in plan.steps)}"
        )
    if len(steps) > 1:
        raise WatchError(f"{name!r} is several steps: name one of {', '.join(step.name for step in steps)}")
    return steps[0]


@dataclass
class Printer:
    """Prints the logs of ``step``. ``_printed`` has the stamp of the last line of each pod, by its UID."""

    session: Session
    step: Expected
    _printed: dict[str, str] = field(default_factory=dict[str, str])

    def print_once(self, attempts: bool) -> Exit:
        """Prints what there is now; returns the exit code."""
        state = self._look()
        every = self.session.pods_of(self.step)
        choice: list[tuple[PodState, Sequence[PodState]]] = []
        for newest in state.pods:
            same = [pod for pod in every if newest.index is None or pod.index == newest.index]
            pods = [pod for pod in same if attempts or pod.uid == newest.uid]
            choice += [(pod, same) for pod in pods if pod.running_since is not None or pod.over]
        if not choice:
            raise WatchError(f"{self.step.name} has no log: {state.says}")
        for pod, same in choice:
            log = self._lines(pod)
            self._print_head(pod, same, always=len(choice) > 1)
            if log is None:
                self._remark(f"the cluster has no log of pod {pod.name} (any more)")
            else:
                self._print_lines(log, pod, state)
        if not self._printed:
            return Exit.REFUSED
        return Exit.FAILED if state.phase is Phase.FAILED else Exit.DONE

    def follow(self) -> Exit:
        """Prints what comes, of new pods too, until the step is over; returns the exit code."""
        known: dict[str, PodState] = {}
        gone: set[str] = set()
        remark = ""
        while True:
            state = self._look()
            for pod in state.pods:
                if pod.running_since is not None and pod.uid not in known:
                    known[pod.uid] = pod
                    self._print_head(pod, [pod], always=True)
            if state.phase is not Phase.RUNNING and not state.phase.over and state.says != remark:
                remark = state.says
                self._remark(remark)
            end = time.monotonic() + STATE_PAUSE
            while True:
                gone |= {uid for uid, pod in known.items() if uid not in gone and not self._print_new(pod, state)}
                if state.phase.over:
                    self._remark(f"{self.step.name}: {state.says}")
                    return Exit.FAILED if state.phase is Phase.FAILED else Exit.DONE
                if time.monotonic() >= end:
                    break
                time.sleep(min(PAUSE, STATE_PAUSE))

    def _look(self) -> StepState:
        view = self.session.look()
        state = next(step for step in view.steps if step.name == self.step.name)
        if state.phase is Phase.UNKNOWN:
            raise WatchError("; ".join(view.trouble))
        return state

    def _lines(self, pod: PodState) -> Iterator[Line] | None:
        server = self.session.clusters.server(self.step.cluster)
        return lines(server, self.step.namespace, pod, self._printed.get(pod.uid, ""))

    def _print_new(self, pod: PodState, state: StepState) -> bool:
        """Prints what came since; returns whether the pod still has a log, or has none yet."""
        try:
            log = self._lines(pod)
            self._print_lines(log or (), pod, state)
            return log is not None or pod.uid not in self._printed
        except UnreadableError as error:
            self._print_lines([Line("", f"[the log cannot be read for now: {explain(error)}]")], pod, state)
            return True

    def _print_lines(self, log: Iterator[Line] | Sequence[Line], pod: PodState, state: StepState) -> None:
        prefix = f"{pod.index} | " if state.wanted > 1 and pod.index is not None else ""
        for line in log:
            self._printed[pod.uid] = max(self._printed.get(pod.uid, ""), line.stamp)
            print(f"{prefix}{printable_lines(as_on_terminal(line.text))}", flush=True)

    def _print_head(self, pod: PodState, attempts: Sequence[PodState], *, always: bool) -> None:
        which = f"attempt {attempts.index(pod) + 1} of {len(attempts)}, " if len(attempts) > 1 else ""
        rank = f"rank {pod.index}, " if pod.index is not None else ""
        why = f", ended because {pod.disrupted}" if pod.disrupted else ""
        if always or which:
            self._remark(f"{which}{rank}pod {pod.name} on {pod.node or 'no node'}{why}")

    @staticmethod
    def _remark(words: str) -> None:
        """What is no line of a log goes to stderr, so that the log can be piped."""
        print(f"# {printable_lines(words)}", file=sys.stderr, flush=True)
