"""The CUDA libraries: found lacking in an image, installed on a CPU node, loaded before TensorFlow asks for them.

A build record stands in for a TensorFlow with CUDA, and libraries of their names, which the C compiler makes, for
cuDNN and NCCL: what is tested is which libraries the loader has afterwards.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.runtime.exits import BAD_INPUT, INSTALL_FAILED
from slipway.runtime.store import MANIFEST, check
from slipway.runtime.supplied import SONAMES
from tests.support.steps import ROOT, environment, only_error, run
from tests.support.wheels import offline, pin, write_wheel

INSTALL = "slipway.runtime.cuda.install"
REQUIREMENTS = ROOT / "slipway/runtime/cuda/requirements.txt"
COMPILER = shutil.which("cc")

needs_compiler = pytest.mark.skipif(
    COMPILER is None or sys.platform != "linux", reason="needs Linux and a C compiler, to make libraries"
)

LOAD = """
import ctypes, sys
from pathlib import Path
from slipway.runtime.supplied import SONAMES, preload
from slipway.runtime.exits import run
def main():
    preload(Path(sys.argv[1]))
    print(sum(ctypes.CDLL(soname).answer() for soname in SONAMES))
    return 0
run(main)
"""


@pytest.fixture
def cuda(tmp_path: Path) -> dict[str, str]:
    """Environment of a pod whose TensorFlow has CUDA, and whose pip finds the packages with the libraries."""
    record = tmp_path / "site" / "tensorflow" / "python" / "platform" / "build_info.py"
    record.parent.mkdir(parents=True)
    record.write_text("build_info = {'is_cuda_build': True}\n")
    (tmp_path / "site" / "tensorflow" / "__init__.py").write_text("raise ImportError('nobody asked for me')\n")
    (tmp_path / "wheels").mkdir()
    pins = ""
    for number, soname in enumerate(SONAMES, start=1):
        source, library = tmp_path / f"{number}.c", tmp_path / soname
        source.write_text(f"int answer(void) {{ return {20 + number}; }}\n")
        command = [str(COMPILER), "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", str(library), str(source)]
        subprocess.run(command, check=True)
        name = f"nvidia-part-{number}"
        content = {f"nvidia/part{number}/lib/{soname}": library.read_bytes()}
        pins += pin(name, "1.0", write_wheel(tmp_path / "wheels", name, "1.0", content))
    (tmp_path / "requirements.txt").write_text(pins)
    return {"PYTHONPATH": str(tmp_path / "site"), **offline(tmp_path / "wheels")}


def load(directory: Path, code: int = 0) -> str:
    """What a GPU step prints that loads the libraries of ``directory`` and then calls them by name."""
    command = [sys.executable, "-c", LOAD, str(directory)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(TMPDIR=str(directory.parent)),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def test_a_tensorflow_without_cuda_needs_none(tmp_path: Path) -> None:
    """This machine's: nothing is downloaded for a CPU."""
    out = tmp_path / "out"
    output = run(INSTALL, "--requirements", REQUIREMENTS, "--output", out, PIP_NO_INDEX="1")

    assert "Nothing is lacking" in output
    assert dict(check(out).files) == {}
    assert "Nothing to do" in run(INSTALL, "--requirements", REQUIREMENTS, "--output", out)


@pytest.mark.slow
@needs_compiler
def test_what_is_lacking_is_installed_and_then_found(tmp_path: Path, cuda: dict[str, str]) -> None:
    out = tmp_path / "out"
    output = run(INSTALL, "--requirements", tmp_path / "requirements.txt", "--output", out, **cuda)

    assert "This image lacks libcudnn.so.9, libnccl.so.2" in output
    assert set(check(out).files) == set(SONAMES)
    assert load(out).splitlines() == [f"Loaded libcudnn.so.9, libnccl.so.2 from {out}", "43"]
    # What its test or an earlier container copied is there for the pod.
    (copies,) = tmp_path.glob("slipway-libraries-*")
    (out / SONAMES[0]).write_bytes(b"altered")
    assert load(out).splitlines()[-1] == "43"
    assert [*tmp_path.glob("slipway-libraries-*")] == [copies]
    # A folder that others can write to is not relied on.
    copies.chmod(0o777)
    assert "altered" in only_error(load(out, code=BAD_INPUT))


@needs_compiler
def test_an_image_that_has_them_is_left_alone(tmp_path: Path, cuda: dict[str, str]) -> None:
    has_them = {**cuda, "LD_LIBRARY_PATH": str(tmp_path)}
    out = tmp_path / "out"
    output = run(INSTALL, "--requirements", tmp_path / "requirements.txt", "--output", out, **has_them)

    assert "Nothing is lacking" in output
    assert dict(check(out).files) == {}


@needs_compiler
@pytest.mark.parametrize(
    "damage", ["altered", *(pytest.param(damage, marks=pytest.mark.slow) for damage in ("missing", "no manifest"))]
)
def test_a_damaged_library_is_named_and_not_loaded(tmp_path: Path, cuda: dict[str, str], damage: str) -> None:
    out = tmp_path / "out"
    run(INSTALL, "--requirements", tmp_path / "requirements.txt", "--output", out, **cuda)
    library = out / SONAMES[0]
    if damage == "altered":
        library.write_bytes(library.read_bytes()[:-1] + b"?")
    else:
        (library if damage == "missing" else out / MANIFEST).unlink()

    problem = only_error(load(out, code=BAD_INPUT))
    assert (MANIFEST if damage == "no manifest" else SONAMES[0]) in problem


@needs_compiler
@pytest.mark.slow
def test_packages_that_lack_a_library_are_no_result(tmp_path: Path, cuda: dict[str, str]) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(requirements.read_text().splitlines(keepends=True)[0])
    out = tmp_path / "out"
    output = run(INSTALL, "--requirements", requirements, "--output", out, code=INSTALL_FAILED, **cuda)

    assert SONAMES[1] in only_error(output)
    assert not (out / MANIFEST).exists()


STAYS = """
import ctypes, os, sys
from slipway.runtime.supplied import SONAMES
print(sum(ctypes.CDLL(soname).answer() for soname in SONAMES), os.getcwd(), sys.argv[1:])
"""


@needs_compiler
@pytest.mark.slow
def test_an_app_finds_them_by_name_and_starts_in_its_code(tmp_path: Path, cuda: dict[str, str]) -> None:
    output, code = tmp_path / "libraries", tmp_path / "code"
    code.mkdir()
    (code / "stays.py").write_text(STAYS)
    run(INSTALL, "--requirements", tmp_path / "requirements.txt", "--output", output, **cuda)
    started = [
        "-m",
        "slipway.runtime.supplied",
        "--libraries",
        output,
        "--code",
        code,
        "--",
    ]
    for _ in range(2):
        # A container that starts anew finds what the one before it left.
        done = subprocess.run(
            [sys.executable, *map(str, started), sys.executable, "stays.py", "--port", "8080"],
            cwd=ROOT,
            env=environment(PYTHONPATH=str(ROOT), LD_LIBRARY_PATH="/nowhere", TMPDIR=str(tmp_path)),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert done.stdout.splitlines()[-1] == f"43 {code} ['--port', '8080']"
    (output / SONAMES[0]).write_bytes(b"altered")
    (tmp_path / "another pod").mkdir()
    wrong = subprocess.run(
        [sys.executable, *map(str, started), sys.executable, "stays.py"],
        cwd=ROOT,
        env=environment(PYTHONPATH=str(ROOT), TMPDIR=str(tmp_path / "another pod")),
        check=False,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert wrong.returncode == BAD_INPUT
    assert "altered" in wrong.stderr
