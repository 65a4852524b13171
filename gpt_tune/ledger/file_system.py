"""Owns what can be wrong with the ledger's file and where it lies, in words."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

from gpt_tune.errors import UserError

_NETWORK = (
    "nfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "cifs",
    "smb",
    "afs",
    "fuse.sshfs",
    "9p",
    "panfs",
    "wekafs",
)

_LEAST_BYTES = 64 * 1024  # SQLite's shared memory grows by 32 KiB, and its log by a page

# SQLite's words to ours, first match wins: (part of its message, sentence, hint).
_WORDS = (
    ("disk is full", "The disk that holds the ledger {path} is full.", "Free some space and try again."),
    ("readonly", "The ledger {path} may not be written to.", "Make it yours: chmod u+w, or set XDG_STATE_HOME."),
    ("unable to open", "The ledger {path} cannot be opened.", "Check that its folder exists and is yours."),
    (
        "locking protocol",
        "The file system of the ledger {path} does not support file locks.",
        "Set XDG_STATE_HOME to a folder on a local disk.",
    ),
    (
        "is locked",
        "Another process has kept the ledger {path} locked for 10 s.",
        "Close the other gpt-tune; on a network file system set XDG_STATE_HOME to a folder on a local disk.",
    ),
    (
        "not a database",
        "The ledger {path} is damaged.",
        "Move it away (mv {path} {path}.damaged): jobs go on, and run folders keep their files.",
    ),
    (
        "malformed",
        "The ledger {path} is damaged.",
        "Move it away (mv {path} {path}.damaged): jobs go on, and run folders keep their files.",
    ),
    (
        "disk i/o error",
        "The disk that holds the ledger {path} does not read or write properly.",
        "On a network file system without locks set XDG_STATE_HOME to a folder on a local disk.",
    ),
)  # fmt: skip


def error_for(error: sqlite3.Error | OSError, path: Path) -> UserError:
    """What went wrong with the ledger, as the user should read it."""
    text = str(error).lower()
    no_space = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    # SQLite calls it an I/O error when there is no room for its shared memory.
    if no_space or ("disk i/o error" in text and _is_full(path.parent)):
        text = "disk is full"
    for part, sentence, hint in _WORDS:
        if part in text:
            return UserError(sentence.format(path=path), hint.format(path=path))
    if isinstance(error, OSError):
        return UserError(
            f"Cannot use the ledger {path}: {error.strerror}.", "Set XDG_STATE_HOME to another folder."
        )
    return UserError(
        f"The ledger {path} failed: {error}.", "Set XDG_STATE_HOME to another folder, or report it."
    )


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _LEAST_BYTES
    except OSError:
        return False


def is_network(path: Path, mounts: str | None = None) -> bool:
    """Whether a path lies on a network file system, from the text of /proc/mounts."""
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text()
        except OSError:
            return False
    target = str(path.absolute())
    best, kind = -1, ""
    for line in mounts.splitlines():
        words = line.split(" ")
        if len(words) < 3:
            continue
        point = words[1].replace("\\040", " ").rstrip("/")
        # Of several mounts on one point the last is the visible one.
        if (target == point or target.startswith(point + "/")) and len(point) >= best:
            best, kind = len(point), words[2]
    return kind.startswith(_NETWORK)
