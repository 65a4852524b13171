"""Owns comparing a screen with its agreed picture (SVG); GPT_TUNE_UPDATE_SCREENS=1 writes the picture anew."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.tui.flow import Driver
from tui.app import GptTune

FOLDER = Path(__file__).resolve().parents[1] / "data" / "screens"
DRAWN_WITH = "8.2.8"  # Textual draws some characters differently from release to release

Show = Callable[[Driver], Awaitable[None]]


async def agree(
    app: GptTune, name: str, show: Show, size: tuple[int, int], theme: str, scratch: Path
) -> None:
    """Bring the screen up and hold it against its picture."""
    if version("textual") != DRAWN_WITH:
        pytest.skip(f"the pictures were drawn with Textual {DRAWN_WITH}")
    app.theme = theme
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot)
        await show(driver)
        await driver.settled()
        await pilot.pause()
        svg = app.export_screenshot(title="gpt-tune", simplify=True)
    kept = FOLDER / f"{name}.svg"
    if os.environ.get("GPT_TUNE_UPDATE_SCREENS"):
        kept.write_text(svg, encoding="utf-8")
    (scratch / kept.name).write_text(svg, encoding="utf-8")
    assert kept.exists(), f"{kept} is missing: GPT_TUNE_UPDATE_SCREENS=1 writes it"
    assert svg == kept.read_text(encoding="utf-8"), (
        f"{name} looks different: compare {scratch / kept.name} with {kept}"
    )
