"""The look of the review, the list of runs and the windows of the wizard as SVG contracts (see contract.py)."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune.jobs import preparing
from gpt_tune.workflows import choices, edits, launch
from tests.tui.contract import agree
from tests.tui.fakes import PLANS, FakeEngine, FakePlanner, run
from tests.tui.flow import Driver
from tests.tui.test_plan_screen import opened, planning
from tests.tui.test_replay import playing
from tests.tui.test_replay import ready as tape_ready
from tui.app import GptTune
from tui.screens.run_compare import RunCompare


@pytest.fixture
def reviewing(home: Path, monkeypatch: pytest.MonkeyPatch) -> GptTune:
    """An app at the review of a plan for hardware elsewhere, with a script edited by hand. Nothing in it is random."""
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0123456789abcdef"[:size])
    monkeypatch.setattr(preparing, "new_run_id", lambda: "r20261130-071533-k3f9")
    app = planning(FakePlanner())
    draft = choices.put(app.draft, "trainer.path", "/shared/Megatron-DeepSpeed")
    plan = replace(
        PLANS[0], layout=replace(PLANS[0].layout, global_batch_size=256, gradient_accumulation_steps=32)
    )
    draft = choices.choose(draft, plan)
    ready = launch.generated(draft)
    script = next(f.content for f in ready.rendered.files if f.path == ready.rendered.script).decode()
    mine = script.replace("#SBATCH --nodes=8", "#SBATCH --nodes=8\n#SBATCH --nodes=4", 1)
    edit = edits.edited(ready.spec, ready.rendered, ready.rendered.script, mine)
    app.set_draft(replace(draft, edits={edit.path: edit}))
    return app


async def review(driver: Driver) -> None:
    driver.app.open("review")
    await driver.see("lint:")


async def review_finding(driver: Driver) -> None:
    await review(driver)
    await driver.press("n")


async def review_settings(driver: Driver) -> None:
    await review(driver)
    await driver.press("right")
    await driver.see("[settings]")


@pytest.mark.parametrize(
    ("name", "show", "size", "theme"),
    [
        ("review-80-dark", review, (80, 24), "dark"),
        ("review-120-light", review_finding, (120, 36), "light"),
        ("review-80-mono", review_settings, (80, 24), "mono"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_the_review_looks_as_agreed(
    reviewing: GptTune, name: str, show: object, size: tuple[int, int], theme: str, tmp_path: Path
) -> None:
    also = {f"review-{size[0]}-{other}": other for other in ("dark", "light")} if theme != "mono" else {}
    await agree(reviewing, name, show, size, theme, tmp_path, also)  # type: ignore[arg-type]


async def runs(driver: Driver) -> None:
    driver.app.open("runs")
    await driver.see("1 live")
    await driver.see("1 scheduler call")


@pytest.mark.parametrize(
    ("name", "size", "theme"),
    [
        ("runs-80-dark", (80, 24), "dark"),
        ("runs-120-light", (120, 36), "light"),
        ("runs-80-mono", (80, 24), "mono"),
    ],
)
async def test_the_list_of_runs_looks_as_agreed(
    home: Path, tmp_path: Path, name: str, size: tuple[int, int], theme: str
) -> None:
    records = [
        run(state="RUNNING", last_iteration=312, user_tags=("baseline",), shape={"id": "gpt-145b"}),
        run("llama-70b", "FAILED", reason="NonZeroExitCode", exit_code=1, job_ids=("4702",), last_iteration=312,
            shape={"id": "llama-3.1-70b"}),
        run("smoke", "COMPLETED", job_ids=("local-3",), cluster="local", partition="", gpus=0, last_iteration=900,
            note="after the driver update"),
    ]  # fmt: skip
    also = {f"runs-{size[0]}-{other}": other for other in ("dark", "light")} if theme != "mono" else {}
    await agree(GptTune(FakeEngine(records)), name, runs, size, theme, tmp_path, also)


async def compared(driver: Driver) -> None:
    driver.app.push_screen(RunCompare(*driver.app.engine.runs()[:2]))
    await driver.see("seconds")


async def test_two_runs_side_by_side_look_as_agreed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        {"key": "state", "a": "COMPLETED", "b": "FAILED", "ratio": None},
        {"key": "median_step_time_ms", "a": 3702.4, "b": 4110.2, "ratio": 1.11},
        {"key": "last_loss", "a": 2.871, "b": None, "ratio": None},
        {"key": "smoke.seconds", "a": 60, "b": 90, "ratio": None},
        {"key": "layout.fixed", "a": {}, "b": {"zero_stage": 1, "tensor_parallel": 8}, "ratio": None},
    ]
    app = GptTune(FakeEngine([run("night"), run("day", "FAILED")]))
    monkeypatch.setattr(app.engine.results, "compare", lambda a, b: found)
    await agree(app, "run-compare-80-dark", compared, (80, 24), "dark", tmp_path)


async def saving(driver: Driver) -> None:
    await opened(driver.app, driver)
    await driver.press("f2")
    await driver.see("Its name")
    await driver.type("my job")
    await driver.see("Perhaps my-job?")


async def test_the_window_for_a_profiles_name_looks_as_agreed(home: Path, tmp_path: Path) -> None:
    await agree(planning(FakePlanner()), "save-profile-80-light", saving, (80, 24), "light", tmp_path)


async def taped(driver: Driver) -> None:
    await tape_ready(driver)
    await driver.see("paused")
    await driver.see("step 10/12")


@pytest.mark.parametrize(
    ("name", "size", "theme"), [("replay-80-dark", (80, 24), "dark"), ("replay-120-dark", (120, 36), "dark")]
)
async def test_a_recording_looks_as_agreed(
    home: Path, tmp_path: Path, name: str, size: tuple[int, int], theme: str
) -> None:
    app, _ = playing(43.0)
    await agree(app, name, taped, size, theme, tmp_path, {name.replace("dark", "light"): "light"})
