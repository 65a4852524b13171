"""Owns noticing that a run has become slow: against its own past, and against what the plan said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpt_tune.diagnosis.judged import Judgements, split
from gpt_tune.diagnosis.types import Diagnosis, Finding
from gpt_tune.logs.parser import LogParser
from gpt_tune.logs.summary import WARMUP_STEPS
from gpt_tune.workflows.watching.pace import Pace, Prediction

RECENT = 20  # steps; fewer could be one checkpoint or evaluation
LEAST_PAST = 40
LOOKED_BACK = 4096
SLOWER = 1.15  # than the run's own usual pace, and beyond its scatter
FAR_OFF = 1.25  # than the upper end of the prediction
_NETWORK = ("F31", "F32", "F33", "F34", "F37c")


def judge_slowness(
    own: tuple[float, float, int] | None,
    parser: LogParser,
    pace: Pace,
    prediction: Prediction | None,
    diagnosis: Diagnosis,
) -> list[Finding]:
    """F220: slower than the run's own past. F221: slower than predicted. Both only say what the numbers say.

    own: from `own_past`.
    """
    found = []
    if own is not None:
        usual, recent, since = own
        more = f"{recent / usual - 1:.0%} more than before ({usual:,.0f} ms)"
        text = f"Steps take {recent:,.0f} ms since about iteration {since}, {more}."
        found.append(Finding("F220", "warning", text, _cause(diagnosis, parser), iteration=since))
    limit = prediction.high_ms or prediction.step_time_ms if prediction is not None else None
    recent_ms = pace.recent_step_time_ms
    if limit and recent_ms and recent_ms > FAR_OFF * limit and (pace.iteration or 0) > RECENT:
        expected = prediction.step_time_ms if prediction is not None else None
        text = f"Steps take {recent_ms:,.0f} ms; {expected or limit:,.0f} ms were predicted (up to {limit:,.0f})."
        found.append(Finding("F221", "info", text, _cause(diagnosis, parser)))
    return found


def with_slowness(diagnosis: Diagnosis, found: Sequence[Finding], judgements: Judgements) -> Diagnosis:
    """The diagnosis with these findings at its end; a warning becomes the status of a run that is fine otherwise."""
    if not found:
        return diagnosis
    found, dismissed = split(found, judgements)
    calm = diagnosis.status in ("healthy", "running", "unknown")
    status = "warning" if calm and any(f.severity == "warning" for f in found) else diagnosis.status
    return replace(diagnosis, status=status, findings=(*diagnosis.findings, *found, *dismissed))


def own_past(parser: LogParser) -> tuple[float, float, int] | None:
    """(usual, recent, since iteration): medians in ms, when every recent step is slower than nearly all before."""
    columns = parser.best.tail(LOOKED_BACK, "step_time_ms")
    known = np.isfinite(columns["step_time_ms"][0])
    times, iterations = columns["step_time_ms"][0][known], columns["iteration"][0][known]
    if len(times) < LEAST_PAST + RECENT:
        return None
    before, recent = times[WARMUP_STEPS:-RECENT], times[-RECENT:]
    usual, now = float(np.median(before)), float(np.median(recent))
    if now < SLOWER * usual or float(recent.min()) < float(np.quantile(before, 0.95)):
        return None
    quick = np.flatnonzero(times < SLOWER * usual)
    first = min(int(quick[-1]) + 1, len(times) - 1) if len(quick) else len(times) - RECENT
    return usual, now, int(iterations[first])


def _cause(diagnosis: Diagnosis, parser: LogParser) -> str:
    """What most likely slows it down, as far as the log tells."""
    network = next((f for f in diagnosis.findings if f.id in _NETWORK), None)
    if network is not None:
        return f"The network is the likely cause ({network.id}): {network.fix}"
    if any(event.kind == "saved" for event in parser.events[-2:]):
        return "A checkpoint was just written: look whether asynchronous saving or the file system slows the steps."
    return "Look for one node that is slower than the others (clock, temperature), and at the file system for data."
