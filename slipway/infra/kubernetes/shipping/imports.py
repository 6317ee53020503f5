"""Which modules a Python file imports, found without running it."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from slipway.infra.kubernetes.shipping.sizes import ShippingError

MISSING = frozenset({"ImportError", "ModuleNotFoundError"})
"""What a program catches that does without a module; `ANY` only around imports and nothing else."""

ANY = frozenset({"Exception", "BaseException"})

PARENT_UNKNOWN = "attempted relative import with no known parent package"
BEYOND_TOP = "attempted relative import beyond top-level package"
"""What Python says of dots before a name that lead out of all packages (importlib/_bootstrap.py, Python 3.11 to
3.13)."""


@dataclass(frozen=True)
class Import:
    """A module that a file names. ``level`` are the dots that the file has before it: ``module`` is its whole name
    all the same, as far as these lead to a folder.

    ``member`` is ``from a import b`` where b may be a mere name in a. ``certain`` is False where the program does
    without: where it catches that the module is missing, or imports it for type checkers or in a package alone.
    """

    module: str
    line: int
    level: int = 0
    member: bool = False
    certain: bool = True


@cache  # Most steps ship the same files, and parsing them is most of the work.
def imports(source: bytes, name: str, package: str) -> tuple[Import, ...]:
    """What the file ``name`` of ``package`` imports; raises ShippingError where Python cannot read it."""
    try:
        tree = ast.parse(source, name)
    except (SyntaxError, ValueError) as error:
        raise ShippingError(name, f"Python cannot read it: {error}", "correct the file") from error
    return tuple(_find_imports(tree, package.split(".") if package else []))


def _find_imports(tree: ast.Module, package: Sequence[str]) -> Iterator[Import]:
    spared = {inner for node in ast.walk(tree) for part in _spared(node) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        certain = node not in spared
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, certain=certain)
        elif isinstance(node, ast.ImportFrom):
            around = package[: max(0, len(package) - node.level + 1)] if node.level else ()
            base = ".".join([*around, *filter(None, [node.module])])
            if base:
                yield Import(base, node.lineno, node.level, certain=certain)
            for alias in node.names:
                whole = ".".join(filter(None, [base, alias.name.strip("*")]))
                yield Import(whole, node.lineno, node.level, member=True, certain=certain)


def _spared(node: ast.AST) -> Sequence[ast.AST]:
    """The statements of ``node`` that may fail, or that are for others than the program that is started."""
    if isinstance(node, ast.Try) and any(_recovers(handler, node.body) for handler in node.handlers):
        return [*node.body, *node.handlers, *node.orelse]
    if isinstance(node, ast.With):
        words = {word for item in node.items for word in _words(item)}
        return node.body if "suppress" in words and words & MISSING else []
    if isinstance(node, ast.If):
        words = _words(node.test)
        if "TYPE_CHECKING" in words:
            return node.body if isinstance(node.test, ast.Name | ast.Attribute) else []
        if "__package__" in words or ("__name__" in words and node.orelse):
            return [*node.body, *node.orelse]
    return []


def _recovers(handler: ast.ExceptHandler, body: Sequence[ast.stmt]) -> bool:
    """Whether the program goes on where a module that ``body`` imports is missing."""
    words = _words(handler.type) if handler.type else ANY
    alone = all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in body)
    return bool(words & MISSING or (alone and words & ANY)) and not isinstance(handler.body[-1], ast.Raise)


def _words(node: ast.AST) -> set[str]:
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return names | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


NO_MEMBER = ", but there is no such module, and its package has no such name"


def leads_out(name: str, imported: Import, depth: int, fix: str = "") -> ShippingError:
    """The error of the file ``name`` whose import goes up more packages than the ``depth`` that it is in."""
    line = f"line {imported.line}"
    reason = f"{line} imports from the file's package, and it is in none: Python says `{PARENT_UNKNOWN}`"
    if depth:
        reason = (
            f"{line} goes {imported.level} packages up, and the file is in {depth}: Python says `{BEYOND_TOP}`"
        )
    return ShippingError(name, reason, fix or "name the module without dots: `import x` or `from x import y`")


def may_bind(source: bytes, name: str) -> bool:
    """Whether a package whose ``__init__.py`` is ``source`` may have ``name``, which is no module of it: the file
    has the word, or gives names that it does not spell."""
    unseen = rb"\*|\b(?:__getattr__|__path__|__dict__|globals|locals|vars|setattr|exec|modules)\b"
    return re.search(rb"\b%s\b|%s" % (re.escape(name.encode()), unseen), source) is not None


def names_its_package(source: bytes) -> bool:
    """Whether a program says itself which package it is in (peps.python.org/pep-0366, seen in November 2026)."""
    return re.search(rb"\b__package__\s*=(?!=)", source) is not None
