"""The look of the main screens as SVG contracts: 80x24 and 120x36, dark, light, mono and the terminal's own colours.

GPT_TUNE_UPDATE_SCREENS=1 writes them anew; look at each as a picture before committing it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gpt_tune.diagnosis.types import Diagnosis
from gpt_tune.planner.types import SearchResult
from tests.tui.conftest import until
from tests.tui.contract import agree
from tests.tui.fakes import BROKEN, PREDICTION, FakeEngine, FakePlanner, FakeWatch, deep_plan, healthy, run
from tests.tui.flow import Driver
from tests.tui.test_monitor_findings import CURE, ECHO, Cures
from tests.tui.test_monitor_nodes import ROWS, Samplers
from tests.tui.test_plan_screen import opened as plan_opened
from tests.tui.test_plan_screen import planning
from tui.app import GptTune
from tui.widgets.chart import Chart
from tui.widgets.chart_data import Mark

LOG = [
    f" iteration {i:8}/    5000 | elapsed time per iteration (ms): {3702.4 + i % 5:.1f} | lm loss: {11 * i**-0.25:.4f}"
    for i in range(200, 313)
]


async def plan(driver: Driver) -> None:
    await plan_opened(driver.app, driver)
    await driver.see("[zero-dp1]")


async def what_if(driver: Driver) -> None:
    await plan(driver)
    await driver.press("right", "right", "right", "up")
    await driver.see("refuses it")


async def what_if_typed(driver: Driver) -> None:
    await plan(driver)
    await driver.press("right", "right", "right", "right", "up")
    await driver.settled()
    await driver.press("1", "2")
    await driver.see("Enter estimates it")


async def memory(driver: Driver) -> None:
    await plan_opened(driver.app, driver)
    await driver.press("m")
    await driver.see("limit 179")


async def compare(driver: Driver) -> None:
    await plan(driver)
    await driver.press("c", "down", "down")
    await driver.see("difference")


async def rejected(driver: Driver) -> None:
    await plan(driver)
    await driver.press("r")
    await driver.see("why not")


async def charted(driver: Driver) -> None:
    """Wait until every chart that is shown has been drawn with its data, or says that there is none."""
    charts = [c for c in driver.app.screen.query(Chart) if c.display]
    await until(
        driver.pilot,
        lambda: all(
            c.settled and (len(c.data.series) or c.data.empty.startswith("This log")) for c in charts
        ),
        "all charts",
    )


async def monitor(driver: Driver) -> None:
    driver.app.open("monitor", driver.app.engine.runs()[0])
    await driver.see("RUNNING")
    await charted(driver)


async def failed(driver: Driver) -> None:
    driver.app.open("monitor", driver.app.engine.runs()[1])
    await driver.see("ran out of GPU memory")
    await charted(driver)


async def one_chart(driver: Driver) -> None:
    await monitor(driver)
    await driver.press("g", "u", "plus")
    await driver.see("in part")
    await charted(driver)


async def nodes(driver: Driver) -> None:
    await monitor(driver)
    await driver.press("n")
    await driver.see("stand out")
    await driver.press("down", "down")
    await driver.see("Xid")


async def findings(driver: Driver) -> None:
    await failed(driver)
    await driver.press("x")
    await driver.see("Root cause")


async def cure(driver: Driver) -> None:
    await findings(driver)
    await driver.press("R")
    await driver.see("selective")


async def keys(driver: Driver) -> None:
    await plan(driver)
    await driver.press("question_mark")
    await driver.see("Close")


SHOTS: list[tuple[str, Callable[[Driver], Awaitable[None]], tuple[int, int], str]] = [
    ("plan-80-dark", plan, (80, 24), "dark"),
    ("plan-120-light", plan, (120, 36), "light"),
    ("plan-80-mono", plan, (80, 24), "mono"),
    ("plan-what-if-80-dark", what_if, (80, 24), "dark"),
    ("plan-what-if-100-light", what_if_typed, (100, 30), "light"),
    ("plan-memory-80-dark", memory, (80, 24), "dark"),
    ("plan-memory-160-mono", memory, (160, 50), "mono"),
    ("plan-compare-80-dark", compare, (80, 24), "dark"),
    ("plan-rejected-80-ansi", rejected, (80, 24), "ansi-dark"),
    ("monitor-80-dark", monitor, (80, 24), "dark"),
    ("monitor-120-dark", monitor, (120, 36), "dark"),
    ("monitor-80-mono", monitor, (80, 24), "mono"),
    ("monitor-200-light", monitor, (200, 60), "light"),
    ("monitor-chart-80-ansi", one_chart, (80, 24), "ansi-dark"),
    ("monitor-chart-120-mono", one_chart, (120, 36), "mono"),
    ("monitor-nodes-80-dark", nodes, (80, 24), "dark"),
    ("monitor-nodes-120-light", nodes, (120, 36), "light"),
    ("failed-80-dark", failed, (80, 24), "dark"),
    ("failed-findings-80-mono", findings, (80, 24), "mono"),
    ("failed-findings-120-dark", findings, (120, 36), "dark"),
    ("failed-cure-80-dark", cure, (80, 24), "dark"),
    ("help-80-dark", keys, (80, 24), "dark"),
]


def app_of(name: str) -> GptTune:
    if name.startswith("plan-memory"):
        return planning(FakePlanner(SearchResult((deep_plan(32),), (), 2139, 2140, 0.8)))
    if name.startswith(("plan", "help")):
        return planning(FakePlanner())
    update = healthy(LOG)
    if name.startswith("failed"):
        update = healthy([*LOG, BROKEN.excerpt])
        object.__setattr__(update, "state", "FAILED")
        object.__setattr__(update, "diagnosis", Diagnosis("failed", BROKEN, (BROKEN, ECHO)))
    records = [
        run(state="RUNNING"),
        run(
            "llama-70b",
            "FAILED",
            reason="NonZeroExitCode",
            exit_code=1,
            job_ids=("4702",),
            last_iteration=312,
        ),
        run(
            "smoke",
            "COMPLETED",
            job_ids=("local-3",),
            cluster="local",
            partition="",
            gpus=0,
            last_iteration=900,
        ),
    ]
    watch = FakeWatch(update, PREDICTION)
    watch.node_rows = list(ROWS)
    watch.happened = [Mark(100.0, "checkpoint"), Mark(200.0, "checkpoint"), Mark(220.0, "restart")]
    engine = FakeEngine(records, watch)
    engine.resubmit, engine.sampling = Cures(CURE), Samplers()  # type: ignore[attr-defined]
    app = GptTune(engine)
    if name.startswith(("monitor", "failed")):  # how often is asked depends on the second
        app.poll_words = lambda: [("dev by pyslurm · 2 scheduler calls in the last minute", "muted")]  # type: ignore[method-assign]
    return app


# The same screens in the other theme, drawn in the same run.
ALSO = {
    "plan-80-dark": {"plan-80-light": "light"},
    "plan-120-light": {"plan-120-dark": "dark"},
    "plan-memory-80-dark": {"plan-memory-80-light": "light"},
    "monitor-80-dark": {"monitor-80-light": "light"},
    "monitor-120-dark": {"monitor-120-light": "light"},
}


@pytest.mark.parametrize(("name", "show", "size", "theme"), SHOTS, ids=[s[0] for s in SHOTS])
async def test_screen_looks_as_agreed(
    home: Path,
    tmp_path: Path,
    name: str,
    show: Callable[[Driver], Awaitable[None]],
    size: tuple[int, int],
    theme: str,
) -> None:
    await agree(app_of(name), name, show, size, theme, tmp_path, ALSO.get(name))


async def test_no_color_is_the_mono_theme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = GptTune(FakeEngine())
    async with app.run_test(size=(80, 24)):
        assert app.theme == "mono"
        assert app.letters


@pytest.mark.parametrize(
    ("environment", "theme"),
    [
        ({"TERM": "xterm-256color"}, "dark"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "dark"),
        ({"TERM": "linux"}, "ansi-dark"),
        ({"TERM": "screen"}, "ansi-dark"),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, "mono"),
        ({"TERM": "xterm-256color", "TEXTUAL_THEME": "light"}, "light"),
    ],
)
def test_the_theme_fits_the_terminal(environment: dict[str, str], theme: str) -> None:
    from tui.themes import theme_for

    assert theme_for(environment) == theme
