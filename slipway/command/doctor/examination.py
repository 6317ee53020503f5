"""`slipway doctor`: all checks of the stacks, run side by side, each with an end."""

import json
import logging
import shlex
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from slipway.command.doctor import cluster, machine, places
from slipway.engine.evaluate import load_with_placeholders
from slipway.engine.evaluation.decoding import EvaluatedStack, FailedEvaluation
from slipway.engine.other_stacks import OtherStacks
from slipway.engine.stack_config import ConfigError, Reference, load_stack, references
from slipway.infra import pulumi_cli
from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.commands import command
from slipway.infra.exits import Exit
from slipway.infra.places import PROJECT
from slipway.infra.platform_output import OUTPUT
from slipway.infra.program import declare
from slipway.infra.review.facts import STACK, Observation, Probe, State, fine, unknown, wrong
from slipway.infra.review.stack import mapping
from slipway.infra.schema.problems import SettingsError, without_prefix
from slipway.infra.schema.requirement_files import REQUIREMENTS
from slipway.infra.settings.loading import clouds_of
from slipway.infra.settings.model import Settings
from slipway.infra.settings.pipelines import unread
from slipway.infra.terminal import new_console
from slipway.preview.revisions import evaluate_trees

FILE = "stack file"

SECONDS = 60
"""Most that all questions together may take; what has not been answered by then is told as unknown."""

WIDTH = 100
"""Columns of output that does not go to a terminal."""


def main(stacks: Sequence[str], *, as_json: bool) -> Exit:
    """Examines ``stacks``, all without, and prints what was found out."""
    # What libraries say beside their errors would stand between the tables, which tell it all.
    logging.disable()
    warnings.simplefilter("ignore")
    examined = examine(PROJECT, stacks)
    if as_json:
        sys.stdout.write(document(examined))
    else:
        show(examined, new_console(WIDTH))
    wrong = any(observation.state is State.WRONG for one in examined for observation in one.observations)
    return Exit.FAILED if wrong else Exit.DONE


@dataclass(frozen=True)
class Examined:
    """What was found out about one stack, in the order in which it was checked."""

    stack: str
    observations: Sequence[Observation] = field(default_factory=list[Observation])


def examine(root: Path, names: Sequence[str], seconds: float = SECONDS) -> list[Examined]:
    """Checks the stacks of the checkout at ``root``: ``names``, all without."""
    stacks = evaluate_trees(root, None, names).head
    versions = machine.pulumi_versions(root / REQUIREMENTS)
    of_backend: dict[str, Sequence[Observation]] = {}

    def ask_backend() -> Iterable[Observation]:
        of_backend.update(machine.check(root, list(stacks)))
        return []

    shared = [
        Probe(machine.CLI, lambda: machine.cli(versions["pulumi"])),
        Probe(machine.PACKAGES, lambda: machine.packages(root / REQUIREMENTS)),
        Probe(machine.BACKEND, ask_backend),
    ]
    probes = {name: list(_probes(name, stack, root, versions)) for name, stack in stacks.items()}
    results = iter(answers([*shared, *(probe for some in probes.values() for probe in some)], seconds))
    common = [observation for _ in shared for observation in next(results)]
    examined: list[Examined] = []
    for name, stack in stacks.items():
        observations = [*of_file(stack), *common, *of_backend.get(name, ())]
        observations += [observation for _ in probes[name] for observation in next(results)]
        examined.append(Examined(name, list(dict.fromkeys(observations))))
    return examined


def of_file(evaluated: EvaluatedStack) -> Iterator[Observation]:
    """The stack file itself, whose problems the preview tells in full."""
    for problem in evaluated.unset:
        key, why = problem["key"], problem["reason"].removesuffix(", and it is not set")
        yield wrong(key, f"is not set: {why}", f"pulumi config set --secret --path '{key}' -s {STACK}")
    if evaluated.failure is not None:
        yield wrong(FILE, f"is wrong: {_in_short(evaluated.failure)}", command("check", stack=STACK))
        yield unknown("everything that the stack file decides", "was not checked: the file is wrong")
    elif not evaluated.unset:
        yield fine(FILE, "is right")


