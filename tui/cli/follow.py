"""Owns following a run without a screen: lines of text for people, one JSON object a line for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from gpt_tune.errors import EXIT_DONE, EXIT_FINDING
from gpt_tune.logs.parse import step_json
from gpt_tune.words import percent_words, seconds_words
from tui.cli.output import emit_json_line, say, show

if TYPE_CHECKING:
    from gpt_tune.diagnosis.types import Finding
    from gpt_tune.ledger import RunRecord
    from gpt_tune.logs.types import Step
    from gpt_tune.workflows.foreign import ForeignJob
    from gpt_tune.workflows.watch import Watch, WatchUpdate

SCHEMA = "gpt-tune/watch/1"
# Seconds between two looks at the files: new lines show at once, and an idle run costs next to nothing.
POLL_SECONDS = 0.5
# A line of figures at most this often, however fast the steps are.
LINE_SECONDS = 1.0
_FAILED = frozenset({"FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "CANCELLED"})


def follow_run(run_id: str, once: bool = False, as_json: bool = False) -> int:
    """Follow one of our runs; the exit code says whether it failed."""
    from gpt_tune import jobs
    from gpt_tune.workflows.records import watch_of

    record = jobs.find(run_id)
    return follow(watch_of(record), once, as_json, record)


def follow_files(
    paths: Sequence[str], once: bool = False, as_json: bool = False, job: ForeignJob | None = None,
    log_format: str = "auto",
) -> int:  # fmt: skip
    """Follow log files, of a job of mine or of no job; those end only when the user stops, or with `once`."""
    from gpt_tune.errors import UserError
    from gpt_tune.logs.parse import packed
    from gpt_tune.workflows.watch import Watch

    for path in paths:
        if kind := packed(path):
            raise UserError(
                f"{path} is compressed ({kind}): it does not grow.", "gpt-tune parse and diagnose read it."
            )
    gpus, source = (job.status.gpus, job.state_source) if job else (None, None)
    # The source keeps the pace itself, and looks at the log meanwhile.
    watch = Watch(paths, gpus=gpus, state_source=source, log_format=log_format, state_seconds=1.0)
    return follow(watch, once, as_json, None)


def follow(watch: Watch, once: bool, as_json: bool, record: RunRecord | None) -> int:
    """Poll until the job is over; with `once` until everything there is has been read."""
    told: _Json | _Words = _Json(record) if as_json else _Words(record, quiet=once)
    while True:
        update = watch.poll()
        told.tell(update)
        sys.stdout.flush()  # a pipe's reader sees each line when it happens
        caught_up = update.history >= 1.0 and update.behind == 0
        if update.ended or (once and caught_up):
            break
        if caught_up:
            time.sleep(POLL_SECONDS)
    told.end(update, watch)
    return exit_code_of(update)


def teller_of(
    record: RunRecord | None, as_json: bool, schema: str = SCHEMA, clock: Callable[[], float] = time.time
) -> _Json | _Words:
    """What says the updates of a watch that somebody else polls. clock: epoch seconds that stamp them."""
    return _Json(record, schema, clock) if as_json else _Words(record, quiet=False, clock=clock)


def exit_code_of(update: WatchUpdate) -> int:
    """1 when the run failed."""
    if update.state in _FAILED:
        return EXIT_FINDING
    return EXIT_FINDING if update.state == "UNKNOWN" and update.diagnosis.alarming else EXIT_DONE


class _Json:
    """One object a line, each complete in itself."""

    def __init__(
        self, record: RunRecord | None, schema: str = SCHEMA, clock: Callable[[], float] = time.time
    ) -> None:
        self._run_id = record.run_id if record else None
        self._schema = schema
        self._clock = clock

    def _emit(self, event: str, **more: Any) -> None:
        now = datetime.fromtimestamp(self._clock(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        emit_json_line({"schema": self._schema, "event": event, "run_id": self._run_id, "time": now, **more})

    def tell(self, update: WatchUpdate) -> None:
        if update.state_changed:
            reason = update.status.reason if update.status else ""
            self._emit("state", state=update.state, reason=reason)
        for line in update.lines:
            if not line.transient:
                self._emit("log", text=line.text, source=line.source)
        if update.skipped_lines:
            self._emit("log", text=None, source=None, skipped_lines=update.skipped_lines)
        for step in update.steps:
            self._emit("step", **step_json(step))
        for finding in update.new_findings:
            self._emit("finding", **finding.to_json())

    def end(self, update: WatchUpdate, watch: Watch) -> None:
        root = update.diagnosis.root_cause
        summary = {name: getattr(update.summary, name) for name in type(update.summary).__dataclass_fields__}
        self._emit(
            "end",
            state=update.state,
            exit_code=update.status.exit_code if update.status else None,
            status=update.diagnosis.status,
            root_cause=root.to_json() if root else None,
            summary=summary,
            **_chain_json(self._run_id),
        )


class _Words:
    """Lines for people: state, figures at most once a second, findings at once."""

    def __init__(self, record: RunRecord | None, quiet: bool, clock: Callable[[], float] = time.time) -> None:
        self._record = record
        self._quiet = quiet
        self._clock = clock
        self._said = float("-inf")

    def tell(self, update: WatchUpdate) -> None:
        if update.state_changed and not self._quiet:
            show(f"{self._now()} {update.state}{self._reason(update)}")
        for finding in update.new_findings:
            show(finding_words(finding))
        due = self._clock() - self._said >= LINE_SECONDS
        if update.steps and update.history >= 1.0 and due and not self._quiet:
            self._said = self._clock()
            show(f"{self._now()} {step_words(update.steps[-1])}")

    def end(self, update: WatchUpdate, watch: Watch) -> None:
        pace, summary = update.pace, update.summary
        if self._record is not None:
            show(f"{self._record.name}  run {self._record.run_id}  job {self._record.job_id or 'unknown'}")
        show(f"state        {update.state}{self._reason(update)}")
        for path in update.waiting:
            say(f"waiting for {path}")
        if update.last_step is not None:
            total = f" of {pace.total_iterations}" if pace.total_iterations else ""
            show(f"iteration    {update.last_step.iteration}{total}")
            show(f"last step    {step_words(update.last_step)}")
        if summary.median_step_time_ms is not None:
            median = summary.median_step_time_ms
            show(f"step time    median {median:.1f} ms{self._against(watch, median)}")
        if summary.median_model_tflops is not None:
            mfu = f", MFU {percent_words(pace.mfu)}" if pace.mfu is not None else ""
            show(f"speed        {summary.median_model_tflops:.4g} model TFLOPS per GPU{mfu}")
        if pace.eta_seconds and not update.ended:
            show(f"left         {seconds_words(pace.eta_seconds)}")
        if pace.gpu_hours:
            show(f"used         {pace.gpu_hours:,.2f} GPU-hours{pace.gpu_hours_note}")
        if self._record is not None:
            for line in _chain_lines(self._record.run_id):
                show(line)
        if update.hang is not None:
            show(f"hung?        {update.hang.text}")
        show(f"diagnosis    {update.diagnosis.status}")

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock(), timezone.utc).strftime("%H:%M:%SZ")

    def _reason(self, update: WatchUpdate) -> str:
        return f" ({update.status.reason})" if update.status and update.status.reason else ""

    @staticmethod
    def _against(watch: Watch, median: float) -> str:
        predicted = watch.prediction.step_time_ms if watch.prediction else None
        if not predicted:
            return ""
        return f", predicted {predicted:.1f} ({median / predicted - 1:+.0%})"


def _chain_json(run_id: str | None) -> dict[str, Any]:
    """Figures over all jobs of a chain; nothing for a run of one job."""
    from gpt_tune.workflows import chain_summary

    found = chain_summary.of_run(run_id) if run_id else None
    return {} if found is None else {"chain": {**found[1].to_json(), "over": found[0].over or None}}


def _chain_lines(run_id: str) -> list[str]:
    from gpt_tune.workflows import chain_summary

    found = chain_summary.of_run(run_id)
    return [] if found is None else chain_summary.lines(*found)


def step_words(step: Step) -> str:
    """One step in a line; what was not printed is left out."""
    words = [f"iteration {step.iteration}" + (f"/{step.total_iterations}" if step.total_iterations else "")]
    if step.step_time_ms is not None:
        words.append(f"{step.step_time_ms:.1f} ms")
    if step.loss is not None:
        words.append(f"loss {step.loss:.4g}")
    if step.grad_norm is not None:
        words.append(f"grad norm {step.grad_norm:.3g}")
    if step.model_tflops is not None:
        words.append(f"{step.model_tflops:.4g} model TFLOPS")
    if step.skipped:
        words.append(f"{step.skipped} skipped")
    if step.nan:
        words.append(f"{step.nan} NaN")
    return "  ".join(words)


def finding_words(finding: Finding) -> str:
    name = f" {finding.shown_id}" if finding.shown_id else ""
    place = f" line {finding.line}" if finding.line is not None else ""
    rank = f" rank {finding.rank}" if finding.rank is not None else ""
    if finding.dismissed is not None:
        why = f" ({finding.dismissed})" if finding.dismissed else ""
        return f"dismissed{why}{name}{place}{rank}: {finding.text}"
    fix = f" Fix: {finding.fix}" if finding.fix else ""
    return f"{finding.severity}{name}{place}{rank}: {finding.text}{fix}"
