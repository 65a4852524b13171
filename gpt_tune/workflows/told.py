"""Owns what the files of runs tell before their scheduler is asked: a job began, a job ended; and asking just then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gpt_tune.errors import UserError
from gpt_tune.jobs import chains, clock, logs, polling, refreshing
from gpt_tune.jobs.pacing import Budget
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.schedulers.base import Scheduler
from gpt_tune.workflows import live

# A file's size and time of change; None where there is none (or it cannot be seen from here).
Mark = tuple[int, float]
Stat = Callable[[str], Mark | None]

# The script's last action is no end yet: Slurm still tidies up.
_SETTLE_SECONDS = 0.5
# Runs looked at at once; of more, these in turn: a file server is to be a good guest's, too.
_AT_ONCE = 32
# When the scheduler has not seen yet what the files told: so long until it is asked again. Then its turn comes.
_AGAIN_SECONDS = (1.0, 2.0, 4.0, 8.0)


def on_this_machine(path: str) -> Mark | None:
    """Opened, not only looked at: a network file system asks its server then whether what it remembers still holds."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return found.st_size, found.st_mtime


@dataclass(frozen=True, slots=True)
class _Marks:
    """started, exit_code: what the job writes into its run folder as its first and its last action. log: its size."""

    started: Mark | None
    exit_code: Mark | None
    log: int


@dataclass(slots=True)
class _Known:
    """marks: as they were when the scheduler's word last fitted them. seen: as they are."""

    marks: _Marks
    seen: _Marks
    not_before: float = float("-inf")
    asked: int = 0


class Told:
    """Looks at files only. One for each screen or command that follows runs.

    stat: how a file is looked at; `through` gives another way for one run (of a cluster behind ssh).
    """

    def __init__(self, stat: Stat = on_this_machine, clock: Callable[[], float] = time.monotonic) -> None:
        self._stat = stat
        self._clock = clock
        self._stats: dict[str, Stat] = {}
        self._known: dict[str, _Known] = {}
        self._next = 0

    def through(self, run_id: str, stat: Stat) -> None:
        """Look at this run's files another way."""
        self._stats[run_id] = stat

    def tells(self, record: RunRecord) -> bool:
        """Whether this run's files show its beginning and its end: they are seen here, and its script writes them."""
        known = self._known.get(record.run_id)
        return known is not None and "adopted" not in record.tags and known.seen != _Marks(None, None, -1)

    def news(self, records: Iterable[RunRecord]) -> list[RunRecord]:
        """Runs whose files tell of a change that the record does not show, where it is time to ask about it."""
        wanted = list(records)
        if len(wanted) > _AT_ONCE:
            turn = self._next % len(wanted)
            wanted, self._next = (wanted + wanted)[turn : turn + _AT_ONCE], turn + _AT_ONCE
        return [r for r in wanted if self._is_news(r)]

    def _is_news(self, record: RunRecord) -> bool:
        if not record.active or record.job_id is None or record.scheduler == "local":
            self._known.pop(record.run_id, None)
            return False
        marks = self._look(record)
        known = self._known.setdefault(record.run_id, _Known(marks, marks))
        if marks != known.seen:
            known.seen, known.asked = marks, 0
            ended = marks.exit_code != known.marks.exit_code
            known.not_before = self._clock() + _SETTLE_SECONDS if ended else float("-inf")
        if _fits(record, known.marks, marks):
            known.marks = marks
            return False
        return self._clock() >= known.not_before

    def asked(self, record: RunRecord) -> None:
        """The scheduler was asked after the last look; record: as it is now."""
        known = self._known.get(record.run_id)
        if known is None:
            return
        if _fits(record, known.marks, known.seen) or known.asked >= len(_AGAIN_SECONDS):
            known.marks, known.asked = known.seen, 0
            return
        known.not_before = self._clock() + _AGAIN_SECONDS[known.asked]
        known.asked += 1

    def _look(self, record: RunRecord) -> _Marks:
        stat = self._stats.get(record.run_id, self._stat)
        log: Mark | None = None
        for pattern in record.log_paths[:1]:
            path = logs.expanded(record, record.job_ids[-1], pattern)
            log = stat(path) if "*" not in path else None
        started, code = (stat(f"{record.run_dir}/{name}") for name in ("started", "exit_code"))
        return _Marks(started, code, log[0] if log is not None else -1)


def _fits(record: RunRecord, before: _Marks, now: _Marks) -> bool:
    """Whether the record's state agrees with what the files say."""
    if not record.active:
        return True
    if now.exit_code is not None and now.exit_code != before.exit_code:
        return False
    begun = now.started != before.started or now.log > max(0, before.log)
    return not begun or record.state not in ("PENDING", "UNKNOWN")


def ask(
    told: Told, records: Sequence[RunRecord], scheduler: Scheduler, ledger: Ledger, budget: Budget
) -> bool:
    """Ask about runs of one cluster whose files tell of a change, as far as its budget allows; whether it was asked."""
    news = told.news(records)
    if not news:
        return False
    several = len(news) * polling.ONE_JOB_REQUESTS > polling.POLL_REQUESTS
    if several or any(chains.chain_of(r) is not None for r in news):
        if not _may_ask(polling.POLL_REQUESTS, news[0].cluster, ledger, budget):
            return False
        live.refresh(ledger, [scheduler], max_age_seconds=polling.HINT_SHARED_SECONDS)
    else:
        news = [r for r in news if _ask_one(r, scheduler, ledger, budget)]
    for record in news:
        told.asked(ledger.get(record.run_id))
    return bool(news)


def _may_ask(requests: int, cluster: str, ledger: Ledger, budget: Budget) -> bool:
    """Whether so many may be made now, which are counted then: by this screen, and by all of this user's."""
    most, seconds = polling.TOLD_A_MINUTE, polling.WINDOW_SECONDS
    if not budget.allows(requests, told=True):
        return False
    if not ledger.take_requests(cluster, requests, clock.epoch(), most=most, seconds=seconds):
        return False
    budget.spend(requests, told=True)
    return True


def _ask_one(record: RunRecord, scheduler: Scheduler, ledger: Ledger, budget: Budget) -> bool:
    if not _may_ask(polling.ONE_JOB_REQUESTS, record.cluster, ledger, budget):
        return False
    with suppress(UserError):  # the cluster is away: the next poll of all runs says so
        refreshing.update_one(record, scheduler, ledger)
    return True
