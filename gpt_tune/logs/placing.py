"""Owns telling runs apart: what makes a line a duplicate, late, of another run, or of a fresh start."""

from __future__ import annotations

from gpt_tune.logs.formats.base import TRAINER, Record
from gpt_tune.logs.segment import Segment
from gpt_tune.logs.types import Step

GAP_SECONDS = 6 * 3600.0  # a pause this long, and far beyond the pace, is another run appended to the file
GAP_PACE = 50.0
LATE_SECONDS = 600.0  # a line from before the first one seen is at most this late
SAME_MOMENT_SECONDS = 5.0  # ranks print one step within this
FAR_STEPS = 10
VALUE_TOLERANCE = 2e-3  # relative; engines round one step differently


def is_fresh(segment: Segment, origin: Segment) -> bool:
    """Whether a segment is a run of its own and not the earlier one resumed."""
    if segment.resumed_from is not None:
        return False
    return segment.first < origin.first or (segment.first == origin.first and segment.first <= 1)


def long_pause(segment: Segment, record: Record) -> bool:
    if record.time is None or segment.last_time is None or segment.first_time is None:
        return False
    pause = record.time - segment.last_time
    if abs(pause) <= GAP_SECONDS:
        return False
    per_step = abs(pause) / max(1, record.step.iteration - segment.last)
    pace = (segment.last_time - segment.first_time) / max(1, segment.last - segment.first)
    return per_step > GAP_PACE * max(pace, 1e-3)


def is_duplicate(segment: Segment, record: Record) -> bool:
    iteration = record.step.iteration
    known = segment.holds(iteration)
    if known is None:
        return False
    time = segment.times.get(iteration)
    if time is not None and record.time is not None and abs(time - record.time) > SAME_MOMENT_SECONDS:
        return False
    return agree(known, record.step)


def agree(a: Step, b: Step) -> bool:
    """Whether two readings can be of one step: every figure that both have is the same but for rounding."""
    for name in ("loss", "step_time_ms", "grad_norm", "learning_rate"):
        x, y = getattr(a, name), getattr(b, name)
        if x is None or y is None or x != x or y != y:
            continue
        if abs(x - y) > VALUE_TOLERANCE * max(abs(x), abs(y)):
            return False
    return True


def is_late(segment: Segment, record: Record) -> bool:
    """A line that a buffering writer let out late: its time lies between those of its neighbours."""
    if record.time is None or not segment.times:
        return False
    iteration = record.step.iteration
    if iteration in segment.rows:
        return False
    below = [i for i in segment.times if i < iteration]
    above = [i for i in segment.times if i > iteration]
    if not above:
        return False
    high = segment.times[min(above)]
    low = segment.times[max(below)] if below else high - LATE_SECONDS
    return low - 1 <= record.time <= high + 1


def contradicts(segment: Segment, record: Record) -> bool:
    """Whether a file's first step cannot belong to this segment."""
    if other_run(segment, record):
        return True
    step = record.step
    known = segment.holds(step.iteration)
    if known is None or known.loss is None or step.loss is None:
        return False
    if known.loss != known.loss or step.loss != step.loss:
        return False
    return abs(known.loss - step.loss) > 5e-3 * max(abs(known.loss), abs(step.loss))


def far_before(segment: Segment, record: Record) -> bool:
    """Whether a trainer's first line lies further before a segment than a head that was cut off explains."""
    distance = segment.first - record.step.iteration
    return record.priority >= TRAINER and distance > max(FAR_STEPS, segment.last - segment.first)


def other_run(segment: Segment, record: Record) -> bool:
    """Whether a pause or another number of iterations says that this is another run."""
    totals = (segment.total, record.step.total_iterations)
    return long_pause(segment, record) or (None not in totals and totals[0] != totals[1])
