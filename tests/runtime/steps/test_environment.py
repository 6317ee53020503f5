"""What an image lacks: published once, and used by programs that know nothing of it."""

from __future__ import annotations

import importlib.metadata
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pip
import pytest

from slipway.runtime.exits import BAD_INPUT, INSTALL_FAILED
from slipway.runtime.store import NotWholeError, check, publish, staging
from slipway.runtime.supplied import unpack_packages
from tests.support.steps import ROOT, only_error, run
from tests.support.wheels import offline, pin, write_wheel

SCRIPT = b"[console_scripts]\nprobe = slipway_probe:main\n"
MODULE = b"import slipway_data\ndef main(): print('probed', slipway_data.__file__)\n"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """An index of one package with a script, and a lock file with it and two that are here, or not for here."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    info = "slipway_probe-1.0.dist-info/entry_points.txt"
    content = {"slipway_probe.py": MODULE, "slipway_data/__init__.py": b"", info: SCRIPT}
    wheel = write_wheel(folder, "slipway-probe", "1.0", content)
    (folder / "requirements.txt").write_text(
        "# the packages of the step\n"
        + pin("slipway-probe", "1.0", wheel).replace(" --hash", " \\\n    --hash")
        + pin("numpy", importlib.metadata.version("numpy"), wheel)
        + 'not-for-us==9.9 ; sys_platform == "plan9" --hash=sha256:00\n'
    )
    return folder


def install(wheels: Path, output: Path, code: int = 0, **changes: str) -> str:
    return run(
        "slipway.runtime.steps.environment",
        "--requirements", wheels / "requirements.txt", "--output", output, code=code,
        **{**offline(wheels), "PIP_CONFIG_FILE": "/dev/null", **changes},
    )  # fmt: skip


@pytest.mark.slow
def test_programs_use_what_the_image_lacked(tmp_path: Path, wheels: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    output = install(wheels, first)
    install(wheels, second)

    assert "This image lacks 1 of 2 packages; installing slipway-probe==1.0" in output
    assert list(check(first).files) == ["packages.tar"]
    assert check(first).digest == check(second).digest, "consumers would be made again"
    assert install(wheels, first).startswith("Nothing to do: ")

    flags = ("--packages", first, "--output", tmp_path / "out")
    probed = run("slipway.runtime.steps.command", *flags, "--", "probe").splitlines()[0]
    assert probed.startswith("probed ")
    assert not Path(probed.split()[1]).exists(), "the local copy is still there"


def test_nothing_is_published_where_nothing_is_lacking(tmp_path: Path, wheels: Path) -> None:
    (wheels / "requirements.txt").write_text(
        f"numpy=={importlib.metadata.version('numpy')} --hash=sha256:{'0' * 64}\n"
    )
    assert "Nothing is lacking: all 1 packages are here" in install(wheels, tmp_path / "packages")
    assert check(tmp_path / "packages").files == {}

    output = run(
        "slipway.runtime.steps.command", "--packages", tmp_path / "packages", "--output", tmp_path / "out",
        "--", "sh", "-c", "echo path=$PYTHONPATH", PYTHONPATH="",
    )  # fmt: skip
    assert output.startswith("path=\n")


@pytest.mark.slow
def test_an_index_that_cannot_be_reached_is_one_error_about_the_users_file(tmp_path: Path, wheels: Path) -> None:
    output = install(wheels, tmp_path / "packages", INSTALL_FAILED, PIP_FIND_LINKS=str(tmp_path))

    assert only_error(output).startswith(f"error: pip could not install {wheels / 'requirements.txt'}:")
    assert "Is the package index reachable" in output
    assert not (tmp_path / "packages").exists()


def bare_image(tmp_path: Path, wheels: Path, *, with_pip: bool) -> subprocess.CompletedProcess[str]:
    """Install in a Python that has pip and nothing else, or not even that."""
    site = tmp_path / "site"
    site.mkdir()
    if with_pip:
        (site / "pip").symlink_to(Path(pip.__file__).parent)
    return subprocess.run(
        [sys.executable, "-S", "-m", "slipway.runtime.steps.environment", "--requirements",
         wheels / "requirements.txt", "--output", tmp_path / "packages"],
        cwd=ROOT,
        env={"PYTHONPATH": str(site), "PATH": os.environ["PATH"], **offline(wheels)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_an_image_with_pip_alone_is_enough(tmp_path: Path, wheels: Path) -> None:
    lines = (wheels / "requirements.txt").read_text().splitlines(keepends=True)
    (wheels / "requirements.txt").write_text("".join(line for line in lines if "numpy" not in line))

    result = bare_image(tmp_path, wheels, with_pip=True)

    assert result.returncode == 0, result.stdout + result.stderr
    assert list(check(tmp_path / "packages").files) == ["packages.tar"]


def test_an_image_without_pip_is_refused(tmp_path: Path, wheels: Path) -> None:
    result = bare_image(tmp_path, wheels, with_pip=False)

    assert result.returncode == INSTALL_FAILED
    assert "has no pip: take an image that has it" in only_error(result.stderr)


def published(folder: Path, name: str, content: bytes) -> Path:
    with staging() as staged:
        (staged / name).write_bytes(content)
        publish(staged, folder, step="test", inputs={}, settings={}, summary={})
    return folder


def archive(*members: tarfile.TarInfo) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return content.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, 1 if kind == tarfile.REGTYPE else 0
    return made


def test_an_altered_archive_is_not_used(tmp_path: Path) -> None:
    good = archive(member("probe.py"))
    packages = published(tmp_path / "packages", "packages.tar", good)
    (packages / "packages.tar").write_bytes(good.replace(b"x", b"y"))

    output = run(
        "slipway.runtime.steps.command",
        "--packages",
        packages,
        "--output",
        tmp_path / "out",
        "--",
        "echo",
        "ran",
        code=BAD_INPUT,
    )

    assert "packages.tar was altered" in only_error(output)
    assert "ran" not in output


@pytest.mark.parametrize("content", [archive(member("a"))[:600], b"", b"no archive at all" * 100])
def test_a_truncated_archive_is_not_used(tmp_path: Path, content: bytes) -> None:
    packages = published(tmp_path / "packages", "packages.tar", archive(member("a")))
    (packages / "packages.tar").write_bytes(content)
    (tmp_path / "target").mkdir()

    with pytest.raises(NotWholeError):
        unpack_packages(packages, tmp_path / "target")


@pytest.mark.parametrize(
    "outside",
    [
        member("../probe.py"),
        member("/tmp/slipway-probe.py"),
        member("a/../../probe.py"),
        member("link", tarfile.SYMTYPE, "/etc"),
        member("link", tarfile.LNKTYPE, "/etc/passwd"),
        member("null", tarfile.CHRTYPE),
    ],
    ids=lambda value: value.name,
)
def test_an_archive_writes_nothing_but_files_below_its_folder(tmp_path: Path, outside: tarfile.TarInfo) -> None:
    packages = published(tmp_path / "packages", "packages.tar", archive(outside))
    (tmp_path / "target").mkdir()

    with pytest.raises(NotWholeError, match="is not a file below the archive's folder"):
        unpack_packages(packages, tmp_path / "target")

    assert list((tmp_path / "target").iterdir()) == []


def test_libraries_are_found_in_a_checked_copy(tmp_path: Path) -> None:
    libraries = published(tmp_path / "libraries", "libprobe.so.1", b"library")
    command = ("--output", tmp_path / "out", "--libraries", libraries, "--", "sh", "-c")

    output = run("slipway.runtime.steps.command", *command, "echo $LD_LIBRARY_PATH; ls ${LD_LIBRARY_PATH%%:*}",
                 LD_LIBRARY_PATH="/opt/lib", TMPDIR=str(tmp_path))  # fmt: skip
    path, listed = output.splitlines()[:2]
    assert path.endswith(":/opt/lib")
    assert listed == "libprobe.so.1"
    assert str(libraries) not in path

    (libraries / "libprobe.so.1").write_bytes(b"Library")
    (tmp_path / "pod").mkdir()
    refusal = run(
        "slipway.runtime.steps.command",
        *("--output", tmp_path / "other", *command[2:], "echo ran"),
        code=BAD_INPUT,
        TMPDIR=str(tmp_path / "pod"),
    )
    assert "libprobe.so.1 was altered" in only_error(refusal)
