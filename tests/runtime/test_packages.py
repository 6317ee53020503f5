from __future__ import annotations

import hashlib
import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from slipway.runtime.exits import BAD_INPUT, INSTALL_FAILED
from tests.support.steps import ROOT, only_error, run
from tests.support.wheels import write_wheel

PACKAGES = "slipway.runtime.steps.packages"
REQUIREMENTS = ROOT / "workloads" / "mnist" / "requirements.txt"


def parse(path: Path) -> dict[tuple[str, str], tuple[str, frozenset[str]]]:
    """(name, marker): version and hashes."""
    pins = {}
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        text, *hashes = (part.strip() for part in line.split("--hash="))
        requirement = Requirement(text)
        pins[requirement.name, str(requirement.marker)] = (str(requirement.specifier), frozenset(hashes))
    return pins


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_by(*names: str) -> set[str]:
    """The packages that are installed here because of `names`, these included."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    todo: list[tuple[str, tuple[str, ...]]] = [(name, ()) for name in names]
    while todo:
        name, extras = todo.pop()
        if (normal(name), extras) in seen:
            continue
        seen.add((normal(name), extras))
        for text in importlib.metadata.requires(name) or []:
            requirement = Requirement(text)
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": one}) for one in ("", *extras)
            ):
                todo.append((requirement.name, tuple(sorted(requirement.extras))))
    return {name for name, _ in seen}


@pytest.mark.parametrize("pipeline", ["mnist", "resnet", "handwriting"])
def test_the_pins_are_those_of_the_repository(pipeline: str) -> None:
    """Where they are not, every rehearsal installs packages, which takes a network."""
    file = ROOT / "workloads" / pipeline / "requirements.txt"
    ours, theirs = parse(file), parse(ROOT / "requirements.txt")

    assert ours
    for key, pin in ours.items():
        assert theirs.get(key) == pin, f"{key[0]}: run the command at the top of {file} again"


def test_the_list_is_what_prepare_needs_beyond_tensorflow() -> None:
    """A package too many would shadow the image's own; one too few would fail on the cluster only."""
    tensorflow = next(
        name for name in ("tensorflow-cpu", "tensorflow") if list(importlib.metadata.distributions(name=name))
    )
    here = {
        normal(name)
        for name, marker in parse(REQUIREMENTS)
        if marker == "None" or Requirement(f"x; {marker}").marker.evaluate()  # type: ignore[union-attr]
    }

    assert here == needed_by("scikit-learn", "pillow") - needed_by(tensorflow)


def test_nothing_is_installed_where_everything_is_here(tmp_path: Path) -> None:
    output = run(PACKAGES, "--requirements", REQUIREMENTS, "--target", tmp_path / "target")

    assert output.startswith("Nothing to install: all ")
    assert not (tmp_path / "target").exists()


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A package index of one tiny package in two versions."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in ("1.0", "2.0"):
        write_wheel(folder, "slipway-probe", version, {"slipway_probe.py": f"VERSION = '{version}'\n".encode()})
    return folder


def require(path: Path, wheels: Path, version: str, digest: str = "") -> Path:
    wheel = wheels / f"slipway_probe-{version}-py3-none-any.whl"
    digest = digest or hashlib.sha256(wheel.read_bytes()).hexdigest()
    path.write_text(
        f"# a comment\nslipway-probe=={version} \\\n    --hash=sha256:{digest}\n"
        "not-for-us==9.9 ; sys_platform == 'plan9' \\\n    --hash=sha256:00\n"
    )
    return path


def install(requirements: Path, target: Path, wheels: Path, code: int = 0) -> str:
    return run(
        PACKAGES, "--requirements", requirements, "--target", target, code=code,
        PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels), PIP_CONFIG_FILE="/dev/null",
    )  # fmt: skip


@pytest.mark.slow
def test_a_lacking_package_is_installed_once(tmp_path: Path, wheels: Path) -> None:
    requirements, target = require(tmp_path / "r.txt", wheels, "1.0"), tmp_path / "target"

    first = install(requirements, target, wheels)
    second = install(requirements, target, wheels)

    assert "lacking here: slipway-probe==1.0" in first
    assert (target / "slipway_probe.py").read_text() == "VERSION = '1.0'\n"
    assert second.startswith("Nothing to install: all 1 packages are in ")
    assert run(
        PACKAGES,
        "--requirements",
        requirements,
        "--target",
        tmp_path / "x",
        PYTHONPATH=str(target),
    ).startswith("Nothing to install: all 1 packages are here")


@pytest.mark.slow
def test_another_version_replaces_the_one_that_is_there(tmp_path: Path, wheels: Path) -> None:
    target = tmp_path / "target"
    install(require(tmp_path / "r.txt", wheels, "1.0"), target, wheels)

    install(require(tmp_path / "r.txt", wheels, "2.0"), target, wheels)

    assert (target / "slipway_probe.py").read_text() == "VERSION = '2.0'\n"


@pytest.mark.slow
def test_an_interrupted_installation_is_completed(tmp_path: Path, wheels: Path) -> None:
    target = tmp_path / "target"
    (target / "slipway_probe-1.0.dist-info").mkdir(parents=True)
    (target / "slipway_probe-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: slipway-probe\nVersion: 1.0\n"
    )

    install(require(tmp_path / "r.txt", wheels, "1.0"), target, wheels)

    assert (target / "slipway_probe.py").exists()


@pytest.mark.slow
def test_a_wrong_hash_and_a_missing_index_are_one_error(tmp_path: Path, wheels: Path) -> None:
    forged = install(
        require(tmp_path / "r.txt", wheels, "1.0", "0" * 64), tmp_path / "a", wheels, code=INSTALL_FAILED
    )
    assert "HASHES" in forged.upper()

    requirements = require(tmp_path / "r.txt", wheels, "1.0")
    absent = install(requirements, tmp_path / "b", tmp_path, code=INSTALL_FAILED)

    assert "Is the package index reachable" in absent
    assert only_error(absent).startswith("error: pip could not install")
    assert not (tmp_path / "b" / "slipway_probe.py").exists()


@pytest.mark.parametrize(
    "line", ["flask", "flask==1.0", "flask>=1.0 --hash=sha256:00", "fla sk==1 --hash=sha256:00"]
)
def test_a_requirement_without_pin_and_hash_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.txt").write_text(line + "\n")
    output = run(PACKAGES, "--requirements", tmp_path / "r.txt", "--target", tmp_path / "t", code=BAD_INPUT)
    assert "r.txt" in only_error(output)


@pytest.mark.slow
def test_the_real_list_installs_from_the_index(tmp_path: Path) -> None:
    """Into an environment that lacks all of it, as the image does; prepare's imports then work from there."""
    import os
    import subprocess
    import sys

    target = tmp_path / "target"
    code = "import sys, pathlib as p, slipway.runtime.steps.packages as w; w.install(*map(p.Path, sys.argv[1:]))"
    result = subprocess.run(
        [sys.executable, "-c", code, str(REQUIREMENTS), str(target)],
        cwd=ROOT,
        # Bytecode of all of it takes a third of the time, and no file of it says more than the source does.
        env={**os.environ, "PIP_NO_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode and ("ConnectionError" in result.stderr or "No matching distribution" in result.stderr):
        pytest.skip("the package index cannot be reached")
    assert result.returncode == 0, result.stderr

    probe = "import sklearn.datasets, PIL; print(sklearn, PIL)"
    result = subprocess.run(
        [sys.executable, "-c", probe], env={"PYTHONPATH": str(target)}, capture_output=True, text=True, check=True
    )
    assert result.stdout.count(str(target)) == 2
