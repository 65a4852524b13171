"""Owns rules about handing variables to a job: values that cannot be overridden, drifting defaults, --export."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpt_tune.lint import kinds
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.project import Project
from gpt_tune.lint.readers.markdown import Table
from gpt_tune.lint.shell.script import Script, words_of
from gpt_tune.lint.shell.settings import Setting
from gpt_tune.lint.shell.tree import Block, Command
from gpt_tune.lint.sweep import passed_settings, runs_of

_SLURM = "sbatch manual, --export"
_USAGE = re.compile(r"\b([A-Z][A-Z0-9_]{1,})=\S+(?=[^#]*\b(?:sbatch|bash|sh|srun)\s+\S)")
_CODE = re.compile(r"`+([^`]*)`+")
# How far above a table's row its introduction may stand.
_LINES_BEFORE = 30
_FROM_OUTSIDE = re.compile(
    r"(?i)environment|env\.? ?var|overrid|--export|can be set|customi[sz]e|before submitting"
)
_NO_VALUE = re.compile(r"(?i)^(?:|-+|–|—|none|unset|empty|required|n/?a|auto.*|\(.*\)|see .*|your .*|<.*>)$")


def _unconditional(document: Document) -> dict[str, Setting]:
    """Variables that the script gives a value which nobody outside can change; the first place of each."""
    found: dict[str, Setting] = {}
    overridable: set[str] = set()
    for setting in document.script.settings:
        if setting.how in ("prefix", "option") or (setting.word is None and setting.items is None):
            continue
        if setting.overridable:
            overridable.add(setting.name)
        elif not setting.append and not setting.conditional and not _in_loop(setting):
            found.setdefault(setting.name, setting)
    return {name: s for name, s in found.items() if name not in overridable}


def _in_loop(setting: Setting) -> bool:
    return any(b.kind in ("for", "while", "substitution", "subshell") for b in setting.blocks)


def _overwritten(document: Document, project: Project) -> Iterator[Hit]:
    fixed = _unconditional(document)
    reasons: dict[str, str] = {}
    for readme in project.readmes_of(document):
        for name, where in _documented(readme):
            if name in fixed:
                reasons.setdefault(name, f"{readme.shown} ({where}) lists it as a variable to set")
    for comment in document.script.comments:
        for name in _USAGE.findall(comment.text):
            if name in fixed and comment.line < fixed[name].line + 400:
                reasons.setdefault(name, f"the comment in line {comment.line} sets it from outside")
    for name, values in _handed_over(document, project).items():
        own = document.script.values.text(fixed[name].default) if name in fixed else None
        # Handing the name its own value on changes nothing.
        other = sorted(v for v in values if v[1] != own and not re.fullmatch(rf"\$\{{?{name}\}}?", v[1]))
        if name in fixed and other:
            file, value, line = other[0]
            more = f" and {len(other) - 1} more" if len(other) > 1 else ""
            reasons.setdefault(name, f"{file}:{line} passes {name}={value}{more}")
    for name, reason in reasons.items():
        setting = fixed[name]
        if _read_before(document, setting):
            continue
        verb = "export " if setting.how == "export" else ""
        source = setting.word.source if setting.word is not None else ""
        yield Hit(
            setting.line,
            f"{name} is overwritten here, but {reason}: what the caller sets has no effect.",
            f"Keep the caller's value: {verb}{name}=${{{name}:-{source}}}." if source else "",
        )


def _read_before(document: Document, setting: Setting) -> bool:
    """Whether the script uses the caller's value before it gives the name its own."""
    for command in document.script.tree.commands:
        if command.line >= setting.line:
            return False
        if command.name not in ("echo", "printf") and any(setting.name in w.names for w in words_of(command)):
            return True
    return False


def _handed_over(document: Document, project: Project) -> dict[str, set[tuple[str, str, int]]]:
    """Name to (file, value, line) of what other files pass when they run this script."""
    found: dict[str, set[tuple[str, str, int]]] = {}
    for run in runs_of(document, project):
        for name, value in run.given.items():
            found.setdefault(name, set()).add((run.source.shown, value, run.line))
    for source, setting in passed_settings(document, project):
        value = setting.text if setting.text is not None else ""
        found.setdefault(setting.name, set()).add((source.shown, value, setting.line))
    return found


def _documented(readme: Document) -> Iterator[tuple[str, str]]:
    """Variables that a README lists with defaults where it speaks of setting them from outside."""
    for name, _, line in _defaults(readme):
        before = "\n".join(readme.lines[max(0, line - _LINES_BEFORE) : line])
        if re.search(r"(?i)\bedit\b[^.\n]{0,60}(?:script|file|\.sh|\.sbatch)", before):
            continue
        if _FROM_OUTSIDE.search(before) or re.search(
            rf"(?:ALL,|--export=|\b){name}=\S+[^\n]*(?:sbatch|\.sbatch|,)", readme.text
        ):
            yield name, f"line {line}"


def _defaults(readme: Document) -> Iterator[tuple[str, str, int]]:
    """(variable, default, line) of the tables that list variables with defaults."""
    for table in readme.markdown.tables:
        column = table.column("default")
        names = _name_column(table)
        if column is None or names is None or column == names:
            continue
        for line, cells in table.rows:
            if len(cells) <= max(column, names):
                continue
            for name in re.findall(r"\b[A-Z][A-Z0-9_]*\b", _plain(cells[names])):
                if "_" in name or len(name) >= 2:
                    yield name, _plain(cells[column]), line


