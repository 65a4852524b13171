"""Owns saying how sure the predictions for a question are, whole and in a few words, for every face alike."""

from __future__ import annotations

from gpt_tune import calibration
from gpt_tune.layouts.trainers import is_finetune
from gpt_tune.planner import sure
from gpt_tune.planner.types import PlanRequest

_HEAD = "how sure: "
# Of fine-tuning plans, which have no calibration (gpt_tune.planner.finetune_time).
TUNING_SURE = "a factor of 1.6 either way"


def sure_words(request: PlanRequest) -> str:
    """What predictions for this question rest on, and how far off they usually are."""
    return sure.sure_words(_known(request), request).removeprefix(_HEAD)


def short_words(request: PlanRequest) -> str:
    """The same in a few words, for a summary: how wide the interval is stands beside it."""
    if is_finetune(request.trainer):
        return TUNING_SURE
    known = _known(request)
    if known.here:
        days = sure.days_ago(known)
        return "calibrated here" + ("" if days is None else f" {days} d ago" if days else " today")
    if not known.time_rows:
        return "nothing measured on such GPUs"
    return f"from {known.time_rows} runs on {request.node.gpu.id} elsewhere"


def _known(request: PlanRequest) -> calibration.Calibration:
    return calibration.load(request.node, request.cluster)
