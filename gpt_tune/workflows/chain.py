"""Owns a run that is a chain of jobs on the same checkpoints: start it, carry it on, and say why it ended."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpt_tune import clusters, jobs, rendering
from gpt_tune.diagnosis.types import Finding
from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.jobs import chains, clock, refreshing
from gpt_tune.ledger import JobRecord, Ledger, RunRecord
from gpt_tune.recipes.base import Rendered, RenderedFile
from gpt_tune.schedulers.base import ENDED, Files, Scheduler, SubmitRequest, SubmitUnknown
from gpt_tune.workflows.launch import Launch, check_trainer
from gpt_tune.workflows.records import profile_of

MAX_JOBS = 20  # a chain without an end of its own stops somewhere
_LONGEST = 1000
GUARD = "chain/guard.sh"
# A job killed while it queued the next one may still have done so; after this long without it, it has not.
_SETTLE_SECONDS = 30.0


# -- start ----------------------------------------------------------------------------------------
def submit(launch: Launch, ledger: Ledger | None = None, max_jobs: int = MAX_JOBS) -> RunRecord:
    """Submit a run that goes on until it is done, in at most max_jobs jobs."""
    check_trainer(launch)
    ready = prepared(launch, max_jobs)
    return jobs.submit(
        ready.spec, ready.rendered, ready.scheduler, ledger or Ledger.open(), (chains.tag(max_jobs),)
    )


def prepared(launch: Launch, max_jobs: int = MAX_JOBS) -> Launch:
    """The launch with a job script whose jobs carry each other on. UserError when nothing could be carried on."""
    if not 1 <= max_jobs <= _LONGEST:
        raise UserError(
            f"A chain of {max_jobs} jobs is not possible.", f"Give --max-jobs from 1 to {_LONGEST}."
        )
    profile = launch.spec.profile
    unsaved = profile.training.checkpoint_interval is None and profile.training.data == "synthetic"
    if profile.recipe in ("megatron-deepspeed", "megatron-lm") and unsaved:
        raise UserError(
            "This run saves no checkpoints, so no job could go on where another ended.",
            "Set training.checkpoint_interval, for example --set training.checkpoint_interval=100.",
        )
    return replace(launch, rendered=_with_guard(launch, max_jobs))


def _with_guard(launch: Launch, max_jobs: int) -> Rendered:
    spec, rendered = launch.spec, launch.rendered
    guard = rendering.render(
        "common/chain.sh.j2",
        run_dir=spec.run_dir,
        checkpoints=checkpoint_folder(spec.profile.training.checkpoint_dir, spec.run_dir),
        script=f"{spec.run_dir}/{rendered.script}",
        max_jobs=max_jobs,
        total=_total(launch) or 0,
    )
    line = f". {rendering.quote(f'{spec.run_dir}/{GUARD}')}\n".encode()
    files = tuple(
        replace(f, content=_inserted(f.content, line)) if f.path == rendered.script else f
        for f in rendered.files
    )
    return replace(rendered, files=(*files, RenderedFile(GUARD, guard)))


def _inserted(script: bytes, line: bytes) -> bytes:
    """The script with a line before its first command."""
    lines = script.splitlines(keepends=True)
    first = next(
        (i for i, text in enumerate(lines) if text.strip() and not text.startswith(b"#")), len(lines)
    )
    note = b"# The jobs of a chain: end at once when there is nothing left to do, else queue the next one.\n"
    return b"".join([*lines[:first], note, line, *lines[first:]])


def _total(launch: Launch) -> int | None:
    """Iterations of the whole training, where they are fixed and not an estimate."""
    profile = launch.spec.profile
    if profile.recipe == "smoke":
        return profile.smoke.steps
    return launch.rendered.prediction.total_steps


def checkpoint_folder(chosen: str, run_dir: str) -> str:
    """Where a run's checkpoints are."""
    return chosen or posixpath.join(run_dir, "checkpoints")


# -- carry on -------------------------------------------------------------------------------------
def refresh(
    ledger: Ledger, schedulers: Scheduler | Iterable[Scheduler] | None = None, *, max_age_seconds: float = 0.0
) -> list[RunRecord]:
    """As jobs.refresh, and every chain whose job has ended is carried on or closed."""
    records = jobs.refresh(ledger, schedulers, max_age_seconds=max_age_seconds)
    waiting = [r for r in ledger.runs(limit=200) if (c := chains.chain_of(r)) is not None and not c.over]
    given = {s.cluster: s for s in _several(schedulers)}
    for record in waiting:
        if schedulers is not None and record.cluster not in given:
            continue
        try:
            advance(record, given.get(record.cluster) or clusters.connect(record.cluster), ledger)
        except UserError as error:  # the cluster is away: the last state stands
            poll = ledger.poll(record.cluster)
            ledger.put_poll(replace(poll, failures=max(1, poll.failures), error=error.message))
    seen = dict.fromkeys([r.run_id for r in records] + [r.run_id for r in waiting])
    return [ledger.get(run_id) for run_id in seen]


