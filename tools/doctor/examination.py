"""All checks of the stacks: which there are, run side by side, each with an end."""

import json
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from infra.clouds.registry import CLOUDS
from infra.platform_output import OUTPUT
from infra.program import declare
from infra.review.facts import STACK, Observation, Probe, State, fine, unknown, wrong
from infra.review.stack import mapping
from infra.schema.problems import SettingsError, without_prefix
from infra.settings.loading import clouds_of
from infra.settings.model import Settings
from infra.settings.references import unread
from offline.engine.evaluate import load_with_placeholders
from offline.engine.other_stacks import OtherStacks
from offline.engine.stack_config import ConfigError, Reference, load_stack, references
from offline.evaluation.decoding import EvaluatedStack, FailedEvaluation
from offline.preview.revisions import evaluate_trees
from tools.doctor import cluster, machine

FILE = "stack file"

SECONDS = 60
"""Most that all questions together may take; what has not been answered by then is told as unknown."""


@dataclass(frozen=True)
class Examined:
    """What was found out about one stack, in the order in which it was checked."""

    stack: str
    observations: Sequence[Observation] = field(default_factory=list[Observation])


def examine(root: Path, names: Sequence[str], seconds: float = SECONDS) -> list[Examined]:
    """Checks the stacks of the checkout at ``root``: ``names``, all without."""
    evaluated = evaluate_trees(root, None, names).head
    pins = machine.pins(root / "requirements.txt")
    everywhere = [
        Probe(machine.CLI, lambda: machine.cli(pins["pulumi"], root)),
        Probe(machine.PACKAGES, lambda: machine.packages(root / "requirements.txt")),
    ]
    states: dict[str, Mapping[str, Sequence[Observation]]] = {}

    def ask_backend() -> Iterable[Observation]:
        states["all"] = machine.check(root, list(evaluated))
        return []

    shared = [*everywhere, Probe(machine.BACKEND, ask_backend)]
    own = {name: list(_probes(name, each, root, pins)) for name, each in evaluated.items()}
    found = answers([*shared, *(probe for each in own.values() for probe in each)], seconds)
    common = [observation for _ in shared for observation in found.pop(0)]
    examined: list[Examined] = []
    for name, probes in own.items():
        observations = [*of_file(evaluated[name]), *common, *states.get("all", {}).get(name, ())]
        for _ in probes:
            observations += found.pop(0)
        examined.append(Examined(name, list(dict.fromkeys(observations))))
    return examined


def of_file(evaluated: EvaluatedStack) -> Iterator[Observation]:
    """The stack file itself, whose problems the preview tells in full."""
    failure = evaluated.failure
    for each in evaluated.unset:
        why = each["reason"].removesuffix(", and it is not set")
        yield wrong(
            each["key"], f"is not set: {why}", f"pulumi config set --secret --path '{each['key']}' -s {STACK}"
        )
    if failure is None:
        if not evaluated.unset:
            yield fine(FILE, "is right")
        return
    yield wrong(FILE, f"is wrong: {_in_short(failure)}", f"make check STACK={STACK}")
    yield unknown("everything that the stack file decides", "was not checked: the file is wrong")


def _in_short(failure: FailedEvaluation) -> str:
    """One line: the first problem, and how many there are beside it."""
    if not failure.problems:
        return " ".join(failure.message.split())
    first, more = failure.problems[0], len(failure.problems) - 1
    text = " ".join(f"{first['key']}: {first['value']}: {first['reason']}".split())
    return f"{text} (and {more} more)" if more else text


def _probes(name: str, evaluated: EvaluatedStack, root: Path, pins: Mapping[str, str]) -> Iterator[Probe]:
    stack = evaluated.stack
    if stack is None:
        return
    raw = without_prefix(_configuration(name, root))
    settings, others = _settings(name, raw, root), references(raw)
    request = settings.request if settings else None
    used = {resource.package for resource in stack.resources.values() if resource.custom} - {"pulumi"}
    yield Probe("plugins", lambda: machine.plugins(used, pins))
    for reference in dict.fromkeys(other.reference for other in others):
        yield Probe(f"stack {reference}", partial(of_other_stack, reference, others, root))
    for cloud in clouds_of(raw):
        yield from CLOUDS[cloud].probes(stack, request)
        installs = settings.kueue.install if settings and settings.kueue else None
        yield from cluster.probes(stack, CLOUDS[cloud].servers(stack, request), installs)


def _configuration(name: str, root: Path) -> Mapping[str, Any]:
    try:
        return load_stack(name, root).values
    except ConfigError:
        return {}


def _settings(name: str, raw: Mapping[str, Any], root: Path) -> Settings | None:
    """The settings, with clusters of other stacks as their files declare them; None where they are wrong."""
    resolve = OtherStacks(root, declare, preview=True).of(name).resolve if references(raw) else unread
    try:
        return load_with_placeholders(raw, resolve)[0]
    except SettingsError:
        return None


def of_other_stack(reference: str, clusters: Sequence[Reference], root: Path) -> Iterator[Observation]:
    """Whether the stack that has the clusters was brought up: its outputs say how to reach them."""
    subject, names = f"stack {reference}", ", ".join(f"`{each.name}`" for each in clusters)
    up = f"pulumi up -s {reference}"
    try:
        found = machine.outputs(reference, root)
    except machine.CliError as error:
        why = str(error) if machine.chosen(root).url else "no state backend is chosen"
        if "no stack named" in why:
            said = f"is not in the state backend, and has the cluster {names}"
            yield wrong(subject, said, f"pulumi stack init {reference} && {up}")
            return
        yield unknown(
            subject,
            f"could not be read, and has the cluster {names}: {why}",
            f"pulumi stack output -s {reference}",
        )
        return
    there = mapping(mapping(found.get(OUTPUT)).get("clusters"))
    if not found:
        yield wrong(subject, f"has no outputs: it has not been brought up, and has the cluster {names}", up)
    elif OUTPUT not in found:
        yield wrong(subject, f"has no output `{OUTPUT}`: its file names no teams", up)
    elif lacking := [
        each.cluster for each in clusters if each.reference == reference and each.cluster not in there
    ]:
        yield wrong(
            subject, f"has no cluster {', '.join(lacking)}; it has {', '.join(sorted(there)) or 'none'}", up
        )
    else:
        yield fine(subject, f"has the cluster {names}")


