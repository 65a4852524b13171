"""Owns a real Slurm on one machine for tests: 8 nodes x 8 B200, 4 nodes x 8 H100, one of them drained."""

from tests.cluster.private import SlurmCluster, accounting_missing_reason, missing_reason, start, stop_folder
from tests.cluster.processes import wait_until

__all__ = [
    "SlurmCluster",
    "accounting_missing_reason",
    "missing_reason",
    "start",
    "stop_folder",
    "wait_until",
]
