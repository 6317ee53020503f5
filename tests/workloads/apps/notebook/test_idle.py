"""What stops a notebook that nobody uses: a real JupyterLab is looked at, the Kubernetes API is this test's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websocket import create_connection

from tests.workloads.apps.notebook.servers import TOKEN, Lab, lab, until
from tests.workloads.json_server import Server, serving
from tests.workloads.steps import only_error, run

SCALE = "/apis/apps/v1/namespaces/slipway/statefulsets/mnist-notebook-1a2b/scale"
NOTES = "/api/v1/namespaces/slipway/configmaps/mnist-notebook-idle"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("kept")) as jupyter:
        yield jupyter


@pytest.fixture
def api() -> Iterator[Server]:
    with serving(lambda *_: (200, {"data": {"about": ""}})) as stub:
        yield stub


def scaled(api: Server) -> list[tuple[str, str, Any]]:
    return [request for request in api.asked if request[1] != NOTES]


def look(address: str, api: Server, folder: Path, after: int, code: int = 0, token: str = TOKEN) -> str:
    (folder / "token").write_text("of-the-service-account\n")
    return run(
        "apps.notebook.idle",
        *("--app", address, "--after", after, "--kind", "statefulset", "--scale", "mnist-notebook-1a2b"),
        *("--namespace", "slipway", "--notes", "mnist-notebook-idle"),
        *("--api", f"http://{api.address}", "--service-account", folder),
        code=code,
        APP_TOKEN=token,
    )


@pytest.mark.slow
def test_one_that_is_used_is_left_alone(server: Lab, api: Server, tmp_path: Path) -> None:
    assert server.ask("/api/contents")[0] == 200
    assert "Unused for" in look(server.address, api, tmp_path, after=3600)
    assert scaled(api) == []


@pytest.mark.slow
def test_one_that_nobody_uses_is_scaled_to_no_pod(server: Lab, api: Server, tmp_path: Path) -> None:
    output = look(server.address, api, tmp_path, after=0)
    assert scaled(api) == [("PATCH", SCALE, {"spec": {"replicas": 0}})]
    assert "kubectl --namespace slipway scale statefulset/mnist-notebook-1a2b --replicas=1" in output


@pytest.mark.slow
def test_looking_is_no_use(server: Lab, api: Server, tmp_path: Path) -> None:
    before = server.json("/api/status")["last_activity"]
    look(server.address, api, tmp_path, after=3600)
    assert server.json("/api/status")["last_activity"] == before


@pytest.mark.slow
def test_one_that_computes_is_used_however_long_it_says_nothing(server: Lab, api: Server, tmp_path: Path) -> None:
    kernel = server.json("/api/kernels", "POST", {})["id"]
    socket = create_connection(f"ws://{server.address}/api/kernels/{kernel}/channels?token={TOKEN}", timeout=60)
    try:
        socket.send(json.dumps(_execute("input_wait = __import__('time').sleep(600)")))
        until(lambda: _state(server, kernel) == "busy")
        assert "Unused for 0 s" in look(server.address, api, tmp_path, after=1)
        assert scaled(api) == []
    finally:
        socket.close()
        server.ask(f"/api/kernels/{kernel}", "DELETE")


@pytest.mark.slow
def test_one_that_does_not_answer_is_left_alone(api: Server, tmp_path: Path) -> None:
    assert "does not answer" in look("127.0.0.1:1", api, tmp_path, after=0)
    assert scaled(api) == []


@pytest.mark.slow
def test_another_token_is_named(server: Lab, api: Server, tmp_path: Path) -> None:
    output = look(server.address, api, tmp_path, after=0, code=1, token="another")
    assert "answered 403" in only_error(output)
    assert scaled(api) == []


@pytest.mark.slow
def test_an_api_that_refuses_is_named(server: Lab, tmp_path: Path) -> None:
    with serving(lambda _, path, __: (403, {"message": "no"}) if path == SCALE else (200, {})) as refusing:
        output = look(server.address, refusing, tmp_path, after=0, code=1)
    assert "answered 403" in only_error(output)


@pytest.mark.slow
def test_kernels_that_nobody_uses_are_ended(tmp_path: Path) -> None:
    with lab(tmp_path / "kept", idle=1) as server:
        kernel = server.json("/api/kernels", "POST", {})["id"]
        until(lambda: all(other["id"] != kernel for other in server.json("/api/kernels?no_track_activity=1")))


def _state(server: Lab, kernel: str) -> str:
    return server.json(f"/api/kernels/{kernel}?no_track_activity=1")["execution_state"]


def _execute(code: str) -> dict[str, Any]:
    """A request to a kernel (jupyter-client.readthedocs.io/en/latest/messaging.html, seen November 2026)."""
    header = {
        **{"msg_id": "1", "msg_type": "execute_request", "username": "", "session": "test", "date": ""},
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
