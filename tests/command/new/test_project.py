"""A new project by `slipway new` and by `pulumi new`, and what a build of the package has for them."""

import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from threading import Thread

import pytest
import yaml

from slipway.command.new import project, publishing
from tests.support.tree import write_tree

LOCK = "slipway-ml==1.2.3\n"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a build, with what is published beside the package."""
    monkeypatch.setattr(publishing, "lock", lambda *_: (LOCK, ""))
    wheels = {"slipway_ml-1.2.3-py3-none-any.whl": "a wheel", "slipway_ml-1.2.2-py3-none-any.whl": "an old one"}
    folder = write_tree(tmp_path / "dist", {"slipway_ml-1.2.3.tar.gz": "sources", **wheels, ".gitignore": "*"})
    publishing.main(folder)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def drafted(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files of a project that `slipway new` writes."""
    monkeypatch.setattr(project, "lock", lambda *_, **__: (LOCK, ""))
    draft = project.draft(name, folder)
    assert not isinstance(draft.files, str)
    return {path: text.encode() for path, text in draft.files.items()}


@pytest.fixture
def address(build: Path) -> Iterator[str]:
    """The address under which the files of the build are."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(build))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("name", "archived"), [("acme", False), ("123", False), ("true", False), ("acme", True)])
def test_pulumi_new_and_slipway_new_write_the_same(
    name: str, archived: bool, build: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("pulumi") is None:
        pytest.skip("the Pulumi CLI is not on PATH")
    template = f"{address}/{publishing.ARCHIVE}" if archived else build / publishing.TEMPLATE
    settings = {"PULUMI_SKIP_UPDATE_CHECK": "true", "PULUMI_DISABLE_REGISTRY_RESOLVE": "true"}
    done = subprocess.run(
        ["pulumi", "new", template, "--generate-only", "--yes", "--name", name, "--dir", tmp_path / "project"],
        env={**os.environ, **settings, "PULUMI_HOME": str(tmp_path / "home")},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = files(tmp_path / "project")
    # Where a project is from, which only the CLI notes.
    tag = f"  pulumi:tags:\n    value:\n      pulumi:template: {template}\n".encode()
    assert tag in made["Pulumi.yaml"]
    made["Pulumi.yaml"] = made["Pulumi.yaml"].replace(tag, b"")
    assert made == drafted(name, tmp_path, monkeypatch)


def test_a_name_that_yaml_takes_for_a_number_stays_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = drafted("123", tmp_path, monkeypatch)
    assert not [path for path, content in written.items() if b"${" in content.replace(b"${{", b"")]
    content = yaml.safe_load(written["Pulumi.yaml"])
    assert content["name"] == "123"
    assert "template" not in content
    assert yaml.safe_load(written["stacks/Pulumi.dev.yaml"])["config"]["slipway:namespace"] == "123"


def test_a_build_has_an_index_and_the_template_as_a_folder_and_as_an_archive(build: Path) -> None:
    content = files(build / publishing.TEMPLATE)
    assert content["requirements.txt"] == LOCK.encode()
    assert len(content) == 12
    with zipfile.ZipFile(build / publishing.ARCHIVE) as archive:
        names = archive.namelist()
        assert {name: archive.read(name) for name in names if not name.endswith("/")} == content
    # As Pulumi's CLI unpacks it, which creates no folder that is not listed.
    for at, name in enumerate(names):
        assert {f"{parent.as_posix()}/" for parent in PurePosixPath(name).parents[:-1]} <= {*names[:at]}, name
    before = (build / publishing.ARCHIVE).read_bytes()
    publishing.main(build)
    assert (build / publishing.ARCHIVE).read_bytes() == before
    page = (build / publishing.INDEX / "slipway-ml/index.html").read_text()
    package = build / "slipway_ml-1.2.3.tar.gz"
    assert f"../../{package.name}#sha256={sha256(package.read_bytes()).hexdigest()}" in page
    assert ".gitignore" not in page


def test_a_lock_keeps_the_extras_beside_the_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "slipway-ml"
    folder.mkdir()
    name = "slipway_ml-1.2.3-py3-none-any.whl"
    metadata = "Metadata-Version: 2.1\nName: slipway-ml\nVersion: 1.2.3\nProvides-Extra: rehearse\n"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr("slipway_ml-1.2.3.dist-info/METADATA", metadata)
        wheel.writestr("slipway_ml-1.2.3.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("slipway_ml-1.2.3.dist-info/RECORD", "")
    digest = sha256((folder / name).read_bytes()).hexdigest()
    (folder / "index.html").write_text(f'<a href="{name}#sha256={digest}">{name}</a>')
    monkeypatch.setattr(project, "version", lambda: "1.2.3")
    monkeypatch.setenv("UV_DEFAULT_INDEX", tmp_path.as_uri())

    requirements, warning = project.lock(["rehearse"])

    assert warning == ""
    assert "slipway-ml[rehearse]==1.2.3" in requirements.splitlines()[1]
    assert f"--hash=sha256:{digest}" in requirements
