"""Owns reading sweeps: every submission of a script with the variables it is given, over loops and function calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from gpt_tune.lint.documents import Document
from gpt_tune.lint.kinds import SHELL
from gpt_tune.lint.project import Project
from gpt_tune.lint.shell.script import Script, words_of
from gpt_tune.lint.shell.settings import Setting
from gpt_tune.lint.shell.tree import Assignment, Command, Part, Word

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
            yield Run(source, script, command.line, "", _given(script, [command], binding))
        return
    body = [c for c in script.commands if any(b.number == function.number for b in c.blocks)]
    for call in script.calls(function.head):
        for binding in _loops(script, call):
            bound = {**binding, **_arguments(script, call, body, binding)}
            label = script.values.expand(call.words[1]) if len(call.words) > 1 else ""
            yield Run(
                source, script, call.line, label, {**_given(script, body, bound), **_extra(script, call)}
            )


def _loops(script: Script, command: Command) -> list[dict[str, str]]:
    """Every combination of the loop variables around a command, as far as the lists are fixed."""
    choices: list[list[tuple[str, str]]] = []
    for block in command.blocks:
        if block.kind != "for" or not block.head:
            continue
        items = _loop_items(script, block.head, block.number)
        if items:
            choices.append([(block.head, item) for item in items])
    if not choices:
        return [{}]
    combinations: list[dict[str, str]] = []
    for combination in product(*choices):
        combinations.append(dict(combination))
        if len(combinations) >= _MOST_RUNS:
            break
    return combinations


def _loop_items(script: Script, name: str, number: int) -> list[str]:
    for command in script.commands:
        if command.blocks and command.blocks[-1].number == number:
            for assignment in command.assignments:
                if assignment.name == name and assignment.items is not None:
                    texts = [script.values.text(w) for w in assignment.items]
                    return [piece for t in texts if t for piece in t.split()]
    return []


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
    """Variables that other files hand to this script when they run it."""
    found: list[tuple[Document, Setting]] = []
    for source in dict.fromkeys(s.source for s in project.submissions_of(document)):
        for setting in source.settings:
            if setting.how in ("option", "prefix") or (setting.how == "export" and source.kind != "markdown"):
                found.append((source, setting))
    return found
