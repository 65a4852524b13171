"""Owns driving the wizard in tests: keys are pressed and counted, each followed by waiting for what it brings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from textual.pilot import Pilot

from tests.tui.conftest import screen_text, until
from tui.app import GptTune

NAMES = {
    " ": "space",
    ".": "full_stop",
    "=": "equals_sign",
    ",": "comma",
    "-": "minus",
    "/": "slash",
    "_": "underscore",
}


class Driver:
    """One wizard with its pilot. `keys` counts every key pressed."""

    def __init__(self, app: GptTune, pilot: Pilot[Any]) -> None:
        self.app = app
        self.pilot = pilot
        self.keys = 0

    @property
    def text(self) -> str:
        return screen_text(self.app)

    @property
    def page(self) -> str:
        return type(self.app.screen).__name__

    async def press(self, *keys: str) -> None:
        self.keys += len(keys)
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        await self.press(*[NAMES.get(letter, letter) for letter in text])

    async def see(self, text: str) -> None:
        await until(self.pilot, lambda: text in self.text, f"{text!r} on screen")

    async def reach(self, page: str) -> None:
        """Wait for a screen and for what it asks the engine."""
        await until(self.pilot, lambda: self.page == page, f"screen {page}")
        await self.pilot.pause()

    async def ready(self) -> None:
        """Wait until the first screen has looked around."""
        await until(
            self.pilot, lambda: getattr(self.app.screen, "_found", None) is not None, "the first look"
        )

    async def settled(self) -> None:
        """Wait until nothing runs in the background of this screen."""
        await until(self.pilot, lambda: not getattr(self.app.screen, "_calls", {}), "background calls")


@contextmanager
def cancelling(app: GptTune) -> Iterator[None]:
    """Leave no job behind, however the test ends."""
    try:
        yield
    finally:
        for record in app.engine.ledger.runs(open_only=True):
            app.engine.jobs.cancel(record.run_id, app.engine.ledger)
