"""Owns turning a layout into a plan: predictions in full, reasons, and the variables it needs."""

from __future__ import annotations

from gpt_tune import rules
from gpt_tune.layouts.layout import Layout
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.types import Plan, Reason


def plan_of(evaluator: Evaluator, layout: Layout, rank: int) -> Plan:
    """The plan for one layout."""
    situation = rules.Situation(evaluator.setting, layout, evaluator.memory(layout), evaluator.step(layout))
    return Plan(
        rank=rank,
        trainer=evaluator.request.trainer,
        layout=layout,
        memory=situation.memory,
        step=situation.step,
        reasons=tuple(Reason(a.rule, a.text, a.source) for a in rules.advice(situation)),
        environment=rules.environment(situation),
    )
