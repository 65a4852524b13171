"""Owns turning layouts into plans: predictions in full, reasons, and the variables they need."""

from __future__ import annotations

from collections.abc import Sequence

from gpt_tune import rules
from gpt_tune.layouts.layout import Layout
from gpt_tune.planner.evaluate import Evaluator
from gpt_tune.planner.types import Plan, Reason


def plans_of(evaluator: Evaluator, layouts: Sequence[Layout]) -> tuple[Plan, ...]:
    """Plans of layouts of equal fusions, ranked in the order given."""
    if not layouts:
        return ()
    estimates = zip(layouts, evaluator.memory(layouts), evaluator.steps(layouts))
    situations = [rules.Situation(evaluator.setting, *estimate) for estimate in estimates]
    return tuple(_plan(evaluator, situation, rank) for rank, situation in enumerate(situations, start=1))


def _plan(evaluator: Evaluator, situation: rules.Situation, rank: int) -> Plan:
    return Plan(
        rank=rank,
        trainer=evaluator.request.trainer,
        layout=situation.layout,
        memory=situation.memory,
        step=situation.step,
        reasons=tuple(Reason(a.rule, a.text, a.source) for a in rules.advice(situation)),
        environment=rules.environment(situation),
        node=evaluator.request.node.id,
    )
