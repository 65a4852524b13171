"""Owns finding and reading the files that lint looks at: nothing hidden, generated, huge or binary."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpt_tune import errors
from gpt_tune.errors import UserError
from gpt_tune.lint.kinds import kind_of

# A job script of more than this is data, not a script.
LARGEST_BYTES = 1024 * 1024
_SKIPPED_FOLDERS = frozenset(
    {"node_modules", "__pycache__", "venv", "site-packages", "third_party", "wandb", "checkpoints"}
)


@dataclass(frozen=True, slots=True)
class Source:
    """One file's text. shown: as the user named it. newline-exact; bytes that are no UTF-8 survive a round trip."""

    path: Path
    shown: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not read, and why."""

    path: str
    reason: str


def sources(paths: list[str]) -> tuple[list[Source], list[Skipped]]:
    """Every file behind the paths. UserError for a path that is no file or folder."""
    found: dict[Path, Source] = {}
    skipped: list[Skipped] = []
    for given in paths:
        errors.check_given(given, "the file or folder")
        path = Path(given)
        mode = _mode(path, given)
        if stat.S_ISDIR(mode):
            candidates = [(p, str(Path(given) / p.relative_to(path))) for p in _walk(path)]
            named = False
        elif stat.S_ISREG(mode):
            candidates, named = [(path, given)], True
        else:
            raise UserError(f"{given} is neither a file nor a folder.", "Give a script, or a folder of them.")
        for candidate, shown in candidates:
            taken = _read(candidate, shown, named)
            if isinstance(taken, Source):
                found.setdefault(candidate.resolve(), taken)
            elif named or taken.reason not in ("not a kind of file that lint reads", "binary"):
                skipped.append(taken)
    return list(found.values()), skipped


def _mode(path: Path, given: str) -> int:
    try:
        return path.stat().st_mode
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or error
        reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {words}"
        raise UserError(f"{errors.shown(given)} {reason}.", "Give a script, or a folder of them.") from error


def _walk(folder: Path) -> Iterator[Path]:
    """Files under a folder in a fixed order, without following links to folders."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            yield Path(root) / name


def _read(path: Path, shown: str, named: bool) -> Source | Skipped:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return Skipped(shown, "not a regular file")
        if not named and not _may_matter(path):
            return Skipped(shown, "not a kind of file that lint reads")
        if status.st_size > LARGEST_BYTES:
            return Skipped(shown, f"{status.st_size} bytes is more than the {LARGEST_BYTES} that lint reads")
        data = path.read_bytes()
    except OSError as error:
        if named:
            raise UserError(f"Cannot read {shown}: {error.strerror}.", "Check its permissions.") from error
        return Skipped(shown, f"cannot be read: {error.strerror}")
    if b"\0" in data:
        return Skipped(shown, "binary")
    text = data.decode("utf-8", "surrogateescape")
    kind = kind_of(path, text, named)
    if kind is None:
        return Skipped(shown, "not a kind of file that lint reads")
    return Source(path, shown, kind, text)


_OTHER_SUFFIXES = frozenset(
    {
        ".c",
        ".cc",
        ".cpp",
        ".cu",
        ".h",
        ".hpp",
        ".rs",
        ".go",
        ".js",
        ".ts",
        ".html",
        ".css",
        ".svg",
        ".png",
        ".jpg",
    }
    | {
        ".jpeg",
        ".gif",
        ".pdf",
        ".zip",
        ".gz",
        ".tar",
        ".whl",
        ".so",
        ".o",
        ".a",
        ".bin",
        ".idx",
        ".pt",
        ".pth",
    }
    | {
        ".safetensors",
        ".npz",
        ".npy",
        ".ipynb",
        ".yaml",
        ".yml",
        ".toml",
        ".cfg",
        ".ini",
        ".lock",
        ".csv",
        ".log",
    }
    | {".out", ".err", ".sqsh", ".parquet", ".rst", ".tf", ".xml"}
)


def _may_matter(path: Path) -> bool:
    """Whether a file found in a folder is worth opening."""
    return path.suffix.lower() not in _OTHER_SUFFIXES


def readme_beside(path: Path) -> Iterator[Path]:
    """READMEs in the folder of a script and the two above it, never above a repository's root."""
    folder = path.resolve().parent
    for _ in range(3):
        for name in ("README.md", "readme.md", "Readme.md"):
            candidate = folder / name
            if candidate.is_file():
                yield candidate
                break
        if (folder / ".git").exists() or folder.parent == folder:
            return
        folder = folder.parent


def context(path: Path) -> Source | None:
    """A file that was not asked for but says something about one that was, or None when it cannot be read."""
    taken = _read(path, _relative(path), named=False)
    return taken if isinstance(taken, Source) else None


def _relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
