"""Owns the two programs that the key-to-paint benchmark starts: a monitor of one growing log, and its writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.logs import log_lines

if TYPE_CHECKING:
    from gpt_tune.ledger.record import RunRecord
    from tui.poller import Answer

STEP_SECONDS = 1.0
TICK_SECONDS = 0.1


def record(log: str) -> RunRecord:
    """A run that has been running for an hour."""
    from gpt_tune.ledger.record import RunRecord

    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    return RunRecord(
        run_id="r20301130-000000-0001", token="t", cluster="dev", scheduler="slurm", name="bench",
        recipe="megatron-deepspeed", run_dir=str(Path(log).parent), script=log, created_at=started,
        phase="submitted", state="RUNNING", job_ids=("4711",), log_paths=(log,), gpus=64, nodes=8,
        submitted_at=started, started_at=started,
    )  # fmt: skip


def main(log: str) -> int:
    """The monitor on a real Watch; only the scheduler's answers are made up."""
    from gpt_tune.workflows.watch import Prediction, Watch
    from tui.app import GptTune
    from tui.engine import Engine
    from tui.poller import Answer
    from tui.promptness import be_prompt

    be_prompt()
    run = record(log)

    class Bench(Engine):
        def runs(self) -> list[RunRecord]:
            return [run]

        def ask_jobs(self, before: Sequence[RunRecord], forced: bool) -> Answer:
            return Answer([run], 1, "", False)

        def watch_of(self, record: RunRecord, state_source: Callable[[], Any]) -> Watch:
            watch = Watch([log], Prediction(3700.0, 3450.0, 3950.0, 500.0), gpus=64)
            watch.set_status(state_source())
            return watch

    class App(GptTune):
        def on_mount(self) -> None:
            super().on_mount()
            self.open("monitor", run)

    return App(Bench()).run() or 0


def bare() -> int:
    """The least that Textual itself needs for a window: one label under another, nothing else going on."""
    from textual.app import App, ComposeResult
    from textual.screen import ModalScreen
    from textual.widgets import Static

    from tui.promptness import be_prompt

    class Window(ModalScreen[None]):
        BINDINGS = [("escape", "dismiss", "Close")]  # noqa: RUF012

        def compose(self) -> ComposeResult:
            yield Static("a bare window")

    class Bare(App[int]):
        BINDINGS = [("q", "open", "Open")]  # noqa: RUF012

        def compose(self) -> ComposeResult:
            yield Static("a bare app ┤")

        def action_open(self) -> None:
            self.push_screen(Window())

    be_prompt()
    return Bare().run() or 0


def write(log: str, rate: int, steps: int) -> None:
    """Append until killed: `rate` lines a second, or when that is 0 `steps` step lines a second."""
    lines = log_lines()
    only_steps = (line for line in lines if "lm loss" in line)
    with Path(log).open("a", buffering=1 << 20) as file:
        due = time.monotonic()
        while True:
            if rate:
                due += TICK_SECONDS
                file.write("\n".join(next(lines) for _ in range(int(rate * TICK_SECONDS))) + "\n")
            else:
                due += STEP_SECONDS / steps
                file.write(next(only_steps) + "\n")
            file.flush()
            time.sleep(max(0.0, due - time.monotonic()))
