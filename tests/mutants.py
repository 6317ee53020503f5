"""Mutated code: whether the tests notice that one place of the package says something else.

    python -m tests.mutants --count 60 --seed 1
    python -m tests.mutants --count 5 --room slipway/infra/schema -- -m "not long" tests/infra/schema

Comparisons are turned round, numbers are one larger, `and` and `or` stand for each other, and a `not` is gone: one
place at a time, in a copy of the working tree. What follows `--` is for pytest, by default what `make test` runs.
Those tests have to pass in the copy before anything is mutated. Which places are mutated depends on the seed and
the code alone. Each mutant is printed as it is tried; the process exits with 1 where one survives.
"""

import argparse
import ast
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.checkout import copy_checkout
from tests.support.clones import git

ROOMS = tuple(f"slipway/{room}" for room in ("infra", "engine", "evaluated", "policies", "preview", "rehearse"))

LANE = ("-m", "not slow and not long")

PATIENCE = 3
"""How many times as long as without a mutation the tests may take: one that never ends is caught, too."""

TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True)
class Mutation:
    """One place of a file, as byte offsets, with what is written there instead."""

    begin: int
    end: int
    line: int
    before: str
    after: str

    def applied(self, content: bytes) -> bytes:
        return content[: self.begin] + self.after.encode() + content[self.end :]


def mutate(node: ast.expr) -> ast.expr | None:
    """What stands for the expression in a mutant; None where it has no mutation."""
    match node:
        case ast.Compare(left, [operator], [right]):
            return ast.Compare(left, [TURNED[type(operator)]()], [right])
        case ast.BoolOp(ast.And(), values):
            return ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(ast.Or(), values):
            return ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.Constant(int() as number) if not isinstance(number, bool):
            return ast.Constant(number + 1)
        case _:
            return None


def expressions(node: ast.AST) -> Iterator[ast.expr]:
    """All of a file but annotations, patterns, and f-strings, whose places Python 3.11 does not know."""
    if isinstance(node, ast.JoinedStr | ast.pattern):
        return
    if isinstance(node, ast.expr):
        yield node
    annotations = (getattr(node, "annotation", None), getattr(node, "returns", None))
    for child in ast.iter_child_nodes(node):
        if child not in annotations:
            yield from expressions(child)


def mutations(content: bytes) -> list[Mutation]:
    """Every mutation of a Python file."""
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    places: list[Mutation] = []
    for node in expressions(ast.parse(content)):
        other = mutate(node)
        if other is None or node.end_lineno is None or node.end_col_offset is None:
            continue
        begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        places.append(Mutation(begin, end, node.lineno, content[begin:end].decode(), f"({ast.unparse(other)})"))
    return places


def chosen(root: Path, count: int, seed: int, rooms: Sequence[str] = ROOMS) -> list[tuple[Path, Mutation]]:
    """Mutations of the files of ``rooms``, folders below ``root``, each place as probable as any other."""
    files = sorted(path for room in rooms for path in (root / room).rglob("*.py"))
    places = [(path.relative_to(root), mutation) for path in files for mutation in mutations(path.read_bytes())]
    return random.Random(seed).sample(places, count)


def passes(clone: Path, arguments: Sequence[str], timeout: float | None) -> bool:
    """Whether the tests pass in the clone within ``timeout`` seconds; without a limit, says what does not pass."""
    options = ["-q", "-x", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            command, cwd=clone, env=environment, check=False, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode and timeout is None:
        print(done.stdout[-3000:], done.stderr[-3000:], file=sys.stderr)
    return done.returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="Mutates places of the code, one at a time."
    )
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", action="append", help="a folder to mutate, by default any of `ROOMS`")
    parser.add_argument("pytest", nargs="*", default=LANE, help="which tests are run")
    options = parser.parse_args(arguments)
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        clone = copy_checkout(Path(folder) / "slipway")
        git(clone, "init", "--quiet")
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", "--message", "all")
        begun = time.monotonic()
        if not passes(clone, options.pytest, None):
            print("The tests have to pass before anything is mutated", file=sys.stderr)
            return 2
        longest = PATIENCE * (time.monotonic() - begun)
        for path, mutation in chosen(clone, options.count, options.seed, options.room or ROOMS):
            file = clone / path
            content = file.read_bytes()
            file.write_bytes(mutation.applied(content))
            survived = passes(clone, options.pytest, longest)
            file.write_bytes(content)
            survivors += survived
            change = " ".join(f"{mutation.before} -> {mutation.after}".split())
            print(f"{'SURVIVED' if survived else 'caught'} {path}:{mutation.line}: {change}", flush=True)
    print(f"{options.count - survivors} of {options.count} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
