"""An image that is built in the cluster: by the command of its Job, with a real BuildKit and a real registry."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slipway.infra.container_registry import RegistryError, digest_of
from slipway.infra.kubernetes.image_builds.build import MODULE, SCRIPT, Built, options
from slipway.infra.kubernetes.image_builds.context import context_of
from slipway.infra.pipelines.images import BUILDKIT_IMAGE
from slipway.rehearse.machine.processes import free_ports
from slipway.runtime.image_builds.prepare import PUSHED
from tests.support.checkout import ROOT
from tests.support.tree import write_tree

pytestmark = pytest.mark.slow

PROGRAMS = ("buildctl", "buildctl-daemonless.sh", "buildkitd", "registry")
FOLDER = os.environ.get("SLIPWAY_BUILDKIT_DIR", "/opt/buildkit/bin")
"""Where they are beside `PATH`: built from the Go modules of BuildKit 0.33.0 and distribution 3.1.2."""

PATH = os.pathsep.join([FOLDER, os.environ.get("PATH", "")])
LACKING = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The host of a registry of this machine, which forgets nothing."""
    with served(tmp_path_factory.mktemp("registry")) as host:
        yield host


@contextmanager
def served(folder: Path, *, takes: bool = True) -> Iterator[str]:
    """The host of a registry that keeps its images in ``folder``, and ``takes`` new ones or none."""
    host = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {
        "version": 0.1,
        "storage": {
            "filesystem": {"rootdirectory": str(folder / "data")},
            "maintenance": {"readonly": {"enabled": not takes}},
        },
        "http": {"addr": host},
        "log": {"level": "error"},
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.yml").write_text(json.dumps(settings))
    command = [str(shutil.which("registry", path=PATH)), "serve", str(folder / "config.yml")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                digest_of(f"{host}/none:none")
            except RegistryError as error:
                if "has no image" in str(error):
                    break
        yield host
        running.terminate()


def build(place: Path, folder: Path, repository: str, *, fails: bool = False) -> tuple[str, str, Built]:
    """Does what the Job's pod does, container after container: what both say, what the pod's message is, and what
    was built. Where BuildKit ``fails`` there is no message."""
    built = Built("of-tests", context_of(folder), "docker")
    mounted, work = place / "mounted", place / "work"
    shutil.rmtree(place, ignore_errors=True)
    work.mkdir(parents=True)
    for name, content in built.context.files.contents.items():
        (mounted / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / name).write_bytes(content)
    variables = {"REFERENCE": f"{repository}:{built.tag}", "CACHE": f"{repository}:cache-of-tests"}
    executable = [f"--executable={path}" for path in built.context.executable]
    preparing = ["python3", "-m", MODULE, "--context", str(mounted), "--work", str(work)]
    preparing += ["--reference", variables["REFERENCE"], *executable]
    building = ["sh", SCRIPT, str(work)]
    for word in options(built.context):
        filled = word.replace("$(REFERENCE)", variables["REFERENCE"]).replace("$(CACHE)", variables["CACHE"])
        building.append(filled.replace("$$", "$"))
    environment = {
        **os.environ,
        "PATH": PATH,
        "MESSAGE": str(place / "message"),
        # As root there is nothing to be gained by a user namespace, and BuildKit makes none.
        "BUILDKITD_FLAGS": f"--root {place.parent / 'state'}",
        "BUILDCTL_CONNECT_RETRIES_MAX": "60",
    }
    said = ""
    for command in (preparing, building):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        said += done.stdout + done.stderr
        assert done.returncode == 0 or (fails and command is building), said
    return said, "" if fails else (place / "message").read_text(), built


@pytest.mark.skipif(bool(LACKING), reason=f"not on this machine: {', '.join(LACKING)}")
@pytest.mark.skipif(os.geteuid() != 0, reason="runs BuildKit as root, since a pod's user namespace is not at hand")
def test_an_image_is_built_pushed_and_found_again(tmp_path: Path, registry: str) -> None:
    folder, repository = tmp_path / "docker", f"{registry}/team/slipway"
    dockerfile = "FROM scratch\nARG WHO=nobody\nCOPY tool /bin/tool\nENV WHO=$WHO\n"
    write_tree(folder, {"Dockerfile": dockerfile, "tool": "#!/bin/sh\n"})
    (folder / "tool").chmod(0o755)
    said, digest, built = build(tmp_path / "first", folder, repository)
    assert "is not there yet: it is built now" in said
    # What the stack reads once the Job is done, and what a pod is given.
    assert digest_of(f"{repository}:{built.tag}") == digest
    said, again, _ = build(tmp_path / "second", folder, repository)
    assert "nothing is built" in said
    assert "buildkit" not in said
    assert again == digest
    (folder / "tool").write_text("#!/bin/sh\necho other\n")
    said, other, _ = build(tmp_path / "third", folder, repository)
    assert "it is built now" in said
    assert other != digest
    assert digest_of(f"{repository}:{built.tag}") == digest


@pytest.mark.skipif(bool(LACKING), reason=f"not on this machine: {', '.join(LACKING)}")
@pytest.mark.skipif(os.geteuid() != 0, reason="runs BuildKit as root, since a pod's user namespace is not at hand")
def test_an_image_that_cannot_be_pushed_leaves_no_tag_and_is_built_by_the_next_try(tmp_path: Path) -> None:
    write_tree(tmp_path / "docker", {"Dockerfile": "FROM scratch\nCOPY tool /tool\n", "tool": "one"})
    with served(tmp_path / "registry", takes=False) as host:
        said, _, built = build(tmp_path / "first", tmp_path / "docker", f"{host}/team/slipway", fails=True)
        with pytest.raises(RegistryError, match="has no image"):
            digest_of(f"{host}/team/slipway:{built.tag}")
    assert "no image was tagged" in said
    assert not (tmp_path / "first" / "message").exists()
    with served(tmp_path / "registry") as host:
        said, digest, _ = build(tmp_path / "second", tmp_path / "docker", f"{host}/team/slipway")
        assert "it is built now" in said
        assert digest_of(f"{host}/team/slipway:{built.tag}") == digest


def test_the_image_that_builds_is_named_by_digest() -> None:
    assert BUILDKIT_IMAGE.startswith("moby/buildkit:v0.33.0-rootless@sha256:")


def test_arguments_reach_buildkit_as_they_are(tmp_path: Path) -> None:
    write_tree(tmp_path, {"docker/app.Dockerfile": "FROM scratch\n"})
    words = options(context_of(tmp_path, "docker/app.Dockerfile", {"PRICE": "$(5)"}))
    assert "filename=docker/app.Dockerfile" in words
    # Kubernetes would take `$(5)` for a variable.
    assert "build-arg:PRICE=$$(5)" in words


def test_a_login_that_is_none_is_said_without_what_stands_in_it() -> None:
    with pytest.raises(RegistryError, match="no configuration of Docker's") as caught:
        digest_of("registry.example.org/a:t", "pass-word")
    # Nor is it in what led to the error, which a traceback would show.
    assert "pass-word" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_the_script_says_what_is_there_without_buildkit(tmp_path: Path) -> None:
    (tmp_path / PUSHED).write_text("sha256:" + "3" * 64)
    environment = {"PATH": "/usr/bin:/bin", "MESSAGE": str(tmp_path / "message")}
    done = subprocess.run(
        ["sh", SCRIPT, str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == (tmp_path / "message").read_text() == "sha256:" + "3" * 64
