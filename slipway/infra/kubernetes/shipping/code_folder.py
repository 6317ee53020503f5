"""The files of a folder of code that a command needs: those that its Python program imports, and all others."""

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from slipway.infra.kubernetes.shipping.bundle import Files, normalised, obstacle, visible
from slipway.infra.kubernetes.shipping.imports import (
    NO_MEMBER,
    Import,
    imports,
    leads_out,
    may_bind,
    names_its_package,
)
from slipway.infra.kubernetes.shipping.sizes import SHOWN, ShippingError
from slipway.infra.pipelines.scripts import is_script
from slipway.infra.placed import Command
from slipway.infra.schema.paths import pattern_problem
from slipway.infra.schema.problems import did_you_mean

PYTHON = frozenset({"python", "python3"})
"""The programs whose files are found by their imports."""

DECLARATIONS = ("pipeline.yaml", "*.md", "requirements*.txt", "*.in")
"""Patterns of the files at the top of a folder of code that are about the pipeline, and that no program reads."""

ENVIRONMENT_MARK = "pyvenv.cfg"
"""The file that every virtual environment has (docs.python.org/3/library/venv.html, November 2026)."""


@dataclass(frozen=True)
class _Program:
    """A Python program: the file that is started, or the module, and the folder in which imports are looked for.

    Both are relative to the folder of code.
    """

    start: str
    is_module: bool
    path: PurePosixPath


def code_files(command: Command, words: Sequence[str]) -> Files:
    """The files that ``command`` ships, by their path in its folder; ``words`` start it.

    A Python program, ``python x.py`` or ``python -m x``, ships the Python files of the folder that it imports and
    those that ``command.files`` names. Any other program ships all Python files. Either ships all other files,
    but for hidden ones without a name in ``command.files``, virtual environments, ``__pycache__`` and what belongs
    to the pipeline's declaration. Files keep their permission to be executed where a path in ``words`` or a script
    starts programs.

    Raises ShippingError where the folder, the script or an imported file is missing, where Python cannot read a
    file, and for files that cannot be shipped.
    """
    folder = command.code
    if not folder.is_dir():
        raise ShippingError(str(folder), "there is no such folder", "name the folder that has the program: `code`")
    hidden = _hidden_files_named(command)
    files = {path.relative_to(folder).as_posix(): path for path in _files(command)} | hidden
    program = _program(words)
    chosen = set(files) if program is None else {name for name in files if not name.endswith(".py")}
    if program is not None:
        chosen |= {*_files_named(files, command, str(folder)), *hidden}
        chosen |= _imported_files(files, program, folder, chosen)
    _refuse({name: files[name] for name in chosen}, folder)
    programs = is_script(words) or any("/" in word for word in words[:1])
    executable = {name for name in chosen if programs and os.access(files[name], os.X_OK)}
    return Files({name: _content(files[name]) for name in sorted(chosen)}, frozenset(executable))


def _hidden_files_named(command: Command) -> dict[str, Path]:
    """The hidden files that the patterns of ``command.files`` name, as a shell has it: with the dot."""
    hidden: dict[str, Path] = {}
    for pattern in command.files:
        if not _names_hidden(pattern) or pattern_problem(pattern):
            continue
        paths = (command.code / name for name in _named(pattern, command.code))
        named = {Path(os.path.normpath(path)) for path in paths if path.is_symlink() or not path.is_dir()}
        if not named:
            reason = f"it names no file in {command.code}"
            raise ShippingError(pattern, reason, "correct the pattern, or remove it")
        if any(not path.is_relative_to(command.code) for path in named):
            raise ShippingError(pattern, f"it leads out of {command.code}", "move the file into the folder")
        hidden |= {path.relative_to(command.code).as_posix(): path for path in named}
    return hidden


def _named(pattern: str, folder: Path) -> Iterator[str]:
    """The paths that ``pattern`` names below ``folder``, as a shell has it; a folder stands for what is in it."""
    # pathlib takes folders alone for `**` before Python 3.13.
    in_folder = "/**" if (folder / pattern).is_dir() else ""
    return glob.iglob(f"{pattern}{in_folder}", root_dir=folder, recursive=True)  # noqa: PTH207


def _names_hidden(pattern: str) -> bool:
    return any(part.startswith(".") and part not in {".", ".."} for part in pattern.split("/"))


def _content(path: Path) -> bytes:
    return normalised(path) if path.suffix == ".py" else path.read_bytes()


def _files(command: Command) -> Iterator[Path]:
    folder = command.code
    paths = list(visible(folder))
    environments = [path.parent for path in paths if path.name == ENVIRONMENT_MARK]
    left_out = {os.path.realpath(path) for path in command.left_out}
    for path in paths:
        if "__pycache__" in path.parts or any(path.is_relative_to(environment) for environment in environments):
            continue
        if path.parent == folder and any(path.match(pattern) for pattern in DECLARATIONS):
            continue
        # `Path.resolve` raises for a circle of links.
        if os.path.realpath(path) not in left_out:
            yield path


def _program(words: Sequence[str]) -> _Program | None:
    """The program of a command line that starts Python; None where it starts anything else."""
    if not words or words[0] not in PYTHON:
        return None
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            module = next(rest, "")
            return _Program(module, is_module=True, path=PurePosixPath())
        if word in {"-X", "-W"}:
            next(rest, None)
        elif word.startswith(("/", "{")):
            # A script of the image, or one that an input has.
            return None
        elif word.endswith(".py"):
            return _Program(PurePosixPath(word).as_posix(), is_module=False, path=PurePosixPath(word).parent)
        elif not word.startswith("-") or word == "-c":
            return None
    return None


