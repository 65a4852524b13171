"""Owns reading sweeps: every submission of a script with the variables it is given, over loops and function calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpt_tune.lint.documents import Document
from gpt_tune.lint.kinds import MARKDOWN, SHELL
from gpt_tune.lint.project import Project
from gpt_tune.lint.shell.script import Script, words_of
from gpt_tune.lint.shell.settings import Setting
from gpt_tune.lint.shell.tree import Assignment, Block, Command, Part, Word

_PAIR = re.compile(r"(?:^|[\s,\"'])([A-Z][A-Z0-9_]*)=")
_MOST_RUNS = 200


@dataclass(frozen=True, slots=True)
class Run:
    """One submission: where it is asked for, its label, and what it sets. source: the file that submits."""

    source: Document
    script: Script
    line: int
    label: str
    given: Mapping[str, str]


def runs_of(document: Document, project: Project) -> list[Run]:
    """Every submission of this script that sets something."""
    key = ("runs", id(document))
    if key not in project.memo:
        project.memo[key] = _all_runs(document, project)
    runs: list[Run] = project.memo[key]
    return runs


def runs_from(source: Document, project: Project) -> list[tuple[Document, list[Run]]]:
    """The runs that a file submits, by the script it submits."""
    if "runs_from" not in project.memo:
        table: dict[int, list[tuple[Document, list[Run]]]] = {}
        for target in project.of_kind(SHELL):
            by_source: dict[int, list[Run]] = {}
            for run in runs_of(target, project):
                by_source.setdefault(id(run.source), []).append(run)
            for key, runs in by_source.items():
                table.setdefault(key, []).append((target, runs))
        project.memo["runs_from"] = table
    found: list[tuple[Document, list[Run]]] = project.memo["runs_from"].get(id(source), [])
    return found


def _all_runs(document: Document, project: Project) -> list[Run]:
    found: list[Run] = []
    for submission in project.submissions_of(document):
        found += _runs(submission.source, submission.script, submission.command)
        if len(found) > _MOST_RUNS:
            break
    unique = {(r.source.shown, r.line, tuple(sorted(r.given.items()))): r for r in found if r.given}
    return list(unique.values())[:_MOST_RUNS]


def _runs(source: Document, script: Script, command: Command) -> Iterator[Run]:
    function = next((b for b in reversed(command.blocks) if b.kind == "function"), None)
    if function is None:
        for binding in _loops(script, command):
            label = next(
                (v for k, v in binding.values.items() if re.fullmatch(r"(?i)name|label|\w*config\w*", k)), ""
            )
            label = label.split()[0] if label else ""
            given = _given(script, _together(script, command), binding.values)
            yield Run(source, script, binding.line or command.line, label, given)
        return
    body = [c for c in script.commands if any(b.number == function.number for b in c.blocks)]
    for call in script.calls(function.head):
        for binding in _loops(script, call):
            bound = {**binding.values, **_arguments(script, call, body, binding.values)}
            named = _bound(script, call.words[1], bound) if len(call.words) > 1 else None
            given = {**_given(script, body, bound), **_extra(script, call)}
            yield Run(source, script, binding.line or call.line, named or "", given)


def _together(script: Script, command: Command) -> list[Command]:
    """The command, and the exports in the same loop round before it."""
    exports = [
        c
        for c in script.commands
        if c.name == "export" and c.blocks and c.blocks == command.blocks and c.line <= command.line
    ]
    return [*exports, command]


def _loops(script: Script, command: Command) -> list[_Binding]:
    """Every combination of the loop variables around a command, as far as the lists are fixed."""
    choices: list[list[_Binding]] = []
    for block in command.blocks:
        if block.kind == "for" and block.head:
            choices.append([_Binding({block.head: text}, line) for text, line in _items(script, block)])
        elif block.kind == "while":
            choices.append(_read_rows(script, block))
    combinations = [_Binding({}, 0)]
    for choice in choices:
        if choice:
            combinations = [a.joined(b) for a in combinations for b in choice][:_MOST_RUNS]
    return [_with_reads(script, command, c) for c in combinations]


@dataclass(frozen=True, slots=True)
class _Binding:
    """Values of names in one round of the loops. line: of the list entry it comes from, 0 without one."""

    values: Mapping[str, str]
    line: int

    def joined(self, other: _Binding) -> _Binding:
        return _Binding({**self.values, **other.values}, other.line or self.line)


def _items(script: Script, block: Block) -> list[tuple[str, int]]:
    """The entries of a `for` list, those of an array variable too, with their lines."""
    found: list[tuple[str, int]] = []
    for command in script.commands:
        if not command.blocks or command.blocks[-1].number != block.number:
            continue
        for assignment in command.assignments:
            if assignment.name == block.head and assignment.items is not None:
                for word in assignment.items:
                    found += _expanded(script, word)
                return found
    return found


def _expanded(script: Script, word: Word) -> Iterator[tuple[str, int]]:
    """A list entry; `"${LIST[@]}"` gives the entries of the array, `$LIST` its words."""
    part = word.parts[0] if len(word.parts) == 1 else None
    if part is not None and part.kind == "variable":
        for setting in script.values.by_name.get(part.text, []):
            for item in setting.items or ():
                text = script.values.text(item)
                if text is not None:
                    yield text, item.line
            if setting.items is None and setting.default is not None:
                for piece in (script.values.text(setting.default) or "").split():
                    yield piece, setting.line
        return
    text = script.values.text(word)
    if text is not None:
        yield text, word.line


def _read_rows(script: Script, block: Block) -> list[_Binding]:
    """The rounds of `while read -r a b c; do ... done <<EOF`."""
    reads = [
        c for c in script.commands if c.name == "read" and c.blocks and c.blocks[-1].number == block.number
    ]
    ends = [c for c in script.tree.commands if not c.words and c.line > block.line]
    heredoc = next((r.heredoc for c in ends for r in c.redirects if r.heredoc is not None), None)
    if not reads or heredoc is None:
        return []
    names = [w.literal or "" for w in reads[0].words[1:] if not w.source.startswith("-")]
    rows = enumerate(heredoc.text.splitlines(), heredoc.line)
    return [
        _Binding(_cut(row, names, _separator(reads[0])), n)
        for n, row in rows
        if row.strip() and row.lstrip()[0] != "#"
    ]


def _with_reads(script: Script, command: Command, binding: _Binding) -> _Binding:
    """The binding with what `read -r a b c <<< "$row"` and `set -- $row` take apart in the same loop."""
    values = dict(binding.values)
    for other in script.commands:
        if (
            other.line > command.line
            or other.blocks != command.blocks[: len(other.blocks)]
            or not other.blocks
        ):
            continue
        row = next((r.target for r in other.redirects if r.operator == "<<<"), None)
        if other.name == "read" and row is not None:
            text = _bound(script, row, values)
            names = [w.literal or "" for w in other.words[1:] if not w.source.startswith("-")]
            values.update(_cut(text, names, _separator(other)) if text is not None else {})
        elif other.name == "set" and len(other.words) > 2 and other.words[1].literal == "--":
            texts = [_bound(script, w, values) for w in other.words[2:]]
            pieces = [p for t in texts if t is not None for p in t.split()]
            values.update({str(i): p for i, p in enumerate(pieces, 1)})
        else:
            for assignment in other.assignments:
                if assignment.value is not None and set(assignment.value.names) & values.keys():
                    text = _bound(script, assignment.value, values)
                    if text is not None:
                        values[assignment.name] = text
    return _Binding(values, binding.line)


def _separator(command: Command) -> str | None:
    """The field separator that `IFS=, read` sets, None for blanks."""
    for assignment in command.assignments:
        if assignment.name == "IFS" and assignment.value is not None:
            return assignment.value.literal or None
    return None


def _cut(row: str, names: list[str], separator: str | None) -> dict[str, str]:
    """One row taken apart into names, as `read` does it."""
    pieces = (
        row.split() if separator is None else [p.strip() for p in re.split(f"[{re.escape(separator)}]", row)]
    )
    if len(pieces) > len(names) > 0:
        pieces[len(names) - 1 :] = [" ".join(pieces[len(names) - 1 :])]
    return dict(zip(names, pieces))


def _arguments(
    script: Script, call: Command, body: list[Command], binding: Mapping[str, str]
) -> dict[str, str]:
    """The function's local names for the arguments of one call."""
    given = {str(i): _bound(script, w, binding) for i, w in enumerate(call.words[1:], 1)}
    names: dict[str, str] = {k: v for k, v in given.items() if v is not None}
    for command in body:
        for assignment in command.assignments:
            text = _bound(script, assignment.value, names) if assignment.value is not None else None
            if text is not None and _refers_to_argument(assignment):
                names[assignment.name] = text
    return names


