"""What a doctor shows: what is missing first, then what could not be checked, then how much is fine."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from infra.review.observation import STACK, Observation, State
from tools.doctor.examination import Examined

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
        chosen = [each for each in observations if each.state is state]
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
    if good := sum(each.state is State.FINE for each in observations):
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
