"""Owns the doors from the screens to the engine. Each is imported at its first use: the first frame comes before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Lock
from time import monotonic
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from gpt_tune.jobs.pacing import Budget
    from gpt_tune.ledger.record import RunRecord
    from gpt_tune.schedulers.base import Cluster, JobStatus
    from gpt_tune.workflows.draft import Draft
    from gpt_tune.workflows.queue import MyJob, Offer, QueueView
    from gpt_tune.workflows.replay import Tape
    from gpt_tune.workflows.told import Told
    from gpt_tune.workflows.watch import Watch
    from tui.poller import Answer

RUNS_SHOWN = 500
# The first half minute of a training job is start-up, which a demonstration need not wait for.
DEMO_SPEED, DEMO_FROM_SECONDS = 2.0, 30.0


class Engine:
    """The engine's modules by name, and the few handles that live as long as the app.

    Methods are called from worker threads. Tests hand the app one with fakes in it.
    """

    _rooms: ClassVar[dict[str, str]] = {
        "choices": "gpt_tune.workflows.choices",
        "launch": "gpt_tune.workflows.launch",
        "offline": "gpt_tune.workflows.offline",
        "reviewing": "gpt_tune.workflows.reviewing",
        "history": "gpt_tune.workflows.history",
        "whatif": "gpt_tune.workflows.whatif",
        "sure": "gpt_tune.workflows.sure",
        "results": "gpt_tune.workflows.results",
        "watch": "gpt_tune.workflows.watch",
        "planner": "gpt_tune.planner",
        "jobs": "gpt_tune.jobs",
        "clusters": "gpt_tune.clusters",
        "profiles": "gpt_tune.profiles.store",
        "records": "gpt_tune.workflows.records",
        "chain": "gpt_tune.workflows.chain",
        "live": "gpt_tune.workflows.live",
        "doctor": "gpt_tune.workflows.doctor",
        "queue": "gpt_tune.workflows.queue",
        "adopt": "gpt_tune.workflows.adopt",
        "resubmit": "gpt_tune.workflows.resubmit",
        "replay": "gpt_tune.workflows.replay",
        "findings": "gpt_tune.workflows.findings",
        "sampling": "gpt_tune.workflows.nodes.sampling",
        "comparing": "gpt_tune.workflows.comparing",
    }

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._lock = Lock()
        self._clock = clock
        self._ledger: Any = None
        self._schedulers: dict[str, Any] = {}
        self._told: Told | None = None
        self._budgets: dict[str, Budget] = {}
        self.tapes: dict[str, Tape] = {}  # recordings being played, by the run id of their record

    def __getattr__(self, room: str) -> ModuleType:
        if room not in self._rooms:
            raise AttributeError(room)
        module = import_module(self._rooms[room])
        setattr(self, room, module)
        return module

    @property
    def ledger(self) -> Any:
        """The one open ledger."""
        with self._lock:
            if self._ledger is None:
                self._ledger = import_module("gpt_tune.ledger").Ledger.open()
            return self._ledger

    def runs(self) -> list[RunRecord]:
        """Runs as the ledger knows them, newest first; nothing is asked."""
        return self.ledger.runs(limit=RUNS_SHOWN)  # type: ignore[no-any-return]

    def draft_of_run(self, record: RunRecord) -> Draft:
        """A new draft with the choices of a run."""
        draft: Draft = self.choices.from_run(record)
        return draft

    def cured_draft(self, record: RunRecord) -> tuple[Draft, tuple[str, ...]]:
        """A draft of a run with the change that cures what ended it, and that change in words."""
        resubmission = self.resubmit.again(record, with_fix=True)
        draft: Draft = self.choices.start(resubmission.profile, cluster=record.cluster, base=record.name)
        name = self.choices.needs_cluster(draft)
        return (self.choices.load_cluster(draft, name) if name else draft), resubmission.changes

    # What the runs' files tell, between two polls of all runs.
    @property
    def told(self) -> Told:
        with self._lock:
            if self._told is None:
                self._told = import_module("gpt_tune.workflows.told").Told(clock=self._clock)
            return self._told

    def _budget_of(self, cluster: str) -> Budget:
        """What may be asked of a cluster's controller in the background."""
        from gpt_tune.jobs.pacing import Budget

        return self._budgets.setdefault(cluster, Budget(self._clock))

    def free_at(self) -> float:
        """From when on all clusters may be asked about all runs again, on the clock."""
        from gpt_tune.jobs.polling import POLL_REQUESTS

        return max((b.free_at(POLL_REQUESTS) for b in self._budgets.values()), default=float("-inf"))

    def files_tell(self, records: Sequence[RunRecord]) -> bool:
        """Whether the files of all these runs are seen here, so that polls may be rarer."""
        return self._told is not None and all(self._told.tells(r) for r in records)

    def ask_told(self, before: Sequence[RunRecord]) -> Answer | None:
        """Look at the files of live runs, and ask about those whose job began or ended; None when nobody was asked."""
        from gpt_tune.workflows import told as room
        from tui.poller import Answer

        by_cluster: dict[str, list[RunRecord]] = {}
        for record in self.told.news(before):
            by_cluster.setdefault(record.cluster, []).append(record)
        schedulers, error = self._schedulers_of(set(by_cluster))
        calls = sum(s.calls for s in schedulers)
        asked = [
            room.ask(self.told, by_cluster[s.cluster], s, self.ledger, self._budget_of(s.cluster))
            for s in schedulers
        ]
        if not any(asked):
            return None
        records = self.runs()
        changed = [(r.run_id, r.state) for r in records] != [(r.run_id, r.state) for r in before]
        return Answer(records, sum(s.calls for s in schedulers) - calls, error, changed, before)

    def ask_jobs(self, before: Sequence[RunRecord], forced: bool) -> Answer:
        """Bring live runs up to date: one batched call for each cluster that has any.

        Unless forced, an answer that another gpt-tune of this user got just now is good enough.
        """
        from gpt_tune.jobs.polling import POLL_REQUESTS, shared_seconds
        from gpt_tune.schedulers.slurm_api import way_words
        from gpt_tune.workflows import progress
        from tui.poller import Answer

        known = self.runs()
        open_runs = self.ledger.runs(open_only=True)
        carried = self.live.carried(self.ledger)
        schedulers, error = self._schedulers_of({r.cluster for r in (*open_runs, *carried)})
        calls = sum(s.calls for s in schedulers)
        live = [r for r in open_runs if r.active and r.scheduler != "local"]
        self.told.news(live)  # looked at before asking: what is written meanwhile is news
        shared = shared_seconds(self.files_tell(live))
        if schedulers:
            before_each = {s.cluster: s.calls for s in schedulers}
            self.live.refresh(self.ledger, schedulers, max_age_seconds=0.0 if forced else shared)
            for scheduler in () if forced else schedulers:
                if scheduler.calls > before_each[scheduler.cluster]:  # nobody else's answer was good enough
                    self._budget_of(scheduler.cluster).spend(POLL_REQUESTS)
        for record in live:
            self.told.asked(self.ledger.get(record.run_id))
        asked = {r.run_id for r in open_runs}
        progress.note(self.ledger, [r for r in self.runs() if r.run_id in asked])
        failed = [p for p in (self.ledger.poll(s.cluster) for s in schedulers) if p.failures]
        records = self.runs()
        changed = [(r.run_id, r.state) for r in records] != [(r.run_id, r.state) for r in before]
        said = error or "; ".join(f"{p.cluster}: {p.error}" for p in failed)
        ways = tuple(f"{s.cluster} by {way_words(s)}" for s in schedulers if s.kind != "local")
        return Answer(records, sum(s.calls for s in schedulers) - calls, said, changed, known, ways)

    def _schedulers_of(self, names: set[str]) -> tuple[list[Any], str]:
        from gpt_tune.errors import UserError

        found: list[Any] = []
        error = ""
        for name in sorted(names):
            try:
                found.append(self.scheduler_of(name))
            except UserError as problem:
                error = problem.message
        return found, error

    def scheduler_of(self, name: str) -> Any:
        """The connection to a cluster, one for as long as the app lives."""
        if name not in self._schedulers:
            self._schedulers[name] = self.clusters.connect(name)
        return self._schedulers[name]

    def cluster_look(self, name: str) -> tuple[Cluster, int, str]:
        """What a cluster has, what asking cost in scheduler calls, and which way it went."""
        from gpt_tune.schedulers.slurm_api import way_words

        scheduler = self.scheduler_of(name)
        calls = scheduler.calls
        cluster: Cluster = scheduler.discover()
        return cluster, scheduler.calls - calls, way_words(scheduler)

    def queue_look(self, name: str) -> tuple[QueueView, int, str]:
        """My jobs and the free GPUs of a cluster, what asking cost in scheduler calls, and which way it went."""
        from gpt_tune.schedulers.slurm_api import way_words

        scheduler = self.scheduler_of(name)
        calls = scheduler.calls
        view: QueueView = self.queue.look(scheduler, self.ledger)
        return view, scheduler.calls - calls, way_words(scheduler)

    def queue_again(self, name: str, before: QueueView) -> tuple[QueueView, int, str] | None:
        """The same of a queue that stays on screen, within what may be asked by itself; None when that is spent."""
        from gpt_tune.schedulers.slurm_api import way_words
        from gpt_tune.workflows import queue_again

        scheduler = self.scheduler_of(name)
        calls = scheduler.calls
        view = queue_again.again(scheduler, self.ledger, before, self._budget_of(name))
        return None if view is None else (view, scheduler.calls - calls, way_words(scheduler))

    def queue_offers(self, view: QueueView, job: MyJob) -> tuple[list[Offer], int]:
        """When a waiting job could start and what could start sooner, and what asking cost."""
        scheduler = self.scheduler_of(view.cluster.name)
        calls = scheduler.calls
        wanted = self.queue.wanted_of(scheduler, job.status)
        site = import_module("gpt_tune.profiles.sites").load(view.cluster.name)
        offers: list[Offer] = self.queue.offers(
            scheduler, view.cluster, wanted, site, job.status.expected_start
        )
        return offers, scheduler.calls - calls

    def adopt_job(self, cluster: str, job_id: str) -> RunRecord:
        """Take a job of mine that was submitted elsewhere into the ledger."""
        record: RunRecord = self.adopt.adopt(job_id, self.scheduler_of(cluster), self.ledger)
        return record

    def control(self, action: str, cluster: str, jobs: Sequence[MyJob]) -> None:
        """`hold`, `release` or `cancel` jobs; of a run through its ledger, so that it knows."""
        from gpt_tune.schedulers.slurm_jobs import base_of

        bases = {base_of(job.status.job_id) for job in jobs}
        if len(jobs) > 1 and len(bases) == 1 and not any(job.run_id for job in jobs):
            getattr(self.scheduler_of(cluster), action)(bases.pop())  # a whole array: one call
            return
        for job in jobs:
            if job.run_id is None:
                getattr(self.scheduler_of(cluster), action)(job.status.job_id)
            elif action == "cancel":
                self.cancel_run(job.run_id)
            else:
                getattr(import_module("gpt_tune.jobs.control"), action)(job.run_id, self.ledger)

    def cancel_run(self, run_id: str) -> RunRecord:
        """Cancel a run; of a chain also what is queued behind it."""
        from gpt_tune.jobs import chains

        chained = chains.chain_of(self.ledger.get(run_id)) is not None
        cancel = self.chain.cancel if chained else self.jobs.cancel
        record: RunRecord = cancel(run_id, self.ledger)
        return record

    def watch_of(self, record: RunRecord, state_source: Callable[[], JobStatus | None]) -> Watch:
        """The engine's view of one run, with its prediction; states come from the app's poller, of a recording
        from its tape."""
        if record.run_id in self.tapes:
            played: Watch = self.replay.watch_of(self.tapes[record.run_id])
            return played
        watch: Watch = self.records.watch_of(record, state_source, self.told)
        return watch

    def demo_tape(self) -> Tape:
        """The shipped recording, from its beginning."""
        tape: Tape = self.replay.Tape(self.replay.find(), DEMO_SPEED)
        tape.seek(DEMO_FROM_SECONDS)
        return tape

    def cluster_words(self, name: str) -> str:
        """What a cluster has, in one line. Slow; SchedulerError when it does not answer."""
        cluster = self.clusters.discover(name)
        words = [
            f"{p.name} {p.gpus_free} of {p.gpus_total} GPUs free" for p in cluster.partitions if p.gpus_total
        ]
        local = cluster.scheduler == "local"
        version = "this machine" if local else f"{cluster.scheduler.capitalize()} {cluster.version}"
        return f"{version}: {', '.join(words) if words else 'no GPUs'}"
