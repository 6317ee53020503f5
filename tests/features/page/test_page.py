"""What the page answers, in front of a server that speaks TensorFlow Serving's REST API."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
from PIL import Image
from starlette.testclient import TestClient

from slipway.features.page.pod.app import STATIC
from slipway.features.page.pod.pixels import SIDE, Sample
from tests.features.page.conftest import Opened, seven, state, until
from tests.support.servers.serving_stub import ServedModel, ServingStub

SEVEN = seven(SIDE).tobytes()
PREDICT = "/api/predict"


def test_a_drawing_is_read(page: TestClient) -> None:
    answer = page.post(PREDICT, content=SEVEN).json()
    assert (answer["best"], answer["version"], answer["truth"]) == (7, 1, None)
    assert answer["labels"] == [str(digit) for digit in range(10)]
    assert sum(answer["probabilities"]) == pytest.approx(1, abs=1e-4)
    seen = Image.open(io.BytesIO(base64.b64decode(answer["seen"]["png"])))
    assert (seen.size, seen.mode) == ((28, 28), "L")
    assert answer["milliseconds"] > 0


def test_a_test_image_has_its_truth_and_reaches_the_model_as_it_is(opened: Opened, served: ServedModel) -> None:
    instances: list[list[list[list[int]]]] = []
    served.answer = lambda instance: instances.append(instance) or [0.0] * 10
    image = Image.new("L", (28, 28))
    image.putpixel((3, 5), 77)
    page = opened(samples=(Sample(image, "4"), Sample(image, "")))
    assert page.post(f"{PREDICT}?sample=0").json()["truth"] == 4
    assert page.post(f"{PREDICT}?sample=1").json()["truth"] is None
    assert instances[0][5][3] == [77]
    assert sum(level for row in instances[0] for (level,) in row) == 77


def test_another_test_image_comes_each_time_without_its_label(page: TestClient) -> None:
    for before, after in (("0", 1), ("1", 0)):
        sample = page.get(f"/api/sample?not={before}").json()
        assert sample.keys() == {"sample", "png"}
        assert sample["sample"] == after
    for number in ("2", "-1", "a", "9" * 9, "\u0661"):
        assert page.post(PREDICT, params={"sample": number}).status_code == 404


def test_a_page_without_test_images_says_so(opened: Opened) -> None:
    page = opened()
    assert page.get("/api/status").json()["samples"] == 0
    assert page.get("/api/sample").status_code == 404


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (SEVEN[:-1], 422),
        (SEVEN + b"x", 413),
        (b"\x89PNG\r\n\x1a\n" + bytes(SIDE * SIDE - 8), 200),
        (bytes(SIDE * SIDE), 422),
        (b"\xff" * SIDE * SIDE, 422),
    ],
    ids=["nothing", "short", "long", "no file is decoded", "all ink", "all paper"],
)
def test_what_is_no_drawing_is_refused(page: TestClient, content: bytes, status: int) -> None:
    answer = page.post(PREDICT, content=content)
    assert answer.status_code == status
    assert status == 200 or answer.json()["error"]


def test_a_body_of_unknown_length_is_refused(page: TestClient) -> None:
    assert page.post(PREDICT, content=iter([SEVEN])).status_code == 413


def test_a_new_version_is_taken_up(page: TestClient, served: ServedModel) -> None:
    served.versions = {1: "AVAILABLE", 2: "LOADING"}
    assert page.post(PREDICT, content=SEVEN).json()["version"] == 1
    served.versions = {2: "AVAILABLE"}
    until(lambda: page.get("/api/status").json()["version"] == 2)
    assert page.post(PREDICT, content=SEVEN).json()["version"] == 2


def test_a_server_without_a_model_and_none_at_all_are_told_apart(
    page: TestClient, served: ServedModel, serving: ServingStub
) -> None:
    served.versions = {1: "LOADING"}
    until(lambda: state(page) == "away")
    assert "no version" in page.get("/api/status").json()["reason"]
    answer = page.post(PREDICT, content=SEVEN)
    assert (answer.status_code, "no version" in answer.json()["error"]) == (503, True)
    serving.close()
    until(lambda: "cannot be reached" in page.get("/api/status").json()["reason"])
    assert page.get("/healthz").text == "ok\n"


class TestOtherClassifiers:
    """Colours, numbers with a point, other sizes, names as labels, shares in place of logits."""

    def test_colours_and_numbers_with_a_point(self, opened: Opened, served: ServedModel) -> None:
        instances: list[list[list[list[float]]]] = []
        served.dtype, served.shape, served.classes = "DT_FLOAT", (24, 32, 3), 3
        served.answer = lambda instance: instances.append(instance) or [0.1, 0.7, 0.2]
        page = opened(labels=["daisy", "rose", "tulip"], ink="dark")
        answer = page.post(PREDICT, content=SEVEN).json()
        assert answer["labels"][answer["best"]] == "rose"
        assert answer["probabilities"] == [0.1, 0.7, 0.2]
        (rows,) = instances
        assert (len(rows), len(rows[0]), rows[0][0]) == (24, 32, [1.0, 1.0, 1.0])
        assert min(pixel[0] for row in rows for pixel in row) < 0.1

    def test_a_channel_that_is_not_said(self, opened: Opened, served: ServedModel) -> None:
        instances: list[list[list[int]]] = []
        served.shape = (28, 28)
        served.answer = lambda instance: instances.append(instance) or [0.0] * 10
        opened().post(PREDICT, content=SEVEN)
        assert isinstance(instances[0][0][0], int)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"shape": (28, 28, 4)}, "28, 28, 4"),
            ({"shape": (10,)}, "10"),
            ({"shape": (-1, -1, 1)}, "-1"),
            ({"shape": (1000, 1000, 3)}, "1000"),
            ({"dtype": "DT_STRING"}, "DT_STRING"),
            ({"inputs": ("image", "mask")}, "one image"),
        ],
    )
    def test_a_model_that_does_not_fit_is_said_before_anyone_draws(
        self, opened: Opened, served: ServedModel, changes: dict[str, object], said: str
    ) -> None:
        for name, value in changes.items():
            setattr(served, name, value)
        page = opened(wait="unusable")
        assert said in page.get("/api/status").json()["reason"]
        assert page.post(PREDICT, content=SEVEN).status_code == 502

    @pytest.mark.parametrize("numbers", [[float("nan")] * 10, [1.0, 2.0]])
    def test_numbers_that_are_no_answer(self, opened: Opened, served: ServedModel, numbers: list[float]) -> None:
        served.answer = lambda _: numbers
        answer = opened().post(PREDICT, content=SEVEN)
        assert answer.status_code == 502
        assert f"{len(numbers)} numbers" in answer.json()["error"]


def test_no_visitor_sees_where_an_error_happened(opened: Opened, served: ServedModel) -> None:
    def answer(_: object) -> list[float]:
        raise ValueError("in here")

    served.answer = answer
    said = opened().post(PREDICT, content=SEVEN)
    assert said.status_code == 502
    assert "secret.py" not in said.text


def test_one_visitor_is_told_to_wait_and_others_are_not(opened: Opened) -> None:
    page = opened(rate=1.0, proxies=1)
    codes = [
        page.post(PREDICT, content=SEVEN, headers={"x-forwarded-for": address})
        for address in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2")
    ]
    assert [answer.status_code for answer in codes] == [200, 200, 429, 200]
    assert int(codes[2].headers["retry-after"]) >= 1


def test_a_visitor_cannot_name_another_address(opened: Opened) -> None:
    page = opened(rate=1.0, proxies=1)
    codes = [
        page.post(PREDICT, content=SEVEN, headers={"x-forwarded-for": f"1.1.1.{number}, 10.0.0.1"}).status_code
        for number in range(3)
    ]
    assert codes == [200, 200, 429]


def test_browsers_are_told_what_a_page_does_not_need(page: TestClient) -> None:
    for path in ("/", "/page.js", "/api/status", "/nothing"):
        headers = page.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] in {"no-store", "no-cache"}
        assert "access-control-allow-origin" not in headers


def test_it_answers_by_known_names_alone(page: TestClient) -> None:
    assert page.get("/", headers={"host": "attacker.example"}).status_code == 421
    assert page.get("/healthz", headers={"host": "10.0.0.7:8080"}).status_code == 200
    assert page.get("/", headers={"host": "localhost"}).status_code == 200


def test_a_title_is_no_markup(opened: Opened) -> None:
    content = opened(title="<script>").get("/").text
    assert "&lt;script&gt;" in content
    assert "<script>" not in content


def test_files_that_the_page_ships_are_those_that_it_reads() -> None:
    from slipway.features.page.feature import FILES, REQUIREMENTS

    root = Path(__file__).parents[3]
    assert {root / name for name in FILES} == set(STATIC.iterdir())
    assert (root / REQUIREMENTS).is_file()
