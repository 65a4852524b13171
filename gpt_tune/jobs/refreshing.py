"""Owns keeping the ledger's states true: one batched call per cluster, and never a false end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpt_tune import clusters
from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.jobs import clock, reconciling, states
from gpt_tune.ledger import Ledger, Poll, RunRecord
from gpt_tune.schedulers import slurm_jobs
from gpt_tune.schedulers.base import ENDED, JobStatus, Scheduler

FORGOTTEN = "Forgotten"
ACCOUNTING_OUT = "AccountingOut"
_ACCOUNTING_SECONDS = 6 * 3600.0  # after that it is not waited for any more
_ASKING_SECONDS = 5.0  # a whole answer takes less; whoever asked may have died


def refresh(
    ledger: Ledger,
    schedulers: Scheduler | Iterable[Scheduler] | None = None,
    *,
    max_age_seconds: float = 0.0,
) -> list[RunRecord]:
    """Bring every open run up to date; those runs, as they are now.

    schedulers: None asks each cluster that has open runs. max_age_seconds: a cluster that answered (to any
    gpt-tune of this user) within that time is not asked again. A cluster that does not answer keeps its
    runs' last states; `Ledger.poll` says since when.
    """
    by_cluster: dict[str, list[RunRecord]] = {}
    for record in ledger.runs(open_only=True):
        by_cluster.setdefault(record.cluster, []).append(record)
    given = None if schedulers is None else {s.cluster: s for s in _several(schedulers)}
    for cluster, records in by_cluster.items():
        if given is None or cluster in given:
            _ask(cluster, records, given, ledger, max_age_seconds)
    looked_at = [r.run_id for records in by_cluster.values() for r in records]
    return [ledger.get(run_id) for run_id in looked_at]


def _several(schedulers: Scheduler | Iterable[Scheduler]) -> Iterable[Scheduler]:
    return schedulers if isinstance(schedulers, Iterable) else (schedulers,)


def _ask(
    cluster: str, records: list[RunRecord], given: dict[str, Scheduler] | None, ledger: Ledger, max_age: float
) -> None:
    poll = ledger.poll(cluster)
    age = clock.age_seconds(poll.answered_at)
    if max_age and age is not None and age < max_age and not poll.failures:
        return
    if max_age and _is_asking(poll):
        return
    asked = replace(poll, asked_at=clock.now())
    if max_age:
        ledger.put_poll(asked)  # others see that the answer is on its way
    try:
        scheduler = given[cluster] if given else clusters.connect(cluster)
        if poll.failures:  # a ping tells at once whether it is back; other commands wait for it
            scheduler.check_reachable()
        update(records, scheduler, ledger)
    except UserError as error:  # SchedulerError, or a cluster that is not known from here
        ledger.put_poll(replace(asked, failures=poll.failures + 1, error=error.message))
    else:
        ledger.put_poll(Poll(cluster, asked.asked_at, clock.now(), 0, ""))


def _is_asking(poll: Poll) -> bool:
    """Whether another gpt-tune asked a moment ago and waits for the answer."""
    age = clock.age_seconds(poll.asked_at)
    pending = poll.asked_at is not None and (poll.answered_at is None or poll.answered_at < poll.asked_at)
    return pending and not poll.failures and age is not None and age < _ASKING_SECONDS


def update(records: Sequence[RunRecord], scheduler: Scheduler, ledger: Ledger) -> None:
    """Ask the scheduler about all these runs at once and store what changed."""
    without_job = [r for r in records if r.job_id is None]
    with_job = [r for r in records if r.job_id is not None]
    if without_job and not all(reconciling.under_way(r, scheduler) for r in without_job):
        # One call answers for both: all of my jobs.
        jobs = scheduler.my_jobs()
        for record in without_job:
            reconciling.reconcile(record, scheduler, ledger, jobs)
        statuses = {j.job_id: j for j in jobs}
    else:
        statuses = scheduler.statuses([r.job_id for r in with_job if r.job_id])
    own = {
        r.run_id: status
        for r in with_job
        if (status := statuses.get(r.job_id or "")) is not None and reconciling.is_job_of(r, status)
    }
    vanished = [r for r in with_job if r.run_id not in own]
    with ledger.batch():
        for record in with_job:
            if record.run_id in own:
                states.store(record, own[record.run_id], ledger)
    if vanished:
        _settle(vanished, scheduler, ledger)


def heard(jobs: Sequence[JobStatus], scheduler: Scheduler, ledger: Ledger) -> None:
    """All of my jobs as the scheduler just listed them: what they say of open runs. Those that it leaves open are asked
    about at the next poll; when it leaves none, that was one."""
    cluster = scheduler.cluster
    open_runs = [r for r in ledger.runs(open_only=True) if r.cluster == cluster]
    listed = slurm_jobs.by_id(jobs, [r.job_id for r in open_runs if r.job_id])
    told = [(r, s) for r in open_runs if (s := listed.get(r.job_id or "")) and reconciling.is_job_of(r, s)]
    with ledger.batch():
        for record, status in told:
            states.store(record, status, ledger)
    if len(told) == len(open_runs):
        ledger.put_poll(Poll(cluster, clock.now(), clock.now(), 0, ""))


def update_one(record: RunRecord, scheduler: Scheduler, ledger: Ledger) -> None:
    """Ask about one run's job, as cheaply as can be. One that the scheduler has forgotten waits for `update`."""
    assert record.job_id is not None
    status = scheduler.one(record.job_id)
    if status is not None and reconciling.is_job_of(record, status):
        states.store(record, status, ledger)


