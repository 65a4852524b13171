"""Owns how a file is said line by line: highlighting, findings under their lines, what differs. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tui.widgets.paint import Line, Span, clean, wrap

if TYPE_CHECKING:
    from gpt_tune.lint.finding import Finding
    from gpt_tune.workflows.differences import FileDiff
    from gpt_tune.workflows.origins import Setting

MAX_LINES = 5_000
MAX_CHARACTERS = 2_000  # of one line
# What stands before a line and the line itself; a row that is wrapped at blanks says so.
FileRow = tuple[str, Line, bool]

_JSON_KEY = re.compile(r'^(\s*)("[^"]*")(\s*:\s*)(.*)$')
_ASSIGN = re.compile(r"^(\s*(?:export\s+)?[A-Za-z_][A-Za-z0-9_]*)(=)(.*)$")
_SHELL_WORD = re.compile(
    r"^(\s*)(if|then|else|elif|fi|for|while|do|done|case|esac|function|exec|srun|trap)\b(.*)$"
)
_PYTHON_WORD = re.compile(r"^(\s*)(def|class|import|from|return|if|for|while|with|try|except|raise)\b(.*)$")
_TOML_KEY = re.compile(r"^(\s*[\w.\"-]+\s*)(=)(.*)$")

SEVERITY_ROLES = {"error": "bad", "warning": "warn", "info": "muted"}


def highlight(path: str, text: str) -> Line:
    """One line of a file as spans. The longest line that is matched is bounded by the caller's cut."""
    stripped = text.lstrip()
    if path.endswith((".json", ".jsonl")):
        match = _JSON_KEY.match(text)
        if match:
            return [(match[1], ""), (match[2], "accent"), (match[3], "muted"), (match[4], "good")]
        return [(text, "")]
    if path.endswith(".md"):
        return [(text, "strong" if stripped.startswith("#") else "")]
    if stripped.startswith("#SBATCH"):
        head, _, value = text.partition("=")
        return [(head, "accent"), (f"={value}" if value else "", "strong")]
    if stripped.startswith("#"):
        return [(text, "muted")]
    if path.endswith(".toml"):
        match = _TOML_KEY.match(text)
        if match:
            return [(match[1], "accent"), (match[2], "muted"), (match[3], "good")]
        return [(text, "strong" if stripped.startswith("[") else "")]
    match = (_PYTHON_WORD if path.endswith(".py") else _SHELL_WORD).match(text)
    if match:
        return [(match[1], ""), (match[2], "accent"), (match[3], "")]
    match = None if path.endswith(".py") else _ASSIGN.match(text)
    if match:
        return [(match[1], "accent"), (match[2], "muted"), (match[3], "good")]
    return [(text, "")]


def text_rows(path: str, content: bytes, findings: Sequence[Finding] = ()) -> list[FileRow]:
    """A file with each finding under its line, in words."""
    by_line: dict[int, list[Finding]] = {}
    for finding in findings:
        by_line.setdefault(finding.line, []).append(finding)
    rows: list[FileRow] = []
    lines = content.decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines[:MAX_LINES], start=1):
        rows.append((str(number), highlight(path, clean(line[:MAX_CHARACTERS])), False))
        rows += [row for finding in by_line.get(number, ()) for row in finding_rows(finding)]
    if len(lines) > MAX_LINES:
        rows.append(("", [(f"… {len(lines) - MAX_LINES:,} more lines", "muted")], True))
    return rows


def finding_rows(finding: Finding) -> list[FileRow]:
    """What lint found and what to do, as lines of their own between those of the file."""
    role = SEVERITY_ROLES[finding.severity]
    said: Line = [(f"{finding.severity}: {finding.message}", role), (f"  [{finding.rule}]", "muted")]
    return [
        ("!", said, True),
        *([("", [("fix: ", "muted"), (finding.fix, "good")], True)] if finding.fix else []),
    ]


def diff_rows(path: str, diff: FileDiff) -> list[FileRow]:
    """What differs from an earlier run: `-` its lines, `+` those of this job, by sign as well as by colour."""
    if not diff.lines:
        return [("", [(f"{diff.note or diff.kind}.", "muted")], True)]
    rows: list[FileRow] = []
    for line in diff.lines[:MAX_LINES]:
        text = clean(line.text[:MAX_CHARACTERS])
        if line.sign == "…":
            rows.append(("", [(f"… {text}", "muted")], False))
        elif line.sign == " ":
            rows.append((str(line.number), [("  ", ""), *highlight(path, text)], False))
        else:
            role = "good" if line.sign == "+" else "bad"
            rows.append((str(line.number or ""), [(f"{line.sign} ", role), (text, role)], False))
    return rows


def setting_rows(settings: Sequence[Setting], words: Sequence[str]) -> list[FileRow]:
    """Every setting that somebody set, with where it comes from."""
    key = max((len(s.key) for s in settings), default=0)
    value = min(max((len(w) for w in words), default=0), 20)
    return [
        ("", [(f"{s.key:<{key}}  ", "accent"), (f"{w:<{value}}  ", ""), (s.origin, "muted")], True)
        for s, w in zip(settings, words)
    ]


def fold(line: Line, width: int) -> list[Line]:
    """A line cut into pieces of `width` characters, wherever that falls: files are shown as they are."""
    pieces: list[list[Span]] = [[]]
    room = width
    for text, role in line:
        while text:
            if room == 0:
                pieces.append([])
                room = width
            pieces[-1].append((text[:room], role))
            text, room = text[room:], room - min(room, len(text))
    return list(pieces)


def folded(rows: Sequence[FileRow], width: int) -> list[tuple[str, Line]]:
    """Rows fitted to a width: what is said is wrapped at blanks, what stands in a file is cut."""
    out: list[tuple[str, Line]] = []
    for number, line, said in rows:
        pieces = wrap(line, width, 2) if said else fold(line, width)
        out += [(number if i == 0 else "", piece) for i, piece in enumerate(pieces)]
    return out
