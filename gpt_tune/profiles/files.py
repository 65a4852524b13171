"""Owns writing the user's small files so that they are private and never half written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from gpt_tune.errors import UserError


def write_private(path: Path, text: str) -> Path:
    """Write a file of mode 0600 in a folder of mode 0700, atomically: readers see the old text or the new."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:  # mkstemp makes it 0600
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)  # there is none once it has taken the file's place
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"Cannot write {path}: {reason}.", "Check the folder's permissions and free space."
        ) from error
    return path