def _settle(records: list[RunRecord], scheduler: Scheduler, ledger: Ledger) -> None:
    """Find the end of jobs the scheduler has forgotten: accounting, the run folder, our own records."""
    # Not since submitted_at: that is when a lost submission was found, and its job may have ended before.
    since = reconciling.since(min(r.created_at for r in records))
    out = False
    try:
        history = scheduler.history([r.job_id for r in records if r.job_id], since)
    except SchedulerError:
        history, out = {}, True  # the run folder may know
    for record in records:
        status = history.get(record.job_id or "")
        if status is not None and status.state in ENDED and reconciling.is_job_of(record, status):
            states.store(record, status, ledger)
            continue
        own = _own_record(record, scheduler)
        if out and own.state == "UNKNOWN" and _may_wait(record):
            ledger.update(
                record.run_id, if_open=True, state="UNKNOWN", reason=ACCOUNTING_OUT,
                missing_since=record.missing_since or clock.now(),
            )  # fmt: skip
        else:
            states.store(record, own, ledger, settled=True)


def _may_wait(record: RunRecord) -> bool:
    """Whether accounting, which is out, may still be asked later how a forgotten job ended."""
    age = clock.age_seconds(record.missing_since)
    return age is None or age < _ACCOUNTING_SECONDS


def _own_record(record: RunRecord, scheduler: Scheduler) -> JobStatus:
    """How a forgotten job ended, as far as its run folder and the ledger tell."""
    code = exit_code_of(record, scheduler)
    assert record.job_id is not None
    base = JobStatus(
        job_id=record.job_id,
        name=record.name,
        state="UNKNOWN",
        reason=FORGOTTEN,
        nodes=record.nodes,
        submitted_at=record.submitted_at,
        started_at=record.started_at,
        ended_at=clock.now(),
    )
    if record.cancel_requested:
        return replace(base, state="CANCELLED", reason="")
    if code is None:
        return base
    return replace(base, state="COMPLETED" if code == 0 else "FAILED", reason="", exit_code=code)


def exit_code_of(record: RunRecord, scheduler: Scheduler) -> int | None:
    """What the job's script left in its run folder when it ended."""
    path = f"{record.run_dir}/exit_code"
    if not scheduler.files.size(path):
        return None
    words = scheduler.files.read(path, limit=32).split()
    return int(words[0]) if words and words[0].isdigit() else None
