"""What two results of a step differ in: commit, code, image, parameters, inputs, numbers."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from slipway.features.history.paid import KEPT, Paid, paid_for
from slipway.features.history.results import Result, Unfinished, inputs, mark_of, numbers, unfinished
from slipway.infra.commands import command
from slipway.infra.places import PACKAGE
from slipway.infra.review.stack import mapping, mappings, strings, text, texts

DIGITS = 10
"""Characters of a commit and of a digest that are shown."""

_SHOWN = 8
"""Files that are named."""


class HistoryError(Exception):
    """What keeps runs from being shown. The text says why, and what to do about it."""


@dataclass(frozen=True)
class History:
    """The results in the ``store``, the newest first, of the stack whose checkout is at ``root``.

    ``declared`` are the results that its pipelines declare by ``<pipeline>/<step>``, for those of which nobody
    noted them.
    """

    store: Path
    results: Sequence[Result]
    root: Path
    declared: Mapping[str, Sequence[Mapping[str, Any]]]

    def numbers(self, result: Result) -> dict[str, float]:
        """The numbers among the declared results, by name."""
        of_step = self.declared.get(f"{result.pipeline}/{result.step}", ())
        return numbers(self.store, result, mappings(result.facts.get("results")) or of_step)

    @cached_property
    def paid(self) -> Mapping[str, Paid]:
        """What GPU nodes were paid for, by the path of the result; without those of which it is not known."""
        return paid_for(self.results)

    @cached_property
    def unfinished(self) -> Sequence[Unfinished]:
        """The runs without a result that a limit of the stack ended, the newest first."""
        return unfinished(self.store)

    def find(self, name: str) -> list[Result]:
        """The results that ``name`` means: a directory below the store, the beginning of one's digest, or the time
        of a run by the clock, which has one of each step. Raises HistoryError.
        """
        if marked := [result for result in self.results if result.mark and result.mark == name]:
            return marked
        matches = [result for result in self.results if name and _may_be(name, result)]
        exact = [result for result in matches if name in (result.path, _name(result))]
        if len(exact or matches) == 1:
            return exact or matches
        if matches:
            names = ", ".join(result.path for result in matches[:_SHOWN])
            raise HistoryError(f"{name!r} may be {len(matches)} results: name one of {names}")
        for run in self.unfinished:
            if name and name in (run.path, run.path.rpartition("/")[2], mark_of(run.path)):
                raise HistoryError(f"{run.path} has no result, {run.reached.says}; {run.reached.fix}")
        raise HistoryError(
            f"the store has no result {name!r}; `{command('show', 'runs')}` lists those that it has"
        )


def _may_be(name: str, result: Result) -> bool:
    """Whether ``name`` is the end of the result's path, or becomes one with more of a digest."""
    folder, _, beginning = name.rpartition("/")
    place = result.path.rpartition("/")[0]
    return _name(result).startswith(beginning) and f"/{place}".endswith(f"/{folder}" if folder else "")


def _name(result: Result) -> str:
    return result.path.rpartition("/")[2]


def pairs(history: History, first: str, second: str) -> list[tuple[Result, Result]]:
    """The results to compare: of one step each, in the order of the steps' names. Raises HistoryError."""
    ones, others = (
        {(result.pipeline, result.step): result for result in history.find(name)} for name in (first, second)
    )
    common = sorted(ones.keys() & others.keys())
    if not common:
        steps = " and ".join(f"{'/'.join(min(of))}" for of in (ones, others))
        raise HistoryError(f"{first} and {second} are of different steps, {steps}: name two of one step")
    return [(ones[step], others[step]) for step in common]


@dataclass(frozen=True)
class Difference:
    """One thing that two results differ in, or a number that both have."""

    what: str
    one: str
    other: str
    change: str = ""


def compare(history: History, one: Result, other: Result) -> Iterator[Difference]:
    """What the results differ in, and all their numbers; what an input differs in follows it."""
    if one.made != other.made:
        yield Difference("made", when(one.made), when(other.made))
    if commit(one) != commit(other):
        yield Difference("commit", commit(one), commit(other))
    yield from _code(history, one, other)
    for fact in ("stack", "image", "pool"):
        values = [result.pool if fact == "pool" else text(result.facts.get(fact)) for result in (one, other)]
        if values[0] != values[1]:
            yield Difference(fact, values[0] or "unknown", values[1] or "unknown")
    yield from _settings(one, other)
    yield from _inputs(history, one, other)
    yield from _data(one, other)
    numbers_of = [history.numbers(result) for result in (one, other)]
    for name in dict.fromkeys([*numbers_of[0], *numbers_of[1]]):
        before, after = (values.get(name) for values in numbers_of)
        change = f"{after - before:+.6g}" if before is not None and after is not None else ""
        yield Difference(name, number(before), number(after), change)
    if one.seconds is not None or other.seconds is not None:
        yield Difference("seconds", number(one.seconds, 0), number(other.seconds, 0))
    if (prices := [price(result) for result in (one, other)]) != ["", ""]:
        yield Difference("price", prices[0] or "unknown", prices[1] or "unknown")
    stops = ["; ".join(dict.fromkeys(reached.says for reached in result.stops)) for result in (one, other)]
    if any(stops):
        yield Difference("stopped before", *(words or "never" for words in stops))
    paid = [history.paid.get(result.path) for result in (one, other)]
    if any(paid):
        yield Difference("paid ÷ useful", *(paid_ratio(of) or "unknown" for of in paid))
        if any(of and of.dollars is not None for of in paid):
            yield Difference("paid", *(_dollars(of.dollars if of else None) or "unknown" for of in paid))
        for cause in dict.fromkeys(cause for of in paid if of for cause in of.seconds):
            told = [f"{of.seconds.get(cause, 0.0):.0f} s" if of else "unknown" for of in paid]
            setting = ", by its setting after the last pod" if cause == KEPT else ""
            yield Difference(f"paid for {cause}{setting}", told[0], told[1])


