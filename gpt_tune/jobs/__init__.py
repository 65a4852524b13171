"""Owns jobs: prepare, submit once, follow their state, cancel, and where their logs are."""

from gpt_tune.jobs.finding import cancel, find
from gpt_tune.jobs.logs import resolved_log_paths
from gpt_tune.jobs.polling import refresh_interval
from gpt_tune.jobs.prepare import new_run_id, prepare
from gpt_tune.jobs.present import jobs_json, reason_text, run_json, stale_seconds, submit_json
from gpt_tune.jobs.reasons import PendingReason, explain
from gpt_tune.jobs.refreshing import refresh
from gpt_tune.jobs.submitting import submit
from gpt_tune.ledger import RunRecord

__all__ = [
    "PendingReason",
    "RunRecord",
    "cancel",
    "explain",
    "find",
    "jobs_json",
    "new_run_id",
    "prepare",
    "reason_text",
    "refresh",
    "refresh_interval",
    "resolved_log_paths",
    "run_json",
    "stale_seconds",
    "submit",
    "submit_json",
]
