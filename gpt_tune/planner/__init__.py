"""Owns planning: the search over layouts, estimates of single ones, and their reasons."""

from gpt_tune.planner.output import estimate_json, model_json, plan_json
from gpt_tune.planner.request import build_request, default_global_batch
from gpt_tune.planner.search import search
from gpt_tune.planner.single import estimate, what_if
from gpt_tune.planner.types import EstimateResult, Plan, PlanRequest, SearchResult

__all__ = [
    "EstimateResult",
    "Plan",
    "PlanRequest",
    "SearchResult",
    "build_request",
    "default_global_batch",
    "estimate",
    "estimate_json",
    "model_json",
    "plan_json",
    "search",
    "what_if",
]
