"""Which room may import which: the arrows that keep clouds, pipelines and workloads apart."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

from slipway.command.reference import shipped
from slipway.infra.pipelines.discovery import WORKLOADS
from slipway.infra.places import PACKAGE

ROOT = Path(__file__).parents[1]
TOPS = (PACKAGE, WORKLOADS, "ci", "benchmarks")


def table(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of a page of docs."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    below = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in below.splitlines() if line.startswith("|")]
    assert rows, heading
    return rows[2:]


def paths(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


MAY_IMPORT: Mapping[str, Sequence[str]] = tomllib.loads((ROOT / "tests/rooms.toml").read_text(encoding="utf-8"))
"""What the modules of a room may import beside their own room."""

SDKS = ("pulumi_kubernetes", "pulumi_gcp", "pulumi_aws")
WITHOUT: Mapping[str, Sequence[str]] = {
    "slipway/infra": ("tensorflow", "keras"),
    "slipway/infra/schema": ("pulumi", *SDKS),
    "slipway/infra/settings": ("pulumi", *SDKS),
    "slipway/infra/review": ("pulumi", *SDKS),
    "slipway/infra/kubernetes": ("pulumi_gcp", "pulumi_aws"),
    "slipway/infra/objects.py": ("pulumi_gcp", "pulumi_aws"),
    "slipway/infra/placement": ("pulumi_gcp", "pulumi_aws"),
    "slipway/infra/pipelines": ("pulumi_gcp", "pulumi_aws"),
    "slipway/infra/clouds/gcp": ("pulumi_aws",),
    "slipway/infra/clouds/aws": ("pulumi_gcp",),
    "slipway/infra/clouds/existing": ("pulumi_gcp", "pulumi_aws"),
    "slipway/infra/clouds/other_stack": ("pulumi_gcp", "pulumi_aws"),
    "slipway/runtime": ("pulumi", *SDKS),
    "workloads": ("pulumi", *SDKS),
    "ci": ("pulumi", "pydantic", *SDKS),
}
"""Packages that the modules of a room do not import themselves."""

ALLOWED = re.compile(r"gcp-dev|gcp-batch|google\.protobuf\.\w+")
"""The stack that commands without one take, and the library that reads messages."""


def sources() -> dict[str, Path]:
    """Every module outside the tests, by its dotted name; a package by its own. The package's face is none:
    it imports the program when somebody asks for it."""
    face = {ROOT / PACKAGE / name for name in ("__init__.py", "__main__.py")}
    files = [path for top in TOPS for path in sorted((ROOT / top).rglob("*.py")) if path not in face]
    return {name_of(path.relative_to(ROOT)): path for path in files}


def name_of(path: Path) -> str:
    """The dotted name by which the module at ``path`` is imported."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


@dataclass(frozen=True)
class Source:
    """What a module's code names.

    ``imports`` are the names that it imports anywhere: at its top, in functions, and for type checkers alone.
    ``words`` is every name and every text, docstrings and comments left out.
    """

    imports: Set[str]
    words: Sequence[str]


@cache
def read(path: Path) -> Source:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    imports = set[str]()
    for node in nodes:
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{path} imports relative to itself"
            imports.update(f"{node.module}.{alias.name}" for alias in node.names)
    return Source(imports, list(words(nodes)))


