"""Owns rules about READMEs and Makefiles: data that training will not find, missing files, broken markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gpt_tune.lint import kinds
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.project import Project
from gpt_tune.lint.shell.script import Script
from gpt_tune.lint.shell.tree import Command

_TEXT_DOCUMENT = "_text_document"
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Data that a command prepares: the prefix it is given, and the one training must use."""

    prefix: str
    result: str
    line: int
    document: Document


def _prepared(document: Document) -> Iterator[Prepared]:
    for script in document.scripts:
        for command in script.commands:
            texts = [script.values.expand(w) for w in command.words]
            if not any("preprocess_data" in t for t in texts):
                continue
            prefix = _option(texts, "--output-prefix")
            if not prefix:
                continue
            keys = (_option(texts, "--json-keys") or "text").split()[0]
            level = "sentence" if "--split-sentences" in texts else "document"
            yield Prepared(prefix, f"{prefix}_{keys}_{level}", _line_of(command, "--output-prefix"), document)


def _option(texts: list[str], name: str) -> str:
    for i, text in enumerate(texts):
        if text == name and i + 1 < len(texts):
            return texts[i + 1]
        if text.startswith(f"{name}="):
            return text.split("=", 1)[1]
    return ""


def _line_of(command: Command, start: str) -> int:
    return next((w.line for w in command.words if w.source.startswith(start)), command.line)


def _data_prefix(document: Document, project: Project) -> Iterator[Hit]:
    for prepared in _prepared(document):
        base = prepared.prefix.rsplit("/", 1)[-1]
        result = prepared.result.rsplit("/", 1)[-1]
        wanted = list(_wanted(document, project))
        if any(w[0].rsplit("/", 1)[-1] == result for w in wanted):
            yield from _other_folder(prepared, wanted, result)
            continue
        near = next((w for w in wanted if w[0].rsplit("/", 1)[-1] == base), None)
        if base.endswith((_TEXT_DOCUMENT, "_text_sentence")):
            reads = f"; {near[1]} reads {near[0]}" if near is not None else ""
            yield Hit(
                prepared.line,
                f"The tool adds {_TEXT_DOCUMENT} itself: this writes {result}.bin and .idx{reads}.",
                f"Use --output-prefix {prepared.prefix.removesuffix(_TEXT_DOCUMENT)}.",
            )
        elif near is not None:
            yield Hit(
                prepared.line,
                f"This writes {result}.bin and .idx, but {near[1]} reads {near[0]}.",
                f"Use --data-path {prepared.result} there.",
            )


def _other_folder(prepared: Prepared, wanted: list[tuple[str, str]], result: str) -> Iterator[Hit]:
    """The right name in another folder, when both are fixed."""
    for path, where in wanted:
        if path.rsplit("/", 1)[-1] != result:
            continue
        if (
            path.startswith("/")
            and prepared.result.startswith("/")
            and "$" not in path + prepared.result
            and path != prepared.result
        ):
            yield Hit(
                prepared.line,
                f"This writes {prepared.result}, but {where} reads {path}.",
                "Use one folder in both.",
            )
        return


def _wanted(document: Document, project: Project) -> Iterator[tuple[str, str]]:
    """(path, where) of what training scripts near a README read."""
    shells = [document] if document.kind == kinds.SHELL else []
    for other in (*shells, *project.near(document, kinds.SHELL), *project.described_by(document)):
        for flag in other.flags.named("data-path"):
            for word in flag.values:
                path = other.script.values.expand(word)
                if not re.fullmatch(r"[\d.]*", path):
                    yield path, f"{other.shown}:{flag.line}"


def _unmounted(document: Document, project: Project) -> Iterator[Hit]:
    """`enroot start IMAGE command PATH` without a mount: the path is not there."""
    for script in document.scripts:
        for command in script.calls("enroot"):
            words = [w.source for w in command.words]
            if (
                len(words) < 3
                or words[1] != "start"
                or any(w in ("--mount", "-m") or w.startswith("--mount") for w in words)
            ):
                continue
            paths = [
                w
                for w in words[3:]
                if re.match(r"\"?/(?:fsx|lustre|data|scratch|mnt|shared|efs)\b", w)
                and not w.endswith(".sqsh")
            ]
            if paths:
                yield Hit(
                    command.line,
                    f"enroot start mounts nothing here: {paths[0]} is not there inside the container.",
                    f"Add --mount {'/'.join(paths[0].strip(chr(34)).split('/')[:2])}.",
                )


def _fences(document: Document, project: Project) -> Iterator[Hit]:
    for fence in document.markdown.fences:
        if not fence.closed:
            yield Hit(fence.line - 1, "This code block is never closed: the rest of the page is code.")
    for number, line in document.markdown.prose:
        if re.match(r"^\s*``(?:\w+)?\s*$", line):
            yield Hit(number, "Two backticks do not open or close a code block.", "Write three.")


