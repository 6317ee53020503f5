"""What a mutated file is: another program, one place away from the one that is tested."""

import ast
from pathlib import Path

import pytest

from tests import mutants
from tests.support.checkout import ROOT
from tests.support.tree import write_tree


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", "(a <= b)"),
        ("a not in b", "(a in b)"),
        ("a is None", "(a is not None)"),
        ("a and b", "(a or b)"),
        ("not a", "(a)"),
        ("7", "(8)"),
    ],
)
def test_an_expression_has_one_mutation(before: str, after: str) -> None:
    content = f"é = '€'\nx = f'{{1}}', True, {before}\n".encode()
    [mutation] = mutants.mutations(content)
    assert mutation.line == 2
    assert mutation.applied(content).decode() == f"é = '€'\nx = f'{{1}}', True, {after}\n"


def test_every_mutant_is_python() -> None:
    content = (ROOT / "infra" / "schema" / "quantities.py").read_bytes()
    mutations = mutants.mutations(content)
    assert mutations
    for mutation in mutations:
        assert ast.dump(ast.parse(mutation.applied(content))) != ast.dump(ast.parse(content))


def test_the_same_seed_mutates_the_same_places(tmp_path: Path) -> None:
    write_tree(
        tmp_path, {f"{room}/{name}.py": "a = 1, b < 2, not c\n" for room in mutants.ROOMS for name in "xyz"}
    )
    assert mutants.chosen(tmp_path, 5, 1) == mutants.chosen(tmp_path, 5, 1)
    assert mutants.chosen(tmp_path, 5, 1) != mutants.chosen(tmp_path, 5, 2)
