"""Which room may import which: the arrows that keep clouds, pipelines and workloads apart."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLOUDS = ("infra.gcp", "infra.existing")

FORBIDDEN = [
    ("infra", ("workloads", "stacks")),
    ("workloads", ("infra", "stacks", "pulumi", "pulumi_kubernetes", "pulumi_gcp")),
    ("infra/kubernetes", (*CLOUDS, "infra.pipelines")),
    ("infra/pipelines", CLOUDS),
    ("infra/settings", (*CLOUDS, "infra.kubernetes", "infra.pipelines", "pulumi_gcp", "pulumi_kubernetes")),
    ("infra/gcp", ("infra.existing", "infra.pipelines", "infra.kubernetes")),
    ("infra/existing", ("infra.gcp", "infra.pipelines", "infra.kubernetes", "pulumi_gcp")),
]


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
        for name in sorted(imports(path))
        if any(name == prefix or name.startswith(prefix + ".") for prefix in forbidden)
    ]
    assert wrong == []


def test_nobody_asks_whether_it_is_a_rehearsal() -> None:
    """Only the engines in ``stacks`` know; settings and documentation may speak of the overlay's key."""
    asking = [
        str(path.relative_to(ROOT))
        for room in ("infra", "workloads")
        for path in sorted((ROOT / room).rglob("*.py"))
        if "infra/settings" not in path.as_posix() and "is_dry_run" in path.read_text(encoding="utf-8")
    ]
    assert asking == []


def test_modules_stay_small() -> None:
    large = {
        str(path.relative_to(ROOT)): count
        for room in ("infra", "stacks", "workloads", "benchmarks")
        for path in sorted((ROOT / room).rglob("*.py"))
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 450
    }
    assert large == {}
