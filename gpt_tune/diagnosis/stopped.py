"""Owns saying that a run ended before its last step: the scheduler calls that COMPLETED when it left in good order."""

from __future__ import annotations

from collections.abc import Mapping

from gpt_tune.diagnosis.collect import Hit
from gpt_tune.diagnosis.rank import Candidate
from gpt_tune.diagnosis.types import Finding
from gpt_tune.logs.parser import LogParser

TOLD = "C7"  # the job or the trainer says that a signal told it to stop
LAST_STEPS = 2  # that many it may still print after the signal
FIX = (
    "Nothing broke. `gpt-tune resubmit` starts it again; a training (no smoke job) goes on from its last "
    "checkpoint with training.checkpoint_dir set to this run's."
)


def early(parser: LogParser, hits: Mapping[str, Hit], state: str) -> list[Candidate]:
    """The note that it stopped early. A log alone may be of a run that goes on: there only a signal counts."""
    if state not in ("COMPLETED", "UNKNOWN"):
        return []
    last = parser.best.last()
    if last is None:
        return []
    total = last.total_iterations or parser.facts.total_iterations
    if total is None or last.iteration >= total:
        return []
    hit = hits.get(TOLD)
    told = hit is not None and parser.steps_after(hit.source, hit.last_index) <= LAST_STEPS
    if not told and (state == "UNKNOWN" or total - last.iteration < 2 * _interval(parser)):
        return []
    how = " after a signal" if told else ", before the last one"
    name = hit.groups.get("signal") if hit is not None and told else None
    how += f" ({name})" if name else ""
    share = 100 * last.iteration / total
    text = f"It stopped at step {last.iteration:,} of {total:,} ({share:.0f} %){how}."
    finding = Finding(
        "F266", "info", text, FIX, line=hit.number if hit is not None and told else None, iteration=last.iteration,
        source=hit.source if hit is not None and told else "",
    )  # fmt: skip
    return [Candidate(finding, "first", "config", 1 << 60)]


def _interval(parser: LogParser) -> int:
    """Iterations between two printed ones: the last few may not be printed."""
    newest = [step.iteration for step in parser.best.recent(2)]
    return max(1, newest[-1] - newest[0]) if len(newest) > 1 else 1
