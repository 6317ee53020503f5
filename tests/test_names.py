"""Variables are named by nouns of the field in every room that is clean already."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.support.checkout import ROOT

WORDS = frozenset({"each", "found", "own", "there", "asked"})
"""Names that do not say what a variable holds."""

CLEAN = (
    "benchmarks",
    "ci",
    "slipway",
    "workloads",
    "tests/benchmarks",
    "tests/ci",
    "tests/docs",
    "tests/features",
    "tests/infra",
    "tests/rehearse/cluster",
    "tests/rehearse/machine",
    "tests/rehearse/output",
    "tests/workloads/resnet",
    "tests/runtime",
    "tests/workloads/fraud",
    "tests/workloads/mnist",
)
"""Add a room once no variable in it has one of these names."""


def variables(source: str) -> Iterator[tuple[int, str]]:
    """Each place where ``source`` binds one of `WORDS`: the line and the name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name, line = node.id, node.lineno
        elif isinstance(node, ast.arg):
            name, line = node.arg, node.lineno
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler):
            name, line = node.name, node.lineno
        else:
            continue
        if name in WORDS:
            yield line, name


@pytest.mark.parametrize("room", CLEAN)
def test_variables_are_named_after_what_they_hold(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files, f"{room} has no modules: correct CLEAN"
    bad = [
        (PurePosixPath(file.relative_to(ROOT)), line, name)
        for file in files
        for line, name in variables(file.read_text(encoding="utf-8"))
    ]
    counts = ", ".join(f"{name}: {count}" for name, count in Counter(name for _, _, name in bad).most_common())
    places = "\n".join(f"{file}:{line}: {name}" for file, line, name in bad)
    assert not bad, (
        f"{room} has variables whose name does not say what they hold ({counts}). A reader who meets `each` has "
        f"to go back to the loop; `step` or `pool` says it where it stands. Take the noun of the field:\n{places}"
    )


@pytest.mark.parametrize(
    "source",
    [
        "for each in pools: pass",
        "[found for found in findings]",
        "def count(own: int) -> int: ...",
        "lambda each: each.name",
        "if (asked := requests(job)): pass",
        "def count(*, there): ...",
        "match step:\n    case str() as found: pass",
        "try: pass\nexcept OSError as found: pass",
        "with open(path) as (found, other): pass",
    ],
)
def test_every_way_to_bind_a_name_is_seen(source: str) -> None:
    assert [name for _, name in variables(source)]


def test_words_of_other_kinds_are_left_alone() -> None:
    assert not [*variables("record.found = self.each(own=pool)\nprint('there', found)")]
