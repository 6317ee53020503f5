"""Colours, redrawing and widths by where the output goes."""

import os
import sys

import pytest

from slipway.infra.terminal import WIDTH, new_console


def test_a_terminal_has_colours_unless_somebody_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    other_end, device = os.openpty()
    with os.fdopen(device, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        console = new_console()
        assert (console.color_system, console.no_color, console.is_interactive) == ("256", False, True)
        monkeypatch.setenv("NO_COLOR", "1")
        assert new_console().no_color
        monkeypatch.setenv("TERM", "dumb")
        assert not new_console().is_interactive
        monkeypatch.undo()
    os.close(other_end)


def test_a_pipe_has_none_and_nothing_is_redrawn_even_in_forced_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    console = new_console()
    assert (console.color_system, console.width) == (None, WIDTH)
    assert not console.is_interactive
    monkeypatch.setenv("FORCE_COLOR", "1")
    forced = new_console(90)
    assert forced.is_terminal
    assert (forced.is_interactive, forced.width) == (False, 90)
