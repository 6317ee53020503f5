"""The bundle: the files that a workload module needs from this repository, found without running them."""

import base64
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.shipping.imports import NO_MEMBER, imports, leads_out, may_bind
from slipway.infra.kubernetes.shipping.sizes import ShippingError, require_fit
from slipway.infra.places import PACKAGE, base_of, located
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit, short_digest

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

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file, with a mark at that of a program, by path."""
        return {
            path: hashlib.sha256(content).hexdigest() + ("x" if path in self.executable else "")
            for path, content in self.contents.items()
        }

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

    def within(self, folder: str) -> "Files":
        """The files below ``folder``, by their path here."""
        start = f"{folder}/"
        return Files(
            {path: content for path, content in self.contents.items() if path.startswith(start)}, self.executable
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


def visible(folder: Path) -> list[Path]:
    """Everything below ``folder`` that is no folder; a link to one is not followed."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if (path.is_symlink() or not path.is_dir())
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


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
        pending += _imported(contents[name], name, module, packages, root)
    for name in extra:
        # Unlike pathlib, this takes any text for a path, even one that is too long.
        if not os.path.isfile(located(name, root)):  # noqa: PTH113
            raise ShippingError(name, "there is no such file", "add it")
        contents[Path(name).as_posix()] = normalised(located(name, root))
    files = Files(contents)
    require_fit(files.sizes, "import less, or install them as a package into an image and name that as `image`")
    return files


def _imported(
    source: bytes, name: str, module: str, packages: Collection[str], root: Path
) -> Iterator[tuple[str, str]]:
    """The modules of ``packages`` that the file ``name``, which is ``module``, imports, each with who needs it."""
    package = module if _is_package(module, root) else module.rpartition(".")[0]
    depth = len(package.split(".")) if package else 0
    for imported in imports(source, name, package):
        if imported.level > depth:
            if imported.certain:
                raise leads_out(name, imported, depth)
        elif imported.module.partition(".")[0] in packages:
            why = f"{name} imports it in line {imported.line}"
            if _exists(imported.module, root) or (imported.certain and not imported.member):
                yield imported.module, why
            elif imported.certain and _lacks(imported.module, root):
                raise ShippingError(imported.module, f"{why}{NO_MEMBER}", "add it, or correct the import")


def _lacks(member: str, root: Path) -> bool:
    """Whether the package that ``member`` is to be in has no such name."""
    package, _, name = member.rpartition(".")
    path = _file_of(package, root)
    if path is None:
        return _is_directory(package, root)
    return path.name == "__init__.py" and not may_bind(b"" if package == PACKAGE else normalised(path), name)


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
