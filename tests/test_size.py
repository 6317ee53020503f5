"""Ceilings of what there is to read and to know, in `size.toml`: they only go down."""

import json
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.command.app import VERBS
from tests.support.checkout import ROOT

FILE = "size.toml"
CEILINGS: Mapping[str, Mapping[str, Any]] = tomllib.loads((ROOT / FILE).read_text(encoding="utf-8"))
COUNTED = ("keys of a stack file", "keys of pipeline.yaml", "policies", "verbs", "annotations")
"""What there is to know, of which one may grow by as much as others shrink in the same commit."""
FEWEST_LINES = 150
"""Lines that the modules of a room have on average, at least: no rule says how long one may be."""


def tracked(pattern: str) -> list[Path]:
    """The files of the checkout that match; links to them are left out."""
    return [path for path in ROOT.glob(pattern) if path.is_file() and "__pycache__" not in path.parts]


def modules_of(room: str) -> list[Path]:
    """The modules of a room: a folder with all below it that is no room of its own, or one file."""
    if room.endswith(".py"):
        return [ROOT / room]
    others = [ROOT / other for other in CEILINGS["rooms"] if other.startswith(f"{room}/")]
    paths = tracked(f"{room}/**/*.py")
    return [path for path in paths if not any(path.is_relative_to(other) for other in others)]


def lines_of(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def schema_keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value.get("properties", {})
        for part in value.values():
            yield from schema_keys(part)
    elif isinstance(value, list):
        for part in value:
            yield from schema_keys(part)


def rows(page: str, pattern: str) -> int:
    return len(re.findall(pattern, (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE))


def annotations() -> int:
    paths = tracked("slipway/**/*.py")
    names = re.compile(r'"(slipway/[a-z-]+)"')
    return len({name for path in paths for name in names.findall(path.read_text(encoding="utf-8"))})


SURFACE: Mapping[str, Callable[[], int]] = {
    "keys of a stack file": lambda: rows("settings.md", r"^\| `"),
    "keys of pipeline.yaml": lambda: len(
        [*schema_keys(json.loads((ROOT / "docs/pipeline.schema.json").read_text(encoding="utf-8")))]
    ),
    "policies": lambda: rows("policies.md", r"^\| `"),
    "verbs": lambda: len(VERBS),
    "annotations": annotations,
    "words of docs": lambda: sum(
        len(path.read_text(encoding="utf-8").split()) for path in [*tracked("docs/*.md"), ROOT / "README.md"]
    ),
    "lines of tests": lambda: lines_of(tracked("tests/**/*.py")),
}


@pytest.mark.parametrize("room", CEILINGS["rooms"])
def test_a_room_grows_no_larger(room: str) -> None:
    paths, ceiling = modules_of(room), CEILINGS["rooms"][room]
    assert paths
    assert lines_of(paths) <= ceiling["lines"], (
        f"take lines out of {room}, or lower another room's ceiling by more"
    )
    assert len(paths) <= ceiling["modules"], f"{room} has more modules"
    if len(paths) > 1 and not ceiling.get("small"):
        assert lines_of(paths) / len(paths) >= FEWEST_LINES, (
            f"the modules of {room} are too small to be worth a file"
        )


@pytest.mark.parametrize("what", SURFACE)
def test_what_people_have_to_know_grows_no_larger(what: str) -> None:
    assert SURFACE[what]() <= CEILINGS["surface"][what]


def test_every_module_is_in_a_room() -> None:
    held = {path for room in CEILINGS["rooms"] for path in modules_of(room)}
    tops = ("benchmarks", "ci", "slipway", "workloads")
    code = {path for top in tops for path in tracked(f"{top}/**/*.py")}
    assert {path.relative_to(ROOT).as_posix() for path in code - held} == set()


def test_no_ceiling_is_raised_without_lowering_another() -> None:
    command = ["git", "log", "-n", "2", "--format=%H", "--", FILE]
    commits = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    if len(commits) < 2:
        pytest.skip("there is no earlier version of the file in this checkout")
    shown = subprocess.run(
        ["git", "show", f"{commits[1]}:{FILE}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    earlier = tomllib.loads(shown.stdout)
    for measure in ("lines", "modules"):
        now, before = (sum(room[measure] for room in version["rooms"].values()) for version in (CEILINGS, earlier))
        assert now <= before, measure
    for what in {*earlier["surface"]} - {*COUNTED}:
        assert CEILINGS["surface"][what] <= earlier["surface"][what], what
    # A verb more is one key less.
    now, before = (sum(version["surface"][what] for what in COUNTED) for version in (CEILINGS, earlier))
    assert now <= before, COUNTED
