"""Owns reading earlier runs for a chart of several: their logs, named as the ledger names them."""

from __future__ import annotations

from gpt_tune.errors import UserError
from gpt_tune.ledger import RunRecord
from gpt_tune.workflows.records import peak_tflops_of
from gpt_tune.workflows.results import parsed
from gpt_tune.workflows.series import Drawn


def drawn_of(record: RunRecord) -> Drawn:
    """A run for a chart, read from its logs. UserError when they hold no steps."""
    result = parsed(record)
    if result is None or not result.summary.steps:
        raise UserError(f"{record.name} ({record.run_id}) has no steps in its log.", "Choose another run.")
    return Drawn(record.name, result.table, result.facts, peak_tflops_of(record))
