"""Which results of old runs are deleted: never one to which something refers, wherever the program is killed."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slipway.workloads.runtime import history
from slipway.workloads.runtime.history import Result
from slipway.workloads.runtime.store import MANIFEST, Manifest, digest_of
from slipway.workloads.schedule import retention
from slipway.workloads.schedule.retention import LEAST, Rule, main

STEPS = ("prepare", "train", "predict")
NOW = time.time()


def mark(days: float) -> str:
    """The name of the run by the clock of so many days ago."""
    return f"{datetime.fromtimestamp(NOW, UTC) - timedelta(days=days):%Y%m%d-%H%M}"


@dataclass
class Store:
    """A store with the results of two pipelines, written as steps publish them."""

    root: Path
    made: dict[str, Manifest] = field(default_factory=dict)

    def add(self, path: str, content: str, *inputs: Manifest, words: Sequence[str] = ()) -> Manifest:
        directory = self.root / path
        directory.mkdir(parents=True)
        (directory / "data").write_text(content)
        digests = {f"input-{number}": manifest.digest for number, manifest in enumerate(inputs)}
        files = {"data": digest_of(directory / "data")}
        self.made[path] = Manifest(path.split("/")[1], files, digests, {"command": list(words)})
        (directory / MANIFEST).write_bytes(self.made[path].encode())
        return self.made[path]

    def run(
        self, name: str, content: str, *, steps: int = 3, reads: Sequence[Manifest] = (), named: str = ""
    ) -> None:
        """A run of the pipeline, whose last step may read results and name directories of other ones."""
        inputs: list[Manifest] = []
        for step in STEPS[:steps]:
            more, words = (reads, [named]) if step == STEPS[-1] else ((), [])
            inputs = [self.add(f"shop/{step}/{name}", f"{step} {content}", *inputs, *more, words=words)]
        if steps < len(STEPS):
            (self.root / f"shop/{STEPS[steps]}/{name}").mkdir(parents=True)
            (self.root / f"shop/{STEPS[steps]}/{name}/checkpoint").write_text("half")

    def whole(self) -> set[str]:
        """The results that are there with all their files, whose contents nothing here changes."""
        return {path for path in self.made if {"data", MANIFEST} <= self._names(path)}

    def _names(self, path: str) -> set[str]:
        try:
            return {entry.name for entry in (self.root / path).iterdir()}
        except FileNotFoundError:
            return set()

    def retain(self, runs: int, days: float, *kept: str) -> None:
        words = ["--store", str(self.root), "--pipeline", "shop", "--runs", str(runs), "--days", str(days)]
        main([*words, *(f"--step={step}" for step in STEPS), *(f"--keep={run}" for run in kept)])


def nights(store: Store, count: int) -> list[str]:
    names = [f"aaaaaaaaaa-{mark(days)}" for days in range(count, 0, -1)]
    for number, name in enumerate(names):
        store.run(name, str(number))
    return names


def paths(names: Sequence[str]) -> set[str]:
    return {f"shop/{step}/{name}" for step in STEPS for name in names}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_the_newest_runs_and_the_young_ones_stay_and_records_go_with_results(store: Store) -> None:
    names = nights(store, 20)
    (store.root / f".usage/shop/train/{names[0]}").mkdir(parents=True)
    store.add("shop/train/aaaaaaaaaa", "of pulumi up")
    store.retain(12, 15)
    assert store.whole() == paths(names[5:]) | {"shop/train/aaaaaaaaaa"}, "the last 15 days are more than 12 runs"
    store.retain(12, 1)
    assert store.whole() == paths(names[8:]) | {"shop/train/aaaaaaaaaa"}
    assert not list((store.root / ".usage/shop/train").iterdir())
    store.retain(1, 1)
    assert store.whole() == paths(names[-LEAST:]) | {"shop/train/aaaaaaaaaa"}


def test_nights_that_failed_count_for_none_and_go_once_they_are_old(store: Store) -> None:
    for days in range(30, 20, -1):
        store.run(f"aaaaaaaaaa-{mark(days)}", str(days))
    for days in range(20, 0, -1):
        store.run(f"aaaaaaaaaa-{mark(days)}", str(days), steps=1)
    before = store.whole()
    store.retain(10, 1)
    assert store.whole() == before, "the newest ten good runs are older than all that failed"
    store.run(f"aaaaaaaaaa-{mark(0.5)}", "0")
    store.run(f"aaaaaaaaaa-{mark(40)}", "40", steps=2)
    store.retain(10, 1)
    assert not list(store.root.glob(f"shop/*/*-{mark(40)}")), "with what a failed step left"
    assert f"shop/train/aaaaaaaaaa-{mark(30)}" not in store.whole()
    assert f"shop/train/aaaaaaaaaa-{mark(29)}" in store.whole()


def test_what_is_referred_to_stays_and_is_said_before_anything_goes(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    names = nights(store, 14)
    model = store.made[f"shop/train/{names[0]}"]
    store.add("site/publish/bbbbbbbbbb", "a model", model)
    store.add("site/report/bbbbbbbbbb", "a page", words=[f"/store/shop/predict/{names[1]}/data"])
    store.retain(10, 1, names[2].partition("-")[2])
    stayed = store.whole()
    assert stayed >= {f"shop/train/{names[0]}", f"shop/prepare/{names[0]}", *paths(names[1:3])}
    assert f"shop/predict/{names[0]}" not in stayed
    assert not paths([names[3]]) & stayed
    printed = capsys.readouterr().out
    assert f"shop/predict/{names[0]}" in printed
    assert f"Stays: shop/train/{names[0]}, to which site/publish/bbbbbbbbbb refers" in printed


class KilledError(Exception):
    """Stands for SIGKILL: nothing is done after it."""


def killing(after: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Lets a number of calls through, of all functions that are wrapped; the one after it kills."""
    calls: Iterator[int] = iter(range(after))

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if next(calls, None) is None:
                raise KilledError
            return function(*arguments)

        return call

    return wrap


