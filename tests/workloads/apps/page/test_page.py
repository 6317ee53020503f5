"""The page's server, in front of a server that speaks TensorFlow Serving's REST API."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import logging
import re
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from prometheus_client import generate_latest
from starlette.testclient import TestClient

from slipway.workloads.apps.page.app import STATIC, Options, application
from slipway.workloads.apps.page.limits import Bounds
from slipway.workloads.apps.page.middleware import Metrics
from slipway.workloads.apps.page.model import Pictures
from slipway.workloads.apps.page.samples import Sample
from tests.support.servers.serving_stub import ServedModel, ServingStub
from tests.workloads.apps.page.conftest import GENEROUS, Opened, file, seven, state, until

EVERY_PATH = ("/", "/page.css", "/page.js", "/icon.svg", "/api/status", "/api/sample", "/healthz", "/nothing")


@pytest.mark.slow
def test_a_seven_that_someone_drew_is_read(page: TestClient, served: ServedModel) -> None:
    served.versions = {4: "AVAILABLE"}
    until(lambda: page.get("/api/status").json()["version"] == 4)
    answer = page.post("/api/predict?source=drawing", content=file(seven())).json()
    assert answer["labels"][answer["best"]] == "7"
    assert answer["version"] == 4
    assert answer["truth"] is None
    assert len(answer["probabilities"]) == 10
    assert abs(sum(answer["probabilities"]) - 1) < 1e-3
    assert answer["milliseconds"]["serving"] > 0
    seen = Image.open(io.BytesIO(base64.b64decode(answer["seen"]["png"])))
    assert seen.size == (28, 28)
    # The model reads light on dark.
    assert seen.getpixel((0, 0)) == 0
    assert seen.getextrema()[1] == 255


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_an_upload_of_either_ground_is_read(page: TestClient, kind: str) -> None:
    for image in (seven(), Image.eval(seven(), lambda level: 255 - level), seven().convert("RGB")):
        answer = page.post("/api/predict", content=file(image, kind)).json()
        assert answer["labels"][answer["best"]] == "7", kind


def test_a_photograph_lies_as_it_was_taken(page: TestClient) -> None:
    """A phone stores the picture as its sensor has it, and says how it was held."""
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = seven(1600).transpose(Image.Transpose.ROTATE_90).convert("RGB")
    answer = page.post("/api/predict", content=file(lying, "JPEG", exif=exif)).json()
    assert answer["labels"][answer["best"]] == "7"


def test_a_random_image_is_held_out_and_its_truth_comes_with_the_answer(page: TestClient) -> None:
    numbers = {page.get("/api/sample").json()["sample"] for _ in range(50)}
    assert numbers == {0, 1}
    assert page.get("/api/sample?not=0").json()["sample"] == 1
    assert "label" not in page.get("/api/sample").text
    answer = page.post("/api/predict?sample=1").json()
    assert (answer["truth"], answer["best"]) == (7, 7)
    assert page.post("/api/predict?sample=0").json()["truth"] == 1


@pytest.mark.parametrize("number", ["2", "-1", "1e3", "²", "0" * 5000, ""])
def test_samples_that_are_not_there(page: TestClient, number: str) -> None:
    assert page.post("/api/predict", params={"sample": number}).status_code == 404


def test_a_page_without_samples_says_so(opened: Opened) -> None:
    page = opened()
    assert page.get("/api/status").json()["samples"] == 0
    assert page.get("/api/sample").status_code == 404


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"not an image", "not a PNG, JPEG or WebP"),
        (file(seven())[:400], "damaged"),
        (file(seven(), "JPEG")[:900], "damaged"),
        (file(seven(), "GIF"), "not a PNG, JPEG or WebP"),
        (file(seven(), "BMP"), "not a PNG, JPEG or WebP"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a PNG, JPEG or WebP"),
        (b"http://169.254.169.254/latest/meta-data", "not a PNG, JPEG or WebP"),
        (file(Image.new("L", (280, 280), 255)), "blank"),
        (file(Image.new("1", (20_000, 20_000))), "too many pixels"),
        (file(Image.new("1", (5_000, 4_000))), "too many pixels"),
    ],
)
def test_what_is_no_image_is_refused_in_words(page: TestClient, content: bytes, said: str) -> None:
    answer = page.post("/api/predict", content=content)
    assert answer.status_code == 422
    assert said in answer.json()["error"]
    assert state(page) == "ready"


def test_a_file_that_is_too_large_is_refused(opened: Opened) -> None:
    page = opened(bounds=replace(GENEROUS, body=10_000))
    assert page.post("/api/predict", content=b"x" * 10_001).status_code == 413
    parts = (b"x" * 1000 for _ in range(11))
    assert page.post("/api/predict", content=parts).status_code == 413
    assert page.post("/api/predict", content=file(seven())).status_code == 200


def test_every_answer_has_the_headers_that_keep_browsers_safe(page: TestClient) -> None:
    answers = [page.get(path) for path in EVERY_PATH]
    answers += [page.post("/api/predict", content=b"no"), page.put("/"), page.get("/api/predict")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in answer.headers
        assert "server" not in answer.headers


def test_a_failure_shows_visitors_nothing_of_the_inside(
    page: TestClient, serving: ServingStub, served: ServedModel, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object) -> list[float]:
        raise ValueError("a shape is wrong")

    served.answer = refuse
    answer = page.post("/api/predict", content=file(seven()))
    assert answer.status_code == 502
    assert answer.json() == {"error": "The model server refused this image."}
    # Who runs the page is told more.
    assert "a shape is wrong" in caplog.text


def test_an_error_of_its_own_is_one_sentence(
    opened: Opened, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened()
    monkeypatch.setattr("slipway.workloads.apps.page.app.prepare", lambda *_, **__: 1 / 0)
    answer = page.post("/api/predict", content=file(seven()))
    assert answer.status_code == 500
    assert answer.json() == {"error": "Something went wrong here. It has been noted."}
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_other_sites_cannot_ask(page: TestClient) -> None:
    refused = page.post("/api/predict", content=file(seven()), headers={"sec-fetch-site": "cross-site"})
    assert refused.status_code == 403
    taken = page.post("/api/predict", content=file(seven()), headers={"sec-fetch-site": "same-origin"})
    assert taken.status_code == 200


@pytest.mark.parametrize(
    ("origin", "code"),
    [("http://testserver", 200), ("https://testserver", 200), ("https://attacker.example", 403), ("null", 403)],
)
def test_other_origins_cannot_ask(page: TestClient, origin: str, code: int) -> None:
    assert page.post("/api/predict", content=file(seven()), headers={"origin": origin}).status_code == code


@pytest.mark.parametrize("path", ["/", "/api/status"])
def test_names_of_other_sites_are_not_answered(opened: Opened, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("SLIPWAY_HOSTS", "page.team.example")
    page = opened()
    for host in ("testserver", "page.team.example", "PAGE.team.example:443", "10.4.0.7:8080", "localhost:8080"):
        assert page.get(path, headers={"host": host}).status_code == 200, host
    refused = page.get(path, headers={"host": "attacker.example"})
    assert refused.status_code == 421
    assert refused.headers["x-content-type-options"] == "nosniff"
    assert page.get("/healthz", headers={"host": "attacker.example"}).status_code == 200


def test_a_new_version_is_taken_up(page: TestClient, served: ServedModel) -> None:
    served.versions = {1: "AVAILABLE", 2: "LOADING"}
    assert page.post("/api/predict", content=file(seven())).json()["version"] == 1
    served.versions = {1: "UNLOADING", 2: "AVAILABLE"}
    # The page may still believe in the first one: then it looks, and asks again.
    assert page.post("/api/predict", content=file(seven())).json()["version"] == 2
    assert page.get("/api/status").json()["version"] == 2


def test_a_server_in_the_place_of_another_has_a_model_of_another_form(
    page: TestClient, served: ServedModel
) -> None:
    """The version has the same number, so that nothing says that it is another one."""
    served.shape = (32, 32, 1)
    served.answer = lambda instance: [0.0] * 9 + [9.0] if len(instance) == 32 else []

    def predict() -> Any:
        return page.post("/api/predict", content=file(seven())).json()

    until(lambda: predict().get("best") == 9)
    assert predict()["seen"]["width"] == 32


def test_it_says_that_the_server_is_away_and_comes_back_by_itself(
    page: TestClient, serving: ServingStub, served: ServedModel
) -> None:
    serving.close()
    answer = page.post("/api/predict", content=file(seven()))
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    until(lambda: state(page) == "away")
    assert "cannot be reached" in page.get("/api/status").json()["reason"]
    assert page.get("/healthz").status_code == 200
    assert page.get("/").status_code == 200
    with ServingStub(served, port=serving.port):
        until(lambda: state(page) == "ready")
        assert page.post("/api/predict", content=file(seven())).status_code == 200


def test_a_pod_of_the_server_that_ends_is_not_seen_by_visitors(opened: Opened, served: ServedModel) -> None:
    # Looks at the versions are far apart: it is the request for a prediction whose connection is cut.
    page = opened(poll=3600)
    served.cut = 1
    assert page.post("/api/predict", content=file(seven())).status_code == 200
    assert served.cut == 0
    served.cut = 9
    assert page.post("/api/predict", content=file(seven())).status_code == 503


def test_a_look_whose_connection_is_cut_is_no_server_that_is_away(opened: Opened, served: ServedModel) -> None:
    served.cut = 1
    page = opened(wait=None, poll=3600)
    until(lambda: state(page) != "waiting")
    assert state(page) == "ready"


def test_what_the_server_does_with_a_version_is_said(opened: Opened, served: ServedModel) -> None:
    served.versions = {3: "LOADING"}
    page = opened(wait="waiting")
    until(lambda: "loads version 3" in page.get("/api/status").json()["reason"])
    served.versions = {}
    until(lambda: "no version" in page.get("/api/status").json()["reason"])
    served.versions = {3: "AVAILABLE"}
    until(lambda: state(page) == "ready")


def test_a_server_that_takes_too_long_is_given_up(opened: Opened, served: ServedModel) -> None:
    page = opened(bounds=replace(GENEROUS, timeout=0.2))
    served.seconds = 2
    assert page.post("/api/predict", content=file(seven())).status_code == 503


@pytest.mark.slow
def test_a_server_that_answers_byte_by_byte_is_given_up() -> None:
    def trickle(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=drip, args=(connection,), daemon=True).start()

    def drip(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
            while not ended.wait(0.1):
                connection.sendall(b" ")

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=trickle, args=(server,), daemon=True).start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        options = Options(address, "digits", bounds=Bounds(timeout=0.5), poll=0.02)
        with TestClient(application(options)) as page:
            until(lambda: state(page) == "away")
        ended.set()


def test_who_asks_too_fast_waits(opened: Opened) -> None:
    page = opened(bounds=replace(GENEROUS, rate=0.5, proxies=1))
    first = {"x-forwarded-for": "10.0.0.1"}
    assert page.post("/api/predict", content=file(seven()), headers=first).status_code == 200
    refused = page.post("/api/predict", content=file(seven()), headers=first)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    # Others are served, whatever they say of themselves.
    other = {"x-forwarded-for": "10.0.0.1, 10.0.0.2"}
    assert page.post("/api/predict", content=file(seven()), headers=other).status_code == 200
    # Nobody passes for another by a header of his own.
    again = {"x-forwarded-for": "203.0.113.9, 10.0.0.1"}
    assert page.post("/api/predict", content=file(seven()), headers=again).status_code == 429


def test_all_together_are_bounded(opened: Opened) -> None:
    page = opened(bounds=replace(GENEROUS, rate_of_all=1, proxies=1))
    hosts = itertools.count(1)

    def refused() -> Any:
        other = {"x-forwarded-for": f"10.0.0.{next(hosts)}"}
        answer = page.post("/api/predict", content=file(seven()), headers=other)
        return answer.status_code == 429 and answer

    assert "many people" in until(refused).json()["error"]


def test_browsers_ask_again_only_for_what_changed(page: TestClient) -> None:
    first = page.get("/page.js")
    again = page.get("/page.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_page_needs_nothing_from_elsewhere() -> None:
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path
        assert "innerHTML" not in text
    assert not re.search(r"style=|onclick=|<script>|<style", (STATIC / "index.html").read_text(encoding="utf-8"))


def test_a_title_is_text(opened: Opened) -> None:
    text = opened(title="<script>alert(1)</script> & more").get("/").text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text


def test_prometheus_is_told(opened: Opened) -> None:
    metrics = Metrics()
    page = opened(metrics=metrics)
    page.post("/api/predict?source=drawing", content=file(seven()))
    page.post("/api/predict", content=b"no")
    page.get("/some/path/of/a/scanner")
    text = generate_latest(metrics.registry).decode()
    assert 'slipway_page_predictions_total{source="drawing",version="1"} 1.0' in text
    assert 'slipway_page_refused_total{reason="image"} 1.0' in text
    assert 'slipway_page_requests_total{route="other",status="404"} 1.0' in text
    assert "slipway_page_serving_up 1.0" in text
    assert "slipway_page_model_version 1.0" in text
    assert "scanner" not in text
    # Visitors do not see it.
    assert page.get("/metrics").status_code == 404


class TestOtherClassifiers:
    """Colours, numbers with a point, other sizes, names as labels, shares in place of logits."""

    def test_a_model_of_photographs(self, opened: Opened, served: ServedModel) -> None:
        instances: list[object] = []

        def answer(instance: object) -> list[float]:
            instances.append(instance)
            return [0.1, 0.7, 0.2]

        served.dtype, served.shape, served.classes, served.answer = "DT_FLOAT", (-1, -1, 3), 3, answer
        page = opened(
            labels=("daisy", "rose", "tulip"), pictures=Pictures(width=6, height=4, black=-1.0, white=1.0)
        )
        red = Image.new("RGB", (300, 200), (255, 0, 127))
        prediction = page.post("/api/predict", content=file(red)).json()
        assert prediction["labels"][prediction["best"]] == "rose"
        assert prediction["probabilities"] == [0.1, 0.7, 0.2]
        (rows,) = instances
        assert isinstance(rows, list)
        assert (len(rows), len(rows[0]), len(rows[0][0])) == (4, 6, 3)
        assert rows[2][3] == pytest.approx([1.0, -1.0, -0.004], abs=0.01)

    def test_a_model_that_decodes_files_itself(self, opened: Opened, served: ServedModel) -> None:
        instances: list[dict[str, str]] = []

        def answer(instance: dict[str, str]) -> list[float]:
            instances.append(instance)
            return [2.0, 1.0]

        served.dtype, served.shape, served.classes, served.answer = "DT_STRING", (), 2, answer
        page = opened(pictures=Pictures(width=32, height=32, channels=3))
        assert page.post("/api/predict", content=file(seven())).json()["best"] == 0
        sent = Image.open(io.BytesIO(base64.b64decode(instances[0]["b64"])))
        assert (sent.size, sent.mode) == ((32, 32), "RGB")

    def test_one_number_for_two_labels(self, opened: Opened, served: ServedModel) -> None:
        served.classes, served.answer = 1, lambda _: [0.25]
        page = opened(labels=("cat", "dog"))
        assert page.post("/api/predict", content=file(seven())).json()["probabilities"] == [0.75, 0.25]

    @pytest.mark.parametrize(
        ("changes", "given", "said"),
        [
            ({"shape": (28, 28, 4)}, {}, "4 channels"),
            ({"shape": (10,)}, {}, "shape"),
            ({"shape": (-1, -1, 1)}, {}, "--height"),
            ({"dtype": "DT_BOOL"}, {}, "DT_BOOL"),
            ({}, {"pictures": Pictures(width=32)}, "--width=32"),
            ({}, {"labels": ("a", "b")}, "2 labels"),
            ({"classes": -1}, {}, "--label"),
            ({"inputs": ("image", "mask")}, {}, "does not answer as"),
        ],
    )
    def test_a_model_that_does_not_fit_is_said_before_anyone_draws(
        self,
        opened: Opened,
        served: ServedModel,
        changes: dict[str, object],
        given: dict[str, object],
        said: str,
    ) -> None:
        for name, value in changes.items():
            setattr(served, name, value)
        page = opened(wait="unusable", **given)
        assert said in page.get("/api/status").json()["reason"]
        assert page.post("/api/predict", content=file(seven())).status_code == 503

    def test_numbers_that_are_none(self, opened: Opened, served: ServedModel) -> None:
        served.answer = lambda _: [float("nan")] * 10
        assert "NaN" in opened().post("/api/predict", content=file(seven())).json()["error"]

    def test_another_count_of_numbers_than_was_said(self, opened: Opened, served: ServedModel) -> None:
        served.answer = lambda _: [1.0, 2.0]
        assert "2 numbers" in opened().post("/api/predict", content=file(seven())).json()["error"]


def test_the_model_of_a_held_out_image_gets_its_pixels(opened: Opened, served: ServedModel) -> None:
    instances: list[list[list[list[int]]]] = []

    def answer(instance: list[list[list[int]]]) -> list[float]:
        instances.append(instance)
        return [0.0] * 10

    served.answer = answer
    image = Image.new("L", (28, 28))
    image.putpixel((3, 5), 77)
    page = opened(samples=(Sample(image, None),))
    assert page.post("/api/predict?sample=0").json()["truth"] is None
    assert instances[0][5][3] == [77]
    assert sum(level for row in instances[0] for (level,) in row) == 77


def test_files_that_the_page_ships_are_those_that_it_reads() -> None:
    from slipway.infra.pipelines.app_kinds.page import FILES, REQUIREMENTS

    root = Path(__file__).parents[4]
    assert {root / name for name in FILES} == set(STATIC.iterdir())
    assert (root / REQUIREMENTS).is_file()


def test_it_notes_what_happens(page: TestClient, served: ServedModel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "slipway.workloads.apps.page")
    served.versions = {9: "AVAILABLE"}
    until(lambda: page.get("/api/status").json()["version"] == 9)
    assert "version 9" in caplog.text
