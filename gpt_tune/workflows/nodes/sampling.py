"""Owns the sampler of a job's nodes: starting it through one step of the job, reading what it writes, ending it.

One `srun --overlap` starts one small process a node; the controller is asked once, for that step. The samples
are files in the run folder, followed like a log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gpt_tune import clusters
from gpt_tune.errors import UserError
from gpt_tune.ledger import RunRecord
from gpt_tune.logs.clean import clean_line
from gpt_tune.schedulers import local
from gpt_tune.schedulers.base import Scheduler
from gpt_tune.schedulers.commands import Commands
from gpt_tune.workflows.nodes import sampler
from gpt_tune.workflows.nodes.samples import NodeSample, SampleReader
from gpt_tune.workflows.remote_logs import connection_to
from gpt_tune.workflows.watching.pace import epoch

INTERVAL_SECONDS = 10.0
LEAST_SECONDS, MOST_SECONDS = 1.0, 3600.0
FRESH = 3.0  # intervals: a sample younger than that means that a sampler runs
START_SECONDS = 60.0  # how long a step may take to start before its silence is a problem
_LAUNCH_SECONDS = 20.0
_FETCH_SECONDS = 30.0
_MOST_BYTES = 16 * 1024 * 1024
# A few lines of each node, so that no Xid is missed between two looks.
_NEWEST = 'for file in "$1"/*.jsonl; do [ ! -r "$file" ] || tail -n 6 "$file"; done'
# Starts a program that outlives this shell, its words kept for whoever wonders. $1 is where they go.
_DETACH = 'words=$1; shift; command -v setsid >/dev/null && set -- setsid "$@"; "$@" </dev/null >/dev/null 2>"$words" &'


class Sampling:
    """What the samplers of one job write. poll() about as often as a log is polled."""

    def __init__(
        self,
        record: RunRecord,
        scheduler: Scheduler,
        started: bool,
        away: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """away: the files are at the far end of ssh; one command fetches the newest lines of all nodes."""
        self.folder = folder_of(record)
        self.interval = INTERVAL_SECONDS
        self._files = scheduler.files
        self._commands: Commands | None = scheduler.commands if away else None  # type: ignore[attr-defined]
        self._samples = SampleReader("" if away else f"{self.folder}/*.jsonl")
        self._fetched = float("-inf")
        self._clock = clock
        self._started = clock() if started else None
        self.problem = ""

    def poll(self) -> dict[str, NodeSample]:
        """The newest sample by node. `problem` says why there is none, where that is known."""
        if self._commands is not None and self._clock() - self._fetched >= self.interval / 2:
            self._fetched = self._clock()
            done = self._commands.run(["sh", "-c", _NEWEST, "sh", self.folder], _FETCH_SECONDS)
            self._samples.take(done.stdout[:_MOST_BYTES])
        found = self._samples.poll()
        self.problem = "" if self.fresh else self._why()
        return found

    @property
    def fresh(self) -> bool:
        """Whether a sampler writes now."""
        newest = max((s.time for s in self._samples.latest.values()), default=0.0)
        return self._clock() - newest <= FRESH * self.interval + 1.0

    def stop(self) -> None:
        """Ends the samplers within a second or two; their samples stay."""
        self._files.write(f"{self.folder}/stop", b"")

    def _why(self) -> str:
        if self._started is None or self._samples.latest:
            return ""  # nobody asked for one, or it ran and ended with the job
        words = said(self._files.read(f"{self.folder}/words", 0, 4096) if self._has_words() else b"")
        if words:
            return f"The sampler could not run: {words}"
        if self._clock() - self._started > START_SECONDS:
            return (
                f"The sampler has said nothing for {START_SECONDS:.0f} s: its step may be waiting to start."
            )
        return ""

    def _has_words(self) -> bool:
        return bool(self._files.size(f"{self.folder}/words"))


def start(
    record: RunRecord, interval: float = INTERVAL_SECONDS, scheduler: Scheduler | None = None
) -> Sampling:
    """Starts one sampler a node, unless they run already. UserError for a run that is not running."""
    if not LEAST_SECONDS <= interval <= MOST_SECONDS:
        nearest = min(max(interval, LEAST_SECONDS), MOST_SECONDS)
        raise UserError(f"Samples every {interval:g} s are not possible.", f"Nearest: {nearest:g} s.")
    if record.state != "RUNNING" or record.job_id is None:
        raise UserError(
            f"{record.run_id} is {record.state}: only the nodes of a running job can be sampled.",
            f"gpt-tune nodes {record.run_id} shows what its log says of them.",
        )
    scheduler = scheduler or clusters.connect(record.cluster)
    running = _opened(record, scheduler, started=False)
    running.interval = interval
    running.poll()
    if running.fresh:
        return running
    folder, files = running.folder, scheduler.files
    files.make_dir(folder)
    files.remove(f"{folder}/stop")
    files.remove(f"{folder}/words")
    files.write(f"{folder}/sampler.py", Path(sampler.__file__).read_bytes())
    _launch(scheduler, [*_step_of(record, folder), *_options(record, interval)], f"{folder}/words")
    found = _opened(record, scheduler, started=True)
    found.interval = interval
    return found


def attach(record: RunRecord, scheduler: Scheduler | None = None) -> Sampling:
    """Only reads what samplers of this job have written, or will."""
    return _opened(record, scheduler or clusters.connect(record.cluster), started=False)


def folder_of(record: RunRecord) -> str:
    """Where a job's samples are; every job of a run has its own."""
    return f"{record.run_dir}/nodes-{record.job_id}"


def said(raw: bytes) -> str:
    """What a failed launch said, in one harmless line."""
    lines = [clean_line(line).strip() for line in raw.splitlines()]
    return " ".join(line for line in lines if line)[:400]


def _opened(record: RunRecord, scheduler: Scheduler, started: bool) -> Sampling:
    away = record.cluster != clusters.LOCAL and connection_to(record.cluster) is not None
    return Sampling(record, scheduler, started, away)


def _step_of(record: RunRecord, folder: str) -> list[str]:
    """The command that runs one sampler a node, up to its folder."""
    script = ["-I", "-S", f"{folder}/sampler.py", folder]
    if record.scheduler == "local":
        return ["python3", *script]
    nodes = max(1, record.nodes)
    return [
        "srun", f"--jobid={record.job_id}", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}",
        "--ntasks-per-node=1", "--cpus-per-task=1", "--job-name=gpt-tune-nodes", "--input=none", "--output=none",
        "--mpi=none", "--kill-on-bad-exit=0", "python3", *script,
    ]  # fmt: skip


def _options(record: RunRecord, interval: float) -> list[str]:
    options = ["--interval", f"{interval:g}"]
    since = epoch(record.started_at) if record.started_at else None
    if since is not None:
        options += ["--since", f"{since:.0f}"]
    if record.scheduler == "local":
        pid = local.supervisor_of(record.job_id or "")
        if pid is None:
            raise UserError(
                f"{record.job_id} does not run on this machine.", "Ask on the machine it runs on."
            )
        options += ["--pid", str(pid)]
    return options


def _launch(scheduler: Scheduler, argv: Sequence[str], words: str) -> None:
    commands: Commands = scheduler.commands  # type: ignore[attr-defined]
    done = commands.run(["sh", "-c", _DETACH, "sh", words, *argv], _LAUNCH_SECONDS)
    if done.returncode != 0:
        raise UserError(f"The sampler could not be started: {said(done.words.encode())}.", "Try again.")
