"""Owns what ended runs came to: one row a run, predicted beside measured, and several runs compared or drawn."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.logs.parse import ParseResult, parse_files
from gpt_tune.logs.types import Event
from gpt_tune.workflows.pictures.paint import Panel
from gpt_tune.workflows.records import (
    log_format_of,
    peak_tflops_of,
    prediction_of,
    speed_shape_of,
    training_gpus_of,
)
from gpt_tune.workflows.remote_logs import logs_here
from gpt_tune.workflows.series import MAX_RUNS, Drawn, marks
from gpt_tune.workflows.series import compare as compare_series

KEYS = (
    "run_id", "name", "recipe", "cluster", "state", "model", "gpus", "nodes", "layout", "steps",
    "median_step_time_ms", "stdev_step_time_ms", "predicted_step_time_ms", "step_time_error", "median_model_tflops",
    "first_loss", "last_loss", "started_at", "ended_at", "exit_code",
)  # fmt: skip
# Of a code, and of an error with a sign, a quotient says nothing.
_NO_RATIO = ("exit_code", "step_time_error")
_LAYOUT_WORDS = (
    ("tensor_parallel", "TP"), ("pipeline_parallel", "PP"), ("context_parallel", "CP"), ("expert_parallel", "EP"),
    ("data_parallel", "DP"), ("zero_stage", "ZeRO"), ("micro_batch_size", "MBS"),
)  # fmt: skip


def rows(ledger: Ledger, limit: int | None = None) -> list[dict[str, Any]]:
    """One row for each run that has a log, newest first."""
    return [row(record) for record in ledger.runs(limit=limit) if record.job_ids]


def row(record: RunRecord) -> dict[str, Any]:
    """One run's figures; what is not known is None. step_time_error is measured over predicted, minus 1."""
    result = parsed(record)
    summary = result.summary if result else None
    prediction = prediction_of(record)
    predicted = prediction.step_time_ms if prediction else None
    median = summary.median_step_time_ms if summary else None
    return {
        "run_id": record.run_id,
        "name": record.name,
        "recipe": record.recipe,
        "cluster": record.cluster,
        "state": record.state,
        "model": (record.shape or {}).get("id"),
        "gpus": record.gpus,
        "nodes": record.nodes,
        "layout": layout_words(record),
        "steps": _reached(record, result),
        "median_step_time_ms": median,
        "stdev_step_time_ms": summary.stdev_step_time_ms if summary else None,
        "predicted_step_time_ms": predicted,
        "step_time_error": median / predicted - 1 if median and predicted else None,
        "median_model_tflops": summary.median_model_tflops if summary else None,
        "first_loss": summary.first_loss if summary else None,
        "last_loss": summary.last_loss if summary else None,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "exit_code": record.exit_code,
    }


def _reached(record: RunRecord, result: ParseResult | None) -> int:
    """The last iteration, as `jobs` counts: a log that prints every tenth step has fewer lines than that."""
    if result is not None and result.runs:
        return result.runs[-1].last
    return record.last_iteration or 0


def parsed(record: RunRecord) -> ParseResult | None:
    """The run's log, read; None when it is gone."""
    try:
        gpus, taught = training_gpus_of(record), log_format_of(record)
        return parse_files(logs_here(record), speed_shape_of(record), gpus, log_format=taught)
    except UserError:
        return None


def layout_words(record: RunRecord) -> str | None:
    """The planned layout in short: TP8 PP8 DP1 ZeRO0 MBS1."""
    layout = (record.plan or {}).get("layout") or {}
    words = [
        f"{short}{layout[key]}"
        for key, short in _LAYOUT_WORDS
        if key in layout and (layout[key] != 1 or short in ("TP", "PP", "DP", "MBS"))
    ]
    return " ".join(words) or None


def to_csv(items: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV with a header; empty cells are unknown."""
    out = io.StringIO()
    writer = csv.DictWriter(out, KEYS, lineterminator="\n")
    writer.writeheader()
    for item in items:
        writer.writerow({k: "" if item[k] is None else item[k] for k in KEYS})
    return out.getvalue()


def compare(*records: RunRecord) -> list[dict[str, Any]]:
    """What differs between 2 to MAX_RUNS runs: figures with their ratio to the first, then settings.

    a, b, ratio: the first two runs, beside the `values` and `ratios` of all. UserError for fewer or more.
    """
    if not 2 <= len(records) <= MAX_RUNS:
        raise UserError(f"{len(records)} runs cannot be compared.", f"Name 2 to {MAX_RUNS} of them.")
    compared = [row(record) for record in records]
    found = [_difference(key, [r[key] for r in compared], key not in _NO_RATIO) for key in KEYS]
    found += [_difference(key, values, False) for key, values in _settings(records)]
    return [d for d in found if any(v != d["values"][0] for v in d["values"][1:])]


def _difference(key: str, values: list[Any], with_ratio: bool) -> dict[str, Any]:
    first = values[0]
    ratios = [
        v / first if with_ratio and _is_number(first) and first and _is_number(v) else None for v in values
    ]
    return {
        "key": key, "a": first, "b": values[1], "ratio": ratios[1], "values": values, "ratios": ratios,
    }  # fmt: skip


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _settings(records: Sequence[RunRecord]) -> list[tuple[str, list[Any]]]:
    from gpt_tune.profiles.build import value_at
    from gpt_tune.profiles.schema import Profile
    from gpt_tune.profiles.settings import known_keys
    from gpt_tune.workflows.records import profile_of

    try:
        profiles = [profile_of(record) for record in records]
    except UserError:
        return []
    return [(key, [value_at(p, key) for p in profiles]) for key in known_keys(Profile) if key != "name"]


def drawn(record: RunRecord) -> tuple[Drawn, ParseResult]:
    """A run for a chart, and what its log says. UserError when its log is gone."""
    result = parsed(record)
    if result is None:
        raise UserError(f"The log of {record.run_id} is gone.", "Leave that run out.")
    name = record.name if record.name else record.run_id
    return Drawn(f"{name} ({record.run_id})", result.table, result.facts, peak_tflops_of(record)), result


def panels_of(runs: Sequence[tuple[Drawn, ParseResult]], figures: Sequence[str], axis: str) -> list[Panel]:
    """One panel a figure. Marks are shown of a single run only: of several, nobody could tell whose they are."""
    drawings = [d for d, _ in runs]
    found = marks(*_marked(runs[0]), axis=axis) if len(runs) == 1 else []
    return [Panel(figure, tuple(compare_series(drawings, figure, axis)), tuple(found)) for figure in figures]


def _marked(run: tuple[Drawn, ParseResult]) -> tuple[Drawn, Sequence[Event]]:
    return run[0], run[1].events
