"""A bundle has what the module needs from this repository, and nothing else."""

from pathlib import Path

import pytest

from slipway.infra.kubernetes.shipping.bundle import collect
from slipway.infra.kubernetes.shipping.sizes import LIMIT, ShippingError
from tests.support.tree import write_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "work/__init__.py": "",
        "work/digits/__init__.py": '"""Digits."""',
        "work/digits/train.py": "import json\nfrom work.digits.data import load\n",
        "work/digits/data.py": "def load(): ...\n",
        "work/digits/other.py": "",
        "work/common.py": "",
        "outside.py": "",
    }
    return write_tree(tmp_path, files)


def bundled(root: Path, train: str = "", module: str = "work.digits.train") -> set[str]:
    if train:
        (root / "work/digits/train.py").write_text(train, encoding="utf-8")
    return set(collect([module], root).contents)


PACKAGES = {"work/__init__.py", "work/digits/__init__.py", "work/digits/train.py"}


@pytest.mark.parametrize(
    ("statement", "more"),
    [
        ("import work.digits.data", {"work/digits/data.py"}),
        ("import work.digits.data as d, os", {"work/digits/data.py"}),
        ("from work.digits import data", {"work/digits/data.py"}),
        ("from work.digits import data as d", {"work/digits/data.py"}),
        ("from work.digits.data import load", {"work/digits/data.py"}),
        ("from work import common, digits", {"work/common.py"}),
        ("from . import data", {"work/digits/data.py"}),
        ("from .data import load", {"work/digits/data.py"}),
        ("from ..common import something", {"work/common.py"}),
        ("from .. import common", {"work/common.py"}),
        ("def late():\n    from work import common", {"work/common.py"}),
        ("if __name__ == '__main__':\n    import work.common", {"work/common.py"}),
        ("import json, outside, numpy", set()),
        ("# import work.common", set()),
    ],
)
def test_follows_every_form_of_import(root: Path, statement: str, more: set[str]) -> None:
    assert bundled(root, statement) == PACKAGES | more


def test_follows_imports_of_imports_and_of_packages_on_the_way(root: Path) -> None:
    (root / "work/__init__.py").write_text("from work import common", encoding="utf-8")
    (root / "work/common.py").write_text("from work.digits import train", encoding="utf-8")
    assert bundled(root) == PACKAGES | {"work/common.py", "work/digits/data.py"}


@pytest.mark.parametrize("regular", [True, False])
def test_a_package_is_started_through_its_main_module(root: Path, regular: bool) -> None:
    (root / "work/digits/__main__.py").write_text("import work.common", encoding="utf-8")
    if not regular:
        (root / "work/digits/__init__.py").unlink()
    files = {"work/__init__.py", "work/digits/__main__.py", "work/common.py"}
    assert bundled(root, module="work.digits") == files | ({"work/digits/__init__.py"} if regular else set())


def test_leaves_out_what_editors_and_python_leave_behind(root: Path) -> None:
    before = collect(["work.digits.train"], root).digest
    for name in ("train.py~", ".train.py.swp", "__pycache__/train.cpython-311.pyc", "train.py.orig"):
        path = root / "work/digits" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("left behind", encoding="utf-8")
    assert collect(["work.digits.train"], root).digest == before


def test_further_files_are_in_it(root: Path) -> None:
    (root / "work/requirements.txt").write_text("numpy==2.0\n", encoding="utf-8")
    files = collect(["work.digits.train"], root, ["work/requirements.txt"])
    assert files.contents["work/requirements.txt"] == b"numpy==2.0\n"


def test_line_ends_do_not_change_the_digest(root: Path) -> None:
    before = collect(["work.digits.train"], root).digest
    train = root / "work/digits/train.py"
    train.write_bytes(train.read_bytes().replace(b"\n", b"\r\n"))
    assert collect(["work.digits.train"], root).digest == before


def test_one_changed_byte_changes_the_digest_of_what_imports_it_only(root: Path) -> None:
    def digests() -> tuple[str, str]:
        return collect(["work.digits.train"], root).digest, collect(["work.digits.other"], root).digest

    train, other = digests()
    (root / "work/digits/data.py").write_text("def load(): ...\n#", encoding="utf-8")
    assert digests()[0] != train
    assert digests()[1] == other


def test_a_renamed_file_changes_the_digest(root: Path) -> None:
    before = collect(["work.digits.data"], root).digest
    (root / "work/digits/data.py").rename(root / "work/digits/date.py")
    assert collect(["work.digits.date"], root).digest != before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("import work.digits.missing", ["work.digits.missing", "work/digits/train.py imports it in line 1"]),
        ("from work.nowhere import x", ["work.nowhere", "line 1"]),
        ("def broken(:", ["work/digits/train.py", "Python cannot read it"]),
    ],
)
def test_what_cannot_be_bundled_is_named(root: Path, content: str, words: list[str]) -> None:
    with pytest.raises(ShippingError) as error:
        bundled(root, content)
    assert all(word in str(error.value) for word in words)


def test_a_module_that_is_not_there_is_named(root: Path) -> None:
    with pytest.raises(ShippingError, match=r"work\.digits\.evaluate is to be started"):
        collect(["work.digits.evaluate"], root)


@pytest.mark.parametrize("name", ["9" * 300, "a\0b", "x/" * 3000])
def test_a_path_that_no_file_can_have_is_not_there(root: Path, name: str) -> None:
    with pytest.raises(ShippingError, match="there is no such file"):
        collect(["work.digits.train"], root, [name])
    with pytest.raises(ShippingError, match="there is no such module"):
        collect([name], root)


def test_over_the_limit_the_biggest_files_are_named(root: Path) -> None:
    (root / "work/digits/data.py").write_text("#" * LIMIT, encoding="utf-8")
    with pytest.raises(ShippingError, match=r"work/digits/data\.py \(1048576 bytes\)") as error:
        collect(["work.digits.train"], root)
    assert "image" in error.value.fix


def test_exactly_the_limit_is_allowed(root: Path) -> None:
    sizes = collect(["work.digits.train"], root).sizes
    rest = sum(sizes.values()) - sizes["work/digits/data.py"]
    (root / "work/digits/data.py").write_text("#" * (LIMIT - rest), encoding="utf-8")
    assert sum(collect(["work.digits.train"], root).sizes.values()) == LIMIT


def test_source_in_another_encoding_is_understood(root: Path) -> None:
    source = "# -*- coding: latin-1 -*-\nfrom work import common  # für\n".encode("latin-1")
    (root / "work/digits/train.py").write_bytes(source)
    files = collect(["work.digits.train"], root)
    assert "work/common.py" in files.contents
    assert files.contents["work/digits/train.py"] == source
