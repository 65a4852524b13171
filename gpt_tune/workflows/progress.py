"""Owns how far runs have come that nobody watches: the last iteration that the end of their log names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from stat import S_ISREG

from gpt_tune.errors import UserError
from gpt_tune.jobs.logs import resolved_log_paths
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.profiles import sites
from gpt_tune.schedulers.base import ENDED

TAIL_BYTES = 64 * 1024
# The step line of Megatron-type trainers; only the number is wanted, so no log reader (and no NumPy) is needed.
_ITERATION = re.compile(rb"\biteration\s+(\d{1,12})\s*/\s*\d")
_read: dict[str, tuple[str, int, int]] = {}  # run -> log, size and time of change when it was last read


def note(ledger: Ledger, records: Iterable[RunRecord]) -> list[RunRecord]:
    """The runs with their last iteration brought up to date, in the ledger too.

    Reads the end of a log once, and again only after it changed. Logs behind ssh are left alone: looking at a
    list of runs must not open a connection.
    """
    away: dict[str, bool] = {}
    found = []
    for record in records:
        if record.cluster not in away:
            away[record.cluster] = _is_away(record.cluster)
        last = None if away[record.cluster] or not _has_log(record) else _newest(record)
        # A log of a restarted job begins anew, so a smaller number is as good.
        if last is not None and last != record.last_iteration:
            found.append(ledger.update(record.run_id, last_iteration=last))
        else:
            found.append(record)
    return found


def _is_away(cluster: str) -> bool:
    try:
        site = sites.load(cluster)
        return site is not None and bool(site.ssh)
    except UserError:
        return True  # its site cannot be read: the list of runs is shown all the same


def _has_log(record: RunRecord) -> bool:
    return record.state == "RUNNING" or record.state in ENDED


def _newest(record: RunRecord) -> int | None:
    """The iteration at the end of the log written last; None when nothing new is to be had."""
    logs = []
    for path in resolved_log_paths(record):
        try:
            stat = Path(path).stat()
        except OSError:
            continue  # not there yet, or gone
        if not S_ISREG(stat.st_mode):
            continue  # a pipe would wait for its writer
        logs.append((stat.st_mtime_ns, stat.st_size, path))
    if not logs:
        return None
    changed, size, path = max(logs)
    if _read.get(record.run_id) == (path, size, changed):
        return None
    try:
        with Path(path).open("rb") as file:
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read(TAIL_BYTES)
    except OSError:
        return None
    _read[record.run_id] = (path, size, changed)
    numbers = _ITERATION.findall(tail)
    return int(numbers[-1]) if numbers else None