def answers(probes: Sequence[Probe], seconds: float) -> list[list[Observation]]:
    """What each probe says, side by side. One that has not ended after ``seconds`` is left behind.

    Its thread is a daemon, so that nobody waits for it when the program ends.
    """
    given: list[list[Observation] | None] = [None] * len(probes)

    def ask(index: int, run: Callable[[], Iterable[Observation]], subject: str) -> None:
        try:
            given[index] = list(run())
        except Exception as error:
            said = f"could not be checked: {type(error).__name__}: {' '.join(str(error).split())}"
            given[index] = [unknown(subject, said)]

    threads = [
        threading.Thread(target=ask, args=(index, each.run, each.subject), daemon=True)
        for index, each in enumerate(probes)
    ]
    end = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return [
        [unknown(each.subject, f"gave no answer within {seconds:g} s")] if answer is None else answer
        for each, answer in zip(probes, given, strict=True)
    ]


# What a doctor shows: what is missing first, then what could not be checked, then how much is fine.


VERSION = 1
"""Of the JSON; it is raised where a key goes or means something else."""

TITLES: Mapping[State, str] = {State.WRONG: "missing or wrong", State.UNKNOWN: "could not be checked"}
STYLES: Mapping[State, str] = {State.WRONG: "red", State.UNKNOWN: "yellow"}


@dataclass(frozen=True)
class Told:
    """One observation of one or several ``stacks``, with their names in it."""

    stacks: tuple[str, ...]
    observation: Observation


def together(examined: Sequence[Examined]) -> list[Told]:
    """Every observation once, with the stacks that it is of; what most stacks have in common comes first."""
    stacks: dict[Observation, list[str]] = {}
    for each in examined:
        for observation in each.observations:
            stacks.setdefault(observation, []).append(each.stack)
    told = [Told(tuple(names), _named(observation, names)) for observation, names in stacks.items()]
    return sorted(told, key=lambda each: -len(each.stacks))


def _named(observation: Observation, stacks: Sequence[str]) -> Observation:
    """With the stacks' names in place of `STACK`: a loop of the shell where there are several."""
    if STACK not in observation.mend:
        return observation
    if len(stacks) == 1:
        return replace(observation, mend=observation.mend.replace(STACK, stacks[0]))
    names = " ".join(map(shlex.quote, stacks))
    return replace(observation, mend=f"for s in {names}; do {observation.mend.replace(STACK, '$s')}; done")


def show(examined: Sequence[Examined], console: Console) -> None:
    """Prints one table for what several stacks have in common, and one for each stack's own."""
    told = together(examined)
    for stacks in dict.fromkeys(each.stacks for each in told):
        own = [each.observation for each in told if each.stacks == stacks]
        if any(each.state is not State.FINE for each in own):
            _section(_title(stacks, len(examined)), own, console)
    for line in _summary(examined):
        console.print(line)


def _title(stacks: Sequence[str], count: int) -> str:
    if len(stacks) == count and count > 1:
        return f"All {count} stacks"
    return ", ".join(stacks)


def _section(title: str, observations: Sequence[Observation], console: Console) -> None:
    console.print(Text(title, style="bold"))
    for state in (State.WRONG, State.UNKNOWN):
        chosen = [observation for observation in observations if observation.state is state]
        if not chosen:
            continue
        table = Table(box=None, padding=(0, 1, 0, 0), show_header=False, expand=True)
        table.add_column(ratio=1)
        console.print(Text(f"  {TITLES[state]}", style=STYLES[state]))
        for each in chosen:
            table.add_row(Text.assemble((each.subject, "bold"), " ", each.said))
            if each.advice:
                table.add_row(Padding(Text(f"fix: {each.advice}"), (0, 0, 0, 2)))
            if each.mend:
                table.add_row(Padding(Text(f"$ {each.mend}", style="cyan", overflow="fold"), (0, 0, 0, 2)))
        console.print(Padding(table, (0, 0, 0, 4)))
    if good := sum(observation.state is State.FINE for observation in observations):
        console.print(Text(f"  fine: {good}", style="green"))
    console.print()


def _summary(examined: Sequence[Examined]) -> Iterable[Text]:
    """One line a stack: its counts."""
    for each in examined:
        counts = {state: sum(one.state is state for one in each.observations) for state in State}
        style = "red" if counts[State.WRONG] else "yellow" if counts[State.UNKNOWN] else "green"
        yield Text(
            f"{each.stack}: {counts[State.WRONG]} missing or wrong, {counts[State.UNKNOWN]} could not be checked, "
            f"{counts[State.FINE]} fine",
            style=style,
        )


def document(examined: Sequence[Examined]) -> str:
    """The same as JSON: every observation of every stack, fine ones included."""
    stacks = [
        {
            "stack": each.stack,
            "observations": [
                {
                    "state": str(one.state),
                    "subject": one.subject,
                    "said": one.said,
                    "mend": one.mend.replace(STACK, each.stack),
                    "advice": one.advice,
                }
                for one in each.observations
            ],
        }
        for each in examined
    ]
    return json.dumps({"version": VERSION, "stacks": stacks}, indent=2) + "\n"
