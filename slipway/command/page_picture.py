"""Draws the picture of the page that docs/index.md shows: a real page, model and browser.

``python -m slipway.command.page_picture docs/images/demo.png`` starts the demo, draws a seven as a person would,
and keeps what Chromium shows. Needs Playwright, which `make setup` installs, and a Chromium; without one nothing
is changed.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from slipway import files
from slipway.infra.places import LIBRARY

BROWSERS = ("chromium", "chromium-browser")

DEMO = (sys.executable, "-m", "slipway", "demo", "--stack", "demo")

TOLD = re.compile(r"[a-z0-9-]+-page +http (?P<address>127\.0\.0\.1:\d+)")
"""Where the demo says that the page is."""

SIZE = {"width": 920, "height": 700}
SHARPNESS = 2

COLOURS = 256
"""Colours of the file, which is a third as large so: the page has few."""

ROUNDS = 3

SEVEN = (((0.3, 0.25), (0.5, 0.22), (0.68, 0.22), (0.6, 0.45), (0.5, 0.8)),)
"""The stroke of a seven, as shares of the paper's sides: without a bar, which those who wrote the scans write."""


def main(arguments: Sequence[str]) -> int:
    """Writes the picture to the file that is named. Returns the exit code."""
    (target,) = map(Path, arguments)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"{target} stays as it is: there is no Chromium on PATH")
        return 0
    with subprocess.Popen(DEMO, cwd=LIBRARY, stdout=subprocess.PIPE, text=True) as demo:
        try:
            address = _address(demo)
            if address is None:
                print("the demo ended before its page was there; `make demo` says why", file=sys.stderr)
                return 1
            write(_picture(browser, f"http://{address}/"), target)
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate()
    return 0


def _address(demo: subprocess.Popen[str]) -> str | None:
    assert demo.stdout is not None
    for line in demo.stdout:
        if match := TOLD.search(line):
            return match["address"]
    return None


def _picture(browser: str, url: str) -> bytes:
    """What Chromium shows of the page once a seven was drawn and the model has answered."""
    # Chromium refuses to put root into its sandbox.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=options)
        try:
            page = started.new_page(viewport=SIZE, device_scale_factor=SHARPNESS, reduced_motion="reduce")  # type: ignore[arg-type]
            page.goto(url)
            expect(page.locator("#served")).to_have_attribute("data-state", "ready")
            _draw(page)
            expect(page.locator("#answer")).to_have_text("7")
            expect(page.locator("#fact-round")).to_contain_text("ms")
            return page.screenshot(animations="disabled")
        finally:
            started.close()


def _draw(page: Page) -> None:
    box = page.locator("#paper").bounding_box()
    assert box is not None
    for stroke in SEVEN:
        first, *others = ((box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke)
        page.mouse.move(*first)
        page.mouse.down()
        for place in others:
            page.mouse.move(*place, steps=12)
        page.mouse.up()


def write(picture: bytes, target: Path) -> None:
    """Writes ``picture``, a PNG file, to ``target`` in a palette of colours."""
    # With a few rounds of k-means: else a colour that is rare has none, as the green dot that says that the model
    # answers.
    small = Image.open(BytesIO(picture)).convert("RGB").quantize(COLOURS, kmeans=ROUNDS)
    content = BytesIO()
    small.save(content, "PNG", optimize=True)
    with files.replacing(target) as temporary:
        temporary.write_bytes(content.getvalue())
    print(f"{target}: {len(content.getvalue()) // 1024} kB")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
