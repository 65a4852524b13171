"""Owns rules about the text of a file: line ends, shebang, syntax, quoting, and errors a script swallows."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from shutil import which

from gpt_tune.lint import kinds
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Edit, Hit, Rule
from gpt_tune.lint.project import Project
from gpt_tune.lint.shell.script import Script
from gpt_tune.lint.shell.tree import Command, Word

_ALL = (
    kinds.SHELL,
    kinds.DOCKER,
    kinds.DEEPSPEED,
    kinds.REQUIREMENTS,
    kinds.MAKE,
    kinds.PYTHON,
    kinds.MARKDOWN,
)
_SYNTAX_SECONDS = 10
_PATH_COMMANDS = frozenset({"cd", "rm", "mv", "cp", "ln", "rmdir", "tar"})
_LAUNCHERS = frozenset(
    {"srun", "mpirun", "mpiexec", "torchrun", "deepspeed", "accelerate", "python", "python3"}
)
_REPORTS = frozenset({"echo", "printf", "date", "set", "true", ":", "wait", "rm", "sleep"})
_PLACEHOLDER = re.compile(r"(?m)^[^#\n]*?(?:[=\s:])[\"']?(<[A-Za-z][^<>\n=]{1,80}>|\([eE]\.g\.,? [^)\n]*\))")
_LICENSE = re.compile(r"SPDX-License-Identifier|Copyright (?:\(c\) )?\w")


def _final_newline(document: Document, project: Project) -> Iterator[Hit]:
    if document.text and not document.text.endswith("\n"):
        end = len(document.text)
        yield Hit(len(document.lines), "The last line has no line end.", edits=(Edit(end, end, "\n"),))


def _crlf(document: Document, project: Project) -> Iterator[Hit]:
    if "\r\n" not in document.text:
        return
    edits = tuple(Edit(m.start(), m.end(), "\n") for m in re.finditer("\r\n", document.text))
    line = document.line_at(edits[0].start)
    shell = document.kind == kinds.SHELL
    message = f"{len(edits)} lines end with a carriage return (Windows)"
    message += (
        ": Linux does not find the interpreter '/bin/bash\\r', and values end with it." if shell else "."
    )
    yield Hit(line, message, severity="error" if shell else "warning", edits=edits)


def _byte_order_mark(document: Document, project: Project) -> Iterator[Hit]:
    if document.text.startswith("\ufeff"):
        yield Hit(
            1, "The file starts with a byte order mark: Linux does not see the #! line behind it.",
            edits=(Edit(0, 1, ""),),
        )  # fmt: skip


def _trailing_blanks(document: Document, project: Project) -> Iterator[Hit]:
    broken = [
        m for m in re.finditer(r"\\[ \t]+(?=\r?\n|$)", document.text)
        if not document.lines[document.line_at(m.start()) - 1].lstrip().startswith("#")
    ]  # fmt: skip
    if document.kind not in (kinds.SHELL, kinds.DOCKER, kinds.MAKE):
        return
    for match in broken:
        number = document.line_at(match.start())
        following = document.lines[number] if number < len(document.lines) else ""
        if following.strip():
            yield Hit(
                number,
                "Blanks behind the backslash: the command ends here, and the next line is a command of its own.",
                "Remove the blanks.",
                edits=(Edit(match.start() + 1, match.end(), ""),),
            )


def _shebang(document: Document, project: Project) -> Iterator[Hit]:
    text = document.text.removeprefix("\ufeff")
    batch = document.script.is_batch or document.path.suffix in (".sbatch", ".slurm")
    if text.startswith("#!") or not text.strip():
        return
    match = re.match(r"\s*\n[ \t]*(?=#!)|[ \t]+(?=#!)", text)
    if match is not None:
        effect = "sbatch refuses the script" if batch else "it is only a comment"
        edits = (Edit(0, match.end(), ""),)
        yield Hit(
            1, f"The #! line is not the first line: {effect}.", "", "error" if batch else "warning", edits
        )
        return
    late = next((i for i, x in enumerate(document.lines[:40], 1) if x.startswith("#!") and i > 1), None)
    if batch and late is not None:
        yield Hit(
            late,
            "The #! line is not the first line: sbatch refuses the script.",
            "Move it to the first line.",
            "error",
        )
    elif batch:
        yield Hit(1, "There is no #! line: sbatch refuses the script.", "Start with #!/bin/bash.", "error")


def _syntax(document: Document, project: Project) -> Iterator[Hit]:
    shell = _bash()
    if shell is None or not document.text.strip() or re.match(r"#!.*\b(?:zsh|ksh|fish)\b", document.text):
        return
    if re.search(r"\{\{|\{%|<%", document.text) and not re.search(r"\$\{\{", document.text):
        return  # a template, which another program fills in first
    try:
        # -n reads without running anything.
        done = subprocess.run(
            [shell, "-n"], input=document.text.encode("utf-8", "surrogateescape"), capture_output=True,
            timeout=_SYNTAX_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode == 0:
        return
    place = _PLACEHOLDER.search(document.text)
    if place is not None:
        yield Hit(
            document.line_at(place.start(1)),
            f"A placeholder to fill in: {place.group(1)[:60]}; bash would take it for a redirection and stop.",
            "Put the value in before the script runs.",
            "info",
        )
        return
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    first = next((x for x in said if "line" in x), said[0] if said else "bash refuses it")
    match = re.search(r"line (\d+): (.*)", first)
    line = int(match.group(1)) if match else 1
    yield Hit(line, f"bash cannot read the script: {(match.group(2) if match else first)[:160]}.")


@lru_cache(maxsize=1)
def _bash() -> str | None:
    return which("bash")


# -- errors that go unseen -----------------------------------------------------------------------------------


def _exits_on_error(script: Script) -> bool:
    if re.match(r"#!.*\bsh\s+-\w*e", script.text):
        return True
    for command in script.calls("set"):
        given = [w.literal or "" for w in command.words[1:]]
        if "errexit" in given or any(re.fullmatch(r"-[a-zA-Z]*e[a-zA-Z]*", g) for g in given):
            return True
    return any(c.name == "trap" and any("ERR" in w.source for w in c.words) for c in script.commands)


def _pipefail(script: Script) -> bool:
    return any("pipefail" in (w.literal or "") for c in script.calls("set") for w in c.words)


def _top_level(script: Script) -> list[Command]:
    return [
        c
        for c in script.tree.commands
        if not any(b.kind in ("substitution", "function") for b in c.blocks) and c.words
    ]


def _lost_exit_code(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.batch_scripts():
        commands = _top_level(script)
        launches = [c for c in commands if c.name in ("srun", "mpirun", "torchrun", "deepspeed")]
        if not launches:
            continue
        last = launches[-1]
        piped = next((c for c in launches if c.after in ("|", "|&")), None)
        if piped is not None and not _pipefail(script) and "PIPESTATUS" not in script.text:
            following = next((c for c in commands if c.line >= piped.line and c.before == "|"), None)
            if following is not None and following.name in ("tee", "grep", "sed", "awk", "cat", "ts"):
                yield Hit(
                    piped.line,
                    f"The exit code of {piped.name} is lost in the pipe to {following.name}: a failed training ends as "
                    "COMPLETED.",
                    "set -o pipefail.",
                )
                continue
        behind = [c for c in commands if c.line > last.end_line and c.name not in ("exit", "wait")]
        if _exits_on_error(script) or not behind or last.after in ("&", "||", "&&") or "$?" in script.text:
            continue
        if behind[-1].name in _REPORTS and all(c.name in _REPORTS for c in behind):
            yield Hit(
                last.line,
                f"{behind[-1].name} in line {behind[-1].line} decides the job's exit code: a failed "
                f"{last.name} ends as "
                "COMPLETED.",
                "set -e, or exit with the launcher's code.",
            )


def _no_errexit(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.batch_scripts():
        if not script.whole or _exits_on_error(script):
            continue
        launch = next(
            (c for c in _top_level(script) if c.name in ("srun", "mpirun", "torchrun", "deepspeed")), None
        )
        risky = next(
            (c for c in _top_level(script) if launch and c.line < launch.line and _may_fail(c)), None
        )
        if launch is not None and risky is not None:
            yield Hit(
                risky.line,
                f"Without set -e the job goes on when {risky.name} fails here, and starts on every node all the same.",
                "Put set -euo pipefail below the #SBATCH lines.",
            )


def _may_fail(command: Command) -> bool:
    return command.name in (
        "cd",
        "source",
        ".",
        "conda",
        "module",
        "cp",
        "mv",
        "tar",
        "git",
        "pip",
        "wget",
        "curl",
    ) and (command.after not in ("||", "&&") and not command.conditional)


def _unquoted(document: Document, project: Project) -> Iterator[Hit]:
    first: tuple[int, str] | None = None
    count = 0
    for script in document.scripts:
        for command in script.commands:
            if command.name not in _PATH_COMMANDS or any(b.kind == "string" for b in command.blocks):
                continue
            for word in command.words[1:]:
                name = _splits(script, word)
                if name is None:
                    continue
                if command.name == "rm" and _removes_root(script, command, word):
                    yield Hit(
                        word.line,
                        f"{word.source} is everything below / when ${name} is empty.",
                        f'Write "${{{name}:?}}" so that an empty value stops the script.',
                        "warning",
                    )
                count += 1
                first = first or (word.line, word.source)
    if first is not None:
        more = f" ({count} such words in this file)" if count > 1 else ""
        yield Hit(
            first[0], f"{first[1]} is not quoted: a blank in its value makes two arguments of it{more}."
        )


def _splits(script: Script, word: Word) -> str | None:
    """The first variable of a word that the shell may split, None when its value cannot be split."""
    for part in word.parts:
        if part.kind == "variable" and not part.quote and re.match(r"[A-Za-z_]", part.text):
            text = script.values.variable(part.text)
            free = any(s.overridable for s in script.values.by_name.get(part.text, []))
            if part.text.startswith("SLURM_") or (
                text is not None and not free and not re.search(r"[\s*?\[]", text)
            ):
                continue
            if part.operator.startswith("["):
                continue
            return part.text
    return None


def _removes_root(script: Script, command: Command, word: Word) -> bool:
    flags = "".join(w.source for w in command.words[1:] if w.source.startswith("-"))
    return "r" in flags.lower() and bool(re.match(r"\$\{?\w+\}?/\*?$|\$\{?\w+\}?/\*", word.source))


def _license(document: Document, project: Project) -> Iterator[Hit]:
    """Only where the other files of the tree carry one."""
    if (
        document.kind not in (kinds.SHELL, kinds.DOCKER, kinds.PYTHON)
        or _has_license(document)
        or not document.text.strip()
    ):
        return
    if "licence" not in project.memo:
        asked = [d for d in project.of_kind(kinds.SHELL, kinds.DOCKER, kinds.PYTHON) if d.asked]
        project.memo["licence"] = (len(asked), sum(_has_license(d) for d in asked))
    count, carrying = project.memo["licence"]
    if carrying >= 2 and carrying >= 0.6 * (count - 1):
        yield Hit(1, f"No licence header, unlike {carrying} of the {count - 1} other files.")


def _has_license(document: Document) -> bool:
    return bool(_LICENSE.search("\n".join(document.lines[:20])))


_SHELL = (kinds.SHELL,)
RULES = (
    Rule(
        "crlf", "error", _ALL, _crlf, "A carriage return is part of the line on Linux.", "Convert the line ends.",
        "execve manual; the repositories' .editorconfig",
    ),
    Rule(
        "byte-order-mark", "error", _SHELL, _byte_order_mark, "The kernel reads the first two bytes.", "Remove it.",
        "execve manual",
    ),
    Rule(
        "broken-continuation", "error", (kinds.SHELL, kinds.MAKE, kinds.DOCKER), _trailing_blanks,
        "Arguments on the next lines are lost.", "Remove the blanks.", "POSIX shell: backslash and newline",
    ),
    Rule(
        "shebang", "error", _SHELL, _shebang, "sbatch and the kernel look at the first two characters.",
        "Start the file with #!/bin/bash.", "sbatch: 'This does not look like a batch script'",
    ),
    Rule(
        "syntax", "error", _SHELL, _syntax, "The job ends in its first second, or half way.", "Correct it.",
        "bash -n, for .sbatch files too",
    ),
    Rule(
        "exit-code-lost", "warning", _SHELL, _lost_exit_code,
        "Slurm, resubmission and you believe that the training succeeded.", "set -euo pipefail.",
        "bash manual, pipelines and exit status",
    ),
    Rule(
        "no-errexit", "info", _SHELL, _no_errexit, "GPUs are taken for a run that cannot succeed.",
        "set -euo pipefail.", "awsome-distributed-training conventions",
    ),
    Rule(
        "unquoted", "info", _SHELL, _unquoted, "Paths with blanks break it.", "Put it in double quotes.",
        "ShellCheck SC2086 and SC2115",
    ),
    Rule(
        "final-newline", "info", _ALL, _final_newline, "Tools that append to the file glue two lines together.",
        "End the file with a newline.", "POSIX definition of a line; .editorconfig",
    ),
    Rule(
        "licence-header", "info", (kinds.SHELL, kinds.DOCKER, kinds.PYTHON), _license,
        "The most repeated remark in reviews.", "Add the header of the other files.",
        "awsome-distributed-training 1138",
    ),
)  # fmt: skip
