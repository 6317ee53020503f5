"""What a Python program of a folder of code ships, by Python itself: it runs from that, or is refused before."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from slipway.infra.kubernetes.shipping.bundle import Files, collect
from slipway.infra.kubernetes.shipping.code_folder import code_files
from slipway.infra.kubernetes.shipping.imports import BEYOND_TOP, PARENT_UNKNOWN
from slipway.infra.kubernetes.shipping.sizes import ShippingError
from slipway.infra.placed import Command
from tests.support.tree import write_tree

TRAIN = ("-m", "pkg.train")
SCRIPT = ("pkg/train.py",)
TREE = {
    "common.py": "x = 1\n",
    "pkg/__init__.py": "",
    "pkg/model.py": "Net = 1\n",
    "pkg/data.py": "",
    "pkg/unused.py": "",
    "pkg/sub/deep.py": "from ..model import Net\n",
}
BOTH = "from .model import Net\nfrom . import data\n"
TRY = "try:\n    {}\nexcept ImportError:\n    {}\n"
NO = "from .no import x"
PEP_366 = """import os, sys
if __name__ == "__main__" and not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = "pkg"
from .model import Net
"""


def shipped(folder: Path, files: Mapping[str, str], words: Sequence[str], named: Sequence[str] = ()) -> Files:
    return code_files(Command(write_tree(folder, {**TREE, **files}), named), ["python", *words])


def run(folder: Path, words: Sequence[str]) -> str:
    """The last line that Python writes of its failure; empty where there is none."""
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *words]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ended.stderr.strip().rpartition("\n")[2] if ended.returncode else ""


OWN = {"pkg/train.py": "import own.a", "pkg/own/a.py": "from .b import c", "pkg/own/b.py": "c = 1"}
NET = {"pkg/train.py": "from . import net", "pkg/__init__.py": "from .model import Net as net"}
LAZY = {"pkg/train.py": "from . import net", "pkg/__init__.py": "def __getattr__(name): return name"}
OTHER = {"other/sub/go.py": "from ..near import y", "other/near.py": "y = 1"}


@pytest.mark.parametrize(
    ("words", "files", "modules"),
    [
        (TRAIN, {"pkg/train.py": BOTH}, "__init__ train model data"),
        (TRAIN, {"pkg/train.py": "from .sub import deep"}, "__init__ train model sub/deep"),
        (TRAIN, {"pkg/train.py": "from .model import *\nfrom . import *"}, "__init__ train model"),
        (TRAIN, NET, "__init__ train model"),
        (TRAIN, LAZY, "__init__ train"),
        (("-m", "pkg"), {"pkg/__main__.py": BOTH}, "__init__ __main__ model data"),
        (("-m", "other.sub.go"), OTHER, "../other/sub/go ../other/near"),
        # What is missing, and the program does without.
        (TRAIN, {"pkg/train.py": TRY.format("from ._version import v", "v = 0")}, "__init__ train"),
        (TRAIN, {"pkg/train.py": TRY.format("from . import local", "pass")}, "__init__ train"),
        (TRAIN, {"pkg/train.py": f"try:\n    {NO}\nexcept Exception:\n    pass"}, "__init__ train"),
        (
            TRAIN,
            {"pkg/train.py": f"import contextlib\nwith contextlib.suppress(ImportError):\n    {NO}"},
            "__init__ train",
        ),
        (TRAIN, {"pkg/train.py": f"import typing\nif typing.TYPE_CHECKING:\n    {NO}"}, "__init__ train"),
        # A program that runs in a package and out of it.
        (SCRIPT, {"pkg/train.py": TRY.format("from .model import Net", "import model")}, "train model"),
        (
            SCRIPT,
            {"pkg/train.py": "if __package__:\n    from . import data\nelse:\n    import data"},
            "train data",
        ),
        (
            SCRIPT,
            {"pkg/train.py": "if __name__ == '__main__':\n    import data\nelse:\n    from . import data"},
            "train data",
        ),
        (SCRIPT, {"pkg/train.py": PEP_366}, "__init__ train model"),
        (SCRIPT, OWN, "train own/a own/b"),
    ],
)
def test_a_program_runs_from_the_files_that_it_ships(
    tmp_path: Path, words: Sequence[str], files: Mapping[str, str], modules: str
) -> None:
    contents = shipped(tmp_path / "code", files, words).contents
    assert set(contents) == {os.path.normpath(f"pkg/{module}.py") for module in modules.split()}
    write_tree(tmp_path / "pod", {name: content.decode() for name, content in contents.items()})
    assert run(tmp_path / "code", words) == run(tmp_path / "pod", words) == ""


@pytest.mark.parametrize(
    ("words", "files", "value", "texts"),
    [
        (SCRIPT, {"pkg/train.py": BOTH}, "pkg/train.py", ["line 1", PARENT_UNKNOWN, "`python -m pkg.train`"]),
        (SCRIPT, {"pkg/train.py": "\nfrom . import *"}, "pkg/train.py", ["line 2", "`python -m pkg.train`"]),
        (SCRIPT, {"pkg/train.py": "from ..common import x"}, "pkg/train.py", [PARENT_UNKNOWN, "without dots"]),
        (SCRIPT, {"pkg/train.py": "import sub.deep"}, "pkg/sub/deep.py", [BEYOND_TOP, "without dots"]),
        (("go.py",), {"go.py": "from .common import x"}, "go.py", [PARENT_UNKNOWN, "without dots"]),
        (("-m", "go"), {"go.py": "from . import common"}, "go.py", [PARENT_UNKNOWN, "without dots"]),
        (TRAIN, {"pkg/train.py": "from ..common import x"}, "pkg/train.py", ["2 packages", BEYOND_TOP]),
        (TRAIN, {"pkg/train.py": "from .. import common"}, "pkg/train.py", [BEYOND_TOP]),
        (TRAIN, {"pkg/train.py": "from ....common import x"}, "pkg/train.py", [BEYOND_TOP]),
        (TRAIN, {"pkg/train.py": "from .modl import Net"}, "pkg.modl", ["pkg/train.py", "line 1"]),
        (TRAIN, {"pkg/train.py": "from . import dat"}, "pkg.dat", ["pkg/train.py", "line 1"]),
        (TRAIN, {"pkg/train.py": "from .sub import dep"}, "pkg.sub.dep", ["pkg/train.py"]),
        (("go.py",), {"go.py": "from pkg import dat"}, "pkg.dat", ["go.py", "line 1"]),
        (TRAIN, {"pkg/train.py": TRY.format(NO, "raise")}, "pkg.no", ["line 2"]),
        (TRAIN, {"pkg/train.py": f"try:\n    {NO}\n    x()\nexcept:\n    exit('Error: x')"}, "pkg.no", ["line 2"]),
    ],
)  # fmt: skip
def test_a_program_that_python_cannot_start_is_refused(
    tmp_path: Path, words: Sequence[str], files: Mapping[str, str], value: str, texts: Sequence[str]
) -> None:
    with pytest.raises(ShippingError) as refused:
        shipped(tmp_path / "code", files, words)
    assert refused.value.value == value
    assert [text for text in texts if text not in f"{refused.value.reason} {refused.value.fix}"] == []
    assert "Error: " in run(tmp_path / "code", words)


@pytest.mark.parametrize("named", ["plugins/a.py", "plugins", "plugins/", "plugins/**", "plugins/*", "./plugins"])
def test_files_that_are_only_named_bring_what_they_import_beside_them(tmp_path: Path, named: str) -> None:
    files = {"go/go.py": "", "plugins/a.py": "from .base import B", "plugins/base.py": "B = 1"}
    contents = shipped(tmp_path, files, ["go/go.py"], [named]).contents
    assert set(contents) == {"go/go.py", "plugins/a.py", "plugins/base.py"}


@pytest.mark.parametrize("named", [("pkg/train.py",), ("pkg",), ("**/*.py",)])
def test_naming_the_program_changes_nothing_of_what_is_said_of_it(tmp_path: Path, named: Sequence[str]) -> None:
    train = {"pkg/train.py": BOTH, "pkg/sub/deep.py": ""}
    assert shipped(tmp_path / "a", train, TRAIN, named).contents.keys() > {"pkg/model.py", "pkg/data.py"}
    for words, text in ((SCRIPT, BOTH), (TRAIN, "from ..common import x")):
        with pytest.raises(ShippingError, match=r"pkg/train\.py: line 1"):
            shipped(tmp_path / "b", {"pkg/train.py": text, "pkg/sub/deep.py": ""}, words, named)


def test_a_file_that_is_only_named_lacks_what_it_imports(tmp_path: Path) -> None:
    with pytest.raises(ShippingError, match=r"plugins\.base"):
        shipped(tmp_path, {"go.py": "", "plugins/a.py": "from .base import B"}, ["go.py"], ["plugins"])


@pytest.mark.parametrize("named", ["nowhere", "/etc", "../x", ""])
def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, named: str) -> None:
    with pytest.raises(ShippingError) as refused:
        shipped(tmp_path / "code", {"go.py": ""}, ["go.py"], [named])
    assert refused.value.value == named


def test_a_compiled_module_is_one_and_a_module_may_be_called_pipeline(tmp_path: Path) -> None:
    compiled = "pkg/fast.cpython-311-x86_64-linux-gnu.so"
    files = {compiled: "", "pkg/train.py": "from . import fast\nfrom .fast import x"}
    assert compiled in shipped(tmp_path / "a", files, TRAIN).contents
    files = {"go.py": "import pipeline", "pipeline.py": ""}
    assert shipped(tmp_path / "b", files, ["go.py"]).contents.keys() == files.keys()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("from ..common import x", "pkg/train.py"),
        ("from ....common import x", "pkg/train.py"),
        ("from . import dat", "pkg.dat"),
        ("from pkg import dat", "pkg.dat"),
        ("from pkg.dat import x", "pkg.dat"),
    ],
)
def test_modules_of_a_pipeline_in_python_are_held_to_the_same(tmp_path: Path, text: str, value: str) -> None:
    write_tree(tmp_path, {**TREE, "pkg/train.py": text})
    with pytest.raises(ShippingError) as refused:
        collect(["pkg.train"], tmp_path)
    assert refused.value.value == value
    write_tree(tmp_path, {"pkg/train.py": TRY.format(text, "pass")})
    assert set(collect(["pkg.train"], tmp_path).contents) == {"pkg/__init__.py", "pkg/train.py"}