def require_references(store: Store, before: set[str]) -> None:
    """No result that is there was made from, or names, one that was there before and is not any more."""
    after = store.whole()
    digests = {store.made[path].digest for path in after}
    lost = {store.made[path].digest for path in before} - digests
    for path in after:
        manifest = store.made[path]
        assert not lost & {*manifest.inputs.values()}, path
        named = " ".join(manifest.settings["command"])
        assert not any(other in named for other in before - after), path
    for result in history.results(store.root):
        assert result.path in after, "what has a manifest has its files"


@pytest.mark.slow
@settings(max_examples=200, deadline=None, phases=[Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32), kill=st.integers(0, 40), runs=st.integers(1, 14), days=st.integers(1, 20))
def test_nothing_that_is_referred_to_is_ever_deleted(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kill: int, runs: int, days: int
) -> None:
    chance = random.Random(seed)
    store = Store(tmp_path_factory.mktemp("retention") / "store")
    for days_ago in range(chance.randint(14, 22), 0, -1):
        earlier = sorted(store.made)
        clock = chance.random() < 0.85
        name = f"{chance.choice('ab') * 10}-{mark(days_ago)}" if clock else f"{days_ago:010x}"
        picked = chance.sample(earlier, min(len(earlier), chance.choice((0, 0, 1, 3))))
        reads = [store.made[path] for path in picked]
        named = f"--like=/store/{chance.choice(earlier)}" if earlier and chance.random() < 0.2 else ""
        # Nights with the same content have equal digests.
        content = chance.choice(("same", str(days_ago)))
        store.run(name, content, steps=chance.choice((1, 2, 3, 3, 3, 3, 3, 3)), reads=reads, named=named)
        if chance.random() < 0.1:
            store.add(f"site/publish/{days_ago:010x}", "model", store.made[chance.choice(sorted(store.made))])
    before = store.whole()
    always = {path for path in before if not history.mark_of(path) or not path.startswith("shop/")}
    rule = Rule(runs, days, frozenset(STEPS))
    results = history.results(store.root)
    directories = [path.relative_to(store.root).as_posix() for path in store.root.glob("shop/*/*")]
    planned = retention.make_plan(rule, "shop", results, directories, NOW)
    with pytest.MonkeyPatch.context() as patch:
        wrap = killing(kill)
        patch.setattr(retention, "remove_file", wrap(retention.remove_file))
        patch.setattr(retention.shutil, "rmtree", wrap(emptying))
        try:
            store.retain(runs, days)
        except KilledError:
            require_references(store, before)
        else:
            assert store.whole() == before - set(planned.paths)
    store.retain(runs, days)
    require_references(store, before)
    assert store.whole() >= always
    assert store.whole() == before - set(planned.paths), "the next call ends what was begun"
    newest = sorted({history.mark_of(path) for path in before} - {""})[-LEAST:]
    assert {path for path in before if history.mark_of(path) in newest} <= store.whole()
    assert not [path for path in planned.paths if (store.root / path).exists()]


def emptying(directory: Path) -> None:
    """As `shutil.rmtree`, which takes a file at a time."""
    for path in sorted(directory.iterdir()):
        path.unlink()
    directory.rmdir()


def test_a_result_goes_before_what_it_was_made_from() -> None:
    first = Manifest("prepare", {})
    second = Manifest("train", {}, {"data": first.digest})
    old = [
        Result(f"shop/prepare/aaaaaaaaaa-{mark(30)}", 0, first),
        Result(f"shop/train/aaaaaaaaaa-{mark(30)}", 0, second),
    ]
    good = [
        Result(f"shop/{step}/bbbbbbbbbb-{mark(days)}", 0, Manifest(step, {}, {}, {"day": days}))
        for days in range(1, LEAST + 1)
        for step in STEPS
    ]
    planned = retention.make_plan(Rule(10, 1, frozenset(STEPS)), "shop", [*old, *good], [], NOW)
    assert [path.split("/")[1] for path in planned.paths] == ["train", "prepare"]
