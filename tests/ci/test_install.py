"""The Pulumi CLI is installed only where it is what its release says."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from ci.install import InstallError, archive_name, install, version
from tests.support.checkout import ROOT

VERSION = "1.2.3"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The folder of a release, with an archive and its checksums."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        member = tarfile.TarInfo("pulumi/pulumi")
        member.size = 3
        member.mode = 0o755
        archive.addfile(member, io.BytesIO(b"cli"))
    folder = tmp_path / "release" / f"v{VERSION}"
    folder.mkdir(parents=True)
    (folder.parent / archive_name(VERSION)).write_bytes(content.getvalue())
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    (folder / f"pulumi-{VERSION}-checksums.txt").write_text(
        f"{'0' * 64}  pulumi-v{VERSION}-other.tar.gz\n{digest}  {archive_name(VERSION)}\n", encoding="utf-8"
    )
    return folder.parent


def test_what_matches_its_checksum_is_installed(release: Path, tmp_path: Path) -> None:
    install(VERSION, tmp_path / "build" / "pulumi", release.as_uri(), release.as_uri())
    assert (tmp_path / "build" / "pulumi" / "pulumi").read_text(encoding="utf-8") == "cli"
    assert [path.name for path in (tmp_path / "build").iterdir()] == ["pulumi"]


def test_what_does_not_is_refused(release: Path, tmp_path: Path) -> None:
    (release / archive_name(VERSION)).write_bytes(b"something else")
    with pytest.raises(InstallError, match="should have"):
        install(VERSION, tmp_path / "build" / "pulumi", release.as_uri(), release.as_uri())
    assert not (tmp_path / "build").exists()


def test_a_release_that_does_not_list_it_is_refused(release: Path, tmp_path: Path) -> None:
    (release / f"v{VERSION}" / f"pulumi-{VERSION}-checksums.txt").write_text("", encoding="utf-8")
    with pytest.raises(InstallError, match="have no"):
        install(VERSION, tmp_path / "build" / "pulumi", release.as_uri(), release.as_uri())


def test_a_checksum_of_ones_own_counts_before_the_published_one(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_SHA256", "0" * 64)
    with pytest.raises(InstallError, match="should have 0000"):
        install(VERSION, tmp_path / "build" / "pulumi", release.as_uri(), release.as_uri())


def test_the_version_is_that_of_the_sdk() -> None:
    assert f'"pulumi=={version(ROOT)}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
