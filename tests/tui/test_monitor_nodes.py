"""The node view over prepared rows: what stands out is said, GPU figures come on request, Enter narrows the log."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_tune.errors import UserError
from gpt_tune.workflows.nodes.rows import NodeRow
from gpt_tune.workflows.nodes.samples import GpuSample, NodeSample, Xid
from tests.tui.conftest import until
from tests.tui.fakes import PREDICTION, FakeEngine, FakeWatch, healthy, run
from tests.tui.flow import Driver
from tui.app import GptTune
from tui.node_rows import detail_lines, node_cells, ranks_words, summary_line
from tui.widgets.paint import text_of

HOT = NodeSample(
    "b200-3", 0.0, 0.05, 300.0, 2048.0,
    (GpuSample(0, 0.98, 91.0, 179.0, 850.0, 61.0), GpuSample(1, 0.42, 90.0, 179.0, 990.0, 88.0)),
    (Xid(0.0, "1", 63),),
)  # fmt: skip
ROWS = [
    NodeRow("b200-1", tuple(range(8)), "iteration 312/5000 | lm loss: 2.6", 1.2, 312, 0),
    NodeRow("b200-2", tuple(range(8, 16)), "", None, None, None, (9,)),
    NodeRow("b200-3", tuple(range(16, 24)), "waiting", 700.0, 300, 12, (), 0.09, HOT),
]
LINES = [f"b200-{1 + i % 3}: line {i}" for i in range(60)]


class FakeSampling:
    problem = ""

    def __init__(self) -> None:
        self.polls = self.stops = 0

    def poll(self) -> dict[str, Any]:
        self.polls += 1
        return {}

    def stop(self) -> None:
        self.stops += 1


class Samplers:
    """Stands for gpt_tune.workflows.nodes.sampling."""

    def __init__(self, error: UserError | None = None) -> None:
        self.error = error
        self.given = FakeSampling()
        self.starts = 0

    def attach(self, record: Any) -> FakeSampling:
        return self.given

    def start(self, record: Any) -> FakeSampling:
        self.starts += 1
        if self.error is not None:
            raise self.error
        return self.given


def app_with(samplers: Samplers) -> tuple[GptTune, FakeWatch]:
    watch = FakeWatch(healthy(LINES), PREDICTION)
    watch.node_rows = list(ROWS)
    engine = FakeEngine([run()], watch)
    engine.sampling = samplers  # type: ignore[attr-defined]
    return GptTune(engine), watch


async def opened(app: GptTune, driver: Driver) -> None:
    app.open("monitor", app.engine.runs()[0])
    await driver.see("line 59")
    await driver.press("n")
    await driver.reach("Nodes")
    await driver.see("b200-3")


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60), (40, 12)])
async def test_one_row_a_node_and_what_stands_out(size: tuple[int, int]) -> None:
    app, _ = app_with(Samplers())
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.see("3 nodes")
        await driver.see("stand out")
        await driver.press("down", "down")
        await driver.see("9% slower")


async def test_s_starts_the_sampler_once_and_capital_s_ends_it() -> None:
    samplers = Samplers()
    app, _ = app_with(samplers)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("s")
        await until(pilot, lambda: samplers.starts == 1 and samplers.given.polls > 0, "samples being read")
        await driver.press("S")
        await driver.see("samplers end now")
        assert samplers.given.stops == 1


async def test_a_sampler_that_cannot_start_says_why_and_the_rows_stay() -> None:
    app, _ = app_with(Samplers(UserError("r1 is COMPLETED: only a running job can be sampled.", "")))
    async with app.run_test(size=(120, 36)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        app.screen._monitor.listeners.clear()  # type: ignore[attr-defined]  # else the next poll says it anew
        await driver.press("s")
        await driver.see("only a running job can be sampled")
        assert "b200-3" in driver.text
        app.screen._monitor.listeners.append(app.screen._heard)  # type: ignore[attr-defined]


async def test_enter_shows_only_that_nodes_log() -> None:
    app, _ = app_with(Samplers())
    async with app.run_test(size=(80, 24)) as pilot:
        driver = Driver(app, pilot)
        await opened(app, driver)
        await driver.press("down", "enter")
        await driver.reach("Monitor")
        await driver.see("only on b200-2")
        assert "b200-1: line" not in driver.text
        await driver.press("escape")
        await driver.see("b200-1: line")
        assert driver.page == "Monitor"


def test_ranks_are_told_in_short() -> None:
    assert ranks_words(range(8)) == "0-7"
    assert ranks_words([3, 1, 2, 9]) == "1-3,9"
    assert ranks_words([]) == "-"
    assert ranks_words([1, 3, 5, 7, 9, 11, 13]) == "7 ranks"


def test_the_worst_gpu_counts_and_heat_is_marked() -> None:
    cells = node_cells(ROWS[2])
    assert "42 %" in cells
    assert [("88", "warn")] in cells
    text = "\n".join(text_of(line) for line in detail_lines(ROWS[2]))
    assert "Xid 63 on GPU 1" in text
    assert "91 of 179 GiB" in text


def test_a_node_without_gpus_and_one_without_anything_fail_in_nothing() -> None:
    bare = NodeRow("n1", sample=NodeSample("n1", 0.0, 0.5, 1.0, 2.0, problem="no GPU driver here"))
    assert "no GPU answers here" in "\n".join(text_of(line) for line in detail_lines(bare))
    assert len(node_cells(NodeRow("n2"))) == len(node_cells(ROWS[2]))
    assert "nothing stands out" in text_of(summary_line([NodeRow("n2")], "")[0])
