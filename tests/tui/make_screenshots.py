"""Owns the pictures of the README: `python -m tests.tui.make_screenshots` drives the wizard through a real run.

The job really runs on this machine; everything shown was measured or computed while the picture was made.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.tui.conftest import until
from tests.tui.flow import Driver, cancelling
from tui.app import GptTune
from tui.widgets.chart import Chart

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "screenshots"
STEPS_SHOWN = 60


async def monitor(size: tuple[int, int], theme: str) -> str:
    """The monitor of a smoke run with some history."""
    app = GptTune()
    app.theme = theme
    async with app.run_test(size=size) as pilot:
        with cancelling(app):
            driver = Driver(app, pilot)
            await driver.ready()
            for page in ("ClusterStep", "GpusStep", "TrainingStep", "ReviewStep"):
                await driver.press("enter")
                await driver.reach(page)
            await driver.see("#SBATCH")
            await driver.press("enter")
            await driver.reach("Monitor")
            chart = app.screen.query_one("#chart-step_time_ms", Chart)
            await until(pilot, lambda: len(chart.figure.x) >= STEPS_SHOWN, "enough steps")
            return app.export_screenshot(title="gpt-tune")


async def plan(size: tuple[int, int], theme: str) -> str:
    """The plan screen for 64 B200 and the 145 B model, planned without a cluster."""
    app = GptTune()
    app.theme = theme
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot)
        await driver.ready()
        await driver.press("enter")
        await driver.reach("ClusterStep")
        await driver.press("down", "enter")
        await driver.reach("GpusStep")
        for key, text in (("resources.gpu", "p6-b200"), ("resources.gpus", "64"), ("model.id", "gpt-145b")):
            assert app.put(key, text) is None
        app.open("plan")
        await driver.see("layouts")
        await driver.settled()
        await pilot.pause()
        return app.export_screenshot(title="gpt-tune")


def main(folder: Path = FOLDER) -> None:
    """Write the pictures, with a home of their own so that nobody's runs are shown."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(
            HOME=home,
            XDG_CONFIG_HOME=home,
            XDG_STATE_HOME=home,
            SLURM_CONF="/dev/null",
            COLORTERM="truecolor",
        )
        os.environ.pop("NO_COLOR", None)
        for name, picture in (("monitor", monitor), ("plan", plan)):
            svg = asyncio.run(picture((120, 34), "dark"))
            (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
            print(f"{folder / name}.svg", file=sys.stderr)


if __name__ == "__main__":
    main()
