"""Owns the file name patterns of `#SBATCH --output`: `%j %A %a %x %N %u %t %n %%` and the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NO_ARRAY = "4294967294"  # what Slurm puts for %a outside an array
_SPECIFIER = re.compile(r"%(\d*)([a-zA-Z%])")


def values(
    job_id: str,
    *,
    name: str = "",
    user: str = "",
    host: str | None = None,
    node: str | None = "0",
    task: str | None = "0",
) -> dict[str, str | None]:
    """What each letter stands for; None for a value not known yet (or different in each task)."""
    base, _, task_id = job_id.partition("_")
    array = task_id or _NO_ARRAY
    return {
        "j": job_id.replace("_", "-") if not task_id else None,  # a task of an array has a job id of its own
        "A": base,
        "a": array,
        "b": str(int(array) % 10) if array.isdigit() else None,
        "J": base if not task_id else None,
        "x": name,
        "u": user,
        "N": host,
        "n": node,
        "t": task,
        "s": "batch",
    }


def expand(pattern: str, known: Mapping[str, str | None], unknown: str = "*") -> str:
    """`pattern` with what is known filled in; unknown values become `unknown` (a wildcard).

    A number pads numeric values with zeros (`%4t`). A letter that Slurm does not know stays. A backslash in
    the pattern switches all of it off, as in Slurm.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def value(match: re.Match[str]) -> str:
        width, letter = match.groups()
        if letter == "%":
            return "%"
        if letter not in known:
            return match.group()
        text = known[letter]
        if text is None:
            return unknown
        return text.zfill(min(int(width), 10)) if width and text.isdigit() else text

    return _SPECIFIER.sub(value, pattern)
