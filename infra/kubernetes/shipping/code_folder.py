"""The files of a folder of code that a command needs: those that its Python program imports, and all others."""

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from slipway.infra.kubernetes.shipping.bundle import Files, normalised, obstacle, visible
from slipway.infra.kubernetes.shipping.imports import imports
from slipway.infra.kubernetes.shipping.sizes import SHOWN, ShippingError
from slipway.infra.pipelines.scripts import is_script
from slipway.infra.placed import Command
from slipway.infra.schema.paths import pattern_problem

PYTHON = frozenset({"python", "python3"})
"""The programs whose files are found by their imports."""

DECLARATIONS = ("pipeline.yaml", "pipeline.py", "supplement.py", "*.md", "requirements*.txt", "*.in")
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
        paths = (command.code / name for name in glob.iglob(pattern, root_dir=command.code, recursive=True))  # noqa: PTH207
        named = {Path(os.path.normpath(path)) for path in paths if path.is_symlink() or not path.is_dir()}
        if not named:
            reason = f"it names no file in {command.code}"
            fix = "correct the pattern, or remove it; the files of a hidden folder are `.folder/**`"
            raise ShippingError(pattern, reason, fix)
        if any(not path.is_relative_to(command.code) for path in named):
            raise ShippingError(pattern, f"it leads out of {command.code}", "move the file into the folder")
        hidden |= {path.relative_to(command.code).as_posix(): path for path in named}
    return hidden


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
        try:
            matching = list(command.code.glob(pattern))
        except (ValueError, NotImplementedError) as error:
            raise ShippingError(pattern, f"not a pattern of files below {folder}", "correct it") from error
        named = {path.relative_to(command.code).as_posix() for path in matching} & set(files)
        if not named:
            raise ShippingError(pattern, f"it names no file in {folder}", "correct the pattern, or remove it")
        chosen |= named
    return chosen


def _imported_files(files: Mapping[str, Path], program: _Program, folder: Path, more: Iterable[str]) -> set[str]:
    """The Python files that ``program`` starts, with those that they, and the Python files of ``more``, import."""
    modules = _Modules(files, program.path)
    pending = [name for name in more if name.endswith(".py")]
    if program.is_module:
        pending += _started_files(modules, program, folder)
    elif program.start in files:
        pending.append(program.start)
    else:
        raise ShippingError(program.start, f"there is no such file in {folder}", "add it, or correct `run`")
    chosen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in chosen:
            continue
        chosen.add(name)
        module = modules.name_of(name)
        for imported in imports(normalised(files[name]), name, module, is_package=name.endswith("__init__.py")):
            if imported.relative and not module.rpartition(".")[0] and not name.endswith("__init__.py"):
                reason = f"line {imported.line} imports from the file's package, and it is in none"
                raise ShippingError(name, reason, "write `import x` or `from x import y`")
            ours = imported.relative or modules.files_of(imported.module.partition(".")[0])
            if ours and imported.certain and not modules.exists(imported.module):
                reason = f"{name} imports it in line {imported.line}, but there is no such module"
                raise ShippingError(imported.module, reason, "add it, or correct the import")
            pending += modules.files_of(imported.module)
    return chosen


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

    def name_of(self, file: str) -> str:
        """The module that ``file`` is, by its place below ``path``."""
        place = PurePosixPath(file)
        inside = place.relative_to(self.path) if place.is_relative_to(self.path) else place
        parts = inside.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def files_of(self, module: str) -> list[str]:
        """The file of ``module``, and those of the packages around it; none where it is not in the folder."""
        parts = module.split(".")
        files: list[str] = []
        for count in range(1, len(parts) + 1):
            base = self.path.joinpath(*parts[:count])
            candidates = ((base / "__init__.py").as_posix(), f"{base.as_posix()}.py")
            files += [name for name in candidates if name in self.files][:1]
        return files

    def exists(self, module: str) -> bool:
        """Whether ``module`` is a file or a folder of the folder of code."""
        base = self.path.joinpath(*module.split(".")).as_posix()
        return f"{base}.py" in self.files or any(name.startswith(f"{base}/") for name in self.files)


def _refuse(chosen: Mapping[str, Path], folder: Path) -> None:
    inside = folder.resolve()
    wrong = [f"{name} {why}" for name, path in chosen.items() if (why := obstacle(path, inside, "folder"))]
    if wrong:
        raise ShippingError(
            str(folder),
            "; ".join(wrong[:SHOWN]) + (f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""),
            "put the files themselves there, under names that can be read, or move them out of the folder",
        )
