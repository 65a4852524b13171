"""Owns how sure predictions are: what they rest on, how old that is, and how far off they usually are, in words."""

from __future__ import annotations

import datetime
from typing import Any

from gpt_tune.calibration import Calibration
from gpt_tune.layouts.trainers import is_finetune
from gpt_tune.planner.types import PlanRequest
from gpt_tune.words import percent_words


def sure_words(
    calibration: Calibration, request: PlanRequest | None = None, today: datetime.date | None = None
) -> str:
    """What the numbers rest on and how far off they usually are."""
    if request is not None and is_finetune(request.trainer):
        return (
            "how sure: fine-tuning memory within 3 % on 21 runs of one H200, 5 % on three of two; step time is "
            "rough. Ranges are meant to hold in 9 of 10 cases."
        )
    trainer = "" if request is None else request.trainer.name
    others = _other_trainers(calibration, trainer)
    if others:
        return (
            f"how sure: calibration {calibration.name} rests on runs of {others}, none of {trainer}, so the ranges are "
            "wide; they are meant to hold in 9 of 10 cases."
        )
    return f"how sure: {_origin(calibration, today)}: {_errors(calibration)}. +- and ranges hold in 9 of 10 cases."


def _other_trainers(calibration: Calibration, trainer: str) -> str:
    """The trainers a calibration was made with, where this one is not among them; "" where it is."""
    known = {key.rpartition(".")[0].partition("@")[0] for key in calibration.timing if "." in key}
    return "" if not trainer or not known or trainer in known else ", ".join(sorted(known))


def sure_json(
    calibration: Calibration, request: PlanRequest, today: datetime.date | None = None
) -> dict[str, Any]:
    """The same as data. here: from the user's own runs on this cluster."""
    return {
        "name": calibration.name,
        "here": calibration.here,
        "fitted_at": calibration.fitted_at,
        "days_ago": days_ago(calibration, today),
        "time_error": calibration.time_error,
        "time_rows": calibration.time_rows,
        "memory_error": calibration.memory_error,
        "memory_rows": calibration.memory_rows,
        "words": sure_words(calibration, request, today),
    }


def days_ago(calibration: Calibration, today: datetime.date | None = None) -> int | None:
    """Days since the fit; None where it has no (readable) date."""
    try:
        fitted = datetime.date.fromisoformat(calibration.fitted_at or "")
    except ValueError:
        return None
    now = today or datetime.datetime.now(datetime.timezone.utc).date()
    return max((now - fitted).days, 0)


def _origin(calibration: Calibration, today: datetime.date | None) -> str:
    days = days_ago(calibration, today)
    if calibration.here:
        when = {None: "", 0: " today", 1: " yesterday"}.get(days, f" {days} days ago")
        return f"calibrated{when} on this cluster"
    when = f", fitted {calibration.fitted_at}" if calibration.fitted_at else ""
    return f"calibration {calibration.name}{when}, nothing measured on this cluster"


def _errors(calibration: Calibration) -> str:
    errors = []
    for words, error, rows in (
        ("step time", calibration.time_error, calibration.time_rows),
        ("memory", calibration.memory_error, calibration.memory_rows),
    ):
        if error is not None:
            runs = "run" if rows == 1 else "runs"
            errors.append(f"{words} {percent_words(error)} off on {rows} measured {runs}")
    return (
        "typical error " + ", ".join(errors)
        if errors
        else "not held against measured runs on this kind of machine"
    )
