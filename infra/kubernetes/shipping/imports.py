"""Which modules a Python file imports, found without running it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from slipway.infra.kubernetes.shipping.sizes import ShippingError


@dataclass(frozen=True)
class Import:
    """A module that a file names. ``certain`` is False for ``from a import b`` where b may be a mere name in a,
    and ``relative`` is True where the file names it from its own place."""

    module: str
    line: int
    certain: bool
    relative: bool = False


@cache  # Most steps ship the same files, and parsing them is most of the work.
def imports(source: bytes, name: str, module: str, *, is_package: bool) -> tuple[Import, ...]:
    """What the file ``name``, which is ``module``, imports; raises ShippingError where Python cannot read it."""
    try:
        tree = ast.parse(source, name)
    except (SyntaxError, ValueError) as error:
        raise ShippingError(name, f"Python cannot read it: {error}", "correct the file") from error
    return tuple(_find_imports(tree, module if is_package else module.rpartition(".")[0]))


def _find_imports(tree: ast.Module, package: str) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, certain=True)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            relative = node.level > 0
            yield Import(base, node.lineno, certain=True, relative=relative)
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", node.lineno, certain=False, relative=relative)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if node.level == 0:
        return node.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)
