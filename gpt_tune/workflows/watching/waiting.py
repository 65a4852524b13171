"""Owns saying what a run without a step waits for, and how long that may take."""

from __future__ import annotations

from gpt_tune.schedulers.base import ENDED
from gpt_tune.words import seconds_words
from gpt_tune.workflows.watching.hang import silence_limit
from gpt_tune.workflows.watching.pace import Prediction

# Seconds until a file written on a compute node is seen here (NFS and Lustre cache attributes for 3 to 60 s).
SLOW_FILES_SECONDS = 60.0


def waiting_words(
    state: str,
    *,
    reason: str = "",
    starts_in: float | None = None,
    running: float | None = None,
    log_exists: bool = True,
    history: float = 1.0,
    prediction: Prediction | None = None,
    over: bool = False,
) -> str:
    """One or two sentences. reason: why it waits in the queue, in words. starts_in, running: seconds from now to its
    expected start, and since its start, where known."""
    if over or state in ENDED:
        return "No steps in this log."
    if history < 1.0:
        return f"Reading the log's past: {history:.0%} of it so far."
    if state in ("PENDING", "SUSPENDED"):
        why = f" {reason[0].upper()}{reason[1:].rstrip('.')}." if reason else ""
        when = (
            f" Expected to start in about {seconds_words(starts_in)}." if starts_in and starts_in > 0 else ""
        )
        return f"Waiting for the job to start.{why}{when}"
    since = f" It has been running for {seconds_words(running)}." if running is not None else ""
    if not log_exists:
        return (
            f"Waiting for the log file.{since} A shared file system shows it up to "
            f"{SLOW_FILES_SECONDS:.0f} s after the job writes it."
        )
    limit = silence_limit(None)
    step = prediction.step_time_ms if prediction is not None else None
    then = f" A step should take {seconds_words(step / 1000)}." if step else ""
    return (
        f"Waiting for the first step.{since} Loading code and data, connecting the GPUs and compiling come first: "
        f"1 to {limit / 60:.0f} min.{then}"
    )
