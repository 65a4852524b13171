"""Owns what the choices so far would come to before a layout is chosen: by the planner's best one."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_tune import planner
from gpt_tune.errors import UserError
from gpt_tune.planner.types import Plan, PlanRequest
from gpt_tune.recipes import qlora_model
from gpt_tune.workflows.draft import Draft
from gpt_tune.workflows.request import needs_plan, plan_request


@dataclass(frozen=True, slots=True)
class Forecast:
    """The best layout for one question. plan: None when nothing fits; trouble then says what is nearest."""

    request: PlanRequest
    plan: Plan | None
    trouble: str = ""


def question(draft: Draft) -> PlanRequest | None:
    """What a forecast of this draft would ask; None where the planner has no say, or something is missing."""
    where = (draft.profile, draft.site, None if draft.plan_only else draft.cluster)
    if qlora_model.awaited(draft.profile) or not needs_plan(*where):
        return None
    try:
        return plan_request(*where, top=1)
    except UserError:
        return None


def forecast(draft: Draft, before: Forecast | None = None) -> Forecast | None:
    """The best layout for the choices so far, at once where the question is still the one before. May search."""
    request = question(draft)
    if request is None or (before is not None and before.request == request):
        return before if request is not None else None
    try:
        result = planner.search(request)
    except UserError as error:
        return Forecast(request, None, error.message)
    if result.plans:
        return Forecast(request, result.plans[0])
    return Forecast(request, None, result.rejected[0].text if result.rejected else "")
