"""Owns rules about the names of environment variables: misspelt, replaced, never exported."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from gpt_tune.errors import nearest
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Edit, Hit, Rule
from gpt_tune.lint.kinds import DOCKER, MAKE, MARKDOWN, SHELL
from gpt_tune.lint.project import Project
from gpt_tune.lint.shell.settings import Setting
from gpt_tune.lint.tables import Library, libraries, renamed

_WHERE = (SHELL, DOCKER, MAKE, MARKDOWN)
# As close as a slip of the pen: NCCL_BUFFERSIZE and NCCL_BUFFSIZE are 0.93 alike.
_ALIKE = 0.84
# Providers whose whole set of variables is known; other FI_ names may be anybody's.
_PROVIDERS = ("FI_EFA_", "FI_CXI_", "FI_OPX_", "FI_PSM3_", "FI_VERBS_", "FI_TCP_", "FI_UCX_", "FI_SHM_")
_WELL_KNOWN = (
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING", "OMP_NUM_THREADS", "MASTER_ADDR", "MASTER_PORT", "LD_LIBRARY_PATH", "PYTHONPATH",
    "TOKENIZERS_PARALLELISM", "TORCH_CUDA_ARCH_LIST", "TORCH_DISTRIBUTED_DEBUG", "PYTHONUNBUFFERED",
    "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE",
)  # fmt: skip


def _own_use(document: Document, name: str) -> bool:
    """Whether the file itself does something with the variable."""
    return name in document.used_names or any(name in image for image, _ in document.dockerfile.bases)


def _library_of(name: str) -> Library | None:
    return next((x for x in libraries() if name.startswith(x.prefix)), None)


def _passed_on(document: Document) -> Iterator[Setting]:
    """Settings that reach another program; each name once a line."""
    seen: set[tuple[str, int]] = set()
    for setting in document.settings:
        if setting.exported and (setting.name, setting.line) not in seen:
            seen.add((setting.name, setting.line))
            yield setting


def _unknown(document: Document, project: Project) -> Iterator[Hit]:
    for setting in _passed_on(document):
        library = _library_of(setting.name)
        if library is None or library.knows(setting.name) or setting.name in renamed():
            continue
        close = nearest(setting.name, library.names, 0.8)
        alike = difflib.SequenceMatcher(None, setting.name, close or "").ratio() if close else 0.0
        if library.prefix == "FI_" and alike < _ALIKE and not setting.name.startswith(_PROVIDERS):
            continue
        if alike < _ALIKE and _own_use(document, setting.name):
            continue
        message = f"{library.words} reads no variable {setting.name}, so setting it has no effect."
        if close and alike >= _ALIKE:
            yield Hit(setting.line, message, f"Write {close}, or remove it.")
        else:
            hint = f" The nearest it reads is {close}." if close else ""
            message = (
                f"{library.words} reads no variable {setting.name}; unless a plugin does, it has no effect."
            )
            yield Hit(setting.line, message, f"Remove it.{hint}", "info")


def _misspelt(document: Document, project: Project) -> Iterator[Hit]:
    for setting in _passed_on(document):
        name = setting.name
        if name in _WELL_KNOWN or len(name) < 10:
            continue
        close = nearest(name, _WELL_KNOWN, 0.9)
        if close is None or close in name or name in close or _own_use(document, name):
            continue
        yield Hit(setting.line, f"{name} looks like {close} misspelt; nothing reads it.", f"Write {close}.")


def _replaced(document: Document, project: Project) -> Iterator[Hit]:
    for setting in _passed_on(document):
        entry = renamed().get(setting.name)
        if entry is None:
            continue
        both = any(s.name == entry.new for s in document.settings)
        if entry.works and both:
            continue
        state = "still works, with a warning" if entry.works else "has no effect"
        message = f"{entry.old} is the old name of {entry.new} ({entry.since}) and {state}."
        edits: tuple[Edit, ...] = ()
        end = setting.start + len(entry.old)
        plain = document.text[setting.start : end] == entry.old and setting.how in (
            "export",
            "assign",
            "prefix",
        )
        if entry.safe and entry.works and plain and not _own_use(document, entry.old):
            edits = (Edit(setting.start, end, entry.new),)
        if not entry.works and not entry.safe:
            message = f"{entry.old} is read no more ({entry.since}), so setting it has no effect."
        severity = "error" if not entry.works and entry.safe else None
        yield Hit(setting.line, message, f"Use {entry.new}.", "error" if severity else None, edits)


def _not_exported(document: Document, project: Project) -> Iterator[Hit]:
    for script in document.scripts:
        named = {w.literal for c in script.commands for w in c.words}
        for setting in script.settings:
            if setting.how not in ("assign", "default") or setting.exported or setting.name in named:
                continue
            library = _library_of(setting.name)
            known = (library is not None and setting.name in library.names) or setting.name in (
                "CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM",
                "CUDA_VISIBLE_DEVICES",
            )  # fmt: skip
            if not known or _own_use(document, setting.name) or document.kind == MAKE:
                continue
            yield Hit(
                setting.line,
                f"{setting.name} is set but never exported: programs that the script starts do not see it.",
                f"Write export {setting.name}=...",
            )


RULES = (
    Rule(
        "unknown-variable", "error", _WHERE, _unknown,
        "A library ignores variables it does not know, so a measured effect of one is noise.",
        "Correct the name, or remove the line.",
        "variable lists in profiles/lint: NCCL, libfabric, aws-ofi-nccl and PyTorch sources",
    ),
    Rule(
        "misspelt-variable", "error", _WHERE, _misspelt,
        "Nothing reads a misspelt variable.", "Correct the name.", "PyTorch, CUDA and Hugging Face documentation",
    ),
    Rule(
        "old-variable", "warning", _WHERE, _replaced,
        "Old names stop working one day, and some never worked.", "Use the new name.",
        "profiles/lint/renamed.toml, each with its source",
    ),
    Rule(
        "not-exported", "warning", (SHELL,), _not_exported,
        "A shell variable that is not exported stays in the shell.", "Export it.", "POSIX shell, export",
    ),
)  # fmt: skip
