"""The page in a real Chromium: what people see, hear and do."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.features.page.processes import Running, serve
from tests.support.browser import chromium
from tests.support.servers.serving_stub import ServedModel, ServingStub, held_out

pytestmark = pytest.mark.long

expect.set_options(timeout=30_000)

SEVEN = ([(0.28, 0.2), (0.72, 0.19), (0.5, 0.82)], [(0.4, 0.5), (0.72, 0.49)])
"""With a bar, as most who wrote the digits that the model knows have written it."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@contextlib.contextmanager
def served_with_samples(serving: ServingStub, folder: Path, *arguments: str) -> Iterator[Running]:
    labels = []
    for number in range(3):
        image, label = held_out(number)
        labels.append(f'"{number}.png": {label}')
        image.save(folder / f"{number}.png")
    (folder / "labels.json").write_text(f"{{{', '.join(labels)}}}")
    with serve(serving, "--samples", str(folder), "--title", "Digits", *arguments) as page:
        yield page


@pytest.fixture
def running(serving: ServingStub, tmp_path: Path) -> Iterator[Running]:
    with served_with_samples(serving, tmp_path) as page:
        yield page


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A page for tests that leave it and its model as they are: they ask more often than one visitor may."""
    folder = tmp_path_factory.mktemp("held-out")
    with (
        ServingStub(ServedModel()) as serving,
        served_with_samples(serving, folder, "--rate", "1000", "--rate-of-all", "1000") as page,
    ):
        yield page


class Opened:
    """A tab with the page. Nothing that it says to developers is an error, whatever a test does with it."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self.context = browser.new_context(reduced_motion="reduce", **options)
        self.tab: Page = self.context.new_page()
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(address)
        expect(self.tab.locator("#served")).to_have_attribute("data-state", "ready")

    def places(self, size: float = 1.0) -> list[list[tuple[float, float]]]:
        """Where on the screen the lines go along of a seven that takes ``size`` of what is usual."""
        box = self.tab.locator("#paper").bounding_box()
        assert box
        return [
            [(box["x"] + size * x * box["width"], box["y"] + size * y * box["height"]) for x, y in line]
            for line in SEVEN
        ]

    def draw(self, size: float = 1.0) -> None:
        for line in self.places(size):
            self.tab.mouse.move(*line[0])
            self.tab.mouse.down()
            for place in line[1:]:
                self.tab.mouse.move(*place, steps=8)
            self.tab.mouse.up()

    def answer(self, text: str) -> None:
        expect(self.tab.locator("#answer")).to_have_text(text)


@contextlib.contextmanager
def tab(browser: Browser, running: Running) -> Iterator[Opened]:
    page = Opened(browser, running.address)
    yield page
    page.context.close()
    # Chromium notes each answer that is not well; the page tells people itself.
    assert [error for error in page.errors if "Failed to load resource" not in error] == []
    assert all(url.startswith(running.address) for url in page.asked)


@pytest.fixture
def opened(browser: Browser, running: Running) -> Iterator[Opened]:
    with tab(browser, running) as page:
        yield page


@pytest.fixture
def visiting(browser: Browser, shared: Running) -> Iterator[Opened]:
    """A tab with the page that tests share."""
    with tab(browser, shared) as page:
        yield page


def test_a_seven_is_drawn(visiting: Opened) -> None:
    visiting.draw()
    visiting.answer("7")
    bars = visiting.tab.locator("#bars li")
    expect(bars).to_have_count(10)
    expect(bars.nth(7)).to_have_class(re.compile("best"))
    expect(visiting.tab.locator("#fact-version")).to_have_text("1")
    expect(visiting.tab.locator("#fact-round")).to_contain_text("ms")
    expect(visiting.tab.locator("#seen-figure")).to_be_visible()
    # Nobody knows the truth of a drawing.
    expect(visiting.tab.locator("#truth")).to_be_hidden()
    # A screen reader is told, once the line is finished.
    expect(visiting.tab.locator("#spoken")).to_have_text(re.compile(r"^7, \d+\.\d %\. +Version 1\.$"))
    visiting.tab.click("#clear")
    visiting.answer("?")