def _in_short(failure: FailedEvaluation) -> str:
    """One line: the first problem, and how many there are beside it."""
    if not failure.problems:
        return " ".join(failure.message.split())
    first, more = failure.problems[0], len(failure.problems) - 1
    text = " ".join(f"{first['key']}: {first['value']}: {first['reason']}".split())
    return f"{text} (and {more} more)" if more else text


def _probes(name: str, evaluated: EvaluatedStack, root: Path, versions: Mapping[str, str]) -> Iterator[Probe]:
    stack = evaluated.stack
    if stack is None:
        return
    try:
        values = load_stack(name, root).values
    except ConfigError:
        values = dict[str, Any]()
    raw = without_prefix(values)
    others, settings = references(raw), _settings(name, raw, root)
    request = settings.request if settings else None
    packages = {resource.package for resource in stack.resources.values() if resource.custom} - {"pulumi"}
    yield Probe("plugins", lambda: machine.plugins(packages, versions))
    yield from places.probes(stack)
    for reference in dict.fromkeys(other.reference for other in others):
        yield Probe(f"stack {reference}", partial(of_other_stack, reference, others, root))
    for cloud in clouds_of(raw):
        yield from CLOUDS[cloud].probes(stack, request)
        yield from cluster.probes(stack, CLOUDS[cloud].servers(stack, request), settings)


def _settings(name: str, raw: Mapping[str, Any], root: Path) -> Settings | None:
    """The settings, with clusters of other stacks as their files declare them; None where they are wrong."""
    resolve = OtherStacks(root, declare, preview=True).of(name).resolve if references(raw) else unread
    try:
        return load_with_placeholders(raw, resolve)[0]
    except SettingsError:
        return None


def of_other_stack(reference: str, clusters: Sequence[Reference], root: Path) -> Iterator[Observation]:
    """Whether the stack that has the clusters was brought up: its outputs say how to reach them."""
    subject, names = f"stack {reference}", ", ".join(f"`{other.name}`" for other in clusters)
    up = f"pulumi up -s {reference}"
    try:
        outputs = pulumi_cli.outputs_of(reference)
    except pulumi_cli.CliError as error:
        why = str(error) if machine.choose_backend(root).url else "no state backend is chosen"
        if "no stack named" in why:
            problem = f"is not in the state backend, and has the cluster {names}"
            yield wrong(subject, problem, f"pulumi stack init {reference} && {up}")
        else:
            problem = f"could not be read, and has the cluster {names}: {why}"
            yield unknown(subject, problem, f"pulumi stack output -s {reference}")
        return
    existing = mapping(mapping(outputs.get(OUTPUT)).get("clusters"))
    missing = [
        other.cluster for other in clusters if other.reference == reference and other.cluster not in existing
    ]
    if not outputs:
        yield wrong(subject, f"has no outputs: it has not been brought up, and has the cluster {names}", up)
    elif OUTPUT not in outputs:
        yield wrong(subject, f"has no output `{OUTPUT}`: its file names no teams", up)
    elif missing:
        problem = f"has no cluster {', '.join(missing)}; it has {', '.join(sorted(existing)) or 'none'}"
        yield wrong(subject, problem, up)
    else:
        yield fine(subject, f"has the cluster {names}")


def answers(probes: Sequence[Probe], seconds: float) -> list[list[Observation]]:
    """What each probe says, side by side. One that has not ended after ``seconds`` is left behind.

    Its thread is a daemon, so that nobody waits for it when the program ends.
    """
    results: list[list[Observation] | None] = [None] * len(probes)

    def ask(index: int, run: Callable[[], Iterable[Observation]], subject: str) -> None:
        try:
            results[index] = list(run())
        except Exception as error:
            problem = f"could not be checked: {type(error).__name__}: {' '.join(str(error).split())}"
            results[index] = [unknown(subject, problem)]

    threads = [
        threading.Thread(target=ask, args=(index, probe.run, probe.subject), daemon=True)
        for index, probe in enumerate(probes)
    ]
    end = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return [
        [unknown(probe.subject, f"gave no answer within {seconds:g} s")] if result is None else result
        for probe, result in zip(probes, results, strict=True)
    ]


