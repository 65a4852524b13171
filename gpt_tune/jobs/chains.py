"""Owns how the ledger says that a run is a chain of jobs: in its tags."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpt_tune.ledger import RunRecord

# EDIT HERE to word one more reason for a chain's end.
REASONS = {
    "done": "the training is complete",
    "no-progress": "the last job left no new checkpoint, so another one would get no further",
    "max-jobs": "it has used all its jobs",
    "stopped": "it was cancelled",
    "incurable": "its log says what another job would run into again",
}
_TAG, _OVER = "chain=", "chain-over="
# iter_0000100, global_step100, checkpoint-100, step-100.npz
_CHECKPOINT = re.compile(r"[A-Za-z_]+[-_]?0*(\d+)(\.[A-Za-z0-9]+)?")


@dataclass(frozen=True, slots=True)
class Chain:
    """jobs: so far. over: why it ended, "" while it goes on."""

    jobs: int
    max_jobs: int
    over: str = ""


def tag(max_jobs: int) -> str:
    """The tag of a run that may take that many jobs."""
    return f"{_TAG}{max_jobs}"


def with_end(tags: tuple[str, ...], reason: str) -> tuple[str, ...]:
    """The tags of a chain that has ended."""
    return (*(t for t in tags if not t.startswith(_OVER)), f"{_OVER}{reason}")


def chain_of(record: RunRecord) -> Chain | None:
    """What kind of chain a run is, None when it is a single job."""
    most = next((t.removeprefix(_TAG) for t in record.tags if t.startswith(_TAG)), "")
    if not most.isdigit():
        return None
    over = next((t.removeprefix(_OVER) for t in record.tags if t.startswith(_OVER)), "")
    return Chain(len(record.job_ids), int(most), over)


def words(chain: Chain) -> str:
    """A chain's standing in words."""
    if chain.over:
        return (
            f"{chain.jobs} of at most {chain.max_jobs} jobs; it ended: {REASONS.get(chain.over, chain.over)}"
        )
    return f"job {chain.jobs} of at most {chain.max_jobs}"


def to_json(record: RunRecord) -> dict[str, object] | None:
    """The `chain` key of a run's JSON; None for a single job. over: a key of REASONS, or None."""
    chain = chain_of(record)
    if chain is None:
        return None
    return {"jobs": chain.jobs, "max_jobs": chain.max_jobs, "over": chain.over or None, "text": words(chain)}


def iteration_of(name: str) -> int | None:
    """The iteration in a checkpoint's name, None when it is no checkpoint."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match.group(1)) if match else None
