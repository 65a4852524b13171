"""Samples of a job's nodes on a cluster behind ssh: one step started there, one command fetches all nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_tune import jobs
from gpt_tune.ledger import Ledger
from gpt_tune.schedulers.ssh_slurm import SshSlurm
from gpt_tune.workflows.nodes import sampling
from tests.cluster import wait_until
from tests.jobs.helpers import prepared, refreshed_until, rendered
from tests.nodes.test_sampling import node_processes
from tests.ssh.test_cluster import laptop

__all__ = ["laptop"]
pytestmark = pytest.mark.slurm


def test_samples_from_far_away(laptop: SshSlurm, tmp_path: Path) -> None:
    ledger = Ledger.open()
    spec = prepared(laptop, tmp_path / "runs")
    record = jobs.submit(spec, rendered(spec, "sleep 600", "--nodes=2"), laptop, ledger)
    running = refreshed_until(ledger, record.run_id, lambda r: r.state == "RUNNING")
    started = sampling.start(running, 1.0)
    wait_until(lambda: len(started.poll()) == running.nodes or started.problem != "", 60, "the samples")
    assert started.problem == ""
    assert all(s.memory_total_gib for s in started.poll().values())
    assert len(node_processes(started.folder)) == running.nodes
    again = sampling.attach(running)
    assert set(again.poll()) == set(started.poll())
    jobs.cancel(record.run_id, ledger)
    wait_until(lambda: not node_processes(started.folder), 60, "the end with the job")
