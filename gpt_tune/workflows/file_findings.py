"""Owns what lint says about the files of a job that are not written yet."""

from __future__ import annotations

from pathlib import Path

from gpt_tune.lint.finding import Finding
from gpt_tune.lint.kinds import kind_of
from gpt_tune.lint.report import check
from gpt_tune.lint.walk import Source
from gpt_tune.recipes.base import JobSpec, Rendered


def findings(spec: JobSpec, rendered: Rendered) -> tuple[Finding, ...]:
    """Lint's findings in a job's files, in the order of files and lines; `file` is the path in the run folder."""
    found: list[Source] = []
    for file in rendered.files:
        if b"\0" in file.content:
            continue
        text = file.content.decode("utf-8", "surrogateescape")
        path = Path(spec.run_dir) / file.path
        kind = kind_of(path, text, named=False)
        if kind is not None:
            found.append(Source(path, file.path, kind, text))
    return tuple(check(found))


def words(found: tuple[Finding, ...]) -> str:
    """How many of each severity: `1 error, 2 warnings`, or "nothing found"."""
    counts = {s: sum(f.severity == s for f in found) for s in ("error", "warning", "info")}
    said = [
        f"{count} {severity if severity == 'info' or count == 1 else severity + 's'}"
        for severity, count in counts.items()
        if count
    ]
    return ", ".join(said) or "nothing found"
