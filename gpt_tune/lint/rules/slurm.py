"""Owns rules about `#SBATCH` lines and submission: what sbatch ignores, refuses or takes differently."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpt_tune.errors import nearest
from gpt_tune.lint import kinds
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Edit, Hit, Rule
from gpt_tune.lint.project import Project
from gpt_tune.lint.shell.script import Directive, Script, words_of
from gpt_tune.lint.shell.tree import Command
from gpt_tune.lint.tables import table

_MANUAL = "sbatch manual"
_HYPERPOD = "SageMaker HyperPod documentation, auto-resume; awsome-distributed-training"
# Detection, a reboot and a replacement take up to half an hour; a job that is resumed needs more than that.
_LEAST_MINUTES = 120


def _options() -> Mapping[str, Any]:
    return table("sbatch")


def long_name(directive: Directive) -> str:
    """The option's long name: `-p` is partition."""
    short: Mapping[str, str] = _options()["short"]
    return short.get(directive.name, directive.name) if directive.short else directive.name


def _ignored_lines(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        late = [d for d in script.directives if d.line > script.first_command_line]
        early = [d for d in script.directives if d.line < script.first_command_line]
        if late and (early or script.whole):
            names = ", ".join(dict.fromkeys(f"--{long_name(d)}" for d in late))
            yield Hit(
                late[0].line,
                f"sbatch stops reading options at the first command (line {script.first_command_line}): {names} "
                "is ignored.",
                "Move the #SBATCH lines to the top.",
            )


def _unknown_option(document: Document, project: Project) -> Iterator[Hit]:
    known = set(_options()["options"]) | set(_options()["former"])
    plugins = tuple(_options()["plugin_prefixes"])
    for script in document.scripts:
        for directive in script.directives:
            name = directive.name
            if directive.short or name in known or name.startswith(plugins):
                continue
            # getopt takes any unambiguous beginning of a name.
            if len([k for k in known if k.startswith(name)]) == 1:
                continue
            close = nearest(name, known, 0.75)
            if close is not None:
                edits: tuple[Edit, ...] = ()
                yield Hit(directive.line, f"sbatch has no option --{name}.", f"Write --{close}.", edits=edits)


def _variable(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        for directive in script.directives:
            if re.search(r"\$\{?[A-Za-z_]|\$\(|`", directive.value) and not _filled_in(document, script):
                yield Hit(
                    directive.line,
                    f"sbatch does not expand {directive.value!r} in --{long_name(directive)}: it is taken "
                    "as it stands.",
                    "Write the value, a pattern such as %j, or give the option on the command line.",
                )


def _filled_in(document: Document, script: Script) -> bool:
    """Whether the text is a template: another program or an unquoted here-document fills it in."""
    if not script.whole:
        return True
    return bool(re.search(r"envsubst", document.text)) or document.path.suffix not in (
        ".sh",
        ".sbatch",
        ".slurm",
        ".job",
        "",
    )


# Given twice, both count.
_COLLECTED = frozenset({"mail-type", "comment"})


def _duplicate(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        seen: dict[str, Directive] = {}
        # The parts of a job of several kinds of node have options of their own.
        several = re.search(r"(?m)^#SBATCH[ \t]+(?:het|pack)job", script.text) is not None
        for directive in script.directives if not several else ():
            name = long_name(directive)
            if name in _COLLECTED:
                continue
            first = seen.setdefault(name, directive)
            if first is not directive and first.value != directive.value and first.line != directive.line:
                yield Hit(
                    directive.line,
                    f"--{name} is given here and in line {first.line}; sbatch uses {directive.value!r}.",
                    "Keep one of them.",
                )


# -- where output goes ---------------------------------------------------------------------------------------


def _log_folder(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.batch_scripts():
        folders: dict[str, Directive] = {}
        for directive in script.directives:
            if long_name(directive) in ("output", "error") and "/" in directive.value:
                folders.setdefault(directive.value.rsplit("/", 1)[0], directive)
        for folder, directive in folders.items():
            if _exists_before(folder, document, project):
                continue
            inside = _made_by(script, folder)
            if inside is not None:
                yield Hit(
                    directive.line,
                    f"The log folder {folder} is made in line {inside.line}, inside the job: Slurm opens "
                    "the log before "
                    "that, and does not make folders, so the first job fails or loses its output.",
                    f"Make it before sbatch: mkdir -p {folder}.",
                    "warning",
                )
            elif not folder.startswith("/"):
                yield Hit(
                    directive.line,
                    f"Slurm does not make the log folder {folder}: a job submitted where it is missing fails at once.",
                    f"Make it before sbatch: mkdir -p {folder}.",
                    "info",
                )


def _made_by(script: Script, folder: str) -> Command | None:
    wanted = folder.strip("./") or folder
    for command in script.calls("mkdir", "install"):
        texts = [script.values.expand(w).rstrip("/") for w in command.words[1:]]
        if any(t.strip("./") == wanted or t.endswith("/" + wanted) for t in texts):
            return command
    return None


def _exists_before(folder: str, document: Document, project: Project) -> bool:
    """Whether the folder is there already, or everybody who submits the script makes it."""
    if "%" in folder or folder in (".", "..", "~") or folder.startswith("$"):
        return True
    if (document.folder / folder).is_dir():
        return True
    submitting = {id(s.source): s.source for s in project.submissions_of(document) if s.is_sbatch}
    readmes = project.readmes_of(document)
    if any(_makes(d, folder) for d in readmes):
        return True
    if submitting:
        return all(_makes(d, folder) for d in submitting.values())
    near = project.near(document, kinds.SHELL, kinds.MAKE)
    return any(_makes(d, folder) for d in near if d is not document)


def _makes(document: Document, folder: str) -> bool:
    return any(_made_by(s, folder) is not None for s in document.scripts if not s.is_batch)


def _truncated(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.batch_scripts():
        names = {long_name(d) for d in script.directives}
        if "open-mode" in names or "array" in names:
            continue
        requeue = next((d for d in script.directives if long_name(d) == "requeue"), None)
        if requeue is not None:
            yield Hit(
                requeue.line,
                "--requeue without --open-mode=append: the second start empties the first one's log.",
                "Add #SBATCH --open-mode=append.",
            )
            continue
        resume = next((c for c in script.commands if _has_auto_resume(c, script)), None)
        if resume is not None:
            yield Hit(
                resume.line,
                "Auto-resume starts the job again, and without --open-mode=append that empties its log.",
                "Add #SBATCH --open-mode=append.",
                "info",
            )


# -- auto-resume ---------------------------------------------------------------------------------------------


def _has_auto_resume(command: Command, script: Script) -> bool:
    return any("--auto-resume" in w.source for w in words_of(command))


def _resume_on_sbatch(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        for directive in script.directives:
            if directive.name == "auto-resume":
                yield Hit(directive.line, "--auto-resume belongs to srun; sbatch does not know it.")
        for command in script.calls("sbatch"):
            word = next((w for w in command.words if w.source.startswith("--auto-resume")), None)
            if word is not None:
                yield Hit(word.line, "--auto-resume belongs to srun; sbatch does not know it.")


def _resume_with_container(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        resume = [c for c in script.commands if _has_auto_resume(c, script)]
        images = [c for c in script.commands if any("--container-image" in w.source for w in words_of(c))]
        for command in script.calls("srun"):
            first = _reaching(command, resume)
            second = _reaching(command, images)
            if first is None or second is None or _exclusive(first, second):
                continue
            yield Hit(
                command.line,
                "srun gets both --auto-resume and --container-image: with auto-resume pyxis does not see its option, "
                "and srun stops with an unrecognized option or runs on the bare host.",
                "Pass --auto-resume=1 only when there is no container.",
            )
            break


def _reaching(command: Command, sources: list[Command]) -> Command | None:
    """The command that puts an option onto this srun: itself, or an assignment to a variable it expands."""
    names = {n for w in command.words for n in w.names}
    for source in sources:
        if source is command:
            return source
        if any(a.name in names for a in source.assignments):
            return source
    return None


def _exclusive(a: Command, b: Command) -> bool:
    families = {x.family: x.number for x in a.blocks if x.kind in ("if", "else", "case")}
    return any(x.family in families and families[x.family] != x.number for x in b.blocks)


def _short_time(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.batch_scripts():
        if document.rendered or not any(_has_auto_resume(c, script) for c in script.commands):
            continue
        directive = next((d for d in script.directives if long_name(d) == "time"), None)
        minutes = _minutes(directive.value) if directive is not None else None
        if directive is not None and minutes is not None and minutes < _LEAST_MINUTES:
            yield Hit(
                directive.line,
                f"--time={directive.value} is {minutes:g} minutes; replacing a node takes 20 to 30 of them.",
                f"Allow at least {_LEAST_MINUTES} minutes.",
            )


def _minutes(text: str) -> float | None:
    """Slurm's time formats: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if match is None:
        return None
    days, first, second, third = match.groups()
    if days is not None:
        return int(days) * 1440 + int(first) * 60 + int(second or 0) + int(third or 0) / 60
    if third is not None:
        return int(first) * 60 + int(second) + int(third) / 60
    return int(first) + int(second or 0) / 60


# -- partitions in examples ----------------------------------------------------------------------------------


def _example_partition(document: Document, project: Project) -> Iterator[Hit]:
    """README commands: some name a partition, and one for a script without its own does not."""
    calls = [(s, c) for s in document.markdown.scripts for c in s.calls("sbatch")]
    with_partition = [c for _, c in calls if _names_partition(c)]
    if not with_partition:
        return
    for _, command in calls:
        if _names_partition(command) or len(command.words) < 2:
            continue
        target = next(
            (d for d in project.of_kind(kinds.SHELL) if any(d.name in w.source for w in command.words)), None
        )
        if target is None or any(long_name(d) == "partition" for d in target.script.directives):
            continue
        yield Hit(
            command.line,
            f"This command names no --partition, unlike the one in line {with_partition[0].line}, and "
            f"{target.name} has "
            "none of its own.",
            "Add --partition.",
        )


def _names_partition(command: Command) -> bool:
    return any(w.source.startswith(("--partition", "-p")) for w in command.words)


_DIRECTIVE = r"(?:#\s?SBATCH|directives?|script header|in the script|sbatch header)"
_LINE = r"(?:command[- ]?line|sbatch (?:flags?|options?|arguments?|--\w+)|CLI|--partition)"
_BEATS = r"\b(?:override|beat|win|takes? precedence|trump|supersede|precede)s?\b"
_LOSES = r"\b(?:is|are|gets?|be)\s+(?:overridden|overruled|ignored|beaten|superseded)\b"
_WRONG_ORDER = re.compile(
    rf"(?i){_DIRECTIVE}[^.\n]{{0,60}}{_BEATS}[^.\n]{{0,40}}{_LINE}|{_LINE}[^.\n]{{0,60}}{_LOSES}[^.\n]{{0,40}}{_DIRECTIVE}"
)


def _precedence(document: Document, project: Project) -> Iterator[Hit]:
    if document.kind == kinds.MARKDOWN:
        texts = document.markdown.prose
    else:
        texts = [(c.line, c.text) for s in document.scripts for c in s.comments]
    for line, text in _paragraphs(texts):
        match = _WRONG_ORDER.search(text)
        if match is not None and not re.search(r"(?i)\b(?:not|never|cannot|doesn't|won't)\b", match.group()):
            yield Hit(
                line,
                "It is the other way round: sbatch's command line beats SBATCH_* variables, which beat #SBATCH lines.",
                "Correct the sentence.",
            )


def _paragraphs(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines that follow each other as one text, since a sentence may go over two."""
    start, taken, last = 0, [""], -1
    for number, line in [*lines, (-10, "")]:
        if number != last + 1 or not line.strip():
            if any(taken):
                yield start, " ".join(x.strip() for x in taken)
            start, taken = number, []
        taken.append(line)
        last = number


_SHELLS = (kinds.SHELL, kinds.MAKE, kinds.MARKDOWN)
RULES = (
    Rule(
        "sbatch-too-late", "error", (kinds.SHELL,), _ignored_lines,
        "The job runs with other resources than the script says.", "Move it above the first command.", _MANUAL,
    ),
    Rule(
        "sbatch-unknown-option", "error", (kinds.SHELL,), _unknown_option,
        "sbatch refuses the script.", "Correct the option.", "sbatch manuals of Slurm 22.05 to 25.11",
    ),
    Rule(
        "sbatch-variable", "error", (kinds.SHELL,), _variable,
        "#SBATCH lines are comments to the shell.", "Write the value.", _MANUAL,
    ),
    Rule(
        "sbatch-duplicate", "warning", (kinds.SHELL,), _duplicate,
        "Only the last one counts.", "Keep one.", _MANUAL,
    ),
    Rule(
        "log-folder", "warning", (kinds.SHELL,), _log_folder,
        "Slurm opens the log before the script runs.", "Make the folder before submitting.", _MANUAL,
    ),
    Rule(
        "log-truncated", "warning", (kinds.SHELL,), _truncated,
        "The log of the failure is what you need.", "Add #SBATCH --open-mode=append.", _MANUAL,
    ),
    Rule(
        "auto-resume-on-sbatch", "error", (kinds.SHELL, kinds.MAKE, kinds.MARKDOWN), _resume_on_sbatch,
        "sbatch stops with an unrecognized option.", "Pass it to srun.", _HYPERPOD,
    ),
    Rule(
        "auto-resume-with-container", "error", (kinds.SHELL,), _resume_with_container,
        "HyperPod's and pyxis's options exclude each other.", "Use one of them.",
        "awsome-distributed-training qlora troubleshooting; sample-physical-ai-scaffolding-kit 5",
    ),
    Rule(
        "auto-resume-time", "warning", (kinds.SHELL,), _short_time,
        "The time limit ends the job before it could go on.", "Ask for more time.", _HYPERPOD,
    ),
    Rule(
        "example-partition", "info", (kinds.MARKDOWN,), _example_partition,
        "Copied as it is, the job lands in the default partition or is refused.", "Add --partition.",
        "awsome-distributed-training PR 1009", pairs=True,
    ),
    Rule(
        "precedence-claim", "warning", (kinds.SHELL, kinds.MARKDOWN), _precedence,
        "People remove or add options for the wrong reason.", "Correct the sentence.", _MANUAL,
    ),
)  # fmt: skip