def _name_column(table: Table) -> int | None:
    return table.column("variable", "env", "parameter", "setting", "name", "option", "flag")


def _plain(cell: str) -> str:
    return _CODE.sub(r"\1", cell).replace("*", "").strip()


def _drift(document: Document, project: Project) -> Iterator[Hit]:
    scripts = project.described_by(document)
    for name, documented, line in _defaults(document):
        first = documented.split(" ")[0].strip("\"'") if documented else ""
        if _NO_VALUE.match(documented) or "$" in documented or not first:
            continue
        actual: dict[str, str] = {}
        for script in scripts:
            text = _script_default(script.script, name)
            if text is not None:
                actual[script.shown] = text
        if actual and not any(_same(first, v) or _same(documented, v) for v in actual.values()):
            file, value = next(iter(actual.items()))
            yield Hit(
                line,
                f"The table says {name} defaults to {documented}, but {file} has {value or 'an empty value'}.",
                f"Write {value} here, or change the script." if value else "Change one of them.",
            )


def _script_default(script: Script, name: str) -> str | None:
    """The single value a script gives a name at its top level, when it is fixed text."""
    settings = [s for s in script.settings if s.name == name and s.how not in ("prefix", "option")]
    texts = {script.values.text(s.default) for s in settings if not s.conditional and not s.append}
    return texts.pop() if len(texts) == 1 and len(settings) == 1 else None


def _same(documented: str, actual: str) -> bool:
    a, b = documented.strip().lower().replace(",", ""), actual.strip().lower()
    if a == b or (not b and a in ("''", '""')):
        return True
    try:
        return float(a) == float(b)
    except ValueError:
        return a.rstrip("/") == b.rstrip("/") or (
            a in ("true", "yes", "on", "1") and b in ("true", "yes", "on", "1")
        )


def _twice(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        for command in script.calls("sbatch", "srun", "salloc"):
            places = [w for w in command.words if w.source.startswith("--export=") or w.literal == "--export"]
            if len(places) > 1:
                yield Hit(
                    places[1].line,
                    f"{command.name} is given --export {len(places)} times; only the last counts.",
                )
        built: dict[str, list[tuple[int, tuple[Block, ...], bool]]] = {}
        for command in script.commands:
            for assignment in command.assignments:
                sources = [assignment.value] if assignment.value is not None else assignment.items or ()
                count = sum(len(re.findall(r"--export(?=[=\s\"']|$)", w.source)) for w in sources)
                entry = built.setdefault(assignment.name, [])
                if count > 1:
                    yield Hit(
                        assignment.line,
                        f"{assignment.name} holds --export {count} times; only the last counts.",
                    )
                elif count and not assignment.append:
                    entry.clear()
                if count == 1:
                    before = [e for e in entry if not _exclusive(e[1], command.blocks)]
                    if before and assignment.append:
                        yield Hit(
                            assignment.line,
                            f"{assignment.name} gets --export here and in line {before[0][0]}; sbatch uses "
                            "only the last.",
                        )
                    entry.append((assignment.line, command.blocks, assignment.append))


def _exclusive(a: tuple[Block, ...], b: tuple[Block, ...]) -> bool:
    """Whether two places stand in different branches of one `if` or `case`."""
    families = {x.family: x.number for x in a if x.kind in ("if", "else", "case")}
    return any(x.family in families and families[x.family] != x.number for x in b)


def _comma(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        places = [(c, w) for c in script.commands for w in words_of(c) if "--export=" in w.source]
        for command, word in places:
            yield from _cut_values(command, word.source.split("--export=", 1)[1], word.line)
        for directive in script.directives:
            if directive.name == "export":
                yield from _cut_values(None, directive.value, directive.line)


def _cut_values(command: Command | None, text: str, line: int) -> Iterator[Hit]:
    pieces = re.split(r"[,\s]", text.strip("\"'"))
    last = ""
    for piece in (p.strip("\"'") for p in pieces):
        if "=" in piece:
            last = piece.split("=")[0]
        elif last and piece and not re.fullmatch(r"[A-Z_][A-Z0-9_]*|\$.*|\"|'", piece):
            yield Hit(
                line,
                f"--export cuts the value of {last} at the comma: {piece!r} is read as the name of another variable.",
                f"export {last}=... before sbatch, and pass --export=ALL.",
            )
            return


RULES = (
    Rule(
        "override-lost", "error", (kinds.SHELL,), _overwritten,
        "A run that was meant to differ measures the default, and nothing says so.",
        "Write NAME=${NAME:-value}.", "awsome-distributed-training PR 1009: 4 of 9 sweep runs measured the baseline",
        pairs=True,
    ),
    Rule(
        "default-drift", "warning", (kinds.MARKDOWN,), _drift,
        "People choose by the table and get the script.", "Make the table and the script say the same.",
        "awsome-distributed-training reviews 1009 and 1138", pairs=True,
    ),
    Rule(
        "export-twice", "error", (kinds.SHELL, kinds.MAKE, kinds.MARKDOWN), _twice,
        "sbatch takes the last --export and forgets the others.", "Put everything into one --export.", _SLURM,
    ),
    Rule(
        "export-comma", "error", (kinds.SHELL, kinds.MAKE, kinds.MARKDOWN), _comma,
        "--export separates variables with commas and has no quoting.", "Export the variable before sbatch instead.",
        _SLURM,
    ),
)  # fmt: skip
