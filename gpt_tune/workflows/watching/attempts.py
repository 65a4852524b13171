"""Owns how long a run ran before its present attempt: a requeued job starts anew under the same job id."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpt_tune.ledger import RunRecord
from gpt_tune.workflows.watching.pace import epoch

MOST_BYTES = 65536  # of `started`: a line of some 120 bytes an attempt


def earlier_seconds(record: RunRecord) -> float | None:
    """Seconds of all earlier attempts, 0 when there were none, None when there were some of unknown length."""
    if len(record.job_ids) > 1:
        return None  # a chain's summary adds its jobs up
    return earlier_of(starts_of(record), record.submitted_at)


def earlier_of(starts: Sequence[float], submitted_at: str | None) -> float | None:
    """The same from what is known. starts: of every attempt, seconds since 1970.

    Requeueing a job makes it submitted anew: what started before is an earlier attempt, and that moment is when the
    last of them ended. Of those before that one nobody keeps the end.
    """
    end = epoch(submitted_at) if submitted_at else None
    if end is None:
        return 0.0 if len(starts) < 2 else None
    before = [start for start in starts if start < end]
    if not before:
        return 0.0
    return end - before[0] if len(before) == 1 else None


def starts_of(record: RunRecord) -> list[float]:
    """When each attempt of the run's job began, by the run folder; empty where the folder is not here."""
    try:
        with Path(record.run_dir, "started").open("rb") as file:
            lines = file.read(MOST_BYTES).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict) and said.get("job_id") == record.job_id:
                start = epoch(str(said.get("time", "")))
                found += [] if start is None else [start]
    return found
