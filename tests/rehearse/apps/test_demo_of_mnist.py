"""The demo as a newcomer sees it: a model is trained, and its page predicts what the report says."""

import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.features.page.conftest import seven
from tests.support.rehearsing import Running, all_end

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DIGITS = 10


class Demo(Running):
    """`make demo` with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__("-m", "slipway", "demo", "--stack", "demo", "--output", str(folder))
        self.folder = folder

    def url(self, title: str) -> str:
        (url,) = re.findall(rf"^  {title} +(http\S+)", self.text, re.MULTILINE)
        return url


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    made = Demo(tmp_path_factory.mktemp("demo") / "out")
    made.until(lambda: "Ctrl-C ends them all" in made.text, seconds=400)
    yield made
    made.kill()


def answer(url: str, body: bytes | None = None) -> Any:
    request = urllib.request.Request(url, body, {"content-type": "image/png"} if body else {})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def test_the_page_predicts_the_held_out_digits_as_the_rehearsals_table_says(demo: Demo) -> None:
    table = json.loads(
        (demo.folder / "results" / "mnist-predict" / "predictions.json").read_text(encoding="utf-8")
    )
    assert len(table["images"]) == DIGITS
    page = demo.url("Read a digit")
    # Both sort the images of one folder by their names.
    for number, image in enumerate(sorted(table["images"], key=lambda image: image["path"])):
        prediction = answer(f"{page}api/predict?sample={number}", b"")
        assert prediction["best"] == image["digit"]
        assert prediction["version"] == 1
        assert prediction["probabilities"] == pytest.approx(image["probabilities"], abs=1e-3)


def test_a_seven_that_is_drawn_without_a_bar_is_a_seven(demo: Demo) -> None:
    assert answer(f"{demo.url('Read a digit')}api/predict", seven().tobytes())["best"] == 7


def test_a_random_held_out_digit_has_its_truth(demo: Demo) -> None:
    page = demo.url("Read a digit")
    sample = answer(f"{page}api/sample")
    prediction = answer(f"{page}api/predict?sample={sample['sample']}", b"")
    assert prediction["truth"] in range(len(prediction["labels"]))


def test_tensorboard_shows_the_training_and_the_notebook_asks_for_its_token(demo: Demo) -> None:
    runs = answer(f"{demo.url('TensorBoard')}data/runs")
    assert [run.rpartition("/")[2] for run in runs] == ["train", "validation"]
    notebook = demo.url("Notebook")
    assert urllib.request.urlopen(notebook, timeout=30).status == 200
    with pytest.raises(urllib.error.HTTPError) as error:
        answer(notebook.partition("/lab")[0] + "/api/contents")
    assert error.value.code == 403


def test_a_model_server_that_is_killed_is_back_and_the_page_predicts_again(demo: Demo) -> None:
    (serving,) = demo.children("slipway.features.serving.stub")
    serving.kill()
    demo.until(lambda: "mnist-serving: ready again after" in demo.text)
    page = demo.url("Read a digit")

    def predicted() -> bool:
        try:
            return answer(f"{page}api/predict", seven().tobytes())["best"] == 7
        except urllib.error.HTTPError as error:
            # It asks more often than one visitor may.
            return error.code not in {429, 503} and pytest.fail(f"{error.code}: {error.read().decode()}")

    demo.until(predicted)


def test_ctrl_c_ends_all_of_it(demo: Demo) -> None:
    children = demo.children()
    assert len(children) > len(("reaper", "serving", "page", "board", "notebook")), demo.text
    demo.process.send_signal(signal.SIGINT)
    assert "Traceback" not in demo.end(seconds=60)
    assert all_end(children)
