"""Owns asking for job states: one worker, one batched call a cluster, at the engine's pace; never when nobody looks."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Answer:
    """What one poll brought. calls: commands sent to schedulers meanwhile."""

    records: Sequence[RunRecord]
    calls: int
    error: str
    changed: bool


class JobsPolled(Message):
    """Posted by the worker, once a poll."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


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
        self.set_interval(TICK_SECONDS, self._tick)  # type: ignore[attr-defined]

    def refresh_jobs(self, force: bool = False) -> None:
        """Ask as soon as possible, and a few times quickly: something was just done."""
        self._quick = 3
        self._due = monotonic()
        if force:
            self._failures = 0

    def _shown(self) -> Any:
        """The screen on top; None while the app starts or ends."""
        stack = self.screen_stack  # type: ignore[attr-defined]
        return stack[-1] if stack else None

    def _wanted(self) -> bool:
        return bool(getattr(self._shown(), "WANTS_JOBS", False))

    def _tick(self) -> None:
        if self._asking or self._due is None or monotonic() < self._due or not self._wanted():
            return
        self._asking = True
        self.run_worker(  # type: ignore[attr-defined]
            self._ask, thread=True, exclusive=True, group="jobs", name="jobs", exit_on_error=False
        )

    def _ask(self) -> None:
        """In the worker thread."""
        try:
            answer = self.engine.ask_jobs(self.records, self._quick > 0 or self._local)
        except UserError as error:
            answer = Answer(self.records, 0, str(error), False)
        self.post_message(JobsPolled(answer))  # type: ignore[attr-defined]

    def on_jobs_polled(self, event: JobsPolled) -> None:
        answer, now = event.answer, monotonic()
        self._asking = False
        self._quick = max(self._quick - 1, 0)
        self._call_times.extend([now] * answer.calls)
        self._error = answer.error
        self._failures = self._failures + 1 if answer.error else 0
        if not answer.error:
            self._answered_at = now
        if answer.changed:
            self._changed_at = now
        self.records = answer.records
        self._plan_next()
        show = getattr(self._shown(), "show_records", None)
        if show is not None:
            show(answer.records)

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
        )
        self._due = None if wait is None else monotonic() + wait

    def poll_words(self) -> Line:
        """How fresh the states are and what asking costs."""
        now = monotonic()
        rate = sum(now - at < 60 for at in self._call_times)
        if self._error:
            age = seconds_words(max(now - self._answered_at, 1.0))
            return [(f"no answer for {age}, states may be old: {self._error}", "bad")]
        if self._due is None and not self._asking:
            return [("nothing runs: no scheduler is asked", "muted")]
        return [(f"{rate} scheduler call{'' if rate == 1 else 's'} in the last minute", "muted")]


def newest(records: Sequence[Any], run_id: str) -> Any | None:
    """The record of a run among what a poll brought."""
    return next((r for r in records if r.run_id == run_id), None)
