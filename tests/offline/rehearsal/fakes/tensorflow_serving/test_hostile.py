"""The fake's REST port against requests that would take it away from others. Each is sent on a socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.offline.rehearsal.fakes.tensorflow_serving.server import Server

pytestmark = pytest.mark.slow

PREDICT = "POST /v1/models/half:predict HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server without a model, which waits for half a second only."""
    # TensorFlow, which takes seconds to import.
    from slipway.offline.rehearsal.fakes.tensorflow_serving import rest

    monkeypatch.setattr(rest, "BODY_SECONDS", 0.5)
    server = rest.serve(rest.Service(cast("Any", None), rest.Metrics()), ("127.0.0.1", 0))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield ("127.0.0.1", server.server_address[1])
    server.shutdown()
    server.server_close()


def answered(address: tuple[str, int], request: str | bytes, *, end: bool = False) -> int:
    """The status of the answer to what is sent; with ``end`` nothing more follows."""
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(request.encode() if isinstance(request, str) else request)
        if end:
            connection.shutdown(socket.SHUT_WR)
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(
    ("length", "code"),
    [("-1", 400), ("x", 400), ("1e3", 400), ("", 400), (str(50 * 2**20), 413), ("9" * 400, 413)],
)
def test_a_length_that_cannot_be_is_refused_before_a_body_is_read(
    address: tuple[str, int], length: str, code: int
) -> None:
    assert answered(address, f"{PREDICT}Content-Length: {length}\r\n\r\n") == code
    assert answered(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200


def test_a_body_without_a_length_is_refused(address: tuple[str, int]) -> None:
    assert answered(address, f"{PREDICT}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n") == 411


def test_a_body_that_does_not_come_is_given_up(address: tuple[str, int]) -> None:
    assert answered(address, f"{PREDICT}Content-Length: 10\r\n\r\n{{") == 408


def test_a_body_that_drips_is_given_up(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(f"{PREDICT}Content-Length: 1000\r\n\r\n".encode())
        begin = time.monotonic()
        try:
            while time.monotonic() - begin < 5:
                connection.sendall(b"{")
                time.sleep(0.05)
        except OSError:
            pass
        assert time.monotonic() - begin < 5


def test_a_body_that_ends_early_is_refused(address: tuple[str, int]) -> None:
    assert answered(address, f"{PREDICT}Content-Length: 10\r\n\r\n{{", end=True) == 400


def test_a_body_of_nested_arrays_is_refused(address: tuple[str, int]) -> None:
    body = b"[" * 100_000
    assert answered(address, f"{PREDICT}Content-Length: {len(body)}\r\n\r\n".encode() + body) == 400


def nested(depth: int) -> str:
    return "[" * depth + "1" + "]" * depth


@pytest.mark.parametrize(
    "body",
    [
        f'{{"instances": {nested(70)}}}',
        f'{{"inputs": {nested(980)}}}',
        f'{{"inputs": 1, "instances": {nested(980)}}}',
        '{"signature_name": "\\ud800", "instances": [1]}',
        '{"instances": [{"\\udfff": 1}]}',
        f'{{"inputs": [{"1," * 8_000_000}1]}}',
        f'{{"instances": [{"1," * 200_000}1]}}',
        f'{{"instances": [{10**400}]}}',
    ],
    ids=["dimensions", "columns", "both", "half a character", "in a key", "values", "rows", "integer"],
)
def test_a_body_that_no_array_can_hold_is_refused(server: Server, body: str) -> None:
    assert server.post("/v1/models/half_plus_three:predict", body.encode())[0] == 400


def test_a_version_that_is_no_number_of_one_is_refused(server: Server) -> None:
    assert server.get(f"/v1/models/half_plus_three/versions/{'9' * 5000}")[0] == 400


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1:8501", 200),
        ("localhost:8501", 200),
        ("[::1]:8501", 200),
        ("mnist-serving", 200),
        ("attacker.example", 421),
        ("127.0.0.1.attacker.example:8501", 421),
    ],
)
def test_names_of_other_sites_are_not_answered(address: tuple[str, int], host: str, code: int) -> None:
    assert answered(address, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n") == code
