"""Shared tools of the terminal interface's tests: waiting for a condition, a bare app around one widget."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widget import Widget

DEADLINE_SECONDS = 60.0  # a busy machine is slow; nothing waits longer than it must


async def until(pilot: Pilot[Any], condition: Callable[[], object], what: str = "condition") -> None:
    """Wait until `condition()` is true; fail with the screen's words at the deadline."""
    stop = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > stop:
            pytest.fail(f"{what} not reached; the screen shows:\n{screen_text(pilot.app)}")
        await pilot.pause()
        await asyncio.sleep(0.01)  # yields to worker threads; the condition decides, not the time


def screen_text(app: App[Any]) -> str:
    """What is on screen, as plain text."""
    width, height = app.size
    lines = app.screen._compositor.render_strips(app.size)
    return "\n".join("".join(segment.text for segment in strip) for strip in lines[:height]) if width else ""


class Bare(App[None]):
    """One widget, nothing else."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget
        self.heard: list[object] = []

    def compose(self) -> ComposeResult:
        yield self.widget


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same colours and no motion whatever terminal runs the tests."""
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
