"""Owns best practices and legality as one list of rules with id, words, source and fix."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_tune.layouts import legality
from gpt_tune.rules import about_finetune, about_memory, about_time, about_trainer
from gpt_tune.rules.practice import Advice, Practice, Situation

__all__ = [
    "PRACTICES",
    "Advice",
    "Practice",
    "RuleEntry",
    "Severity",
    "Situation",
    "advice",
    "catalogue",
    "environment",
]

PRACTICES: tuple[Practice, ...] = (
    *about_memory.PRACTICES[:1],
    *about_time.PRACTICES[:1],
    *about_memory.PRACTICES[1:],
    *about_time.PRACTICES[1:],
    *about_trainer.PRACTICES,
    *about_finetune.PRACTICES,
)


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """One line of the list of all rules, for documentation and lint. kind: illegal, avoid, or a severity."""

    id: str
    kind: str
    source: str
    fix: str = ""


def advice(situation: Situation) -> tuple[Advice, ...]:
    """Every practice that applies here, and every warning of the legality rules: warnings first within their kind.

    The first two say what binds memory and time.
    """
    found = [
        Advice(p.id, p.severity, p.words(situation), p.source, p.fix) for p in PRACTICES if p.when(situation)
    ]
    broken = legality.warnings(situation.layout, situation.setting)
    sources = {rule.id: rule.source for rule in legality.WARNINGS}
    found += [Advice(v.rule, "warn", v.text, sources[v.rule], v.fix) for v in broken]
    order = {"warn": 0, "explain": 1, "note": 2}
    return (*found[:2], *sorted(found[2:], key=lambda a: order[a.severity]))


def environment(situation: Situation) -> dict[str, str]:
    """Variables the layout needs in the job's environment."""
    variables: dict[str, str] = {}
    for practice in PRACTICES:
        if practice.environment and practice.when(situation):
            variables.update(practice.environment)
    return variables


def catalogue() -> tuple[RuleEntry, ...]:
    """Every rule there is."""
    legal = [RuleEntry(r.id, "avoid" if r.avoid else "illegal", r.source) for r in legality.ALL_RULES]
    return (*legal, *(RuleEntry(p.id, p.severity, p.source, p.fix) for p in PRACTICES))