def _files_named(files: Mapping[str, Path], command: Command, folder: str) -> set[str]:
    """The files that the patterns of ``command.files`` name."""
    chosen: set[str] = set()
    for pattern in command.files:
        if reason := pattern_problem(pattern):
            raise ShippingError(pattern, reason, "write a shorter pattern")
        if _names_hidden(pattern):
            continue
        if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            raise ShippingError(pattern, f"not a pattern of files below {folder}", "correct it")
        named = {os.path.normpath(name) for name in _named(pattern, command.code)} & set(files)
        if not named:
            raise ShippingError(pattern, f"it names no file in {folder}", "correct the pattern, or remove it")
        chosen |= named
    return chosen


def _imported_files(files: Mapping[str, Path], program: _Program, folder: Path, more: Iterable[str]) -> set[str]:
    """The Python files that ``program`` starts, with those that they, and the Python files of ``more``, import."""
    modules, by_place = _Modules(files, program.path), _Modules(files, PurePosixPath())
    # By which name a file is loaded that `files` alone names, or whether it is, nobody knows.
    pending = [(name, False) for name in more if name.endswith(".py")]
    if program.is_module:
        pending += [(name, True) for name in _started_files(modules, program, folder)]
    elif program.start in files:
        pending.append((program.start, True))
    else:
        fix = did_you_mean(program.start, files, "add it, or correct `run`")
        raise ShippingError(program.start, f"there is no such file in {folder}", fix)
    chosen: set[str] = set()
    while pending:
        name, is_known = pending.pop()
        if name in chosen:
            continue
        chosen.add(name)
        source, place = normalised(files[name]), PurePosixPath(name).parent
        names_package = names_its_package(source)
        is_known = is_known and not names_package
        beside = modules if place.is_relative_to(modules.path) and not names_package else by_place
        around = place.relative_to(beside.path).parts
        depth = len(around) if is_known else len(around) + 1
        for imported in imports(source, name, ".".join(around)):
            if imported.level > depth:
                if imported.certain:
                    raise leads_out(name, imported, depth, _as_module(program, name, imported))
                continue
            where = beside if imported.level else modules
            ours = imported.level or where.files_of(imported.module.partition(".")[0])
            if ours and imported.certain and where.lacks(imported):
                why = NO_MEMBER if imported.member else ", but there is no such module"
                reason = f"{name} imports it in line {imported.line}{why}"
                raise ShippingError(imported.module, reason, "add it, or correct the import")
            pending += [(file, is_known or not imported.level) for file in where.files_of(imported.module)]
    return chosen


def _as_module(program: _Program, name: str, imported: Import) -> str:
    """What to write in place of a file that is started, so that its import works; empty where nothing does."""
    place = PurePosixPath(name)
    if program.is_module or name != program.start or imported.level > len(place.parent.parts):
        return ""
    module = ".".join(place.with_suffix("").parts)
    return f"start it as a module, `python -m {module}`; all its imports of modules beside it then have a dot"


def _started_files(modules: "_Modules", program: _Program, folder: Path) -> list[str]:
    """The files of a module that is started; none where an installed package has it."""
    if modules.exists(program.start.partition(".")[0]) and not modules.exists(program.start):
        raise ShippingError(program.start, f"there is no such module in {folder}", "add it, or correct `run`")
    return [*modules.files_of(program.start), *modules.files_of(f"{program.start}.__main__")]


@dataclass(frozen=True)
class _Modules:
    """The modules that can be imported from ``path``, a folder in the folder of code."""

    files: Mapping[str, Path]
    path: PurePosixPath

    def file_of(self, module: str) -> str | None:
        """The file of ``module``, that of a package being its ``__init__.py``; None where there is none."""
        base = self.path.joinpath(*module.split(".")).as_posix()
        return next((name for name in (f"{base}/__init__.py", f"{base}.py") if name in self.files), None)

    def files_of(self, module: str) -> list[str]:
        """The file of ``module``, and those of the packages around it; none where it is not in the folder."""
        parts = module.split(".")
        files = (self.file_of(".".join(parts[:count])) for count in range(1, len(parts) + 1))
        return [file for file in files if file is not None]

    def exists(self, module: str) -> bool:
        """Whether ``module`` is a file or a folder of the folder of code."""
        base = self.path.joinpath(*module.split(".")).as_posix()
        if f"{base}.py" in self.files or self._is_folder(base):
            return True
        return any(name.startswith(f"{base}.") and name.endswith(".so") for name in self.files)

    def _is_folder(self, base: str) -> bool:
        return any(name.startswith(f"{base}/") for name in self.files)

    def lacks(self, imported: Import) -> bool:
        """Whether what is imported is neither a module of the folder of code nor a name in one."""
        if self.exists(imported.module) or not imported.member:
            return not self.exists(imported.module)
        package, _, name = imported.module.rpartition(".")
        file = self.file_of(package)
        if file is None:
            return self._is_folder(self.path.joinpath(*package.split(".")).as_posix())
        return file.endswith("__init__.py") and not may_bind(normalised(self.files[file]), name)


def _refuse(chosen: Mapping[str, Path], folder: Path) -> None:
    inside = folder.resolve()
    wrong = [f"{name} {why}" for name, path in chosen.items() if (why := obstacle(path, inside, "folder"))]
    if wrong:
        raise ShippingError(
            str(folder),
            "; ".join(wrong[:SHOWN]) + (f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""),
            "put the files themselves there, under names that can be read, or move them out of the folder",
        )
