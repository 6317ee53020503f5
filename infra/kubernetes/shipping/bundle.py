"""The bundle: the files that a workload module needs from this repository, found without running them."""

import ast
import base64
import glob
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.shipping.sizes import SHOWN, ShippingError, require_fit
from slipway.infra.pipelines.scripts import is_script
from slipway.infra.placed import Command
from slipway.infra.places import PACKAGE, base_of, located
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit, short_digest
from slipway.infra.schema.paths import pattern_problem

# Files that travel to a pod in an immutable, content-addressed ConfigMap.


_NOT_IN_KEYS = re.compile(r"[^-._a-zA-Z0-9]")


@dataclass(frozen=True)
class Files:
    """Contents by path, as they will stand below the folder where they are mounted. Paths use ``/`` everywhere.

    ``executable`` are the paths of programs.
    """

    contents: Mapping[str, bytes]
    executable: frozenset[str] = frozenset()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over paths, contents and which are programs, in hexadecimal; the same whatever machine and order
        they come from."""
        total = hashlib.sha256()
        for path, content in sorted(self.contents.items()):
            total.update(f"{len(path.encode())}:{path}{len(content)}:".encode())
            total.update(content)
        if self.executable:
            total.update("".join(f"x{len(path.encode())}:{path}" for path in sorted(self.executable)).encode())
        return total.hexdigest()

    def mode(self, path: str) -> int:
        """The mode of the file, which nobody may write."""
        return 0o555 if path in self.executable else 0o444

    def below(self, folder: str) -> "Files":
        """The files below ``folder``, by their path in it."""
        start = f"{folder}/"
        return Files(
            {path.removeprefix(start): text for path, text in self.contents.items() if path.startswith(start)},
            frozenset(path.removeprefix(start) for path in self.executable if path.startswith(start)),
        )

    def outside(self, folder: str) -> "Files":
        """The files that are not below ``folder``."""
        start = f"{folder}/"
        return Files(
            {path: content for path, content in self.contents.items() if not path.startswith(start)},
            frozenset(path for path in self.executable if not path.startswith(start)),
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by path. Kubernetes counts their sum; keys do not count."""
        return {path: len(content) for path, content in self.contents.items()}


def keys(paths: Iterable[str]) -> dict[str, str]:
    """A ConfigMap key for each path: the path with dots for slashes, or a hash and its end where that is no key.

    Keys may only have letters, digits, ``-``, ``_`` and ``.``, at most 253 of them.
    """
    result: dict[str, str] = {}
    taken: set[str] = set()
    for path in sorted(paths):
        key = _NOT_IN_KEYS.sub("_", path.replace("/", "."))
        if key in taken or key != path.replace("/", ".") or len(key) > KUBERNETES_NAME_LIMIT:
            key = f"{short_digest(hashlib.sha256(path.encode()).hexdigest())}-{key[-40:]}"
        taken.add(key)
        result[path] = key
    return result


def config_map(
    name: str,
    files: Files,
    namespace: str,
    labels: Mapping[str, str],
    opts: pulumi.ResourceOptions,
    *,
    called: str = "",
) -> k8s.core.v1.ConfigMap:
    """Declares the ConfigMap that holds ``files``.

    Its name ends in their digest, so that other files are another ConfigMap: one that is mounted never changes.
    Another name, ``called``, has to do the same.
    """
    by_key = {key: files.contents[path] for path, key in keys(files.contents).items()}
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for key, content in by_key.items():
        try:
            text[key] = content.decode()
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(content).decode()
    return k8s.core.v1.ConfigMap(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=called or config_map_name(name, files), namespace=namespace, labels=dict(labels)
        ),
        data=text or None,
        binary_data=binary or None,
        immutable=True,
        opts=opts,
    )


def config_map_name(name: str, files: Files) -> str:
    """The Kubernetes name of the ConfigMap that is declared as ``name``."""
    return fit(f"{name}-{short_digest(files.digest)}", KUBERNETES_NAME_LIMIT)


def volume(volume_name: str, map_name: str, files: Files) -> k8s.core.v1.VolumeArgs:
    """The pod volume in which the files have their paths again."""
    return k8s.core.v1.VolumeArgs(
        name=volume_name,
        config_map=k8s.core.v1.ConfigMapVolumeSourceArgs(
            name=map_name,
            default_mode=0o444,
            items=[
                k8s.core.v1.KeyToPathArgs(
                    key=key, path=path, mode=files.mode(path) if path in files.executable else None
                )
                for path, key in keys(files.contents).items()
            ],
        ),
    )


IMAGES = (".png", ".jpg", ".jpeg")
"""Suffixes of the files that a folder of images ships."""

OTHER_IMAGES = (".avif", ".bmp", ".gif", ".heic", ".heif", ".tif", ".tiff", ".webp")
"""Suffixes of images that no step reads: somebody who puts one there expects it to be read."""

LABELS = "labels.json"
"""The file with the truth of the images beside it."""


