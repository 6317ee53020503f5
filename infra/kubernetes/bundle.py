"""The bundle: the files that a workload module needs from this repository, found without running them."""

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from infra.kubernetes.shipped_files import Files, ShippingError, require_fit


@dataclass(frozen=True)
class Import:
    """A module that a file names. ``certain`` is False for ``from a import b`` where b may be a mere name in a,
    and ``relative`` is True where the file names it from its own place."""

    module: str
    line: int
    certain: bool
    relative: bool = False


def collect(modules: Sequence[str], root: Path, extra: Sequence[str] = ()) -> Files:
    """The files of ``modules`` and of all that they import from their own top-level packages.

    Follows every ``import`` statement wherever it stands, and takes the ``__init__.py`` of each package on the
    way, as Python would. Modules that are imported by computed names, and data files, are not seen. ``extra`` are
    paths of further files. Line ends become ``\\n``, so that a checkout on Windows gives the same digest.

    Raises ShippingError for a module that is missing or cannot be parsed, and where the files are too big.
    """
    packages = {module.partition(".")[0] for module in modules}
    pending = [(module, f"{module} is to be started") for module in modules]
    for module in modules:
        if _is_package(module, root):
            pending.append((f"{module}.__main__", f"{module} is to be started"))
    seen: set[str] = set()
    contents: dict[str, bytes] = {}
    while pending:
        module, why = pending.pop()
        if module in seen:
            continue
        seen.add(module)
        if "." in module:
            pending.append((module.rpartition(".")[0], why))
        path = _file_of(module, root)
        if path is None:
            if not _is_directory(module, root):
                raise ShippingError(module, f"{why}, but there is no such module", "add it, or correct the import")
            continue
        name = path.relative_to(root).as_posix()
        contents[name] = normalised(path)
        for each in imports(contents[name], name, module, is_package=_is_package(module, root)):
            ours = each.module.partition(".")[0] in packages
            if ours and (each.certain or _exists(each.module, root)):
                pending.append((each.module, f"{name} imports it in line {each.line}"))
    for name in extra:
        # Unlike pathlib, this takes any text for a path, even one that is too long.
        if not os.path.isfile(root / name):  # noqa: PTH113
            raise ShippingError(name, "there is no such file", "add it")
        contents[Path(name).as_posix()] = normalised(root / name)
    files = Files(contents)
    require_fit(files.sizes, "import less, or install them as a package into an image and name that as `image`")
    return files


def _directory_of(module: str, root: Path) -> Path:
    return root / Path(*module.split("."))


def _is_package(module: str, root: Path) -> bool:
    return os.path.isfile(_directory_of(module, root) / "__init__.py")  # noqa: PTH113


def _file_of(module: str, root: Path) -> Path | None:
    # Each import of each file is looked for, for each step: pathlib takes four times as long here.
    directory = os.path.join(root, *module.split("."))  # noqa: PTH118
    candidates = (os.path.join(directory, "__init__.py"), f"{directory}.py")  # noqa: PTH118
    return next((Path(path) for path in candidates if os.path.isfile(path)), None)  # noqa: PTH113


def _exists(module: str, root: Path) -> bool:
    return _file_of(module, root) is not None or _is_directory(module, root)


def _is_directory(module: str, root: Path) -> bool:
    return os.path.isdir(_directory_of(module, root))  # noqa: PTH112


def normalised(path: Path) -> bytes:
    """The content of a file of code, with ``\\n`` at the ends of its lines."""
    return path.read_bytes().replace(b"\r\n", b"\n")


@cache  # Most steps ship the same files, and parsing them is most of the work.
def imports(source: bytes, name: str, module: str, *, is_package: bool) -> tuple[Import, ...]:
    """What the file ``name``, which is ``module``, imports; raises ShippingError where Python cannot read it."""
    try:
        tree = ast.parse(source, name)
    except (SyntaxError, ValueError) as error:
        raise ShippingError(name, f"Python cannot read it: {error}", "correct the file") from error
    return tuple(_imported(tree, module if is_package else module.rpartition(".")[0]))


def _imported(tree: ast.Module, package: str) -> Iterator[Import]:
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
