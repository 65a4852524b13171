"""Owns jobs: prepare, submit once, follow their state, cancel, and where their logs are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpt_tune.jobs.control import hold, release, requeue, signal
from gpt_tune.jobs.finding import cancel, find
from gpt_tune.jobs.logs import resolved_log_paths
from gpt_tune.jobs.polling import refresh_interval
from gpt_tune.jobs.present import jobs_json, reason_text, run_json, stale_seconds, submit_json
from gpt_tune.jobs.reasons import PendingReason, explain
from gpt_tune.jobs.refreshing import refresh
from gpt_tune.ledger import RunRecord

if TYPE_CHECKING:
    from gpt_tune.jobs.preparing import new_run_id, prepare
    from gpt_tune.jobs.submitting import submit

# Making a job needs the recipes and the planner (NumPy, Jinja: most of the import's time), which looking at
# jobs and cancelling them does not: these come at their first use.
_LATER = {
    "new_run_id": "gpt_tune.jobs.preparing",
    "prepare": "gpt_tune.jobs.preparing",
    "submit": "gpt_tune.jobs.submitting",
}

__all__ = [
    "PendingReason",
    "RunRecord",
    "cancel",
    "explain",
    "find",
    "hold",
    "jobs_json",
    "new_run_id",
    "prepare",
    "reason_text",
    "refresh",
    "refresh_interval",
    "release",
    "requeue",
    "resolved_log_paths",
    "run_json",
    "signal",
    "stale_seconds",
    "submit",
    "submit_json",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value