def imports_of(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """The modules among ``modules`` that a module imports, whatever it takes from them."""
    names = read(path).imports
    return {name if name in modules else name.rpartition(".")[0] for name in names} & modules.keys()


def circle(graph: Mapping[str, Iterable[str]]) -> str:
    """A circle of imports for people: ``a -> b -> a``; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " -> ".join(reversed(error.args[1]))
    return ""


@pytest.mark.slow
def test_no_modules_import_each_other() -> None:
    modules = sources()
    assert circle({name: imports_of(path, modules) - {name} for name, path in modules.items()}) == ""


def rooms(modules: Mapping[str, Path], depth: int) -> dict[str, set[str]]:
    """Which rooms import which others. A room is a folder ``depth`` names deep, or a file that lies above that."""
    graph: dict[str, set[str]] = {}
    for path in modules.values():
        room = "/".join(relative(path).parts[:depth])
        targets = {"/".join(relative(modules[name]).parts[:depth]) for name in imports_of(path, modules)}
        graph.setdefault(room, set()).update(targets - {room})
    return graph


@pytest.mark.slow
@pytest.mark.parametrize("depth", [3, 4])
def test_no_rooms_import_each_other(depth: int) -> None:
    assert circle(rooms(sources(), depth)) == ""


def test_a_planted_circle_of_rooms_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rooms import each other, although none of their modules do."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    files = {
        "slipway/infra/one/first.py": "from slipway.infra.two.first import name",
        "slipway/infra/one/second.py": "name = 1",
        "slipway/infra/two/first.py": "name = 1",
        "slipway/infra/two/second.py": "from slipway.infra.one.second import name",
    }
    modules: dict[str, Path] = {}
    for file, text in files.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        modules[name_of(Path(file))] = path
    assert circle({name: imports_of(path, modules) for name, path in modules.items()}) == ""
    assert circle(rooms(modules, 3)) in {
        "slipway/infra/one -> slipway/infra/two -> slipway/infra/one",
        "slipway/infra/two -> slipway/infra/one -> slipway/infra/two",
    }


def part_of(path: PurePosixPath, room: str) -> PurePosixPath | None:
    """The file or folder that the pattern ``room`` names and ``path`` is or lies in; None where there is none."""
    parts = len(PurePosixPath(room).parts)
    start = PurePosixPath(*path.parts[:parts])
    return start if len(path.parts) >= parts and start.match(room) else None


def may_import(source: PurePosixPath, target: PurePosixPath) -> bool:
    """Whether the module at ``source`` may import that at ``target``: its own room, or one that its room may."""
    room = max((room for room in MAY_IMPORT if part_of(source, room)), key=len)
    home = part_of(source, room)
    return part_of(target, str(home)) is not None or any(part_of(target, allowed) for allowed in MAY_IMPORT[room])


@pytest.mark.slow
def test_arrows_point_one_way() -> None:
    modules = sources()
    wrong = [
        f"{relative(path)} imports {name}"
        for path in modules.values()
        for name in sorted(imports_of(path, modules))
        if not may_import(relative(path), relative(modules[name]))
    ]
    assert wrong == []


def test_rooms_of_kubernetes_import_those_further_down() -> None:
    home = ROOT / "slipway/infra/kubernetes"
    rows = table("architecture.md", "Rooms of `slipway/infra/kubernetes`")
    order = [room.rstrip("/") for rooms, _ in rows for room in paths(rooms)]
    modules = {name: path for name, path in sources().items() if path.is_relative_to(home)}
    place = {name: path.relative_to(home).parts[0] for name, path in modules.items()}
    assert sorted({*place.values()}) == sorted(order)
    wrong = [
        f"{relative(path)} imports {target}"
        for name, path in modules.items()
        for target in sorted(imports_of(path, modules))
        if order.index(place[target]) < order.index(place[name])
    ]
    assert wrong == []


@pytest.mark.parametrize("room", WITHOUT)
def test_rooms_do_without_what_they_do_not_need(room: str) -> None:
    files = [ROOT / room] if room.endswith(".py") else sorted((ROOT / room).rglob("*.py"))
    assert files
    wrong = [
        f"{relative(path)} imports {name}"
        for path in files
        for name in sorted(read(path).imports)
        if name.partition(".")[0] in WITHOUT[room]
    ]
    assert wrong == []


def relative(path: Path) -> PurePosixPath:
    return PurePosixPath(path.relative_to(ROOT).as_posix())


def test_arrows_are_held() -> None:
    """What would be wrong, and what is right, by the rooms' names alone."""
    wrong = [
        ("slipway/infra/review/stack.py", "slipway/infra/clouds/gcp/nodes.py"),
        ("workloads/mnist/train.py", "workloads/resnet/training.py"),
        ("workloads/mnist/train.py", "slipway/features/notebook/pod/serve.py"),
        ("slipway/features/notebook/pod/serve.py", "slipway/features/page/pod/app.py"),
        ("slipway/features/serving/stub.py", "slipway/rehearse/session.py"),
    ]
    right = [
        ("workloads/mnist/train.py", "workloads/mnist/model.py"),
        ("slipway/features/page/pod/app.py", "slipway/runtime/store.py"),
        ("slipway/infra/clouds/registry.py", "slipway/infra/clouds/gcp/__init__.py"),
    ]
    for pairs, expected in ((wrong, False), (right, True)):
        for source, target in pairs:
            assert may_import(PurePosixPath(source), PurePosixPath(target)) is expected, (source, target)


def test_every_room_of_the_table_is_there_and_every_folder_of_code_is_in_a_room() -> None:
    assert [room for room in MAY_IMPORT if not any(ROOT.glob(room))] == []
    files = [relative(path) for path in sources().values() if relative(path).name != "__init__.py"]
    assert [str(file) for file in files if not any(part_of(file, room) for room in MAY_IMPORT)] == []


def test_the_files_of_every_task_are_there() -> None:
    rows = table("development.md", "Task and files")
    missing = [
        path
        for _, files in rows
        for path in paths(files)
        if not any(ROOT.glob(path.replace("<name>", "*").replace("<cloud>", "*")))
    ]
    assert missing == []
    assert len(rows) > 20


def test_nothing_but_its_folder_names_a_pipeline() -> None:
    """Docstrings and comments left out. A project's own pipelines may be called anything."""
    folders = set(shipped.pipelines())
    assert {"mnist", "resnet"} <= folders
    named = re.compile(rf"(?<![a-z])({'|'.join(folders)})(?![a-z])", re.IGNORECASE)
    naming = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in sources().values()
        if path.is_relative_to(ROOT / "ci") or path.is_relative_to(ROOT / PACKAGE)
        for word in read(path).words
        if named.search(word)
    ]
    assert naming == []


