"""The page as a process, as a pod starts it: real connections, some of them of nobody who means well."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from slipway.features.page.feature import Page, PageSettings, Pictures, declaration
from slipway.features.page.pod.__main__ import main
from slipway.features.page.pod.pixels import SIDE
from slipway.rehearse.machine.processes import free_ports
from tests.features.page.conftest import seven, until
from tests.features.page.processes import Running, answers, process, serve
from tests.support.servers.serving_stub import ServedModel, ServingStub

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.fixture
def running(serving: ServingStub) -> Iterator[Running]:
    with serve(serving) as page:
        yield page


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    """A page that tests leave as it was."""
    with ServingStub(ServedModel()) as serving, serve(serving) as page:
        yield page


def received(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = bytearray()
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            parts += part
    return bytes(parts)


def healthy(connection: socket.socket) -> bytes:
    """What the page says when it is asked for its health; the connection stays open."""
    connection.sendall(HEALTH)
    said = b""
    while not said.endswith(b"\r\n\r\nok\n"):
        part = connection.recv(65536)
        assert part, said
        said += part
    return said


@pytest.mark.slow
def test_fifty_megabytes_are_refused_at_their_header(shared: Running) -> None:
    with shared.connection() as connection:
        connection.sendall(
            b"POST /api/predict HTTP/1.1\r\nhost: a\r\ncontent-length: 50000000\r\nexpect: 100-continue\r\n\r\n"
        )
        said = connection.recv(65536)
        assert said.startswith(b"HTTP/1.1 413"), said
        assert b"100 Continue" not in said
    assert shared.healthy()


@pytest.mark.parametrize("declared", [True, False])
def test_fifty_megabytes_fill_no_memory(shared: Running, declared: bool) -> None:
    process = psutil.Process(shared.process.pid)
    before = process.memory_info().rss
    most = before
    with shared.connection() as connection:
        length = b"content-length: 50000000" if declared else b"transfer-encoding: chunked"
        connection.sendall(b"POST /api/predict HTTP/1.1\r\nhost: a\r\n" + length + b"\r\n\r\n")
        with contextlib.suppress(ConnectionError, TimeoutError):
            for _ in range(50):
                block = b"x" * 1_000_000
                connection.sendall(block if declared else b"f4240\r\n" + block + b"\r\n")
                most = max(most, process.memory_info().rss)
        with contextlib.suppress(ConnectionError):
            said = connection.recv(65536)
            assert said.startswith(b"HTTP/1.1 413"), said
    assert most - before < 10 * 2**20
    assert shared.healthy()


def test_a_header_without_end_is_refused(shared: Running) -> None:
    with shared.connection() as connection:
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                connection.sendall(b"x" * 1000)
        assert b"200 OK" not in received(connection)
    assert shared.healthy()


@pytest.mark.slow
def test_connections_that_say_nothing_are_closed(shared: Running) -> None:
    """Silent ones, and those that send a byte now and then."""
    silent = shared.connection()
    slow = shared.connection()
    slow.sendall(b"GET / HT")
    idle = shared.connection()
    idle.sendall(HEALTH)
    for connection in (silent, slow, idle):
        with connection:
            received(connection)
    assert shared.healthy()


@pytest.mark.slow
def test_a_proxy_finds_its_connections_open_when_visitors_would_not(shared: Running, serving: ServingStub) -> None:
    """A load balancer asks again on connections that it has kept for minutes, and answers 502 if one ends then."""
    with serve(serving, "--proxies", "1") as proxied, proxied.connection() as kept:
        healthy(kept)
        with shared.connection() as visitor:
            healthy(visitor)
            assert received(visitor) == b"", "closed"
        healthy(kept)


def test_what_is_no_http_is_refused(shared: Running) -> None:
    for said in (b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"\r\n" * 50 + b"\0" * 70000):
        with shared.connection() as connection:
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            assert b"200 OK" not in received(connection)
    for path in (b"/../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"//etc/passwd", b"/page.js/../../app.py"):
        with shared.connection() as connection:
            connection.sendall(b"GET " + path + b" HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            assert b" 404 " in received(connection).split(b"\r\n")[0]
    assert shared.healthy()


@pytest.mark.slow
def test_it_ends_with_sigterm_and_answers_what_it_has_begun(running: Running, serving: ServingStub) -> None:
    serving.model.seconds = 0.5
    body = seven(SIDE).tobytes()
    with running.connection() as connection:
        connection.sendall(
            b"POST /api/predict HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        until(lambda: any(path.endswith(":predict") for path in serving.model.asked))
        running.process.send_signal(signal.SIGTERM)
        assert b"200 OK" in received(connection)
    assert running.process.wait(30) in {0, -signal.SIGTERM}


@pytest.mark.slow
def test_an_idle_connection_does_not_keep_the_server(running: Running) -> None:
    with running.connection() as idle:
        running.process.send_signal(signal.SIGTERM)
        assert received(idle) == b""
    assert running.process.wait(30) in {0, -signal.SIGTERM}


@pytest.mark.slow
def test_it_starts_as_a_pod_starts_it(serving: ServingStub, data: Path) -> None:
    """With the arguments of the declaration, and the address of the server in the environment."""
    declared = declaration(
        "try",
        PageSettings(pool="cpu"),
        Page(
            serving="model-server",
            model="digits",
            title="{Digits} -- 0 to 9",
            labels=["--nil", *"123456789"],
            samples="{prepare}/images",
            pictures=Pictures(ink="light"),
        ),
        {"prepare": "prepare"},
    )
    (port,) = free_ports(1)
    known = {"port": str(port), "prepare": str(data)}
    words = [word.format(**known) for word in declared.arguments]
    words = ["127.0.0.1" if word == "0.0.0.0" else word for word in words]
    with process(*words, environment={"MODEL_SERVER_ADDRESS": serving.address.removeprefix("http://")}):
        status = until(lambda: answers(f"http://127.0.0.1:{port}/api/status"))
        assert b'"samples":10' in status
        assert b"{Digits} -- 0 to 9" in (answers(f"http://127.0.0.1:{port}/") or b"")
        assert b'"--nil"' in until(lambda: answers(f"http://127.0.0.1:{port}/api/status"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "a"], "--serving"),
        (["--serving", "file:///etc/passwd", "--model", "a"], "not the address"),
        (["--serving", "http://a b", "--model", "a"], "not the address"),
        (["--serving", "http://user:secret@host", "--model", "a"], "not the address"),
        (["--serving-variable", "NOBODY_SET_IT", "--model", "a"], "NOBODY_SET_IT"),
        (["--serving", "localhost:1", "--model", "a", "--samples", "/nothing/here"], "/nothing/here"),
        (["--serving", "localhost:1", "--model", "a", "--port", "70000"], "--port"),
        (["--serving", "localhost:1", "--model", "a", "--rate", "0"], "--rate"),
        (["--serving", "localhost:1", "--model", "a", "--ink", "any"], "--ink"),
    ],
)
def test_arguments_that_cannot_be_used_are_said(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
