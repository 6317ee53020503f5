"""Which room may import which: the arrows that keep clouds, pipelines and workloads apart."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLOUDS = ("infra.clouds.gcp", "infra.clouds.aws", "infra.clouds.existing")
SDKS = ("pulumi_kubernetes", "pulumi_gcp", "pulumi_aws")

FORBIDDEN = [
    ("infra", ("workloads", "offline", "tools", "tests")),
    ("offline", ("workloads", "tools", "tests")),
    ("workloads", ("tests", "infra", "offline", "tools", "pulumi", *SDKS)),
    (
        "infra/kubernetes",
        (*CLOUDS, *(f"infra.pipelines.{name}" for name in ("contract", "discovery", "placement"))),
    ),
    ("infra/pipelines", (*CLOUDS, "infra.settings")),
    ("infra/settings", (*CLOUDS, "infra.kubernetes", "infra.pipelines.placement", *SDKS)),
    (
        "infra/clouds/gcp",
        ("infra.clouds.aws", "infra.clouds.existing", "infra.pipelines", "infra.kubernetes", "pulumi_aws"),
    ),
    (
        "infra/clouds/aws",
        ("infra.clouds.gcp", "infra.clouds.existing", "infra.pipelines", "infra.kubernetes", "pulumi_gcp"),
    ),
    (
        "infra/clouds/existing",
        (
            "infra.clouds.gcp",
            "infra.clouds.aws",
            "infra.pipelines",
            "infra.kubernetes",
            "pulumi_gcp",
            "pulumi_aws",
        ),
    ),
]


DECLARATIONS = {"pipeline.py", "supplement.py"}
"""The files of ``workloads`` that no pod imports."""

DECLARING = ("infra.pipelines", "infra.schema", "infra.accelerators", "infra.platform")
"""What they may import of ``infra``."""

MEASURING_OPTION = re.compile(r"--benchmark|BENCHMARK=1")
"""How a rehearsal is told to run the pipelines that measure accelerators, whichever these are."""

ALLOWED = {"gcp-dev"}
"""The stack that commands without one take."""


def imports(path: Path) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize(("room", "forbidden"), FORBIDDEN, ids=[room for room, _ in FORBIDDEN])
def test_arrows_point_one_way(room: str, forbidden: tuple[str, ...]) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        if room != "workloads" or path.name not in DECLARATIONS
        for name in sorted(imports(path))
        if any(name == prefix or name.startswith(prefix + ".") for prefix in forbidden)
    ]
    assert wrong == []


def test_a_declaration_knows_the_contract_alone() -> None:
    files = [path for path in sorted((ROOT / "workloads").rglob("*.py")) if path.name in DECLARATIONS]
    assert files
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in sorted(imports(path))
        if name.partition(".")[0] in {"infra", "offline", "tools", "tests", "workloads", "pulumi", "tensorflow"}
        if not name.startswith(DECLARING) or name.startswith("infra.pipelines.placement")
    ]
    assert wrong == []


def test_nothing_but_its_folder_names_a_pipeline() -> None:
    """Docstrings and comments left out."""
    folders = {path.parent.name for path in (ROOT / "workloads").glob("*/pipeline.py")}
    assert {"mnist", "benchmark"} <= folders
    named = re.compile(rf"(?<![a-z])({'|'.join(folders)})(?![a-z])", re.IGNORECASE)
    naming = [
        f"{path.relative_to(ROOT)}: {word}"
        for room in ("infra", "offline", "tools", "ci")
        for path in sorted((ROOT / room).rglob("*.py"))
        for word in words(path)
        if named.search(MEASURING_OPTION.sub("", word))
    ]
    assert naming == []


def words(path: Path) -> Iterator[str]:
    """Every name and every text in a module's code, docstrings and comments left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.keyword(arg=str(word)) | ast.arg(arg=word):
                yield word
            case ast.Constant(value=str(word)) if node not in docstrings:
                yield word
            case _:
                pass


def test_nobody_asks_whether_it_is_a_rehearsal() -> None:
    """Only the engine in ``offline`` knows; the settings have the overlay's key, which they check and ignore."""
    asking = [
        f"{path.relative_to(ROOT)}: {word}"
        for room in ("infra", "workloads")
        for path in sorted((ROOT / room).rglob("*.py"))
        if not path.is_relative_to(ROOT / "infra" / "settings")
        for word in words(path)
        if re.search(r"(?<!on_)dry_run|rehears|mock", word, re.IGNORECASE)
        # The check of ownership warns in a preview and refuses in an update.
        and (path.name, word) != ("program.py", "is_dry_run")
    ]
    assert asking == []


def test_nobody_but_its_package_and_the_registry_names_a_cloud() -> None:
    naming = [
        f"{path.relative_to(ROOT)}: {word}"
        for room in ("infra", "offline", "tools", "workloads")
        for path in sorted((ROOT / room).rglob("*.py"))
        if path != ROOT / "infra" / "clouds" / "registry.py"
        and not {"gcp", "aws"} & set(path.relative_to(ROOT).parts)
        for word in words(path)
        if re.search(r"(?<![a-z])(gcp|gke|gcs|google|aws|eks|amazon)(?![a-z])", word, re.IGNORECASE)
        and word not in ALLOWED
    ]
    assert naming == []


def test_modules_stay_small() -> None:
    large = {
        str(path.relative_to(ROOT)): count
        for room in ("infra", "offline", "tools", "workloads", "benchmarks")
        for path in sorted((ROOT / room).rglob("*.py"))
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert large == {}
