"""Owns which files of a folder are logs, where a folder is named instead of them: one file a rank, one a node."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gpt_tune.errors import UserError

MAX_DEPTH = 4  # torchrun: RUN/attempt_0/3/stdout.log
MAX_FOLDERS = 2000  # more is no job's
MAX_FILES = 20_000

_LOG = re.compile(
    r"(?:^|[._-])(?:log|out|err|stdout|stderr)(?:[._-]?\d{1,9})?(?:\.gz)?$"
    r"|^(?:.{0,80}(?:log|out|rank|stdout|stderr|train).{0,80})\.txt(?:\.gz)?$",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"(\d+)")


def logs_in(folder: str | Path) -> list[str]:
    """The log files in a folder and the folders in it, ranks in order. UserError when there are none, or far too
    many to be one job's.
    """
    found: list[str] = []
    for folders, (path, names, files) in enumerate(os.walk(folder)):  # what may not be read is passed over
        names[:] = sorted(n for n in names if not n.startswith("."))
        if len(Path(path).relative_to(folder).parts) >= MAX_DEPTH:
            names.clear()
        found += [f"{path.rstrip('/')}/{name}" for name in files if _LOG.search(name)]
        if folders >= MAX_FOLDERS or len(found) > MAX_FILES:
            raise UserError(
                f"{folder} is a folder with more than {MAX_FOLDERS:,} folders or {MAX_FILES:,} logs.",
                "Name the folder of one job, or its log files.",
            )
    logs = [path for path in found if Path(path).is_file()]
    if not logs:
        raise UserError(
            f"{folder} is a folder without log files.",
            "Name the log files in it; taken are names like *.log, *.out, *.err, stdout and log.3.",
        )
    return sorted(logs, key=_natural)


def _natural(path: str) -> list[tuple[int, str]]:
    """Numbers by their size: rank 10 comes after rank 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(path)]
