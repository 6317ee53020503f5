"""A real Chromium, the machine's own, driven by Playwright: https://playwright.dev/python (seen November 2026)."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

MISSING = "no Chromium on PATH: `make browser` installs it on Debian and Ubuntu"


def program() -> str:
    """Where Chromium is; skips the test where it is not."""
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        pytest.skip(MISSING)
    return path


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. Skips the test where there is no Chromium."""
    # Its import takes longer than most tests of the modules that import this one.
    from playwright.sync_api import sync_playwright

    place = program()
    # Chromium refuses to put root into its sandbox.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=place, args=arguments)
        try:
            yield browser
        finally:
            browser.close()
