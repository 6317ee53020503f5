"""The stub of TensorFlow Serving answers as apps of a rehearsal ask it, with what was published last."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.features.serving.pod import publish
from slipway.rehearse.machine.processes import free_ports
from tests.support.checkout import ROOT

pytestmark = pytest.mark.slow

MODULE = "slipway.features.serving.stub"


class Server:
    """The stub over a folder of versions, of which each multiplies by another number."""

    def __init__(self, folder: Path) -> None:
        from tests.features.serving.models import requests

        (self.port,) = free_ports(1)
        self.folder, self.requests = folder, requests(folder / "requests.npz")
        self.publish(2)
        self.log = folder / "log"
        flags = [f"--rest_api_port={self.port}", f"--model_config_file={folder / 'versions/models.config'}"]
        flags += ["--model_config_file_poll_wait_seconds=0.1", "--port=1", "--enable_batching=true"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", MODULE, *flags], cwd=ROOT, stdout=log, stderr=log
            )

    def publish(self, factor: int) -> None:
        from tests.features.serving.models import save

        model = save(self.folder / f"model-{factor}", factor)
        words = ["--name", "numbers", "--model", model, "--versions", self.folder / "versions"]
        publish.main([*map(str, [*words, "--requests", self.requests, "--output", self.folder / "report"])])

    def ask(self, path: str, body: object = None, host: str = "localhost") -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def answering(self, version: int) -> None:
        """Wait until that version answers."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()
            try:
                [status] = self.ask("/v1/models/numbers")[1]["model_version_status"]
            except OSError:
                status = {}
            if (status.get("version"), status.get("state")) == (str(version), "AVAILABLE"):
                return
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        # The tests' own process keeps its handlers.
        patch.setattr(publish, "stop_on_sigterm", lambda *_: None)
        server = Server(tmp_path_factory.mktemp("stub"))
        server.answering(1)
        yield server
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0


def test_it_predicts_and_says_what_the_model_takes(server: Server) -> None:
    _, metadata = server.ask("/v1/models/numbers/metadata")
    signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    [(name, tensor)] = signature["inputs"].items()
    assert tensor["dtype"] == "DT_FLOAT"
    assert [dimension["size"] for dimension in tensor["tensor_shape"]["dim"]] == ["-1", "2"]
    rows = [[1.0, 2.0], [4.0, 3.0]]
    code, plain = server.ask("/v1/models/numbers/versions/1:predict", {"instances": rows})
    assert (code, len(plain["predictions"])) == (200, 2)
    assert server.ask("/v1/models/numbers:predict", {"instances": [{name: row} for row in rows]}) == (200, plain)
    assert "it ignores --port=1 --enable_batching=true" in server.log.read_text()


@pytest.mark.parametrize(
    ("path", "body", "host", "code"),
    [
        ("/v1/models/other", None, "localhost", 404),
        ("/v1/models/numbers/versions/7:predict", {"instances": []}, "localhost", 404),
        ("/v1/models/numbers:classify", {"examples": []}, "localhost", 400),
        ("/v1/models/numbers:predict", {"instances": [[1.0, "two"]]}, "localhost", 400),
        ("/v1/models/numbers:predict", [1], "localhost", 400),
        ("/v1/models/numbers", None, "attacker.example", 421),
    ],
)
def test_what_it_has_no_answer_to_is_an_error(
    server: Server, path: str, body: object, host: str, code: int
) -> None:
    status, answer = server.ask(path, body, host)
    assert status == code
    assert answer["error"]


def test_the_next_version_is_taken_up_and_a_broken_one_leaves_the_last(server: Server) -> None:
    rows = {"instances": [[1.0, 2.0]]}
    before = server.ask("/v1/models/numbers:predict", rows)
    config = server.folder / "versions" / "models.config"
    whole = config.read_text()
    config.write_text(whole.replace("versions: 1", "versions: 9"))
    time.sleep(1)
    assert server.ask("/v1/models/numbers:predict", rows) == before
    server.publish(3)
    server.answering(2)
    assert server.ask("/v1/models/numbers:predict", rows) != before
    assert server.ask("/v1/models/numbers/versions/1:predict", rows)[0] == 404
