"""Owns asking for job states: one worker, one batched call a cluster, at the engine's pace.

While a screen shows states that is the engine's pace for what is looked at; while another does, once a minute as long
as something is live, for the news that a run has started or ended. Nothing live: nobody is asked.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import random
from time import monotonic
from typing import TYPE_CHECKING, Any

from textual.message import Message

from gpt_tune.errors import UserError
from gpt_tune.words import seconds_words
from tui.widgets.paint import Line

if TYPE_CHECKING:
    from gpt_tune.ledger.record import RunRecord
    from tui.engine import Engine

TICK_SECONDS = 0.5  # how often it is looked whether a poll is due; looking costs nothing
FILES_SECONDS = 1.0  # between two looks at the files of live runs
BEHIND_SECONDS = 60.0  # between two polls while no screen shows states


@dataclass(frozen=True, slots=True)
class Answer:
    """What one poll brought. calls: commands sent to schedulers meanwhile. before: the runs as the ledger knew them.
    ways: how each cluster that was asked is reached ("dev by ssh")."""

    records: Sequence[RunRecord]
    calls: int
    error: str
    changed: bool
    before: Sequence[RunRecord] = ()
    ways: tuple[str, ...] = ()


class JobsPolled(Message):
    """Posted by the worker, once a poll. told: only of runs whose files told of a change."""

    def __init__(self, answer: Answer, told: bool = False) -> None:
        super().__init__()
        self.answer = answer
        self.told = told


class Poller:
    """Mixed into the app."""

    engine: Engine
    records: Sequence[RunRecord] = ()

    def start_polling(self) -> None:
        self._call_times: deque[float] = deque(maxlen=600)
        self._asking = False
        self._quick = 0
        self._answered_at = self._changed_at = monotonic()
        self._failures = 0
        self._error = ""
        self._due: float | None = None
        self._local = False
        self._asked_at = float("-inf")
        self._by_itself = threading.local()  # on: this thread's poll is one that nobody asked for
        self._ways: tuple[str, ...] = ()
        self._looking = False
        self._looked_at = float("-inf")
        self.set_interval(TICK_SECONDS, self._tick)  # type: ignore[attr-defined]

    def refresh_jobs(self, force: bool = False) -> None:
        """Ask as soon as possible, and a few times quickly: something was just done."""
        self._quick = 3
        self._due = monotonic()
        if force:
            self._failures = 0

    def know_runs(self, records: Sequence[RunRecord]) -> None:
        """Take what the ledger says until the first poll; live ones are asked about at once, whatever is shown."""
        self.records = self.records or records
        if self._any_live():
            self.refresh_jobs()

    def count_calls(self, calls: int) -> None:
        """Take note of what a screen asked by itself: the rate on screen is of everything."""
        self._call_times.extend([monotonic()] * calls)

    def _any_live(self) -> bool:
        return any(r.active for r in self.records)

    def _shown(self) -> Any:
        """The screen on top; None while the app starts or ends."""
        stack = self.screen_stack  # type: ignore[attr-defined]
        return stack[-1] if stack else None

    def _wanted(self) -> bool:
        return bool(getattr(self._shown(), "WANTS_JOBS", False))

    def _look_at_files(self, now: float) -> None:
        """In between: the files of live runs tell at once that a job began or ended."""
        if self._looking or self._asking or now < self._looked_at + FILES_SECONDS:
            return
        if not self._wanted() or not any(r.active and r.scheduler != "local" for r in self.records):
            return
        self._looking, self._looked_at = True, now
        self.run_worker(  # type: ignore[attr-defined]
            self._ask_told, thread=True, exclusive=True, group="files", name="files", exit_on_error=False
        )

    def _ask_told(self) -> None:
        """In a worker thread: a network file system may be slow, too."""
        self._by_itself.on = True
        try:
            answer = self.engine.ask_told(self.records)
        except UserError:  # the next poll of all runs says so
            answer = None
        finally:
            self._by_itself.on = self._looking = False
        if answer is not None:
            self.post_message(JobsPolled(answer, told=True))  # type: ignore[attr-defined]

    def _tick(self) -> None:
        now = monotonic()
        self._look_at_files(now)
        if self._asking or self._due is None or now < self._due:
            return
        if not (self._quick or self._local) and now < self.engine.free_at():
            return
        if not self._wanted() and (now < self._asked_at + BEHIND_SECONDS or not self._any_live()):
            return
        self._asking = True
        self._asked_at = now
        self.run_worker(  # type: ignore[attr-defined]
            self._ask, thread=True, exclusive=True, group="jobs", name="jobs", exit_on_error=False
        )

    def _ask(self) -> None:
        """In the worker thread."""
        self._by_itself.on = self._quick == 0
        try:
            answer = self.engine.ask_jobs(self.records, self._quick > 0 or self._local)
        except UserError as error:
            answer = Answer(self.records, 0, str(error), False)
        finally:
            self._by_itself.on = False
        self.post_message(JobsPolled(answer))  # type: ignore[attr-defined]

    def on_jobs_polled(self, event: JobsPolled) -> None:
        answer, now = event.answer, monotonic()
        self._call_times.extend([now] * answer.calls)
        if event.told:
            self._take(answer)
            return
        self._asking = False
        self._quick = max(self._quick - 1, 0)
        self._error = answer.error
        self._failures = self._failures + 1 if answer.error else 0
        if not answer.error:
            self._answered_at = now
        if answer.changed:
            self._changed_at = now
        self._ways = answer.ways or self._ways
        self._take(answer, of_all=True)

    def _take(self, answer: Answer, of_all: bool = False) -> None:
        """Take the runs as they are now, and show them. of_all: it was a poll, after which comes the next."""
        self.runs_changed(self.records or answer.before, answer.records)
        self.records = answer.records
        if of_all or not self._any_live():
            self._plan_next()
        shown = self._shown()
        show = getattr(shown, "show_records", None)
        # One that is just being opened reads them itself, and one that is being closed shows nothing more.
        if show is not None and shown.is_mounted and shown.children:
            show(answer.records)

    def runs_changed(self, before: Sequence[RunRecord], after: Sequence[RunRecord]) -> None:
        """Called after each poll; the app tells what is news."""

    @property
    def polling_by_itself(self) -> bool:
        """Whether this thread asks a scheduler although the user has just done nothing: no time to ask him."""
        return getattr(self._by_itself, "on", False)

    def _plan_next(self) -> None:
        active = [r for r in self.records if r.active]
        self._local = bool(active) and all(r.scheduler == "local" for r in active)
        wait = self.engine.jobs.refresh_interval(
            [r.state for r in active],
            scheduler="local" if self._local else "slurm",
            quick_left=self._quick,
            unchanged_seconds=monotonic() - self._changed_at,
            failures=self._failures,
            jitter=random(),
            files_tell=self.engine.files_tell([r for r in active if r.scheduler != "local"]),
        )
        self._due = None if wait is None else monotonic() + wait

    def poll_words(self) -> Line:
        """How fresh the states are and what asking costs."""
        now = monotonic()
        if self._error:
            age = seconds_words(max(now - self._answered_at, 1.0))
            return [(f"no answer for {age}, states may be old: {self._error}", "bad")]
        if self._due is None and not self._asking:
            return [("nothing runs: no scheduler is asked", "muted")]
        return [(" · ".join([*self._ways, self.rate_words()]), "muted")]

    def rate_words(self) -> str:
        """What asking costs: calls of all screens in the last minute."""
        now = monotonic()
        rate = sum(now - at < 60 for at in self._call_times)
        return f"{rate} scheduler call{'' if rate == 1 else 's'} in the last minute"


def newest(records: Sequence[Any], run_id: str) -> Any | None:
    """The record of a run among what a poll brought."""
    return next((r for r in records if r.run_id == run_id), None)
