"""Owns a lint run: files in, findings out, and what can be mended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpt_tune.errors import nearest
from gpt_tune.lint import fixing
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import SEVERITIES, Finding, Hit, Rule
from gpt_tune.lint.ignore import ignored
from gpt_tune.lint.project import Project
from gpt_tune.lint.rules import RULES
from gpt_tune.lint.walk import Skipped, Source, sources

SCHEMA = "gpt-tune/lint/1"
# A fix may uncover another one (a line that moved); more rounds than this are a loop.
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Report:
    """What lint found. files: every file it read for you, in order."""

    files: tuple[str, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...] = ()
    fixed: tuple[fixing.Fix, ...] = ()


def lint(paths: Sequence[str]) -> Report:
    """Check files and folders. UserError for a path that does not exist or cannot be read."""
    found, skipped = sources(list(paths))
    return Report(tuple(s.shown for s in found), tuple(check(found)), tuple(skipped))


def mend(paths: Sequence[str], write: bool = True) -> Report:
    """Check, make every safe change, and check again. write=False only works the changes out."""
    found, skipped = sources(list(paths))
    originals = {s.shown: s for s in found}
    rules: dict[str, set[str]] = {}
    for _ in range(_ROUNDS):
        findings = list(check(found))
        changed = False
        for i, source in enumerate(found):
            own = [f for f in findings if f.file == source.shown and f.edits]
            text = fixing.apply(source.text, [e for f in own for e in f.edits])
            if text != source.text:
                rules.setdefault(source.shown, set()).update(f.rule for f in own)
                found[i] = Source(source.path, source.shown, source.kind, text)
                changed = True
        if not changed:
            break
    fixes = tuple(
        fixing.Fix(s.path, s.shown, originals[s.shown].text, s.text, tuple(sorted(rules[s.shown])))
        for s in found
        if s.text != originals[s.shown].text
    )
    if write:
        for fix in fixes:
            fixing.write(fix)
    return Report(tuple(s.shown for s in found), tuple(check(found)), tuple(skipped), fixes)


def check(found: Sequence[Source]) -> list[Finding]:
    """Every finding in these files, in order of file, line and severity."""
    project = Project([Document(s, asked=True) for s in found])
    findings: list[Finding] = []
    for document in project.documents:
        marks = ignored(document)
        own = [f for rule in RULES for f in _apply(rule, document, project)]
        findings += [f for f in own if not marks.covers(f)]
        if document.asked:
            findings += _unknown_marks(document, marks.named)
    place = {d.shown: i for i, d in enumerate(project.documents)}
    order = {s: i for i, s in enumerate(SEVERITIES)}
    return sorted(set(findings), key=lambda f: (place[f.file], f.line, order[f.severity], f.rule, f.message))


def _apply(rule: Rule, document: Document, project: Project) -> Iterator[Finding]:
    if document.kind not in rule.kinds or not (document.asked or rule.pairs):
        return
    for hit in rule.check(document, project):
        yield _finding(rule, document, hit)


def _finding(rule: Rule, document: Document, hit: Hit) -> Finding:
    line = min(max(hit.line, 1), max(len(document.lines), 1))
    return Finding(
        document.shown, line, rule.id, hit.severity or rule.severity, hit.message, hit.fix or rule.fix, rule.why,
        rule.source, hit.edits,
    )  # fmt: skip


def _unknown_marks(document: Document, named: list[tuple[int, str]]) -> Iterator[Finding]:
    known = {r.id for r in RULES}
    for line, name in named:
        if name not in known:
            close = nearest(name, known)
            yield Finding(
                document.shown, line, "unknown-ignore", "info", f"The ignore comment names no rule: {name!r}.",
                f"Write {close!r}." if close else "Run `gpt-tune lint --rules` for the list.",
                "A misspelt name ignores nothing.", "gpt-tune",
            )  # fmt: skip


def lint_json(report: Report) -> dict[str, Any]:
    """The report in the shape of the contract."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "files": list(report.files),
        "findings": [
            {
                "file": f.file, "line": f.line, "rule": f.rule, "severity": f.severity, "message": f.message,
                "fix": f.fix, "why": f.why, "source": f.source, "fixable": f.fixable,
            }
            for f in report.findings
        ],
        "skipped": [{"file": s.path, "reason": s.reason} for s in report.skipped],
    }  # fmt: skip
    if report.fixed:
        data["fixed"] = [{"file": x.shown, "rules": list(x.rules), "diff": x.diff} for x in report.fixed]
    return data