def _several(schedulers: Scheduler | Iterable[Scheduler] | None) -> Iterable[Scheduler]:
    if schedulers is None:
        return ()
    return schedulers if isinstance(schedulers, Iterable) else (schedulers,)


def advance(record: RunRecord, scheduler: Scheduler, ledger: Ledger) -> RunRecord:
    """Take over the next job that the last one queued, submit it where it could not, or close the chain."""
    for _ in range(_LONGEST):  # several jobs may have come and gone while nobody looked
        chain = chains.chain_of(record)
        if chain is None or chain.over or record.job_id is None or record.phase == "lost":
            return record
        if record.state not in ENDED and not (record.state == "UNKNOWN" and record.phase == "ended"):
            return record
        facts = gather(record, scheduler, chain.max_jobs)
        if facts.next_job is not None and facts.next_worked:  # it came and went, or is at work
            record = _take_over(record, facts.next_job, scheduler, ledger)
            continue
        decision = decide(facts)
        if decision.do == "end":
            return _close(record, decision.reason, facts, scheduler, ledger)
        if facts.next_job is not None:
            record = _take_over(record, facts.next_job, scheduler, ledger)
        elif decision.do == "wait":
            return record
        else:
            return _submit_next(record, scheduler, ledger)
    return record


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known when a chain's job has ended. Checkpoints are iterations, None for none.

    next_job: queued by the job itself. next_worked: it has begun to train. claimed: the job meant to queue one
    and said nothing more.
    over: what a job of the chain itself found. idle: the last job only found that. finding: what its log says
    went wrong.
    """

    jobs: int
    max_jobs: int
    state: str
    ended_seconds_ago: float
    exit_code: int | None = None
    told_to_stop: bool = False
    cancelled: bool = False
    before: int | None = None
    now: int | None = None
    total: int | None = None
    next_job: str | None = None
    next_worked: bool = False
    claimed: bool = False
    over: str = ""
    idle: bool = False
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """do: what comes next. reason: a key of chains.REASONS when the chain ends."""

    do: Literal["submit", "wait", "end"]
    reason: str = ""


def decide(facts: Facts) -> Decision:
    """Whether another job makes sense."""
    if facts.over:
        return Decision("end", facts.over)
    if facts.cancelled:
        return Decision("end", "stopped")
    if facts.total and facts.now is not None and facts.now >= facts.total:
        return Decision("end", "done")
    if facts.exit_code == 0 and not facts.told_to_stop:
        return Decision("end", "done")
    if facts.finding is not None and is_incurable(facts.finding):
        return Decision("end", "incurable")
    if facts.now == facts.before:
        return Decision("end", "no-progress")
    if facts.jobs >= facts.max_jobs:
        return Decision("end", "max-jobs")
    if facts.claimed and facts.ended_seconds_ago < _SETTLE_SECONDS:
        return Decision("wait")
    return Decision("submit")


def is_incurable(finding: Finding) -> bool:
    """Whether the same job would run into it again: an error that neither time nor other nodes cure."""
    return finding.severity == "error" and finding.action not in ("resume", "exclude_host", "more_time")


def gather(record: RunRecord, scheduler: Scheduler, max_jobs: int) -> Facts:
    """Look into the run folder."""
    files = scheduler.files
    folder = f"{record.run_dir}/chain"
    names = set(files.list(folder))
    job = str(record.job_id)
    said = _text(files, f"{folder}/next-{job}") if f"next-{job}" in names else ""
    said = said if re.fullmatch(r"\d+|local-\d+", said) else ""
    code = refreshing.exit_code_of(record, scheduler)
    return Facts(
        jobs=len(record.job_ids),
        max_jobs=max_jobs,
        state=record.state,
        ended_seconds_ago=clock.age_seconds(record.ended_at) or 0.0,
        exit_code=code if record.state in ("COMPLETED", "UNKNOWN") else record.exit_code,
        told_to_stop=_told_to_stop(record, files),
        cancelled=record.cancel_requested or record.state == "CANCELLED" or "stop" in names,
        before=_number(_text(files, f"{folder}/job-{job}")) if f"job-{job}" in names else None,
        now=newest_checkpoint(files, folder_of(record)),
        total=_total_of(record),
        next_job=said if said else None,
        next_worked=bool(said) and f"job-{said}" in names,
        claimed=f"claim-{job}" in names and f"next-{job}" not in names,
        over=_over(files, folder, names),
        idle=f"job-{job}" not in names,
        finding=_root_cause(record, files),
    )


def _over(files: Files, folder: str, names: set[str]) -> str:
    word = _text(files, f"{folder}/over") if "over" in names else ""
    return word if word in chains.REASONS else ""


def _take_over(record: RunRecord, job_id: str, scheduler: Scheduler, ledger: Ledger) -> RunRecord:
    """The next job is the run's job from now on."""
    now = clock.now()
    with ledger.batch():
        ledger.put_job(
            JobRecord(
                record.run_id, job_id, len(record.job_ids), "PENDING", submitted_at=record.started_at or now
            )
        )
        ledger.update(
            record.run_id, phase="submitted", state="PENDING", reason="", started_at=None, ended_at=None,
            exit_code=None, expected_start=None, missing_since=None,
        )  # fmt: skip
    refreshing.update([ledger.get(record.run_id)], scheduler, ledger)
    return ledger.get(record.run_id)


