"""Owns asking how runs stand, for commands that wait: at the engine's pace, sooner when files tell of a change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gpt_tune import clusters
from gpt_tune.errors import UserError
from gpt_tune.jobs.pacing import Pacer
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.schedulers.base import JobStatus, Scheduler
from gpt_tune.workflows import chain
from gpt_tune.workflows.records import status_of
from gpt_tune.workflows.told import Told, ask

# What a job writes into its run folder when it begins and when it ends.
_MARKS = ("started", "exit_code")


class Asking:
    """The state of one run, time after time. Looking costs a read of the ledger and a look at the run's files; the
    scheduler is asked when due, and when these tell of a change.
    """

    def __init__(self, run_id: str, pacer: Pacer | None = None, told: Told | None = None) -> None:
        self.run_id = run_id
        self.pacer = pacer or Pacer()
        self.pacer.acted()  # the user has just begun to look
        self._told = told or Told()
        self._scheduler: Scheduler | None = None

    def __call__(self) -> JobStatus | None:
        with Ledger.open() as ledger:
            record = ledger.get(self.run_id)
            if chain.is_live(record):
                self.look(record, ledger)
            return status_of(ledger.get(self.run_id))

    def look(self, record: RunRecord, ledger: Ledger) -> None:
        """Ask the run's cluster if it is time to."""
        news = self._told.news([record])  # looked at before asking: what is written meanwhile is news again
        if record.scheduler == "local" or self.pacer.due:
            refreshed(record, ledger, self.pacer, self._connected, self._told.tells(record))
            self._told.asked(ledger.get(record.run_id))
        elif news:
            with suppress(UserError):  # the cluster is away: the last good state stands
                scheduler = self._connected(record.cluster)
                before = scheduler.calls
                ask(self._told, [record], scheduler, ledger, self.pacer.budget)
                self.pacer.count(scheduler.calls - before)

    def _connected(self, cluster: str) -> Scheduler:
        if self._scheduler is None:
            self._scheduler = clusters.connect(cluster)
        return self._scheduler


def refreshed(
    record: RunRecord, ledger: Ledger, pacer: Pacer, connect: Callable[[str], Scheduler] = clusters.connect,
    files_tell: bool = False,
) -> None:  # fmt: skip
    """Bring all runs of the record's cluster up to date and tell the pacer what it cost."""
    calls, failed = 0, True
    with suppress(UserError):  # the cluster is away: the last good state stands
        scheduler = connect(record.cluster)
        before = scheduler.calls
        chain.refresh(ledger, scheduler, max_age_seconds=oldest_answer(scheduler, pacer))
        calls = scheduler.calls - before
        failed = ledger.poll(record.cluster).failures > 0
    now = ledger.get(record.run_id)
    pacer.polled(
        [now.state] if chain.is_live(now) else [],
        scheduler=record.scheduler,
        calls=calls,
        changed=(now.state, now.job_id) != (record.state, record.job_id),
        failed=failed,
        files_tell=files_tell,
    )


def oldest_answer(scheduler: Scheduler, pacer: Pacer) -> float:
    """How old an answer of another gpt-tune may be, in seconds. Asking this machine costs nobody anything."""
    return 0.0 if scheduler.kind == "local" else pacer.max_age_seconds


def marks_of(record: RunRecord) -> tuple[int, ...]:
    """How much the job has written of its beginning and end; -1 for nothing (also where the folder is elsewhere)."""
    return tuple(_size(Path(record.run_dir, name)) for name in _MARKS)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
