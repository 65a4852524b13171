"""Owns one look at the queue as plain data: what `queue --json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpt_tune.jsonable import as_json
from gpt_tune.workflows.queue import Offer, QueueView

SCHEMA = "gpt-tune/queue/1"


def queue_json(view: QueueView, found: Sequence[Offer] = ()) -> dict[str, Any]:
    """One look as plain data."""
    return {
        "schema": SCHEMA,
        "as_of": view.as_of,
        "cluster": view.cluster.name,
        "queue": [
            {
                "job_id": j.status.job_id,
                "run_id": j.run_id,
                "sweep": j.sweep or None,
                "name": j.status.name,
                "state": j.status.state,
                "partition": j.status.partition,
                "nodes": j.status.nodes,
                "gpus": j.status.gpus,
                "reason": j.status.reason or None,
                "why": j.why or None,
                "starts": j.starts or None,
                "fix": j.fix or None,
                "expected_start": j.status.expected_start,
                "started_at": j.status.started_at,
            }
            for j in view.jobs
        ],
        "free": [as_json(f) for f in view.free],
        "offers": [{**as_json(o), "words": o.wanted.words()} for o in found],
    }