def _submit_next(record: RunRecord, scheduler: Scheduler, ledger: Ledger) -> RunRecord:
    """Where the job itself could not queue its successor (no sbatch on the nodes, or no Slurm at all)."""
    claim = f"{record.run_dir}/chain/next-{record.job_id}"
    request = SubmitRequest(record.script, record.run_dir, record.name, record.token)
    known = {j.job_id for j in scheduler.my_jobs() if j.work_dir == record.run_dir} - set(record.job_ids)
    if known:  # another gpt-tune, or the job itself, was quicker
        job_id = min(known, key=lambda i: (len(i), i))
    else:
        try:
            job_id = scheduler.submit(request)
        except SubmitUnknown:
            return record  # the next look finds it in the queue, if it is there
    scheduler.files.write(claim, f"{job_id}\n".encode())
    return _take_over(record, job_id, scheduler, ledger)


def _close(record: RunRecord, reason: str, facts: Facts, scheduler: Scheduler, ledger: Ledger) -> RunRecord:
    """Write down why the chain ended, and take back what it queued."""
    if facts.next_job is not None:
        scheduler.cancel(facts.next_job)
    scheduler.files.write(f"{record.run_dir}/chain/over", f"{reason}\n".encode())
    history = ledger.jobs(record.run_id)
    with ledger.batch():
        if facts.idle and len(history) > 1:  # how the chain ended is how the job before it did
            last = history[-2]
            ledger.update(
                record.run_id, state=last.state, reason=last.reason, exit_code=last.exit_code,
                started_at=last.started_at, ended_at=last.ended_at,
            )  # fmt: skip
        return ledger.update(record.run_id, tags=chains.with_end(record.tags, reason))


# -- what the run folder says ---------------------------------------------------------------------
def newest_checkpoint(files: Files, folder: str) -> int | None:
    """The iteration of the newest checkpoint, by the trainer's tracker file or the names in the folder."""
    tracker = f"{folder}/latest_checkpointed_iteration.txt"
    if files.size(tracker):
        return _number(_text(files, tracker))
    return max(
        (n for name in files.list(folder) if (n := chains.iteration_of(name)) is not None), default=None
    )


def folder_of(record: RunRecord) -> str:
    """Where a run's checkpoints are."""
    try:
        chosen = profile_of(record).training.checkpoint_dir
    except UserError:
        chosen = ""
    return checkpoint_folder(chosen, record.run_dir)


def _total_of(record: RunRecord) -> int | None:
    if record.recipe == "smoke":
        try:
            return profile_of(record).smoke.steps
        except UserError:
            return None
    total = (record.prediction or {}).get("total_steps")
    return total if isinstance(total, int) else None


def _told_to_stop(record: RunRecord, files: Files) -> bool:
    """Whether the last job's log says that the scheduler warned it."""
    return any(b"received SIG" in _tail(files, path) for path in _logs_of_last(record, files))


def _root_cause(record: RunRecord, files: Files) -> Finding | None:
    from gpt_tune.diagnosis import diagnose_lines

    if record.state in ("COMPLETED", "PREEMPTED", "NODE_FAIL"):
        return None
    lines: list[str] = []
    for path in _logs_of_last(record, files):
        lines += _tail(files, path).decode("utf-8", "replace").splitlines()
    return diagnose_lines(lines).root_cause if lines else None


def _logs_of_last(record: RunRecord, files: Files) -> Sequence[str]:
    return jobs.resolved_log_paths(replace(record, job_ids=record.job_ids[-1:]), files)


def _tail(files: Files, path: str, size: int = 1 << 20) -> bytes:
    length = files.size(path)
    return files.read(path, max(0, length - size), size) if length else b""


def _text(files: Files, path: str) -> str:
    return files.read(path, limit=4096).decode("utf-8", "replace").strip()


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def is_live(record: RunRecord) -> bool:
    """Whether its state may still change by itself: a job that has not ended, or a chain that goes on."""
    chain = chains.chain_of(record)
    return record.active or (chain is not None and not chain.over and record.phase != "lost")


def cancel(text: str, ledger: Ledger | None = None, scheduler: Scheduler | None = None) -> RunRecord:
    """Cancel a run; of a chain also what is queued."""
    ledger = ledger or Ledger.open()
    record = jobs.cancel(text, ledger, scheduler)
    if chains.chain_of(record) is None:
        return record
    scheduler = scheduler or clusters.connect(record.cluster)
    try:
        return advance(record, scheduler, ledger)
    except SchedulerError:
        return record  # its next job ends by itself: it sees that the chain was stopped
