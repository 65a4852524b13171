"""Owns drawing other runs beside the one on the monitor: choosing them from the ledger, reading their logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tui.screens.monitor_charts import MOST_OTHERS, ChartKeys
from tui.states import ago
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.ledger.record import RunRecord
    from tui.app import GptTune


class CompareKeys(ChartKeys):
    """Mixed into the monitor."""

    record: RunRecord
    tune: GptTune
    run_task: Any
    _beside: tuple[str, ...] = ()

    def action_compare(self) -> None:
        self.run_task("runs", self.tune.engine.runs, self._choose)

    def _choose(self, records: Sequence[RunRecord]) -> None:
        from tui.screens.compare_dialog import CompareDialog

        others = [r for r in records if r.run_id != self.record.run_id and r.job_ids]
        options = [
            (r.run_id, r.name, f"{r.state.lower()}, {r.gpus or '?'} GPUs, {ago(r.created_at)}")
            for r in others
        ]
        by_id = {r.run_id: r for r in others}
        self.app.push_screen(
            CompareDialog(options, self._beside, MOST_OTHERS), lambda chosen: self._chosen(chosen, by_id)
        )

    def _chosen(self, chosen: tuple[str, ...] | None, by_id: dict[str, RunRecord]) -> None:
        if chosen is None:
            return
        self._beside = chosen
        if not chosen:
            self._draw(())
            return
        self.notify(f"Reading {plural(len(chosen), 'log')}…", markup=False, timeout=2)
        engine = self.tune.engine
        records = [by_id[key] for key in chosen]
        self.run_task(
            "compare", lambda: tuple(engine.comparing.drawn_of(r) for r in records), self._draw, self._failed
        )

    def _draw(self, others: tuple[Any, ...]) -> None:
        self.others = others
        self.ask_charts()

    def _failed(self, error: Exception) -> None:
        self.notify(str(error), severity="error", markup=False, timeout=8)