def _missing_files(document: Document, project: Project) -> Iterator[Hit]:
    seen: set[str] = set()
    for number, line in document.markdown.prose:
        for match in _LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            target = match.group(1)
            # Links out of the folder may lead where this checkout does not reach.
            if "://" in target or target.startswith(("mailto:", "/", "<", "$", "..")) or target in seen:
                continue
            seen.add(target)
            if not (document.folder / target).exists():
                yield Hit(number, f"The link leads to {target}, which is not there.", "Correct or remove it.")
    for script in document.markdown.scripts:
        for command in script.calls("sbatch"):
            yield from _missing_script(command, script, document, project, seen)


def _missing_script(
    command: Command, script: Script, document: Document, project: Project, seen: set[str]
) -> Iterator[Hit]:
    """`sbatch NAME` where no file of that name is anywhere near the README."""
    target = next(
        (
            w.literal
            for w in command.words[1:]
            if w.literal and re.search(r"\.(?:sbatch|slurm|sh)$", w.literal)
        ),
        None,
    )
    if target is None or target in seen or target.startswith(("/", "~")):
        return
    seen.add(target)
    name = target.rsplit("/", 1)[-1]
    inside = [
        d for d in project.documents if d.folder == document.folder or document.folder in d.folder.parents
    ]
    if any(d.name == name for d in project.documents) or (document.folder / target).exists():
        return
    if not any(d.kind == kinds.SHELL for d in inside):
        return
    made = any(name in d.text for d in project.of_kind(kinds.SHELL))
    if not made:
        yield Hit(command.line, f"There is no {target} here.", "Correct the name, or add the file.")


# -- Makefiles -----------------------------------------------------------------------------------------------


def _make_input(document: Document, project: Project) -> Iterator[Hit]:
    """A recipe that reads a file which nothing in the tree writes."""
    for target in document.makefile.targets:
        if not target.recipe:
            continue
        script = document.makefile.script_of(target)
        for command in script.commands:
            for option, value in _file_options(script, command):
                if (
                    value.startswith(("/", "$"))
                    or (document.folder / value).exists()
                    or _is_made(value, document, project)
                ):
                    continue
                yield Hit(
                    command.line,
                    f"make {target.names[0]} reads {value} ({option}), which nothing in these files writes.",
                    "Write it when jobs are submitted, or read something that exists.",
                )
                return


def _file_options(script: Script, command: Command) -> Iterator[tuple[str, str]]:
    texts = [script.values.expand(w) for w in command.words]
    for option, value in pairwise(texts):
        if re.match(r"--[\w-]*(?:csv|input|jobs|file|in)$", option) and re.search(
            r"\.(?:csv|json|tsv|txt)$", value
        ):
            yield option, value


def _is_made(path: str, document: Document, project: Project) -> bool:
    """Whether any script, recipe or program near writes a file of that name."""
    name = path.rsplit("/", 1)[-1]
    for other in project.near(document, kinds.SHELL, kinds.MAKE):
        for script in other.scripts:
            for command in script.commands:
                for redirect in command.redirects:
                    if (
                        redirect.operator in (">", ">>")
                        and redirect.target
                        and name in script.values.expand(redirect.target)
                    ):
                        return True
                if command.name in ("tee", "cp", "mv", "touch", "wget", "curl") and any(
                    name in script.values.expand(w) for w in command.words
                ):
                    return True
    for other in project.near(document, kinds.PYTHON):
        for match in re.finditer(re.escape(name), other.text):
            around = other.text[max(0, match.start() - 300) : match.end() + 300]
            if re.search(r"open\([^)]*[\"'][wa]|to_csv|DictWriter|csv\.writer|write_text", around):
                return True
    return False


def _spaces(document: Document, project: Project) -> Iterator[Hit]:
    if ".RECIPEPREFIX" in document.text:
        return
    for target in document.makefile.targets:
        if target.spaced and not target.recipe:
            yield Hit(
                target.spaced[0],
                "This line starts with blanks: make takes only a tab (missing separator).",
                "Use a tab.",
            )


RULES = (
    Rule(
        "data-prefix", "error", (kinds.MARKDOWN, kinds.SHELL, kinds.MAKE), _data_prefix,
        "Training does not find the data that was prepared for it.", "Make the two names agree.",
        "Megatron-DeepSpeed tools/preprocess_data.py appends _KEY_document", pairs=True,
    ),
    Rule(
        "enroot-no-mount", "warning", (kinds.MARKDOWN, kinds.SHELL, kinds.MAKE), _unmounted,
        "The command does not find its files.", "Add --mount.", "enroot documentation, start",
    ),
    Rule("code-fence", "warning", (kinds.MARKDOWN,), _fences, "The page cannot be read.", "Close it.",
    "CommonMark, fenced code blocks"),
    Rule(
        "missing-file", "info", (kinds.MARKDOWN,), _missing_files, "Readers follow it into nothing.", "Correct it.",
        "awsome-distributed-training reviews: path drift",
    ),
    Rule(
        "make-input", "warning", (kinds.MAKE,), _make_input, "The target always fails.", "Write the file first.",
        "awsome-distributed-training PR 1009: make parse",
    ),
    Rule("make-blanks", "error", (kinds.MAKE,), _spaces, "make stops with 'missing separator'.", "Use a tab.",
    "GNU make manual"),
)  # fmt: skip
