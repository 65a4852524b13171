"""Owns what the linted files say about each other: which README describes a script, who submits it, which network.

Everything is looked up by folder and by name, so that a tree of thousands of files costs no more per file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpt_tune.lint import kinds
from gpt_tune.lint.documents import Document
from gpt_tune.lint.shell.script import Script
from gpt_tune.lint.shell.tree import Command
from gpt_tune.lint.walk import context, readme_beside

_EFA = re.compile(
    r"FI_PROVIDER\s*=\s*[\"']?efa|\bFI_EFA_[A-Z]|/opt/amazon/(?:efa|ofi-nccl|aws-ofi-nccl)|aws-efa-installer|"
    r"EFA_INSTALLER|aws-ofi-nccl|\bp[456][a-z0-9-]*\.\d+xlarge|vpc\.amazonaws\.com/efa|\bEFA[- ](?:based|enabled)",
    re.IGNORECASE,
)
_ACS = re.compile(
    r"training-nv-pytorch|egslingjun|alibabacloud\.com/compute-class|gpu-hpn\b|CHECKPOINT_OPTIMIZATION|\bljperf\b",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"[\w.${}()/~-]*?([\w.-]+)(?=[\s\"',;)]|$)")
_README_LEVELS = 4


@dataclass(frozen=True, slots=True)
class Submission:
    """A command that submits or runs a script. text: its words after expansion."""

    source: Document
    script: Script
    command: Command
    text: str

    @property
    def is_sbatch(self) -> bool:
        return self.command.name == "sbatch" or _built_in(self.command) is not None


class Project:
    """The files of one lint run."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = list(documents)
        self._add_readmes()
        # What rules work out about the whole project, kept by what they call it.
        self.memo: dict[object, Any] = {}
        self._near: dict[tuple[Path, tuple[str, ...]], list[Document]] = {}
        self._said: dict[tuple[int, str], bool] = {}

    def _add_readmes(self) -> None:
        """Read the READMEs that name a script which was asked for."""
        known = {d.path.resolve() for d in self.documents}
        for document in list(self.documents):
            if document.kind not in (kinds.SHELL, kinds.DOCKER):
                continue
            for path in readme_beside(document.path):
                if path.resolve() in known:
                    continue
                source = context(path)
                if source is not None and document.name in source.text:
                    known.add(path.resolve())
                    self.documents.append(Document(source, asked=False))

    @cached_property
    def _by_kind(self) -> dict[str, list[Document]]:
        table: dict[str, list[Document]] = {}
        for document in self.documents:
            table.setdefault(document.kind, []).append(document)
        return table

    def of_kind(self, *wanted: str) -> list[Document]:
        return [d for kind in wanted for d in self._by_kind.get(kind, [])]

    # -- by folder -------------------------------------------------------------------------------------------

    @cached_property
    def _by_folder(self) -> dict[Path, list[Document]]:
        table: dict[Path, list[Document]] = {}
        for document in self.documents:
            table.setdefault(document.folder, []).append(document)
        return table

    @cached_property
    def _below(self) -> dict[Path, list[Path]]:
        """Folders with documents, by each folder one or two levels above them."""
        table: dict[Path, list[Path]] = {}
        for folder in self._by_folder:
            for above in list(folder.parents)[:2]:
                table.setdefault(above, []).append(folder)
        return table

    def near(self, document: Document, *wanted: str) -> list[Document]:
        """Documents of a kind that belong to the same case, nearest first.

        Those in its folder, in the two above it, in folders up to two levels below it, and in its sister folders.
        """
        key = (document.folder, wanted)
        if key not in self._near:
            own = document.folder
            folders = [own, *list(own.parents)[:2], *self._below.get(own, [])]
            folders += [f for f in self._below.get(own.parent, []) if f.parent == own.parent]
            found = [d for f in dict.fromkeys(folders) for d in self._by_folder.get(f, [])]
            self._near[key] = [d for d in found if d.kind in wanted]
        return self._near[key]

    # -- who describes what ----------------------------------------------------------------------------------

    def readmes_of(self, document: Document) -> list[Document]:
        """READMEs in a script's folder or above it that name it, nearest first; alone with it needs no name."""
        found: list[Document] = []
        for folder in (document.folder, *list(document.folder.parents)[:_README_LEVELS]):
            for readme in self._by_folder.get(folder, []):
                if readme.kind != kinds.MARKDOWN:
                    continue
                scripts = [d for d in self._by_folder.get(folder, []) if d.kind == kinds.SHELL]
                alone = folder == document.folder and len(scripts) == 1
                if alone or document.name in readme.text:
                    found.append(readme)
        return found

    @cached_property
    def _described(self) -> dict[int, list[Document]]:
        table: dict[int, list[Document]] = {}
        for document in self.of_kind(kinds.SHELL):
            for readme in self.readmes_of(document):
                table.setdefault(id(readme), []).append(document)
        return table

    def described_by(self, readme: Document) -> list[Document]:
        """Shell scripts that a README describes."""
        return self._described.get(id(readme), [])

    # -- who submits what ------------------------------------------------------------------------------------

    @cached_property
    def submissions(self) -> list[Submission]:
        """Every command that submits or runs a script."""
        found: list[Submission] = []
        for document in self.documents:
            for script in document.scripts:
                for command in script.commands:
                    if command.name in ("sbatch", "bash", "sh", "srun"):
                        text = " ".join(script.values.expand(w) for w in command.words)
                        found.append(Submission(document, script, command, text))
                    elif (name := _built_in(command)) is not None:
                        found.append(Submission(document, script, command, _whole_text(script, name)))
                    elif command.words and "/" in command.words[0].source:
                        text = script.values.expand(command.words[0])
                        found.append(Submission(document, script, command, text))
        return found

    @cached_property
    def _by_target(self) -> dict[str, list[tuple[Submission, str]]]:
        """Submissions by the file names in them, each with the path as written."""
        table: dict[str, list[tuple[Submission, str]]] = {}
        for submission in self.submissions:
            for match in _FILE_NAME.finditer(submission.text):
                if "." in match.group(1) or "/" in match.group():
                    table.setdefault(match.group(1), []).append((submission, match.group()))
        return table

    def submissions_of(self, document: Document) -> Iterator[Submission]:
        """Commands of other files that submit or run this script."""
        seen: set[int] = set()
        for submission, written in self._by_target.get(document.name, []):
            if submission.source is document or id(submission) in seen:
                continue
            if _leads_to(written, submission.source, document):
                seen.add(id(submission))
                yield submission

    # -- where it runs ---------------------------------------------------------------------------------------

    def on_efa(self, document: Document) -> bool:
        """Whether this file is for a cluster with AWS's network: it or what belongs to it says so."""
        return self._says(document, _EFA)

    def on_acs(self, document: Document) -> bool:
        """Whether this file is for Alibaba's training image."""
        return self._says(document, _ACS)

    def _says(self, document: Document, pattern: re.Pattern[str]) -> bool:
        near = self.near(document, kinds.SHELL, kinds.DOCKER, kinds.MARKDOWN, kinds.MAKE)
        return any(self._says_itself(d, pattern) for d in (document, *near))

    def _says_itself(self, document: Document, pattern: re.Pattern[str]) -> bool:
        key = (id(document), pattern.pattern)
        if key not in self._said:
            self._said[key] = bool(pattern.search(document.text))
        return self._said[key]


def _built_in(command: Command) -> str | None:
    """The variable in which a command line for sbatch is put together: `cmd="sbatch ..."`, `cmd=(sbatch ...)`."""
    for assignment in command.assignments:
        first = assignment.value if assignment.value is not None else next(iter(assignment.items or ()), None)
        if first is not None and re.match(r"\s*sbatch\b", first.source.strip("\"'")):
            return assignment.name
    return None


def _whole_text(script: Script, name: str) -> str:
    """Everything that is ever put into a variable."""
    words = [
        w for s in script.values.by_name.get(name, []) for w in (s.items or ([s.word] if s.word else []))
    ]
    return " ".join(script.values.expand(w) for w in words)


def _leads_to(written: str, source: Document, target: Document) -> bool:
    """Whether a path in one file means another file: its fixed end fits, and the two belong together."""
    tail = re.split(r"[})]/?", written)[-1].lstrip("./~")
    if "/" in tail and not str(target.path.resolve()).endswith(f"/{tail}"):
        return False
    a, b = source.folder, target.folder
    return a in (b, *b.parents) or b in a.parents or a.parent == b.parent or a.parent.parent == b.parent