def _settings(one: Result, other: Result) -> Iterator[Difference]:
    before, after = parameters(one), parameters(other)
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield Difference(name, before.get(name, ""), after.get(name, ""))


def _inputs(history: History, one: Result, other: Result) -> Iterator[Difference]:
    digests = [result.manifest.inputs for result in (one, other)]
    known = [inputs(result, history.results) for result in (one, other)]
    for name in dict.fromkeys([*digests[0], *digests[1]]):
        if digests[0].get(name) == digests[1].get(name):
            continue
        paths = [
            of[name].path if name in of else all_of.get(name, "")[:DIGITS]
            for of, all_of in zip(known, digests, strict=True)
        ]
        yield Difference(f"input {name}", paths[0], paths[1])
        if all(name in of for of in known):
            before, after = (of[name] for of in known)
            yield from (
                Difference(f"{name}: {difference.what}", difference.one, difference.other, difference.change)
                for difference in compare(history, before, after)
                if difference.what != "made"
            )


def _data(one: Result, other: Result) -> Iterator[Difference]:
    """The folders of buckets and of the store that only one of them read, or that changed in between.

    Nothing where that is not known of one of them.
    """
    if "data" not in one.facts or "data" not in other.facts:
        return
    sides = [mapping(result.facts["data"]) for result in (one, other)]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        if sides[0].get(name) != sides[1].get(name):
            yield Difference(f"data {name}", *(_place(texts(side.get(name))) for side in sides))


def _place(data: Sequence[str]) -> str:
    """Address and digest of data; empty where there is none."""
    return " ".join([*data[:1], *(digest[:DIGITS] for digest in data[1:])]).strip()


def _code(history: History, one: Result, other: Result) -> Iterator[Difference]:
    before, after = (strings(result.facts.get("code")) for result in (one, other))
    if before and after:
        names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    else:
        commits = [text(result.facts.get("commit")) for result in (one, other)]
        names = _files_between(history.root, *commits) if all(commits) and commits[0] != commits[1] else []
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield Difference("code", "", f"{', '.join(names[:_SHOWN])}{more}")


def _files_between(root: Path, one: str, other: str) -> list[str]:
    """The files that pods ship and that differ between two commits; none where this clone does not have both."""
    command = ["git", "-C", str(root), "diff", "--name-only", one, other, "--", "workloads", PACKAGE]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def parameters(result: Result) -> dict[str, str]:
    """What the step's program was told, by name: the options of its command line, else its settings."""
    settings = dict(result.manifest.settings)
    command = settings.pop("command", None)
    told = _options(texts(command))
    # Of these the digests of code and items say nothing to people.
    told |= {name: _plain(value) for name, value in settings.items() if name not in ("code", "fingerprint")}
    best = mapping(result.manifest.summary.get("best"))
    return told | {f"best of {name}": text(mapping(chosen).get("is")) for name, chosen in best.items()}


def _options(words: Sequence[str]) -> dict[str, str]:
    told: dict[str, str] = {}
    option = ""
    for index, word in enumerate(words):
        if word.startswith("--"):
            option, _, value = word.partition("=")
            told[option] = value
            option = "" if value else option
        elif option:
            told[option] = f"{told[option]} {word}".strip()
        else:
            told[f"word {index}"] = word
    return told


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def commit(result: Result) -> str:
    """The commit that a result was made with, shortened; empty where nobody knows it."""
    name = text(result.facts.get("commit"))[:DIGITS]
    return f"{name} and changes" if name and result.facts.get("changed") else name


def price(result: Result) -> str:
    """What the nodes cost for as long as its pods ran, at list prices; empty where nobody knows it."""
    return _dollars(result.dollars)


def _dollars(amount: float | None) -> str:
    return "" if amount is None else f"${amount:.2f}"


def paid_ratio(paid: Paid | None) -> str:
    """What the nodes were paid for, over what was useful of it; empty where nobody knows it."""
    return "" if paid is None or paid.ratio is None else f"{paid.ratio:.{2 if paid.ratio < 10 else 0}f}"


def when(made: float) -> str:
    """A time in UTC, to the minute."""
    return f"{datetime.fromtimestamp(made, UTC):%Y-%m-%d %H:%M}"


def number(value: float | None, digits: int | None = None) -> str:
    """A number as text; empty where there is none."""
    if value is None:
        return ""
    return f"{value:.6g}" if digits is None else f"{value:.{digits}f}"
