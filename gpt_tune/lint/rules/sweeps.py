"""Owns rules about sweeps: runs that cannot be compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.kinds import MAKE, SHELL
from gpt_tune.lint.project import Project
from gpt_tune.lint.sweep import Run, runs_from

_BATCH = re.compile(r"^(?:GBS|GLOBAL_BATCH(?:_SIZE)?|GLOBAL_BS)$")
_NOT_A_CHOICE = re.compile(r"NAME|LABEL|TAG|DIR|PATH|PORT|LOG|OUT|ID$")
_FEWEST = 4


def _confounded(document: Document, project: Project) -> Iterator[Hit]:
    for _, runs in runs_from(document, project):
        if len(runs) < _FEWEST:
            continue
        name = next((n for r in runs for n in r.given if _BATCH.match(n)), None)
        if name is None:
            continue
        usual = Counter(r.given.get(name) for r in runs).most_common(1)[0][0]
        baseline = next(r for r in runs if r.given.get(name) == usual)
        odd = [(r, _changed(r, baseline, name)) for r in runs if r.given.get(name) not in (usual, None)]
        odd = [(r, c) for r, c in odd if c]
        if not odd or len(odd) * 2 > len(runs):
            continue
        run, changed = odd[0]
        labels = ", ".join(r.label or f"line {r.line}" for r, _ in odd[:4])
        yield Hit(
            run.line,
            f"{labels} change {name} ({usual} to {run.given[name]}) together with {', '.join(changed)}: the difference "
            "cannot be put down to either.",
            f"Keep {name} at {usual}, or add runs that change only {name}.",
        )


def _changed(run: Run, baseline: Run, batch: str) -> list[str]:
    return [
        n for n, v in run.given.items()
        if n != batch and not _NOT_A_CHOICE.search(n) and n in baseline.given and baseline.given[n] != v
    ]  # fmt: skip


def _unnamed(document: Document, project: Project) -> Iterator[Hit]:
    """Several runs of one script whose jobs, and so whose logs, all have the same name."""
    for target, runs in runs_from(document, project):
        if not target.script.is_batch or len({tuple(sorted(r.given.items())) for r in runs}) < _FEWEST:
            continue
        if (
            re.search(r"--job-name|\s-J[ =\"']", document.text)
            or "CONFIG_NAME" in target.text.split("#SBATCH")[0]
        ):
            continue
        yield Hit(
            runs[0].line,
            f"{len(runs)} runs of {target.name} are submitted without --job-name: their logs differ only "
            "by job number.",
            "Submit each with --job-name=NAME.",
        )


RULES = (
    Rule(
        "sweep-confounded", "info", (SHELL, MAKE), _confounded, "Two causes, one effect.",
        "Change one thing at a time.",
        "awsome-distributed-training PR 1009",
    ),
    Rule(
        "sweep-unnamed", "info", (SHELL, MAKE), _unnamed, "Logs cannot be told apart, and parsers guess.",
        "Name each job.", "awsome-distributed-training PR 1009",
    ),
)  # fmt: skip
