"""Owns rules about files that a script writes: shared between jobs, never used, left behind, found by a wrong path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.kinds import SHELL
from gpt_tune.lint.project import Project
from gpt_tune.lint.shell.script import Script, words_of
from gpt_tune.lint.shell.tree import Command, Redirect, Word

# Whatever differs from job to job, or is somebody's choice for each run.
_VARYING = re.compile(
    r"SLURM_JOB_?ID|SLURM_ARRAY|SLURM_PROCID|SLURM_NODEID|SLURM_JOB_NAME|RANDOM|BASHPID|EPOCH|JOB_?ID|RUN_?ID|UUID|"
    r"TMPDIR|SLURM_TMPDIR|TIME|DATE|STAMP|NAME|LABEL|TAG|EXP|OUT|LOG|SAVE|CHECKPOINT|CKPT|RESULT|WORK_?DIR|RUN_?DIR|\bDIR\b"
)
_FOLDER_VARIABLE = re.compile(
    r"(?i)^(?:pwd|home|slurm_submit_dir|\w*(?:path|dir|root|home|folder|base|workspace|fsx|src)\w*)$"
)
_HOSTFILE = re.compile(r"(?i)host_?(?:file|s?list)|machine_?file|node_?file")
_READS_NOTHING = frozenset(
    {"rm", "echo", "printf", "ls", "test", "[", "chmod", "export", "touch", "mkdir", ":", "unlink"}
)
_INTERESTING = re.compile(
    r"(?i)\.(?:json|ya?ml|toml|cfg|conf|ini|txt|sh|py|csv)$|host_?file|config|hosts$|machine"
)


@dataclass(frozen=True, slots=True)
class Written:
    """A file a script writes. variable: the one that names it, or ""."""

    path: str
    word: Word
    line: int
    variable: str
    command: Command


def _written(script: Script) -> Iterator[Written]:
    """Files that the script creates with `>`, `tee` or a copy, outside of what it launches."""
    logs = _piped_from_launch(script)
    for command in script.tree.commands:
        for redirect in command.redirects:
            if redirect.operator in (">", ">|") and redirect.target is not None and _plain_file(redirect):
                yield _one(script, redirect.target, command)
        words = command.words
        if (
            command.name == "tee"
            and len(words) > 1
            and not words[1].source.startswith("-")
            and id(command) not in logs
        ):
            yield _one(script, words[1], command)
        if command.name in ("cp", "mv", "install") and len(words) == 3:
            yield _one(script, words[2], command)


def _piped_from_launch(script: Script) -> set[int]:
    """Commands that take the output of the training: what they write is a log."""
    found: set[int] = set()
    launched = False
    for command in script.tree.commands:
        launched = (launched and command.before == "|") or command.name in (
            "srun",
            "mpirun",
            "torchrun",
            "deepspeed",
        )
        if launched and command.before == "|":
            found.add(id(command))
    return found


def _one(script: Script, word: Word, command: Command) -> Written:
    variable = word.parts[0].text if len(word.parts) == 1 and word.parts[0].kind == "variable" else ""
    return Written(script.values.expand(word), word, command.line, variable, command)


def _plain_file(redirect: Redirect) -> bool:
    text = redirect.target.source.strip("\"'") if redirect.target is not None else ""
    return not text.startswith(("/dev/", "&")) and text not in ("", "1", "2")


def _varies(script: Script, word: Word, depth: int = 0) -> bool:
    """Whether a path differs between jobs, or may: it holds a job id, a command's output, or a free variable."""
    for part in word.parts:
        if part.kind in ("command", "arithmetic"):
            if part.kind == "arithmetic" or not re.fullmatch(
                r"\s*(?:pwd|dirname .*|cd .*|readlink .*|realpath .*)\s*", part.text
            ):
                return True
        elif part.kind == "variable":
            if part.text in ("$", "!", "1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "@", "*"):
                return True
            settings = [s for s in script.values.by_name.get(part.text, []) if s.default is not None]
            if not settings or depth > 6:
                if not _FOLDER_VARIABLE.match(part.text) or _VARYING.search(part.text.upper()):
                    return True
                continue
            if any(s.overridable for s in settings) and not _FOLDER_VARIABLE.match(part.text):
                return True
            if _VARYING.search(part.text.upper()) and any(s.overridable for s in settings):
                return True
            if any(s.default is not None and _varies(script, s.default, depth + 1) for s in settings):
                return True
        elif re.search(r"%[jJAa]", part.text):
            return True
    return False


def _differs_by_node(command: Command) -> bool:
    return any(b.kind in ("for", "while", "function", "substitution") for b in command.blocks)


def _shared(document: Document, project: Project) -> Iterator[Hit]:
    batch = document.script.is_batch or document.path.suffix in (".sbatch", ".slurm")
    submitted = batch or any(s.is_sbatch for s in project.submissions_of(document))
    seen: set[str] = set()
    for script in document.scripts:
        if not (submitted or script.is_batch) or not any(
            script.calls("srun", "torchrun", "python", "python3", "deepspeed", "mpirun", "accelerate", "bash")
        ):
            continue
        for written in _written(script):
            if (
                written.path in seen
                or written.path.startswith(("/tmp/", "~/.", "${HOME}/."))
                or not _INTERESTING.search(written.path)
            ):
                continue
            if (
                _elsewhere(script, written)
                or _varies(script, written.word)
                or _differs_by_node(written.command)
                or not _read_later(script, written)
            ):
                continue
            seen.add(written.path)
            yield Hit(
                written.line,
                f"{written.path} has the same name in every job: two that are queued overwrite each other's file.",
                f"Put the job's number into it: {_with_job_id(written.path)}.",
            )


_OWN_TO_A_NODE = re.compile(r"^(?:/opt|/workspace|/tmp|/root|/usr|/app|/dev/shm|/local|/mnt/local)\b")


def _elsewhere(script: Script, written: Written) -> bool:
    """Whether a relative path lies in a folder that the script went to and that other jobs do not share."""
    if written.path.startswith(("/", "$", "~")):
        return bool(_OWN_TO_A_NODE.match(written.path))
    moves = [c for c in script.calls("cd", "pushd") if c.line < written.line and len(c.words) > 1]
    return any(
        _OWN_TO_A_NODE.match(script.values.expand(c.words[1])) or _varies(script, c.words[1]) for c in moves
    )


def _read_later(script: Script, written: Written) -> bool:
    """Whether the script hands the file to a program."""
    base = written.path.rsplit("/", 1)[-1]
    for command in script.commands:
        if command.name in _READS_NOTHING or (command is written.command and command.name in ("cat", "tee")):
            continue
        for word in words_of(command):
            if word is not written.word and base and base in script.values.expand(word):
                return True
    return False


def _with_job_id(path: str) -> str:
    stem, dot, suffix = path.rpartition(".")
    if not dot or "/" in suffix:
        return f"{path}_${{SLURM_JOB_ID}}"
    return f"{stem}_${{SLURM_JOB_ID}}.{suffix}"


def _unused(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        for written in _written(script):
            exported = any(s.name == written.variable and s.exported for s in script.settings)
            hosts = bool(_HOSTFILE.search(written.path) or _HOSTFILE.search(written.variable))
            if not hosts or (exported and not written.variable) or _is_used(script, written):
                continue
            removed = next((c for c in script.calls("rm") if _names(script, c, written)), None)
            tail = f" and removed in line {removed.line}" if removed is not None else ""
            yield Hit(
                written.line,
                f"{written.path} is written{tail}, but nothing reads it.",
                "Pass it to the launcher (--hostfile), or remove these lines.",
            )


def _names(script: Script, command: Command, written: Written) -> bool:
    return any(
        (written.variable and written.variable in w.names) or script.values.expand(w) == written.path
        for w in command.words[1:]
    )


def _is_used(script: Script, written: Written) -> bool:
    for command in script.commands:
        # `echo $F` and `export F` read nothing, `export CMD="... $F"` does.
        quiet = command.name in _READS_NOTHING
        for word in (a.value for a in command.assignments if a.value) if quiet else words_of(command):
            if word is written.word:
                continue
            own = any(a.value is word and a.name == written.variable for a in command.assignments)
            if own:
                continue
            text = script.values.expand(word)
            if (written.variable and written.variable in word.names) or written.path in text:
                return True
        for redirect in command.redirects:
            if redirect.heredoc is not None and any(
                p.text == written.variable for p in redirect.heredoc.parts if p.kind == "variable"
            ):
                return True
    # Programs that look for a host file in a variable of this name.
    return written.variable in (
        "SLURM_HOSTFILE",
        "PBS_NODEFILE",
        "OMPI_MCA_orte_default_hostfile",
        "DLTS_HOSTFILE",
        "I_MPI_HYDRA_HOST_FILE",
        "MPICH_RANK_REORDER_FILE",
    )


def _no_trap(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        if any(script.calls("trap")):
            continue
        made = list(_written(script)) + list(_temporary(script))
        launches = [c.line for c in script.calls("srun", "mpirun", "torchrun", "deepspeed")]
        for command in script.calls("rm"):
            if command.conditional or not launches or command.line < min(launches):
                continue
            written = next((w for w in made if w.line < command.line and _names(script, command, w)), None)
            if written is not None:
                yield Hit(
                    command.line,
                    f"{written.path} is removed only when the script gets this far: after a failure or a "
                    "cancel it stays.",
                    f"Right after making it: trap 'rm -f \"{written.word.source.strip(chr(34))}\"' EXIT.",
                )
                break


def _temporary(script: Script) -> Iterator[Written]:
    for command in script.tree.commands:
        for assignment in command.assignments:
            value = assignment.value
            if value is not None and any(p.kind == "command" and "mktemp" in p.text for p in value.parts):
                yield Written(f"${assignment.name}", value, assignment.line, assignment.name, command)


def _own_path(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.batch_scripts():
        if any("SLURM_SUBMIT_DIR" in x or "scontrol show job" in x for x in document.lines):
            continue
        for command in script.commands:
            for word in words_of(command):
                if re.search(r"\$\{?BASH_SOURCE|(?:dirname|readlink|realpath)\b[^|;]*\$\{?0\b", word.source):
                    yield Hit(
                        command.line,
                        "In a batch job the script's own path is Slurm's copy in its spool folder, not "
                        "where you keep it.",
                        "Use $SLURM_SUBMIT_DIR.",
                    )
                    return


RULES = (
    Rule(
        "shared-file", "warning", (SHELL,), _shared,
        "A job starts with another job's configuration, and its result is filed under the wrong one.",
        "Put the job's number into the name.", "awsome-distributed-training PR 1009",
    ),
    Rule(
        "unused-file", "warning", (SHELL,), _unused,
        "It costs time and makes readers believe it matters.", "Use it or remove it.",
        "awsome-distributed-training PR 1009",
    ),
    Rule(
        "no-trap", "info", (SHELL,), _no_trap,
        "Files of failed jobs pile up on the shared file system.", "Remove it in a trap on EXIT.",
        "awsome-distributed-training PR 1009; POSIX shell, trap",
    ),
    Rule(
        "own-path", "warning", (SHELL,), _own_path,
        "The job looks for its files in /var/spool/slurmd.", "Use $SLURM_SUBMIT_DIR.",
        "sbatch manual: the script is copied",
    ),
)  # fmt: skip
