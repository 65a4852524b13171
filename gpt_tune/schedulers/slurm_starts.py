"""Owns asking Slurm when something could start: `sbatch --test-only` for a request, `squeue --start` for jobs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpt_tune.schedulers import refusals, slurm_words
from gpt_tune.schedulers.slurm_cli import SlurmCli

_SECONDS = 30.0
# sbatch: Job 4711 to start at 2026-11-30T09:00:00 using 8 processors on nodes n[1-2] in partition dev
_ANSWER = re.compile(
    r"to start at (?P<when>\S+)(?: a)?(?: using (?P<cpus>\d+) processors)?(?: on nodes? (?P<nodes>\S+))?"
    r"(?: in partition (?P<partition>\S+))?"
)


@dataclass(frozen=True, slots=True)
class Start:
    """When a request could start (RFC 3339), None when it cannot. refusal: Slurm's words then."""

    at: str | None
    nodes: str = ""
    refusal: str = ""


def test_only(scheduler: SlurmCli, options: Sequence[str]) -> Start:
    """When a job with these options could start now; nothing is submitted."""
    scheduler.calls += 1
    done = scheduler.commands.run(["sbatch", "--test-only", *options, "--wrap=true"], _SECONDS)
    return parse_test_only(done.words, done.returncode)


test_only.__test__ = False  # type: ignore[attr-defined]  # its name is sbatch's


def parse_test_only(words: str, code: int) -> Start:
    """What `sbatch --test-only` said (it says so on stderr, in local time or in seconds since the epoch)."""
    match = _ANSWER.search(words)
    if match is not None:
        return Start(slurm_words.stamp(match["when"]), match["nodes"] or "")
    if refusals.is_lost(words):
        raise refusals.unreachable(words)
    if code == 0:
        return Start(None, refusal="Slurm does not say")
    return Start(None, refusal=refusals.sentence(words))
