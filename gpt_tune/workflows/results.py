"""Owns what ended runs came to: one row a run, predicted beside measured, and two runs compared."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from gpt_tune.errors import UserError
from gpt_tune.ledger import Ledger, RunRecord
from gpt_tune.logs.parse import ParseResult, parse_files
from gpt_tune.workflows.records import prediction_of, shape_of, training_gpus_of
from gpt_tune.workflows.remote_logs import logs_here

KEYS = (
    "run_id", "name", "recipe", "cluster", "state", "model", "gpus", "nodes", "layout", "steps",
    "median_step_time_ms", "stdev_step_time_ms", "predicted_step_time_ms", "step_time_error", "median_model_tflops",
    "first_loss", "last_loss", "started_at", "ended_at", "exit_code",
)  # fmt: skip
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
        "steps": summary.steps if summary else 0,
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


def parsed(record: RunRecord) -> ParseResult | None:
    """The run's log, read; None when it is gone."""
    try:
        return parse_files(logs_here(record), shape_of(record), training_gpus_of(record))
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


def compare(first: RunRecord, second: RunRecord) -> list[dict[str, Any]]:
    """What differs between two runs: figures with their ratio, then settings."""
    a, b = row(first), row(second)
    found = []
    for key in KEYS:
        ratio = None
        if (
            isinstance(a[key], (int, float))
            and isinstance(b[key], (int, float))
            and a[key]
            and key not in ("exit_code",)
        ):
            ratio = b[key] / a[key]
        if a[key] != b[key]:
            found.append({"key": key, "a": a[key], "b": b[key], "ratio": ratio})
    return found + _settings(first, second)


def _settings(first: RunRecord, second: RunRecord) -> list[dict[str, Any]]:
    from gpt_tune.profiles.build import value_at
    from gpt_tune.profiles.schema import Profile
    from gpt_tune.profiles.settings import known_keys
    from gpt_tune.workflows.records import profile_of

    try:
        a, b = profile_of(first), profile_of(second)
    except UserError:
        return []
    return [
        {"key": key, "a": value_at(a, key), "b": value_at(b, key), "ratio": None}
        for key in known_keys(Profile)
        if key != "name" and value_at(a, key) != value_at(b, key)
    ]