FORMAT = 2
"""Of the JSON; it is raised where a key goes or means something else."""

TITLES: Mapping[State, tuple[str, str]] = {
    State.WRONG: ("missing or wrong", "red"),
    State.UNKNOWN: ("could not be checked", "yellow"),
    State.FINE: ("fine", "green"),
}


def by_stacks(examined: Sequence[Examined]) -> dict[tuple[str, ...], list[Observation]]:
    """Every observation once, by the stacks that it is of; what most stacks have in common comes first."""
    stacks: dict[Observation, list[str]] = {}
    for one in examined:
        for observation in one.observations:
            stacks.setdefault(observation, []).append(one.stack)
    groups: dict[tuple[str, ...], list[Observation]] = {}
    for observation, names in sorted(stacks.items(), key=lambda item: -len(item[1])):
        groups.setdefault(tuple(names), []).append(_with_names(observation, names))
    return groups


def _with_names(observation: Observation, stacks: Sequence[str]) -> Observation:
    """With the stacks' names in place of `STACK`: a loop of the shell where there are several."""
    if STACK not in observation.mend:
        return observation
    if len(stacks) == 1:
        return replace(observation, mend=observation.mend.replace(STACK, stacks[0]))
    names = " ".join(map(shlex.quote, stacks))
    return replace(observation, mend=f"for s in {names}; do {observation.mend.replace(STACK, '$s')}; done")


def show(examined: Sequence[Examined], console: Console) -> None:
    """Prints one table for what several stacks have in common, and one for each stack's own."""
    for stacks, observations in by_stacks(examined).items():
        if all(observation.state is State.FINE and not observation.listed for observation in observations):
            continue
        everything = len(stacks) == len(examined) > 1
        title = f"All {len(stacks)} stacks" if everything else ", ".join(stacks)
        _show_section(title, observations, console)
    for one in examined:
        counts = _count(one.observations)
        style = next((style for state, (_, style) in TITLES.items() if counts[state]), "green")
        words = ", ".join(f"{counts[state]} {title}" for state, (title, _) in TITLES.items())
        console.print(Text(f"{one.stack}: {words}", style=style))


def _show_section(heading: str, observations: Sequence[Observation], console: Console) -> None:
    console.print(Text(heading, style="bold"))
    counts = _count(observations)
    for state, (title, style) in TITLES.items():
        if not counts[state]:
            continue
        number = f": {counts[state]}" if state is State.FINE else ""
        console.print(Text(f"  {title}{number}", style=style))
        table = Table(box=None, padding=(0, 1, 0, 0), show_header=False, expand=True)
        table.add_column(ratio=1)
        for observation in observations:
            if observation.state is not state or (state is State.FINE and not observation.listed):
                continue
            table.add_row(Text.assemble((observation.subject, "bold"), " ", observation.said))
            if observation.advice:
                table.add_row(Padding(Text(f"fix: {observation.advice}"), (0, 0, 0, 2)))
            if observation.mend and state is not State.FINE:
                command = Text(f"$ {observation.mend}", style="cyan", overflow="fold")
                table.add_row(Padding(command, (0, 0, 0, 2)))
        if table.row_count:
            console.print(Padding(table, (0, 0, 0, 4)))
    console.print()


def _count(observations: Sequence[Observation]) -> Mapping[State, int]:
    return {state: sum(observation.state is state for observation in observations) for state in State}


def document(examined: Sequence[Examined]) -> str:
    """The same as JSON: every observation of every stack, fine ones included."""
    stacks = [
        {
            "stack": one.stack,
            "observations": [asdict(_with_names(observation, [one.stack])) for observation in one.observations],
        }
        for one in examined
    ]
    return json.dumps({"format": FORMAT, "stacks": stacks}, indent=2) + "\n"