def words(nodes: Sequence[ast.AST]) -> Iterator[str]:
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.keyword(arg=str(word)) | ast.arg(arg=word):
                yield word
            case ast.Constant(value=str(word)) if node not in docstrings:
                yield word
            case _:
                pass


SHAPES = (
    "slipway/infra/settings",
    "slipway/infra/pipelines/file",
    "slipway/infra/pipelines/pods.py",
    "slipway/infra/pipelines/app_kinds/program.py",
)
"""What reads a key `rehearsal`, checks it, and hands it on."""


def test_nobody_asks_whether_it_is_a_rehearsal() -> None:
    """Only the engine in ``offline`` knows; settings and declarations have a key for it, and hand it on."""
    asking = [
        f"{path.relative_to(ROOT)}: {word}"
        for room in ("slipway/infra", "slipway/runtime", WORKLOADS)
        for path in sorted((ROOT / room).rglob("*.py"))
        if not any(part_of(PurePosixPath(path.relative_to(ROOT)), shape) for shape in SHAPES)
        for word in read(path).words
        if re.search(r"(?<!on_)dry_run|rehears|mock", word, re.IGNORECASE)
        # The check of ownership warns in a preview and refuses in an update.
        and (path.name, word) != ("program.py", "is_dry_run")
    ]
    assert asking == []


def test_nobody_but_its_package_and_the_registry_names_a_cloud() -> None:
    naming = [
        f"{path.relative_to(ROOT)}: {word}"
        for room in (PACKAGE, WORKLOADS)
        for path in sorted((ROOT / room).rglob("*.py"))
        if path != ROOT / "slipway/infra/clouds/registry.py"
        and not {"gcp", "aws"} & set(path.relative_to(ROOT).parts)
        for word in read(path).words
        if re.search(r"(?<![a-z])(gcp|gke|gcs|google|aws|eks|amazon)(?![a-z])", word, re.IGNORECASE)
        and not ALLOWED.fullmatch(word)
    ]
    assert naming == []
