"""``make pin-images``: the registries' digests in the data file, or the file as it was."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.command.pin_images import main, with_registry, write
from slipway.infra.pipelines.images import DATA, IMAGES, pinned, read

DIGEST = f"sha256:{'ab' * 32}"
OTHER = f"sha256:{'cd' * 32}"

FILE = """\
# What others run.

[tf]
repository = "{host}/tf"
tags = ["2.21.0", "2.21.0-gpu"]

[tf.digests]

# A note that stays.
[queue]
repository = "{host}/queue"
tags = ["9"]

# Read somewhere else.
[queue.digests]
"9" = "{other}"
"""


class Registry(http.server.BaseHTTPRequestHandler):
    """Answers as a registry that wants a token; ``answer`` is the digest that it tells."""

    answer = DIGEST

    def do_GET(self) -> None:
        body = json.dumps({"token": "a-token"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        if self.headers["Authorization"] != "Bearer a-token":
            self.send_response(401)
            self.send_header(
                "WWW-Authenticate", f'Bearer realm="http://{self.headers["Host"]}/token",service="here"'
            )
        else:
            known = self.path in {f"/v2/{each}" for each in ("tf/manifests/2.21.0", "tf/manifests/2.21.0-gpu")}
            known = known or self.path == "/v2/queue/manifests/9"
            self.send_response(200 if known and "image.index" in self.headers["Accept"] else 404)
            self.send_header("Docker-Content-Digest", self.answer)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(name="file")
def a_data_file_of_a_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(Registry, "answer", DIGEST)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = tmp_path / "images.toml"
    file.write_text(FILE.format(host=f"127.0.0.1:{server.server_address[1]}", other=OTHER), encoding="utf-8")
    yield file
    server.shutdown()
    server.server_close()


def digests(file: Path) -> list[str]:
    return [digest for images in read(file).values() for digest in images.values()]


@pytest.mark.slow
def test_every_image_gets_the_digest_that_its_registry_has(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_text(encoding="utf-8")
    assert main(file) == 0
    assert digests(file) == [DIGEST, DIGEST, DIGEST]
    told = capsys.readouterr()
    assert "the publisher has moved" in told.err, "a pinned tag that names something else now is said"
    assert OTHER in told.err
    assert told.err.count("\n") == 1
    after = file.read_text(encoding="utf-8")
    assert "# A note that stays." in after
    assert "Read somewhere else" not in after, "the digest is the registry's now"
    assert after != before
    assert main(file) == 0
    assert file.read_text(encoding="utf-8") == after
    assert capsys.readouterr().err == ""
    assert [path.name for path in file.parent.iterdir()] == ["images.toml"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("2.21.0-gpu", "2.22.0", "/tf:2.22.0"),
        ('"127.0.0.1:', '"127.0.0.1:1/', "127.0.0.1:1"),
    ],
    ids=["no such tag", "no such registry"],
)
def test_nothing_changes_where_one_digest_cannot_be_had(
    file: Path, capsys: pytest.CaptureFixture[str], right: str, wrong: str, says: str
) -> None:
    text = file.read_text(encoding="utf-8").replace(right, wrong)
    file.write_text(text, encoding="utf-8")
    assert main(file) == 1
    assert file.read_text(encoding="utf-8") == text
    told = capsys.readouterr()
    assert says in told.err
    assert "stays as it is" in told.err
    assert told.out == ""


@pytest.mark.slow
def test_an_answer_that_is_no_digest_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "answer", 'sha256:1"\nversion = "evil')
    assert main(file) == 1
    assert "evil" not in file.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_project_pins_in_a_file_of_its_own(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, pins = file.read_text(encoding="utf-8"), file.with_name("image-digests.toml")
    assert main(file, pins) == 0
    assert file.read_text(encoding="utf-8") == text
    assert {*pinned(pins).values()} == {DIGEST}
    assert [*pinned(pins)] == [image for images in read(file).values() for image in images]
    capsys.readouterr()
    assert main(file, pins) == 0
    assert capsys.readouterr().err == "", "what is pinned is what the registry has"


def test_all_images_of_the_data_file_can_be_pinned(tmp_path: Path) -> None:
    file = tmp_path / "images.toml"
    file.write_text(DATA.read_text(encoding="utf-8"), encoding="utf-8")
    names = [image for images in IMAGES.values() for image in images]
    write(dict.fromkeys(names, DIGEST), file)
    assert set(digests(file)) == {DIGEST}
    assert [image for images in read(file).values() for image in images] == names


@pytest.mark.parametrize(
    ("image", "whole"),
    [
        ("tensorflow/tensorflow:2.21.0", "docker.io/tensorflow/tensorflow:2.21.0"),
        ("quay.io/podman/stable:v1", "quay.io/podman/stable:v1"),
        ("localhost:5000/a:1", "localhost:5000/a:1"),
    ],
)
def test_an_image_without_a_registry_is_of_docker_hub(image: str, whole: str) -> None:
    assert with_registry(image) == whole
