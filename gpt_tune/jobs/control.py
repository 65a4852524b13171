"""Owns what is done to a job between its submission and its end: hold, release, requeue, signal."""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Callable

from gpt_tune import clusters
from gpt_tune.errors import SchedulerError, UserError, unknown_name
from gpt_tune.jobs import chains, refreshing
from gpt_tune.jobs.finding import find
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.schedulers.base import ENDED, Scheduler, SignalTarget

# Those that scancel knows by name in every version, without those that only end or stop a process blindly.
SIGNALS = (
    "USR1",
    "USR2",
    "TERM",
    "INT",
    "HUP",
    "CONT",
    "STOP",
    "TSTP",
    "QUIT",
    "ABRT",
    "ALRM",
    "URG",
    "KILL",
)

# Slurm's words for a job that has ended, whether it still knows it or not.
_GONE = r"invalid job id|forgotten|already compl|can ?not be altered|running|no such process|has ended"


def hold(text: str, ledger: Ledger | None = None, scheduler: Scheduler | None = None) -> RunRecord:
    """Keep a waiting job from starting; of a chain whose job runs, the one that waits behind it."""

    def do(record: RunRecord, there: Scheduler) -> None:
        there.hold(_waiting_job(record, there))

    return _done(text, ledger, scheduler, do)


def release(text: str, ledger: Ledger | None = None, scheduler: Scheduler | None = None) -> RunRecord:
    """Let a held job start."""

    def do(record: RunRecord, there: Scheduler) -> None:
        there.release(_waiting_job(record, there))

    return _done(text, ledger, scheduler, do)


def requeue(text: str, ledger: Ledger | None = None, scheduler: Scheduler | None = None) -> RunRecord:
    """End a running job and put it back into the queue. It starts anew, from its last checkpoint if it has one."""

    def do(record: RunRecord, there: Scheduler) -> None:
        there.requeue(_job_of(record))

    return _done(text, ledger, scheduler, do)


def signal(
    text: str, name: str = "USR1", target: SignalTarget = "script", ledger: Ledger | None = None,
    scheduler: Scheduler | None = None,
) -> RunRecord:  # fmt: skip
    """Send a signal to a running job: USR1 to its script means save and stop, as before a time limit."""
    known = signal_name(name)

    def do(record: RunRecord, there: Scheduler) -> None:
        there.signal(_job_of(record), known, target)

    return _done(text, ledger, scheduler, do)


def signal_name(text: str) -> str:
    """`usr1`, `SIGUSR1` and `10` as `USR1`. UserError for what is no signal."""
    word = text.strip().upper().removeprefix("SIG")
    if word.isdigit():
        try:
            word = signals.Signals(int(word)).name.removeprefix("SIG")
        except ValueError:
            word = text.strip()
    if word not in SIGNALS:
        raise unknown_name("signal", text, SIGNALS)
    return word


def _done(
    text: str, ledger: Ledger | None, scheduler: Scheduler | None, do: Callable[[RunRecord, Scheduler], None]
) -> RunRecord:
    """Do it, look once, and give the run as it is then."""
    ledger = ledger or Ledger.open()
    record = find(text, ledger)
    if record.state in ENDED:
        raise _ended(record)
    scheduler = scheduler or clusters.connect(record.cluster)
    try:
        do(record, scheduler)
    except SchedulerError as error:
        if not re.search(_GONE, f"{error.message} {error.hint}", re.IGNORECASE):
            raise
        # What we knew was older than the job's end.
        refreshing.update([record], scheduler, ledger)
        now = ledger.get(record.run_id)
        if now.phase != "ended":
            raise
        raise _ended(now) from error
    refreshing.update([record], scheduler, ledger)
    return ledger.get(record.run_id)


def _ended(record: RunRecord) -> UserError:
    return UserError(
        f"Run {record.run_id} has ended ({record.state}).",
        f"Start it again: gpt-tune resubmit {record.run_id}",
    )


def _job_of(record: RunRecord) -> str:
    if record.job_id is None:
        raise SchedulerError(
            f"Run {record.run_id} has no known job: its submission's answer got lost.",
            "`gpt-tune jobs` looks for it.",
        )
    return record.job_id


def _waiting_job(record: RunRecord, scheduler: Scheduler) -> str:
    """The job that can be held or released: of a chain the next one, once the last one runs."""
    job_id = _job_of(record)
    if record.state != "RUNNING" or chains.chain_of(record) is None:
        return job_id
    path = f"{record.run_dir}/chain/next-{job_id}"
    if not scheduler.files.size(path):
        return job_id
    return scheduler.files.read(path, limit=64).decode("ascii", "replace").strip() or job_id