@pytest.mark.parametrize("size", [0.2, 0.4, 1.1])
def test_how_large_it_is_drawn_does_not_matter(visiting: Opened, size: float) -> None:
    """The lines of a small drawing would be a blot, if they were enlarged with it."""
    visiting.draw(size)
    visiting.answer("7")


def test_a_seven_is_drawn_by_keyboard_alone(visiting: Opened) -> None:
    keyboard = visiting.tab.keyboard
    keyboard.press("Tab")
    expect(visiting.tab.locator(".skip")).to_be_focused()
    keyboard.press("Tab")
    expect(visiting.tab.locator("#paper")).to_be_focused()

    def go(key: str, times: int) -> None:
        for _ in range(times):
            keyboard.press(key)

    go("ArrowUp", 8)
    go("ArrowLeft", 6)
    keyboard.press("Space")
    expect(visiting.tab.locator("#spoken")).to_have_text("Pen down, column 8, row 6.")
    go("ArrowRight", 12)
    for _ in range(6):
        go("ArrowDown", 3)
        go("ArrowLeft", 1)
    keyboard.press("Space")
    go("ArrowUp", 10)
    go("ArrowLeft", 3)
    keyboard.press("Space")
    go("ArrowRight", 10)
    keyboard.press("Space")
    visiting.answer("7")
    keyboard.press("Backspace")
    keyboard.press("Backspace")
    visiting.answer("?")


def test_a_random_image_and_its_truth(visiting: Opened) -> None:
    visiting.tab.get_by_role("button", name="Test image").click()
    expect(visiting.tab.locator("#truth")).to_have_text(re.compile(r"^(✓ Right|✗ Wrong): it is \d$"))
    before = visiting.tab.locator("#answer").inner_text()
    assert before in "0123456789"
    # Drawing takes its place.
    visiting.draw()
    visiting.answer("7")
    expect(visiting.tab.locator("#truth")).to_be_hidden()


def test_a_new_version_is_taken_up_while_the_page_is_open(opened: Opened, served: ServedModel) -> None:
    opened.draw()
    opened.answer("7")
    served.answer = lambda _: [9.0 * (digit == 3) for digit in range(10)]
    served.versions = {2: "AVAILABLE"}
    expect(opened.tab.locator("#served")).to_contain_text("version 2")
    # What is on the paper is asked again, without a hand.
    opened.answer("3")
    expect(opened.tab.locator("#fact-version")).to_have_text("2")


def test_no_answer_stands_beside_an_image_that_it_was_not_given_for(opened: Opened, served: ServedModel) -> None:
    opened.tab.click("#random")
    expect(opened.tab.locator("#truth")).to_be_visible()
    well = served.answer
    served.answer = lambda _: [float("nan")] * 10
    opened.tab.click("#random")
    expect(opened.tab.locator("#banner")).to_contain_text("NaN")
    opened.answer("?")
    expect(opened.tab.locator("#truth")).to_be_hidden()
    # Nor an error beside an answer.
    served.answer = well
    opened.tab.click("#random")
    expect(opened.tab.locator("#truth")).to_be_visible()
    expect(opened.tab.locator("#banner")).to_be_hidden()
    # And while the model takes long, what it said before is gone.
    served.seconds = 4.0
    opened.tab.click("#random")
    opened.answer("?")
    expect(opened.tab.locator("#truth")).to_be_visible()


