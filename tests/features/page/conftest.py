"""A page in this process, in front of a small server that speaks TensorFlow Serving's REST API."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PIL import Image, ImageDraw
from starlette.testclient import TestClient

from slipway.features.page.pod import model
from slipway.features.page.pod.app import Options, Page
from slipway.features.page.pod.pixels import Sample
from tests.support.servers.serving_stub import ServedModel, ServingStub

Opened = Callable[..., TestClient]


def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What ``condition`` gives, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never was"
        time.sleep(0.01)
    return value


def seven(size: int = 280) -> Image.Image:
    """A seven, black on white, as someone would draw it."""
    image = Image.new("L", (size, size), 255)
    unit = size / 280
    points = [(80, 60), (200, 56), (140, 230)]
    ImageDraw.Draw(image).line(
        [(x * unit, y * unit) for x, y in points], fill=0, width=round(22 * unit), joint="curve"
    )
    return image


def file(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The content of an image file."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def state(page: TestClient) -> str:
    """What the page says of the model server."""
    return str(page.get("/api/status").json()["state"])


@pytest.fixture
def served() -> ServedModel:
    """What the server serves; a test may change it."""
    return ServedModel()


@pytest.fixture
def serving(served: ServedModel) -> Iterator[ServingStub]:
    """The server."""
    with ServingStub(served) as stub:
        yield stub


@pytest.fixture
def opened(serving: ServingStub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Opens a page in front of the server, with options of one's own, and waits until it knows the server."""
    monkeypatch.setattr(model, "POLL", 0.02)
    clients: list[TestClient] = []

    def opening(wait: str | None = "ready", **given: Any) -> TestClient:
        options = {"model": "digits", "ink": "light", "rate": 10_000.0, "rate_of_all": 10_000.0, **given}
        page = Page(Options(serving=serving.address, **options))
        client = TestClient(page.application(), raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        if wait:
            until(lambda: state(client) == wait)
        return client

    yield opening
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def page(opened: Opened) -> TestClient:
    """A page with two test images."""
    blank = Image.new("L", (28, 28))
    blank.paste(255, (12, 4, 16, 24))
    return opened(samples=(Sample(blank, "1"), Sample(seven(28), "7")))
