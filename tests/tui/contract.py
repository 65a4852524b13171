"""Owns comparing a screen with its agreed picture (SVG); GPT_TUNE_UPDATE_SCREENS=1 writes the picture anew."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.tui.conftest import until
from tests.tui.flow import Driver
from tui.app import GptTune
from tui.widgets.chart import Chart

FOLDER = Path(__file__).resolve().parents[1] / "data" / "screens"
DRAWN_WITH = "8.2.8"  # Textual draws some characters differently from release to release

Show = Callable[[Driver], Awaitable[None]]


async def agree(
    app: GptTune,
    name: str,
    show: Show,
    size: tuple[int, int],
    theme: str,
    scratch: Path,
    also: Mapping[str, str] | None = None,
) -> None:
    """Bring the screen up and hold it against its picture. also: further pictures of it, name to theme."""
    if version("textual") != DRAWN_WITH:
        pytest.skip(f"the pictures were drawn with Textual {DRAWN_WITH}")
    app.theme = theme
    drawn: dict[str, str] = {}
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot)
        await show(driver)
        for one, colours in {name: theme, **(also or {})}.items():
            app.theme = colours
            await driver.settled()
            await drawn_anew(driver)
            drawn[one] = app.export_screenshot(title="gpt-tune", simplify=True)
    for one, svg in drawn.items():
        hold(one, svg, scratch)


async def drawn_anew(driver: Driver) -> None:
    """Wait until every chart that is shown stands in the colours of now."""
    charts = [chart for chart in driver.app.screen.query(Chart) if chart.display]
    await until(driver.pilot, lambda: all(chart.settled for chart in charts), "all charts")
    await driver.pilot.pause()


def hold(name: str, svg: str, scratch: Path) -> None:
    """One picture against what was agreed."""
    kept = FOLDER / f"{name}.svg"
    if os.environ.get("GPT_TUNE_UPDATE_SCREENS"):
        kept.write_text(svg, encoding="utf-8")
    (scratch / kept.name).write_text(svg, encoding="utf-8")
    assert kept.exists(), f"{kept} is missing: GPT_TUNE_UPDATE_SCREENS=1 writes it"
    assert svg == kept.read_text(encoding="utf-8"), (
        f"{name} looks different: compare {scratch / kept.name} with {kept}"
    )
