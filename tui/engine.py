"""Owns the doors from the screens to the engine. Each is imported at its first use: the first frame comes before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from gpt_tune.ledger.record import RunRecord
    from gpt_tune.schedulers.base import JobStatus
    from gpt_tune.workflows.draft import Draft
    from gpt_tune.workflows.replay import Tape
    from gpt_tune.workflows.watch import Watch
    from tui.poller import Answer

RUNS_SHOWN = 500


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
        "results": "gpt_tune.workflows.results",
        "watch": "gpt_tune.workflows.watch",
        "planner": "gpt_tune.planner",
        "jobs": "gpt_tune.jobs",
        "clusters": "gpt_tune.clusters",
        "profiles": "gpt_tune.profiles.store",
        "records": "gpt_tune.workflows.records",
        "chain": "gpt_tune.workflows.chain",
        "doctor": "gpt_tune.workflows.doctor",
        "queue": "gpt_tune.workflows.queue",
        "adopt": "gpt_tune.workflows.adopt",
        "resubmit": "gpt_tune.workflows.resubmit",
        "replay": "gpt_tune.workflows.replay",
    }

    def __init__(self) -> None:
        self._lock = Lock()
        self._ledger: Any = None
        self._schedulers: dict[str, Any] = {}
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

    def ask_jobs(self, before: Sequence[RunRecord], forced: bool) -> Answer:
        """Bring live runs up to date: one batched call for each cluster that has any.

        Unless forced, an answer that another gpt-tune of this user got just now is good enough.
        """
        from gpt_tune.jobs import chains
        from gpt_tune.jobs.polling import FAST_SECONDS
        from gpt_tune.schedulers.slurm_api import way_words
        from gpt_tune.workflows import progress
        from tui.poller import Answer

        known = self.runs()
        open_runs = self.ledger.runs(open_only=True)
        carried = [r for r in known if (c := chains.chain_of(r)) is not None and not c.over]
        schedulers, error = self._schedulers_of({r.cluster for r in (*open_runs, *carried)})
        calls = sum(s.calls for s in schedulers)
        if schedulers:  # what carries chains on is heavy to import, and most runs are no chains
            refresh = self.chain.refresh if carried else self.jobs.refresh
            refresh(self.ledger, schedulers, max_age_seconds=0.0 if forced else FAST_SECONDS)
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
                if name not in self._schedulers:
                    self._schedulers[name] = self.clusters.connect(name)
            except UserError as problem:
                error = problem.message
                continue
            found.append(self._schedulers[name])
        return found, error

    def watch_of(self, record: RunRecord, state_source: Callable[[], JobStatus | None]) -> Watch:
        """The engine's view of one run, with its prediction; states come from the app's poller, of a recording
        from its tape."""
        if record.run_id in self.tapes:
            played: Watch = self.replay.watch_of(self.tapes[record.run_id])
            return played
        watch: Watch = self.records.watch_of(record, state_source)
        return watch

    def cluster_words(self, name: str) -> str:
        """What a cluster has, in one line. Slow; SchedulerError when it does not answer."""
        cluster = self.clusters.discover(name)
        words = [
            f"{p.name} {p.gpus_free} of {p.gpus_total} GPUs free" for p in cluster.partitions if p.gpus_total
        ]
        local = cluster.scheduler == "local"
        version = "this machine" if local else f"{cluster.scheduler.capitalize()} {cluster.version}"
        return f"{version}: {', '.join(words) if words else 'no GPUs'}"
