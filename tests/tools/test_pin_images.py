"""``make pin-images``: the registry's digests in the data file, or the file as it was."""

import http.server
import json
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.pipelines import images
from tools.pin_images import RegistryError, digest_of, write

DIGEST = f"sha256:{'ab' * 32}"


class Registry(http.server.BaseHTTPRequestHandler):
    """Answers as Docker Hub does; ``answer`` is the digest that it tells."""

    answer = DIGEST

    def do_GET(self) -> None:
        body = json.dumps({"token": "a-token"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        known = self.headers["Authorization"] == "Bearer a-token" and self.path == "/tf/manifests/2.21.0"
        self.send_response(200 if known and "image.index" in self.headers["Accept"] else 404)
        self.send_header("Docker-Content-Digest", self.answer)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(name="registry")
def a_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Registry, "answer", DIGEST)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def asked(registry: str, tag: str) -> str:
    return digest_of("tf", tag, f"{registry}/token", f"{registry}/{{repository}}/manifests/{{tag}}")


def test_the_digest_is_the_one_that_the_registry_has(registry: str) -> None:
    assert asked(registry, "2.21.0") == DIGEST


def test_a_tag_that_is_not_there_is_one_plain_error(registry: str) -> None:
    with pytest.raises(RegistryError, match=r"no digest of tf:2\.22\.0: .*(404|Not Found)"):
        asked(registry, "2.22.0")


def test_an_answer_that_is_no_digest_is_refused(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "answer", 'sha256:1"\nversion = "evil')
    with pytest.raises(RegistryError):
        asked(registry, "2.21.0")


def test_a_registry_that_cannot_be_reached_is_one_plain_error() -> None:
    with pytest.raises(RegistryError, match=r"no digest of tf:2\.21\.0"):
        asked("http://127.0.0.1:9", "2.21.0")


def test_pinned_images_are_named_by_tag_and_digest(tmp_path: Path) -> None:
    file = tmp_path / "images.toml"
    file.write_text(images.DATA.read_text(encoding="utf-8"), encoding="utf-8")
    for _ in range(2):
        of_serving = [("2.21.0", DIGEST), ("2.21.0-gpu", DIGEST)]
        write([("2.21.0", DIGEST), ("2.21.0-gpu", DIGEST)], DIGEST, of_serving, file)
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    assert found["digests"] == found["serving"]["digests"] == {"2.21.0": DIGEST, "2.21.0-gpu": DIGEST}
    assert found["valkey"] == {"repository": "valkey/valkey", "version": "9.1.2", "digest": DIGEST}
    assert "ocelhq" not in file.read_text(encoding="utf-8"), "the digest is the registry's now"
    assert file.read_text(encoding="utf-8").startswith("# TensorFlow's official container images")
    assert [each.name for each in tmp_path.iterdir()] == ["images.toml"]
