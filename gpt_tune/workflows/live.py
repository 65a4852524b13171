"""Owns bringing live runs up to date, those that are chains of jobs included.

What carries chains on needs recipes, planner and NumPy; most people's runs are no chains, and a list of jobs must not
wait for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpt_tune import jobs
from gpt_tune.jobs import chains
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.schedulers.base import Scheduler

_LOOKED_AT = 500  # newest runs: a chain among older ones ended long ago


def carried(ledger: Ledger) -> list[RunRecord]:
    """Chains that are not over, also those between two jobs."""
    runs = ledger.runs(limit=_LOOKED_AT)
    return [r for r in runs if (c := chains.chain_of(r)) is not None and not c.over]


def refresh(
    ledger: Ledger, schedulers: Sequence[Scheduler] | None = None, *, max_age_seconds: float = 0.0
) -> list[RunRecord]:
    """As jobs.refresh; chains whose job has ended are carried on or closed."""
    if not carried(ledger):
        return jobs.refresh(ledger, schedulers, max_age_seconds=max_age_seconds)
    from gpt_tune.workflows import chain

    return chain.refresh(ledger, schedulers, max_age_seconds=max_age_seconds)
