"""Owns what one poll of a run comes to in words on the monitor. Built in the follow thread.

Everything in it comes from the engine's Watch; here it only becomes words.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpt_tune.jobs import chains
from gpt_tune.schedulers.base import ENDED
from gpt_tune.words import percent_words, seconds_words
from gpt_tune.workflows.watching.pace import epoch
from gpt_tune.workflows.watching.risk import risk_of
from gpt_tune.workflows.watching.waiting import waiting_words
from tui.states import state_role
from tui.widgets.paint import Line, Span
from tui.widgets.words import clock, plural, three

if TYPE_CHECKING:
    from gpt_tune.diagnosis.types import Finding
    from gpt_tune.workflows.watch import Watch, WatchUpdate


@dataclass(frozen=True, slots=True)
class Scene:
    """The words of one moment. ended: nothing more will come. cause: what broke first. stats: labelled
    figures. chain: how a chain of jobs stands. cured: a setting is known that would have prevented it."""

    job: Sequence[Span] = ()
    note: Line = ()
    chain: Line = ()
    stats: Sequence[tuple[str, str]] = ()
    state: str = "UNKNOWN"
    ended: bool = False
    all_steps: bool = False
    cured: bool = False
    cause: Finding | None = None


def first_scene(record: Any) -> Scene:
    """What the ledger says, until the files have been read."""
    job: list[Span] = [(f"{record.name}  ", "strong"), (f"job {record.job_id or '?'}  ", "muted")]
    return Scene(job=[*job, (record.state, state_role(record.state))], state=record.state)


def scene_of(watch: Watch, update: WatchUpdate, record: Any, reason: str) -> Scene:
    cause = update.diagnosis.root_cause or next(
        (f for f in update.diagnosis.findings if f.severity == "error"), None
    )
    return Scene(
        job=_job(update, record),
        note=_note(update, reason),
        chain=_chain(record),
        stats=_stats(watch, update, record.gpus),
        state=update.state,
        ended=update.ended or update.state in ENDED,
        all_steps=update.pace.iteration is not None and update.pace.iteration == update.pace.total_iterations,
        cured=update.diagnosis.root_cause is not None and _curable(update.diagnosis.root_cause),
        cause=cause,
    )


def _curable(root: Finding) -> bool:
    return bool(root.changes) or root.action is not None


def _job(update: WatchUpdate, record: Any) -> list[Span]:
    pace = update.pace
    parts: list[Span] = [(f"{record.name}  ", "strong")]
    if record.job_id:
        parts.append((f"job {record.job_id}  ", "muted"))
    parts.append((update.state, state_role(update.state)))
    if pace.elapsed_seconds is not None:
        parts.append((f" {clock(pace.elapsed_seconds)}", ""))
    if record.nodes:
        parts.append((f"  {plural(record.nodes, 'node')}", "muted"))
    if record.gpus:
        parts.append((f"  {plural(record.gpus, 'GPU')}", "muted"))
    if pace.iteration is not None:
        total = f"/{pace.total_iterations:,}" if pace.total_iterations else ""
        parts.append((f"  step {pace.iteration:,}{total}", ""))
        if pace.total_iterations and pace.total_iterations >= pace.iteration:
            parts.append((f" {percent_words(pace.iteration / pace.total_iterations)}", "muted"))
    if pace.eta_seconds is not None:
        parts.append((f"  ETA {seconds_words(pace.eta_seconds)}", "accent"))
    return parts


def _note(update: WatchUpdate, reason: str) -> Line:
    """The most important sentence now: what broke, what hangs, why it waits, how it ended."""
    cause = update.diagnosis.root_cause
    if cause is not None and cause.severity != "info":
        role = "bad" if cause.severity == "error" else "warn"
        return [
            ("! ", role),
            (cause.text, role),
            (f" → {cause.fix}" if cause.fix else "", ""),
            (f"  [{cause.id}]", "muted"),
        ]
    if update.hang is not None:
        return [("! ", "bad"), (update.hang.text, "bad")]
    if reason:
        return [(reason[0].upper() + reason[1:] + ".", "warn" if update.state == "PENDING" else "muted")]
    if update.state == "COMPLETED":
        return [("Completed. Everything it wrote is in the run folder.", "good")]
    if update.waiting and update.state in ("PENDING", "UNKNOWN", "RUNNING"):
        return [("Waiting for the job to write its log.", "muted")]
    if update.history < 1.0:
        return [(f"Reading the log's past: {percent_words(update.history)}.", "muted")]
    return []


def _stats(watch: Watch, update: WatchUpdate, gpus: int) -> list[tuple[str, str]]:
    """Labelled figures, the most wanted first."""
    pace, last, expected = update.pace, update.last_step, watch.prediction
    parts: list[tuple[str, str]] = []
    if last is not None and last.loss is not None:
        parts.append(("loss", f"{last.loss:.4g}"))
    if last is not None and last.grad_norm is not None:
        parts.append(("grad norm", three(last.grad_norm)))
    if pace.slower_than_predicted is not None:
        parts.append(("pace", _pace_words(pace.slower_than_predicted)))
    if pace.recent_model_tflops is not None:
        parts.append(("model TFLOPS", three(pace.recent_model_tflops)))
    if pace.mfu is not None:
        parts.append(("MFU", percent_words(pace.mfu)))
    if pace.max_reserved_gib is not None:
        said = f" (predicted {expected.reserved_gib:.0f})" if expected and expected.reserved_gib else ""
        parts.append(("memory", f"{pace.max_reserved_gib:.0f} GiB{said}"))
    if pace.gpu_hours is not None and gpus:
        total = f" of {pace.gpu_hours_total:,.1f}" if pace.gpu_hours_total else ""
        parts.append(("GPU-hours", f"{pace.gpu_hours:,.1f}{total}{pace.gpu_hours_note}"))
    risk = risk_of(watch.parser.events, pace.iteration, pace.recent_step_time_ms, pace.gpus)
    if risk is not None and (risk.checkpoint is not None or update.state == "RUNNING"):
        parts.append(("at risk", risk.words))
    if last is not None and last.tokens_per_second_per_gpu is not None:
        parts.append(("tokens/s", f"{last.tokens_per_second_per_gpu:,.0f}"))
    return parts


def packed(parts: Sequence[tuple[str, str]], width: int, rows: int) -> list[Line]:
    """Labelled figures in so many rows, none of them torn; the least wanted, at the end, go where there is no room."""
    lines: list[list[Span]] = []
    used = width
    for label, words in parts:
        size = len(label) + 1 + len(words)
        if size > width:
            continue
        if used + 3 + size > width:
            if len(lines) == rows:
                continue
            lines.append([])
            used = -3
        lines[-1] += [("   " if lines[-1] else "", ""), (f"{label} ", "muted"), (words, "")]
        used += 3 + size
    return list(lines)


def _chain(record: Any) -> Line:
    chain = chains.chain_of(record)
    return [("chain ", "muted"), (chains.words(chain), "")] if chain is not None else []


def _pace_words(slower: float) -> str:
    """`8 % slower than predicted`; within 1 % it is as predicted."""
    if abs(slower) < 0.01:
        return "as predicted"
    return f"{percent_words(abs(slower))} {'slower' if slower > 0 else 'faster'} than predicted"


def waiting(watch: Watch, update: WatchUpdate, reason: str) -> str:
    """What an empty chart says: what it waits for, and how long that may take."""
    status = update.status
    start = epoch(status.expected_start) if status is not None and status.expected_start else None
    return waiting_words(
        update.state,
        reason=reason,
        starts_in=start - time.time() if start is not None else None,
        running=update.pace.elapsed_seconds,
        log_exists=not update.waiting,
        history=update.history,
        prediction=watch.prediction,
        over=update.ended,
    )
