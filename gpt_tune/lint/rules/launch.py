"""Owns rules about how ranks find each other: addresses, ports, rendezvous, and what a container sees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.kinds import SHELL
from gpt_tune.lint.project import Project
from gpt_tune.lint.shell.script import Script, words_of
from gpt_tune.lint.shell.tree import Command, Word

_ADDRESS_NAME = re.compile(r"(?i)addr|master|head|host|rdzv|endpoint|\bip\b|_ip")
_PICKS_ONE = re.compile(r"awk\b|cut\b|head\b|sed\b|grep\b|tr\b")
_PORT = re.compile(r"(?i)port")
_RANDOM = re.compile(r"\$\{?RANDOM\b|\bRANDOM\b|\bshuf\b")


def _address(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        for command in script.commands:
            text = " ".join(w.source for w in command.words)
            match = re.search(r"\bhostname\s+(--ip-addresse?s?|--all-ip-addresses|-[iI])\b", text)
            if match is None or command.name in ("echo", "printf", "bash", "sh") or command.after == "|":
                continue
            owner = _assigned_to(script, command)
            if owner is None or not _ADDRESS_NAME.search(owner):
                continue
            yield Hit(
                command.line,
                f"{match.group()} can give a loopback address, or several; {owner} needs one that other nodes reach.",
                'Use $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1).',
            )


def _assigned_to(script: Script, command: Command) -> str | None:
    """The variable that takes the output of a command inside `$( )`."""
    if not any(b.kind == "substitution" for b in command.blocks):
        return None
    for outer in script.tree.commands:
        for assignment in outer.assignments:
            words = [assignment.value] if assignment.value is not None else list(assignment.items or ())
            if any(_holds(w, command) for w in words):
                return assignment.name
        if any(_holds(w, command) for w in outer.words) and any(
            "--master" in w.source or "rdzv" in w.source for w in outer.words
        ):
            return "the master address"
    return None


def _holds(word: Word, command: Command) -> bool:
    return bool(command.words) and word.start <= command.words[0].start < word.end


def _random_port(document: Document, project: Project) -> Iterator[Hit]:
    seen: set[int] = set()
    for script in document.scripts:
        # Outside of a scheduler a random port is the best there is.
        if not script.is_batch and "SLURM" not in script.text and not any(script.calls("srun")):
            continue
        for command in script.commands:
            for assignment in command.assignments:
                if (
                    _PORT.search(assignment.name)
                    and assignment.value is not None
                    and _RANDOM.search(assignment.value.source)
                ):
                    seen.add(assignment.line)
            words = list(words_of(command))
            for option, value in pairwise(words):
                if (
                    _PORT.search(option.literal or "")
                    and (option.literal or "").startswith("-")
                    and _RANDOM.search(value.source)
                ):
                    seen.add(value.line)
    for line in sorted(seen):
        yield Hit(
            line,
            "A random port may be taken, by another job or the system, and then the job fails at start-up.",
            "Derive it from the job: $((20000 + SLURM_JOB_ID % 12000)).",
        )


def _random_per_node(document: Document, project: Project) -> Iterator[Hit]:
    """`$RANDOM` that each node works out for itself: inside single quotes behind srun."""
    for script in document.scripts:
        for command in script.calls("srun"):
            for word in command.words:
                for part in word.parts:
                    if (
                        part.kind == "text"
                        and part.quote in ("'", "\\")
                        and re.search(
                            r"(?:rdzv[-_]id|master_port|rdzv[-_]endpoint)\S*[= ]\S*\$\{?RANDOM", part.text
                        )
                    ):
                        yield Hit(
                            part.line,
                            "Each node works out its own $RANDOM here, so they never meet.",
                            "Work it out once before srun, or use $SLURM_JOB_ID.",
                        )
                        return


def _unmounted(document: Document, project: Project) -> Iterator[Hit]:
    """Paths that the program in a container is given although no mount holds them."""
    for script in document.scripts:
        mounts = _mounts(script)
        if not mounts:
            continue
        for flag in document.flags.all if script is document.script else ():
            if flag.name not in (
                "data-path",
                "vocab-file",
                "merge-file",
                "tokenizer-model",
                "deepspeed-config",
                "load",
                "save",
            ):
                continue
            for word in flag.values[:1]:
                path = script.values.text(word)
                if path is not None and path.startswith("/") and not _inside(path, mounts):
                    yield Hit(
                        flag.line,
                        f"{flag.spelled} {path} is outside the container's mounts ({', '.join(sorted(mounts))}).",
                        f"Mount it: --container-mounts={path.rsplit('/', 1)[0]}.",
                    )
                    return
                source = script.values.expand(word)
                if re.match(r"\$\{(?:PWD|SLURM_SUBMIT_DIR)\}|\$\(pwd\)", source) and not _mounts_here(script):
                    yield Hit(
                        flag.line,
                        f"{flag.spelled} {source} is in the folder the job was submitted from, which the "
                        "container does "
                        f"not see unless it is under {', '.join(sorted(mounts))}.",
                        "Mount $PWD too.",
                    )
                    return


def _mounts(script: Script) -> set[str]:
    """Folders that --container-mounts makes visible, when all of them are fixed."""
    found: set[str] = set()
    for text in _mount_texts(script):
        for piece in text.split(","):
            place = piece.split(":")[1 if ":" in piece else 0]
            if not place.startswith("/"):
                return set()
            found.add(place.rstrip("/") or "/")
    return found


def _mount_texts(script: Script) -> Iterator[str]:
    for command in script.commands:
        words = list(words_of(command))
        for i, word in enumerate(words):
            if (word.literal or "").startswith("--container-mounts="):
                yield (word.literal or "").partition("=")[2]
            elif "--container-mounts=" in word.source:
                yield script.values.expand(word).split("--container-mounts=", 1)[1].split()[0].strip("\"'")
            elif word.literal == "--container-mounts" and i + 1 < len(words):
                yield script.values.expand(words[i + 1])


def _mounts_here(script: Script) -> bool:
    return (
        any(re.search(r"PWD|pwd|SUBMIT_DIR", t) for t in _mount_texts(script))
        or "--container-workdir" in script.text
    )


def _inside(path: str, mounts: set[str]) -> bool:
    built_in = ("/opt/", "/usr/", "/workspace", "/tmp", "/root", "/dev/", "/app")
    return path.startswith(built_in) or any(path == m or path.startswith(m.rstrip("/") + "/") for m in mounts)


RULES = (
    Rule(
        "host-address", "warning", (SHELL,), _address,
        "Other nodes wait for an address that is not the first one's.",
        "Use the first name of scontrol show hostnames.",
        "hostname manual: -i resolves the name, -I lists all addresses",
    ),
    Rule(
        "random-port", "info", (SHELL,), _random_port,
        "A start that fails by chance.", "Derive the port from the job's number.",
        "awsome-distributed-training reviews",
    ),
    Rule(
        "random-per-node", "error", (SHELL,), _random_per_node,
        "Every node waits in a rendezvous of its own.", "Use one value for all.", "torchrun documentation: rdzv_id",
    ),
    Rule(
        "outside-mounts", "warning", (SHELL,), _unmounted,
        "The file is not there inside the container.", "Mount it.", "pyxis documentation, --container-mounts",
    ),
)  # fmt: skip
