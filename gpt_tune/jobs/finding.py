"""Owns finding one run by what the user typed, and cancelling it."""

from __future__ import annotations

import re

from gpt_tune import clusters
from gpt_tune.errors import SchedulerError, UserError, nearest, shown
from gpt_tune.jobs import chains, refreshing
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.schedulers.base import ENDED, Scheduler


def find(text: str, ledger: Ledger | None = None) -> RunRecord:
    """The run with that run id or job id, or the only one whose run id begins so.

    Ambiguous: UserError with the matches.
    """
    ledger = ledger or Ledger.open()
    matches = ledger.matching(text) if text.isascii() and text else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(f"{r.run_id} (job {r.job_id or 'none'} on {r.cluster})" for r in matches[:8])
        more = f" and {len(matches) - 8} more" if len(matches) > 8 else ""
        raise UserError(f"{text!r} stands for {len(matches)} runs: {listed}{more}.", "Give the whole run id.")
    known = [i for r in ledger.runs(limit=200) for i in (r.run_id, *r.job_ids)]
    close = nearest(text, known, cutoff=0.8)
    adopt = (
        f" A job submitted elsewhere becomes one with `gpt-tune jobs --adopt {text}`."
        if _is_job_id(text)
        else ""
    )
    hint = f"Did you mean {close}?" if close else f"`gpt-tune jobs` lists the runs.{adopt}"
    raise UserError(f"There is no run or job {shown(text)}.", hint)


def _is_job_id(text: str) -> bool:
    """Whether it looks like an id of Slurm's: 4711, 4711_3."""
    return re.fullmatch(r"[0-9]{1,12}([_+][0-9]{1,9})?", text) is not None


def cancel(text: str, ledger: Ledger | None = None, scheduler: Scheduler | None = None) -> RunRecord:
    """Cancel a run's job; the run as it is then. A run that has ended stays as it is."""
    ledger = ledger or Ledger.open()
    record = find(text, ledger)
    if record.state in ENDED:
        return record
    if record.job_id is None:
        raise SchedulerError(
            f"Run {record.run_id} has no known job: its submission's answer got lost.",
            "Look with `squeue --me` whether there is one, and cancel it with scancel.",
        )
    scheduler = scheduler or clusters.connect(record.cluster)
    # Written down first: should Slurm forget the job before it is looked at again, its end is known.
    record = ledger.update(record.run_id, cancel_requested=True)
    assert record.job_id is not None
    if chains.chain_of(record) is not None:  # its next job, queued already, must not go on
        scheduler.files.write(f"{record.run_dir}/chain/stop", b"cancelled\n")
    try:
        scheduler.cancel(record.job_id)
    except SchedulerError:
        ledger.update(record.run_id, cancel_requested=False)
        raise
    refreshing.update([record], scheduler, ledger)
    return ledger.get(record.run_id)
