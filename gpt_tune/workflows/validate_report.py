"""Owns the forms of a validation: the JSON of the contract, and a CSV with one line a run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gpt_tune.workflows.validate import Checked, Compared, Report

SCHEMA = "gpt-tune/validate/1"
KINDS = ("allocated", "reserved", "device", "unknown")
# oom_probability above this is a prediction that the run dies.
OOM_CALL = 0.5


def report_json(report: Report) -> dict[str, Any]:
    """The report as the object of the contract."""
    checked = report.checked
    known_kind = [c.main_memory for c in checked if c.run.memory_kind != "unknown" and not c.run.oom]
    return {
        "schema": SCHEMA,
        "rows": report.rows,
        "skipped": [{"id": name, "reason": reason} for name, reason in report.skipped],
        "ignored_columns": list(report.ignored_columns),
        "fitted_rows": report.fitted_rows,
        "memory": {**_figures(known_kind), "by_kind": _by_kind(checked)},
        "time": _figures([c.time for c in checked]),
        "time_busy": _figures([c.time for c in checked if not c.run.host_bound]),
        "oom": _oom(checked),
        "per_group": [
            {"group": name, "fitted_rows": max(c.fitted_rows for c in part), **_both(part)}
            for name, part in _split(checked, "group").items()
        ],
        "per_series": [{"series": name, **_both(part)} for name, part in _split(checked, "series").items()],
    }


def report_csv(report: Report) -> str:
    """One line a run: what was measured and what was predicted."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for c in report.checked:
        chance = "" if c.oom_probability is None else f"{c.oom_probability:.4f}"
        names = (c.run.id, c.run.series, c.group)
        memory = (c.run.memory_kind, *_cells(c.main_memory))
        writer.writerow([*names, *_cells(c.time), *memory, int(c.run.oom), chance])
    return out.getvalue()


_COLUMNS = (
    *("id", "series", "group"),
    *("step_seconds", "predicted_seconds", "low_seconds", "high_seconds"),
    *("memory_kind", "memory_gib", "predicted_gib", "low_gib", "high_gib"),
    *("oom", "oom_probability"),
)


def _cells(one: Compared | None) -> list[str]:
    if one is None:
        return [""] * 4
    return [f"{x:.6g}" for x in (one.measured, one.predicted, one.low, one.high)]


def _split(checked: Sequence[Checked], by: str) -> dict[str, list[Checked]]:
    parts: dict[str, list[Checked]] = {}
    for c in checked:
        parts.setdefault(c.group if by == "group" else c.run.series, []).append(c)
    return parts


def _both(part: Sequence[Checked]) -> dict[str, Any]:
    memory = [c.main_memory for c in part if not c.run.oom]
    return {"rows": len(part), "time": _figures([c.time for c in part]), "memory": _figures(memory)}


def _figures(pairs: Iterable[Compared | None]) -> dict[str, Any]:
    """Rows, mean absolute relative error, its median and worst, and the share inside the 90 % interval."""
    known = [pair for pair in pairs if pair is not None]
    if not known:
        return {"rows": 0, "mape": None, "median": None, "worst": None, "covered_90": None}
    errors = np.array([pair.error for pair in known])
    return {
        "rows": len(known),
        "mape": float(np.mean(errors)),
        "median": float(np.median(errors)),
        "worst": float(np.max(errors)),
        "covered_90": float(np.mean([pair.covered for pair in known])),
    }


def _by_kind(checked: Sequence[Checked]) -> dict[str, Any]:
    found = {}
    for kind in KINDS:
        pairs = [c.memory.get(kind) for c in checked if not c.run.oom]
        if any(pairs):
            found[kind] = _figures(pairs)
    return found


def _oom(checked: Sequence[Checked]) -> dict[str, int]:
    """Calls of out of memory: rows that died, how many were called, and rows that ran but were called."""
    called = [c for c in checked if c.oom_probability is not None and c.oom_probability > OOM_CALL]
    return {
        "rows": sum(c.run.oom for c in checked),
        "caught": sum(c.run.oom for c in called),
        "false_alarms": sum(not c.run.oom for c in called),
        "fitting_rows": sum(not c.run.oom for c in checked),
    }