def _refers_to_argument(assignment: Assignment) -> bool:
    return assignment.value is not None and any(n.isdigit() for n in assignment.value.names)


def _bound(script: Script, word: Word | None, binding: Mapping[str, str]) -> str | None:
    """A word's text with bound names filled in, or None."""
    if word is None:
        return None
    pieces: list[str] = []
    for part in word.parts:
        text = _bound_part(script, part, binding)
        if text is None:
            return None
        pieces.append(text)
    return "".join(pieces)


def _bound_part(script: Script, part: Part, binding: Mapping[str, str]) -> str | None:
    if part.kind == "text":
        return part.text
    if part.kind != "variable":
        return None
    if part.text in binding:
        return binding[part.text]
    if part.argument is not None and part.operator in (":-", "-", ":=", "="):
        known = script.values.variable(part.text)
        return known if known is not None else _bound(script, part.argument, binding)
    return script.values.variable(part.text)


def _given(script: Script, commands: list[Command], binding: Mapping[str, str]) -> dict[str, str]:
    """NAME=value pairs that these commands hand on: in --export lists, strings, prefixes and exports."""
    found: dict[str, str] = {}
    for command in commands:
        if command.name in ("echo", "printf", "test", "["):
            continue
        handed_on = command.name in ("sbatch", "bash", "sh", "srun", "export", "env") or (
            bool(command.words) and "/" in command.words[0].source
        )
        for assignment in command.assignments:
            if assignment.name.isupper() and assignment.value is not None and handed_on:
                text = _bound(script, assignment.value, binding)
                if text is not None:
                    found.setdefault(assignment.name, text)
        for word in words_of(command):
            found.update(_pairs(script, word, binding))
    return found


def _pairs(script: Script, word: Word, binding: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """`A=1,B=${b}` inside one word."""
    text = "".join(_bound_part(script, p, binding) or "\0" for p in word.parts)
    matches = list(_PAIR.finditer(text))
    for match, following in zip(matches, [*matches[1:], None]):
        value = text[match.end() : following.start() if following else len(text)]
        value = re.split(r"[,\s\"']", value)[0]
        if "\0" not in value:
            yield match.group(1), value


def _extra(script: Script, call: Command) -> dict[str, str]:
    """NAME=value among the arguments of a call itself."""
    found: dict[str, str] = {}
    for word in call.words[1:]:
        found.update(_pairs(script, word, {}))
    return found


def passed_settings(document: Document, project: Project) -> list[tuple[Document, Setting]]:
    """Variables that scripts which run this one mention with a value: arguments of their own functions, strings.

    A README has code blocks about many things; of those only the command that runs the script counts.
    """
    found: list[tuple[Document, Setting]] = []
    for source in dict.fromkeys(s.source for s in project.submissions_of(document)):
        if source.kind != MARKDOWN:
            found += [(source, s) for s in source.settings if s.how == "option"]
    return found
