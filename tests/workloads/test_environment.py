from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from tests.workloads.steps import run
from tests.workloads.wheels import offline, pin, write_wheel

SCRIPT = b"[console_scripts]\nprobe = slipway_probe:main\n"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


def lock(wheels: Path) -> Path:
    """One package that is lacking here, and one that is not."""
    wheel = write_wheel(
        wheels,
        "slipway-probe",
        "1.0",
        {
            "slipway_probe.py": b"def main(): print('probed')\n",
            "slipway_probe-1.0.dist-info/entry_points.txt": SCRIPT,
        },
    )
    path = wheels / "requirements.txt"
    path.write_text(pin("slipway-probe", "1.0", wheel) + pin("numpy", importlib.metadata.version("numpy"), wheel))
    return path


def test_programs_use_what_the_image_lacked(tmp_path: Path, wheels: Path) -> None:
    output = run(
        "runtime.environment", "--requirements", lock(wheels), "--output", tmp_path / "packages", **offline(wheels)
    )
    assert "This image lacks 1 of 2 packages; installing slipway-probe==1.0" in output
    assert [path.name for path in (tmp_path / "packages").iterdir() if path.name != "manifest.json"] == [
        "packages.tar"
    ]

    flags = ("--packages", tmp_path / "packages", "--output", tmp_path / "out")
    assert "probed\n" in run("runtime.command", *flags, "--", "probe")