def test_the_server_goes_away_and_comes_back(opened: Opened, serving: ServingStub, served: ServedModel) -> None:
    serving.close()
    opened.draw()
    alert = opened.tab.get_by_role("alert").filter(visible=True)
    expect(alert).to_contain_text("The model server cannot be reached")
    expect(opened.tab.locator("#served")).to_have_attribute("data-state", "away")
    with ServingStub(served, port=serving.port):
        # The drawing is asked about as soon as somebody can answer.
        expect(opened.tab.locator("#answer")).to_have_text("7")
        expect(alert).to_have_count(0)


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_a_notice_does_not_move_the_paper(
    browser: Browser, running: Running, serving: ServingStub, width: int
) -> None:
    """Else the rest of a line that is being drawn would be beside its beginning."""
    page = Opened(browser, running.address, viewport={"width": width, "height": 800})
    paper = page.tab.locator("#paper")
    before = paper.bounding_box()
    serving.close()
    expect(page.tab.get_by_role("alert").filter(visible=True)).to_be_visible()
    expect(page.tab.locator("#served")).to_have_attribute("data-state", "away")
    assert paper.bounding_box() == before
    page.context.close()


def test_the_page_itself_goes_away(opened: Opened, running: Running) -> None:
    running.process.kill()
    running.process.wait()
    expect(opened.tab.get_by_role("alert").filter(visible=True)).to_contain_text("page's server cannot be reached")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_people_from_using_it(browser: Browser, shared: Running, scheme: str) -> None:
    """What axe-core finds: contrast, names, roles, order of headings."""
    page = Opened(browser, shared.address, color_scheme=scheme, bypass_csp=True)
    try:
        assert _violations(page) == []
        page.draw()
        page.answer("7")
        assert _violations(page) == []
        page.tab.click("#random")
        expect(page.tab.locator("#truth")).to_be_visible()
        page.tab.click("summary")
        assert _violations(page) == []
    finally:
        page.context.close()


def _violations(page: Opened) -> list[str]:
    violations = Axe().run(page.tab).response["violations"]
    return [f"{rule['id']}: {node['html']}" for rule in violations for node in rule["nodes"]]


@pytest.mark.parametrize("size", [(320, 568), (390, 844), (844, 390), (768, 1024)])
def test_on_a_phone(browser: Browser, shared: Running, size: tuple[int, int]) -> None:
    page = Opened(
        browser,
        shared.address,
        viewport={"width": size[0], "height": size[1]},
        has_touch=True,
        is_mobile=True,
        device_scale_factor=3,
    )
    try:
        # Nothing has to be scrolled sideways, and what is touched is large enough for a finger.
        width = page.tab.evaluate("document.documentElement.scrollWidth")
        assert width <= size[0]
        for button in page.tab.get_by_role("button").all():
            box = button.bounding_box()
            assert box
            assert min(box["width"], box["height"]) >= 44
        page.tab.tap("#random")
        expect(page.tab.locator("#truth")).to_be_visible()
        _swipe(page)
        page.answer("7")
    finally:
        page.context.close()


def _swipe(page: Opened) -> None:
    """A finger draws a seven, and the page stays where it is."""
    page.tab.locator("#paper").scroll_into_view_if_needed()
    touch = page.context.new_cdp_session(page.tab)
    before = page.tab.evaluate("window.scrollY")
    for line in page.places():
        way = [line[0]]
        for (x0, y0), (x1, y1) in itertools.pairwise(line):
            way += [(x0 + (x1 - x0) * part / 10, y0 + (y1 - y0) * part / 10) for part in range(1, 11)]
        for number, (x, y) in enumerate(way):
            kind = "touchMove" if number else "touchStart"
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert page.tab.evaluate("window.scrollY") == before


def test_a_thousand_labels_have_room(browser: Browser, served: ServedModel) -> None:
    served.classes = 1000
    served.answer = lambda _: [float(label == 417) * 9 for label in range(1000)]
    with ServingStub(served) as serving, serve(serving) as running:
        page = Opened(browser, running.address)
        try:
            page.draw()
            page.answer("417")
            expect(page.tab.locator("#bars li")).to_have_count(10)
            expect(page.tab.locator("#bars li").first).to_contain_text("417")
            page.tab.click("#rest summary")
            expect(page.tab.locator("#rest-bars li")).to_have_count(990)
        finally:
            page.context.close()