def image_folder(folder: Path, root: Path) -> Files:
    """The PNG and JPEG files below ``folder``, and each ``labels.json`` with the truth of those beside it.

    Hidden files are left out, and so are those of `left_out`. Raises ShippingError where the folder is missing or
    has no image, is too big, or has something that cannot be shipped or leads out of the repository at ``root``.
    """
    if not folder.is_dir():
        raise ShippingError(
            str(folder),
            "there is no such folder",
            "name a folder of PNG or JPEG files, relative to the repository; or `store:<path>` in the store",
        )
    inside = root.resolve()
    if not folder.resolve().is_relative_to(inside):
        raise ShippingError(
            str(folder),
            "a link leads out of the repository",
            "copy the images into the repository; or copy them into the store and write `store:<path>`",
        )
    paths = [
        path for path in visible(folder) if path.suffix.lower() in {*IMAGES, *OTHER_IMAGES} or path.name == LABELS
    ]
    if wrong := [
        f"{path.relative_to(folder).as_posix()} {why}" for path in paths if (why := _obstacle(path, inside))
    ]:
        raise ShippingError(
            str(folder),
            "; ".join(wrong[:SHOWN]) + (f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""),
            "put PNG and JPEG files themselves there, under names that can be read; convert others, or move them "
            "out of the folder",
        )
    if not any(path.suffix.lower() in IMAGES for path in paths):
        raise ShippingError(
            str(folder), "there is no PNG or JPEG file in it", "put the images there as .png, .jpg or .jpeg files"
        )
    files = {path.relative_to(folder).as_posix(): path for path in paths}
    require_fit(
        {name: path.stat().st_size for name, path in files.items()},
        "copy the folder into the store and write `store:<path>`",
    )
    return Files({name: path.read_bytes() for name, path in files.items()})


def left_out(folder: Path) -> list[str]:
    """The names of the files below ``folder`` that `image_folder` does not ship, hidden ones aside."""
    shipped = {*IMAGES, *OTHER_IMAGES}
    return [
        path.relative_to(folder).as_posix()
        for path in visible(folder)
        if path.suffix.lower() not in shipped and path.name != LABELS
    ]


def visible(folder: Path) -> list[Path]:
    """Everything below ``folder`` that is no folder; a link to one is not followed."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if (path.is_symlink() or not path.is_dir())
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def _obstacle(path: Path, root: Path) -> str | None:
    """What keeps an image from being shipped, after its name; None where nothing does."""
    if path.name.isprintable() and path.suffix.lower() in OTHER_IMAGES:
        return "is neither PNG nor JPEG"
    return obstacle(path, root, "repository")


def obstacle(path: Path, root: Path, around: str) -> str | None:
    """What keeps a file from being shipped, after its name; None where nothing does. ``around`` is what ``root``
    is, which no link may lead out of.
    """
    if not path.name.isprintable():
        return "has characters in its name that nobody sees"
    if not Path(os.path.realpath(path)).is_relative_to(root):
        return f"is a link out of the {around}"
    if not path.is_file():
        return "is a link to no file" if path.is_symlink() else "is no file"
    return None if os.access(path, os.R_OK) else "cannot be read: permission denied"


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
    paths of further files. Of `PACKAGE` itself pods get an empty file: its public names are for the program that
    declares the stack. Line ends become ``\\n``, so that a checkout on Windows gives the same digest.

    Raises ShippingError for a module that is missing or cannot be parsed, and where the files are too big.
    """
    packages = {PACKAGE, *(module.partition(".")[0] for module in modules)}
    pending = [(module, f"{module} is to be started") for module in modules]
    for module in modules:
        # A package may go without `__init__.py`; a module of its name would come first.
        if _is_package(module, root) or (_file_of(module, root) is None and _is_directory(module, root)):
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
        name = path.relative_to(base_of(module.replace(".", "/"), root)).as_posix()
        contents[name] = normalised(path) if module != PACKAGE else b""
        for imported in imports(contents[name], name, module, is_package=_is_package(module, root)):
            ours = imported.module.partition(".")[0] in packages and imported.module not in seen
            if ours and (imported.certain or _exists(imported.module, root)):
                pending.append((imported.module, f"{name} imports it in line {imported.line}"))
    for name in extra:
        # Unlike pathlib, this takes any text for a path, even one that is too long.
        if not os.path.isfile(located(name, root)):  # noqa: PTH113
            raise ShippingError(name, "there is no such file", "add it")
        contents[Path(name).as_posix()] = normalised(located(name, root))
    files = Files(contents)
    require_fit(files.sizes, "import less, or install them as a package into an image and name that as `image`")
    return files


def _directory_of(module: str, root: Path) -> Path:
    return located(module.replace(".", "/"), root)


def _is_package(module: str, root: Path) -> bool:
    return os.path.isfile(_directory_of(module, root) / "__init__.py")  # noqa: PTH113


def _file_of(module: str, root: Path) -> Path | None:
    # Each import of each file is looked for, for each step: pathlib takes four times as long here.
    path = module.replace(".", "/")
    directory = os.path.join(base_of(path, root), path)  # noqa: PTH118
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


# The files of a folder of code that a command needs: those that its Python program imports, and all others.


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
