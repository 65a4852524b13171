"""Every rule finds its fault in every form shown, and keeps quiet about what only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune.lint.finding import SEVERITIES
from gpt_tune.lint.rules import RULES
from tests.lint import cases_other, cases_shell
from tests.lint.support import Files, findings

BAD = {**cases_shell.BAD, **cases_other.BAD}
GOOD = {**cases_shell.GOOD, **cases_other.GOOD}
IDS = sorted({r.id for r in RULES})


def spread(cases: dict[str, list[Files]]) -> list[object]:
    return [
        pytest.param(rule, files, id=f"{rule}-{i}") for rule in cases for i, files in enumerate(cases[rule])
    ]


@pytest.mark.parametrize(("rule", "files"), spread(BAD))
def test_the_fault_is_found(rule: str, files: Files, tmp_path: Path) -> None:
    found = findings(tmp_path, files)
    own = [f for f in found if f.rule == rule]
    assert own, f"{rule} is silent; found {sorted({f.rule for f in found})}"
    for finding in own:
        assert finding.message
        assert finding.fix
        assert finding.line >= 1


@pytest.mark.parametrize(("rule", "files"), spread(GOOD))
def test_what_only_looks_like_it_is_left_alone(rule: str, files: Files, tmp_path: Path) -> None:
    assert [f.message for f in findings(tmp_path, files) if f.rule == rule] == []


def test_every_rule_is_shown_both_ways() -> None:
    assert sorted(BAD) == IDS
    assert sorted(GOOD) == IDS


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_a_rule_says_why_what_to_do_and_where_it_comes_from(rule: object) -> None:
    from gpt_tune.lint.finding import Rule

    assert isinstance(rule, Rule)
    assert rule.severity in SEVERITIES
    assert rule.why.endswith((".", ")"))
    assert rule.fix.endswith((".", ")"))
    assert rule.source
    assert rule.kinds
