"""Owns the one interface to a cluster's commands and files, and the records that cross it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gpt_tune.errors import SchedulerError

# What a signal is sent to: the job script alone (which passes on what it should), or every process of the job.
SignalTarget = Literal["script", "all"]
State = Literal[
    "PENDING", "RUNNING", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT",
    "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "SUSPENDED", "UNKNOWN",
]  # fmt: skip
ENDED: frozenset[str] = frozenset(
    {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED"}
)


class Unreachable(SchedulerError):
    """The scheduler gave no answer, so nothing is known; the last good state still stands."""


class SubmitUnknown(SchedulerError):
    """A submission was sent and its answer got lost: the job may exist. Never submit again blindly."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one partition that are alike. gpu is the scheduler's own type word ("b200"), "" when untyped."""

    nodes: int
    nodes_by_state: Mapping[str, int]  # idle, mixed, allocated, drained, down, other
    gpu: str
    gpus_per_node: int
    gpus_free: int
    cpus_per_node: int
    memory_mib_per_node: int
    features: tuple[str, ...] = ()
    names: str = ""  # a hostlist


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition with its limits. Times are seconds, None means unlimited or unset."""

    name: str
    default: bool
    state: str
    time_limit_seconds: int | None
    default_time_seconds: int | None
    groups: tuple[NodeGroup, ...] = ()
    max_nodes: int | None = None

    @property
    def gpus_total(self) -> int:
        return sum(g.nodes * g.gpus_per_node for g in self.groups)

    @property
    def gpus_free(self) -> int:
        return sum(g.gpus_free for g in self.groups)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a scheduler offers. scheduler: "slurm" | "local". version as the scheduler prints it."""

    name: str
    scheduler: str
    version: str
    partitions: tuple[Partition, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "scheduler": self.scheduler,
            "version": self.version,
            "notes": list(self.notes),
            "partitions": [
                {
                    "name": p.name,
                    "default": p.default,
                    "state": p.state,
                    "time_limit_seconds": p.time_limit_seconds,
                    "default_time_seconds": p.default_time_seconds,
                    "max_nodes": p.max_nodes,
                    "gpus_total": p.gpus_total,
                    "gpus_free": p.gpus_free,
                    "groups": [
                        {
                            "nodes": g.nodes,
                            "nodes_by_state": dict(g.nodes_by_state),
                            "gpu": g.gpu,
                            "gpus_per_node": g.gpus_per_node,
                            "gpus_free": g.gpus_free,
                            "cpus_per_node": g.cpus_per_node,
                            "memory_mib_per_node": g.memory_mib_per_node,
                            "features": list(g.features),
                            "names": g.names,
                        }
                        for g in p.groups
                    ],
                }
                for p in self.partitions
            ],
        }


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """A job script already in its run folder, and what only the scheduler needs to know.

    script: path of the job script; the #SBATCH lines in it hold everything else.
    token: unique mark put in the job's comment, by which a lost answer is found again.
    """

    script: str
    run_dir: str
    name: str
    token: str
    environment: Mapping[str, str] = field(default_factory=dict)
    extra_arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job as the scheduler sees it. Time stamps are RFC 3339 UTC or None. gpus None when unknown.

    log_paths may hold the scheduler's patterns. expected_start: only while pending, when it has an estimate.
    earlier_seconds: how long the same job ran before it was requeued; None when it did, and nobody knows how long.
    """

    job_id: str
    name: str
    state: State
    reason: str = ""
    nodes: int = 0
    node_list: str = ""
    gpus: int | None = None
    partition: str = ""
    submitted_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    exit_code: int | None = None
    comment: str = ""
    log_paths: tuple[str, ...] = ()
    work_dir: str = ""
    expected_start: str | None = None
    earlier_seconds: float | None = 0.0


class Files(Protocol):
    """Files of the cluster's shared file system, local or at the far end of ssh. UserError says what failed."""

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Create or replace whole: a reader sees the old content or the new."""
        ...

    def touch(self, path: str, mode: int = 0o600) -> None:
        """Create an empty file unless there is one."""
        ...

    def make_dir(self, path: str, mode: int = 0o700) -> None:
        """Create with its parents; fine when it is there."""
        ...

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes: ...
    def size(self, path: str) -> int | None:
        """Bytes, or None when there is no such file."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty when there is no such folder."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder; fine when it is gone or not empty."""
        ...

    def set_group(self, path: str, group: str) -> None:
        """Give a folder to a Unix group, which everything made in it then belongs to."""
        ...

    def check_writable(self, path: str) -> None:
        """UserError unless a folder `path` exists or could be made, and files in it. Leaves nothing behind."""
        ...


class Scheduler(Protocol):
    """Commands of a cluster. Every method may raise SchedulerError; none retries a submit.

    cluster: the name under which `clusters.connect` finds it. calls: controller calls made so far.
    """

    kind: str  # "slurm_cli" | "local"
    files: Files
    calls: int

    @property
    def cluster(self) -> str: ...

    def discover(self) -> Cluster: ...

    def check_reachable(self) -> None:
        """Unreachable unless the scheduler answers now."""
        ...

    def submit(self, request: SubmitRequest) -> str:
        """Submit once; the job id. SchedulerError when refused, SubmitUnknown when the answer got lost."""
        ...

    def statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """One batched call for all jobs. A job the scheduler has forgotten is missing from the answer."""
        ...

    def one(self, job_id: str) -> JobStatus | None:
        """One job as cheaply as can be: polling.ONE_JOB_REQUESTS. None when the scheduler has forgotten it."""
        ...

    def history(self, job_ids: Sequence[str], since: str) -> dict[str, JobStatus]:
        """Ended jobs from accounting, looked for from `since` (RFC 3339) on; empty where there is none."""
        ...

    def my_jobs(self) -> list[JobStatus]:
        """All of this user's jobs, also those not submitted here; one call."""
        ...

    def still_submitting(self, run_dir: str) -> bool:
        """Whether a submission of a script in `run_dir` is still under way on this machine."""
        ...

    def running_since(self) -> str | None:
        """When the controller was last started (RFC 3339), None when unknown."""
        ...

    def cancel(self, job_id: str) -> None:
        """Ask for the end of a job; fine when it has ended already."""
        ...

    def hold(self, job_id: str) -> None:
        """Keep a waiting job from starting until it is released; SchedulerError when it does not wait."""
        ...

    def release(self, job_id: str) -> None:
        """Let a held job start; fine when it is not held."""
        ...

    def requeue(self, job_id: str) -> None:
        """End a running job and put it back into the queue; SchedulerError when it may not be."""
        ...

    def signal(self, job_id: str, name: str, target: SignalTarget = "script") -> None:
        """Send a signal (USR1) to a running job. It need not end by that."""
        ...
