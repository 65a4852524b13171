"""Owns a run's findings in words: the root cause, a row each, and what is known of one. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.widgets.columns import Column
from tui.widgets.paint import Cell, Line, Span
from tui.widgets.words import plural

if TYPE_CHECKING:
    from gpt_tune.diagnosis.types import Diagnosis, Finding

COLUMNS = (
    Column("what", least=8),
    Column("id"),
    Column("where", drop=2, most=24),
    Column("lines", "right", drop=3),
    Column("finding", grow=True, least=20),
)
ROLES = {"error": "bad", "warning": "warn", "info": "muted"}
ACTIONS = {
    "less_memory": "the planner's next layout that needs less memory",
    "more_time": "a longer time limit, on from the last checkpoint",
    "resume": "the same run, on from its last checkpoint",
    "exclude_host": "the same run without that node",
}


def key_of(finding: Finding) -> str:
    """One row a finding: an id may come from several ranks and files."""
    return f"{finding.id} {finding.source} {finding.line} {finding.rank} {finding.host}"


def root_lines(diagnosis: Diagnosis) -> list[Line]:
    """What broke and what to do, or that nothing did."""
    root = diagnosis.root_cause
    if root is None:
        alarming = [f for f in diagnosis.findings if f.dismissed is None and f.severity != "info"]
        if not alarming:
            return [[("Nothing alarming in this log", "good"), (f" ({diagnosis.status}).", "muted")]]
        return [[(f"No single cause; {plural(len(alarming), 'thing')} to look at.", "warn")]]
    role = ROLES[root.severity]
    where = place_of(root)
    lines: list[Line] = [
        [("Root cause  ", "muted"), (root.text, role), (f"  [{root.id}]", "muted")],
        [("To do       ", "muted"), (root.fix, "")],
    ]
    if where:
        lines.insert(1, [("Where       ", "muted"), (where, "")])
    if root.changes or root.action is not None:
        lines.append([("Fix         ", "muted"), *fix_spans(root), ("  R shows what it changes", "muted")])
    return lines


def finding_cells(finding: Finding, root: Finding | None) -> tuple[Cell, ...]:
    return (
        kind_of(finding, root),
        finding.shown_id,
        place_of(finding) or "-",
        f"{finding.count:,}",
        [(finding.text, "muted" if finding.dismissed is not None or finding.echo_of else "")],
    )


def kind_of(finding: Finding, root: Finding | None) -> Line:
    """`root`, `error`, `echo`, `dismissed`… in a word and a colour."""
    if finding.dismissed is not None:
        return [("dismissed", "muted")]
    if root is not None and finding == root:
        return [("root", "bad")]
    if finding.echo_of is not None:
        return [("echo", "muted")]
    return [(finding.severity, ROLES[finding.severity])]


def place_of(finding: Finding) -> str:
    """`rank 17 on b200-3`."""
    parts = [
        f"rank {finding.rank}" if finding.rank is not None else "",
        f"on {finding.host}" if finding.host else "",
    ]
    return " ".join(part for part in parts if part)


def fix_spans(finding: Finding) -> list[Span]:
    """The fix as a change to this run's settings."""
    if finding.changes:
        return [(", ".join(f"{key} = {value}" for key, value in finding.changes.items()), "accent")]
    return [(ACTIONS.get(finding.action or "", ""), "accent")]


def detail_lines(finding: Finding) -> list[Line]:
    """Everything known of the finding under the cursor."""
    lines: list[Line] = [[("finding    ", "muted"), (finding.text, ROLES[finding.severity])]]
    if finding.echo_of is not None:
        lines.append([("echo       ", "muted"), (f"it only follows from {finding.echo_of}", "")])
    lines.append([("to do      ", "muted"), (finding.fix, "")])
    if finding.changes or finding.action is not None:
        lines.append([("change     ", "muted"), *fix_spans(finding)])
    if finding.excerpt:
        place = f"{finding.source.rsplit('/', 1)[-1]}:{finding.line}" if finding.line is not None else ""
        lines.append(
            [("line       ", "muted"), (f"{place}  " if place else "", "muted"), (finding.excerpt, "")]
        )
    if finding.dismissed is not None:
        lines.append([("dismissed  ", "muted"), (finding.dismissed or "no reason given", "")])
    if finding.corrected_from is not None:
        lines.append(
            [("corrected  ", "muted"), (f"you said so; the log reader said {finding.corrected_from}", "")]
        )
    return lines
